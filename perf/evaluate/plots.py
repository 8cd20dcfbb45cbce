# SPDX-License-Identifier: Apache-2.0
"""Which pictures an evaluation has, and what is in them. A picture holds what was measured or what was predicted."""
from chart import Bar, Line, Panel, bars_chart, lines_chart
from evaluation import PHASES, PLACEMENTS, WHAT, by_cluster, by_world, over_owner, placements_of, time_of, tokens_of
from figures import digits, plural, ratio, size


def ranks_text(count):
    return f'{plural(count, "rank", "ranks")} a node'


def line_of(placement, points, told, hollow=frozenset()):
    points = sorted((x, y) for x, y in points if y)
    return Line(placement, PLACEMENTS.index(placement), points, told(points[-1][1]) if points else '', hollow)


def node_panels(measured, figure, told, unit):
    """A panel for each number of ranks a node, over nodes; figure: (group, placement) -> number or None."""
    worlds = by_world(measured, 'nodes')
    panels = []
    for ranks, context, sequences in dict.fromkeys((w.ranks_per_node, w.context, w.sequences) for w in worlds):
        groups = {world.nodes: group for world, group in worlds.items()
                  if (world.ranks_per_node, world.context, world.sequences) == (ranks, context, sequences)}
        lines = [line_of(name, [(nodes, figure(group, name)) for nodes, group in groups.items()], told)
                 for name in PLACEMENTS]
        panels.append(Panel(ranks_text(ranks), unit, 'nodes', [line for line in lines if line.points]))
    return [panel for panel in panels if panel.lines]


def speedup(evaluation):
    panels = node_panels(evaluation['measured'], lambda group, name: over_owner(group, name, 'optimizer_ms'), ratio,
                         "times owner's")
    return panels and lines_chart("Measured: optimizer step as a multiple of owner's", panels, 2, shared=True)


def optimizer(evaluation):
    panels = node_panels(evaluation['measured'], lambda group, name: time_of(group.get(name), 'optimizer_ms'), digits,
                         'ms')
    return panels and lines_chart('Measured: optimizer step', panels, 2, log=True, shared=True)


def tokens(evaluation):
    """A panel for each number of sequences; contexts give its points."""
    worlds = by_world(evaluation['measured'], 'sequences')
    panels = []
    for ranks, nodes, count in dict.fromkeys((w.ranks_per_node, w.nodes, w.sequences) for w in worlds):
        groups = [group for world, group in worlds.items()
                  if (world.ranks_per_node, world.nodes, world.sequences) == (ranks, nodes, count)]
        lines = [line_of(name, [(tokens_of(group), over_owner(group, name, 'step_ms')) for group in groups], ratio)
                 for name in PLACEMENTS]
        panels.append(Panel(f'{plural(count, "sequence", "sequences")} in a micro-batch', "times owner's",
                            'tokens of a step, all ranks together', [line for line in lines if line.points]))
    panels = [panel for panel in panels if panel.lines]
    return panels and lines_chart("Measured: whole step as a multiple of owner's", panels, 2, shared=True)


def wire(evaluation):
    """Of the worlds of most nodes, what all ranks send in a step."""
    worlds = by_world(evaluation['measured'], 'nodes')
    most = max((world.nodes for world in worlds), default=0)
    panels = []
    for world, group in worlds.items():
        if world.nodes == most:
            bars = [Bar(name, [group[name]['bytes'][phase] for phase in PHASES],
                        f'{size(sum(group[name]["bytes"].values()))}, step {size(group[name]["bytes"]["step"])}')
                    for name in placements_of({world: group})]
            panels.append((f'{plural(world.nodes, "node", "nodes")}, {ranks_text(world.ranks_per_node)}', bars))
    return panels and bars_chart('Measured: bytes sent by all ranks in one step', list(PHASES), panels)


def predicted(evaluation, what, each_tokens):
    """A panel for each model, over GPUs; each_tokens: for each number of tokens, too, else for the fewest."""
    groups = by_cluster(evaluation['predicted'])
    fewest = {}
    for cluster in groups:
        fewest.setdefault(cluster.model, cluster.tokens)
    panels, hollow = [], False
    for model, count in dict.fromkeys((cluster.model, cluster.tokens) for cluster in groups):
        if each_tokens or count == fewest[model]:
            own = {cluster.gpus: group for cluster, group in groups.items()
                   if (cluster.model, cluster.tokens) == (model, count)}
            lines = predicted_lines(own, what)
            hollow = hollow or any(line.hollow for line in lines)
            panels.append(Panel(f'{model}, {count:,} tokens of a rank', 'ms', 'GPUs', lines))
    title = f'Predicted, not run: {WHAT[what]} over GPUs' + (' (hollow: does not fit)' if hollow else '')
    return panels and lines_chart(title, panels, 2)


def predicted_lines(groups, what):
    """groups: GPUs -> placement -> point."""
    lines = [line_of(name, [(gpus, time_of(group.get(name), what)) for gpus, group in groups.items()], digits,
                     frozenset(gpus for gpus, group in groups.items() if name in group and not group[name]['fits']))
             for name in PLACEMENTS]
    return [line for line in lines if line.points]


def pictures(evaluation):
    """File name -> SVG, None where there is nothing to draw."""
    drawn = {'speedup.svg': speedup(evaluation), 'optimizer.svg': optimizer(evaluation),
             'tokens.svg': tokens(evaluation), 'bytes.svg': wire(evaluation),
             'predicted-optimizer.svg': predicted(evaluation, 'optimizer_ms', False),
             'predicted-step.svg': predicted(evaluation, 'step_ms', True)}
    return {name: drawing or None for name, drawing in drawn.items()}
