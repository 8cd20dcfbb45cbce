# SPDX-License-Identifier: Apache-2.0
"""Tables of an evaluation, in Markdown. One holds what was measured or what was predicted, never both; quotients of the
two stand in a table of their own, whose head says so. A table of many rows is folded up."""
import re

from evaluation import (PHASES, PLACEMENTS, WHAT, all_worlds, by_cluster, by_world, over_owner, placements_of, time_of,
                        tokens_of)
from figures import NONE, digits, duration, percent, plural, rate, ratio, scientific, size, whole
from findings import CONTENDERS, excess, losses_among, predicted_gains, ratios_by_nodes, rounds_overlap

ROWS_IN_SIGHT = 20


def cell(value):
    """A text as one line that is a text only: no tag, no link, no column's end."""
    line = ' '.join(str(value).split()) or NONE
    line = line.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')
    return re.sub(r'([\\`*|\[\]])', r'\\\1', line)


def code(value):
    """A command, likewise."""
    line = ' '.join(value.split()).replace('`', "'").replace('|', '\\|')
    return f'`{line}`'


def table(head, rows, texts=1):
    """Rows of cells; the first `texts` columns are words, the others figures. Empty without rows."""
    if not rows:
        return ''
    assert all(len(row) == len(head) for row in rows)
    lines = [head, ['---'] * texts + ['---:'] * (len(head) - texts)] + rows
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines) + '\n'


def folded(summary, text):
    return f'<details>\n<summary>{summary}</summary>\n\n{text}\n</details>\n'


def long_table(summary, head, rows, texts=1):
    text = table(head, rows, texts)
    return text if len(rows) <= ROWS_IN_SIGHT else folded(f'{summary}: {plural(len(rows), "row", "rows")}', text)


NAMES = {'nodes': 'nodes', 'ranks_per_node': 'ranks a node', 'context': 'context', 'sequences': 'sequences'}


def varying(worlds, always):
    """Fields of a world that its rows show: those that are always wanted, and those that tell two rows apart."""
    return [field for field in NAMES
            if field in always or len({getattr(world, field) for world in worlds}) > 1]


def place_cells(world, fields):
    return [whole(getattr(world, field)) for field in fields]


def times_table(worlds, what, always):
    """Median times of each placement, and what they are as a multiple of owner's."""
    fields, names = varying(worlds, always), placements_of(worlds)
    head = ([NAMES[field] for field in fields] + [f'{name} ms' for name in names] +
            [f'{name} / owner' for name in names if name != 'owner'])
    return table(head, [place_cells(world, fields) + [digits(time_of(group.get(name), what)) for name in names] +
                        [ratio(over_owner(group, name, what)) for name in names if name != 'owner']
                        for world, group in worlds.items()], texts=0)


def short_table(measured):
    """What the two contenders take over owner, a column for each number of nodes."""
    worlds = by_world(measured, 'nodes')
    counts = sorted({world.nodes for world in worlds})
    rows = []
    for what, word in WHAT.items():
        for placement in CONTENDERS:
            for (ranks, _, _), points in ratios_by_nodes(worlds, placement, what).items():
                rows.append([f'{word}, {placement} / owner', whole(ranks)] +
                            [ratio(dict(points).get(nodes)) for nodes in counts])
    return table(['', 'ranks a node'] + [plural(nodes, 'node', 'nodes') for nodes in counts], rows)


def bytes_table(worlds):
    fields = varying(worlds, ('nodes', 'ranks_per_node'))
    head = ([NAMES[field] for field in fields] + ['placement'] + list(PHASES) +
            ['card of the busiest node', 'at rest', 'peak', 'loss, last', 'loss differs'])
    rows = [place_cells(world, fields) + [name] + [size(point['bytes'][phase]) for phase in PHASES] +
            [size(point[key]) for key in ('card_bytes', 'rest_bytes', 'peak_bytes')] +
            [f'{point["loss_last"]:.4f}', scientific(point['loss_difference'])]
            for world, group in worlds.items() for name in PLACEMENTS if (point := group.get(name))]
    return head, rows, len(fields) + 1


def largest(worlds):
    """The world of most ranks, of these the one of most nodes."""
    most = max(worlds, key=lambda world: (world.nodes * world.ranks_per_node, world.nodes), default=None)
    return {most: worlds[most]} if most else {}


def tokens_table(worlds):
    """The whole step over context and sequences."""
    fields = varying(worlds, ('context', 'sequences'))
    others = [name for name in placements_of(worlds) if name != 'owner']
    head = ([NAMES[field] for field in fields] + ['tokens of a step', 'owner ms', 'of it in the optimizer'] +
            [f'{name} / owner' for name in others])
    rows = []
    for world, group in worlds.items():
        owner = group.get('owner')
        rows.append(place_cells(world, fields) + [whole(tokens_of(group)), digits(time_of(owner, 'step_ms')),
                    percent(owner and time_of(owner, 'optimizer_ms') / time_of(owner, 'step_ms'))] +
                    [ratio(over_owner(group, name, 'step_ms')) for name in others])
    return table(head, rows, texts=0)


def processors_table(worlds, cores):
    """CPU time of all ranks over what the machine's cores had in the time of the optimizer's step, and of all of it."""
    cpu_of = {'optimizer step': ('optimizer_cpu_ms', 'optimizer_ms'), 'whole step': ('cpu_ms', 'step_ms')}

    def share(world, name, head):
        point, (cpu, what) = worlds[world].get(name), cpu_of[head]
        return percent(point and point[cpu] / (time_of(point, what) * cores))
    return values_table(worlds, share, list(cpu_of))


def loss_cells(loss):
    return [digits(time_of(loss.owner, loss.what)), digits(time_of(loss.other, loss.what)), ratio(excess(loss))]


LOSS_CELLS = ['owner ms', 'its ms', "owner's / its"]


def measured_losses(measured):
    """head, rows: each point at which another placement is faster than owner."""
    rows = [[loss.placement, WHAT[loss.what], *place_cells(loss.place, NAMES), *loss_cells(loss),
             'yes' if rounds_overlap(loss) else 'no'] for loss in losses_among(all_worlds(measured))]
    return ['faster is', 'in the', *NAMES.values(), *LOSS_CELLS, 'rounds overlap'], rows


def predicted_losses(predicted):
    rows = [[cell(loss.place.model), loss.placement, WHAT[loss.what], whole(loss.place.gpus), whole(loss.place.tokens),
             *loss_cells(loss), 'yes' if loss.other['fits'] else 'no'] for loss in losses_among(by_cluster(predicted))]
    return ['model', 'faster is', 'in the', 'GPUs', 'tokens of a rank', *LOSS_CELLS, 'it fits'], rows


def values_table(worlds, value_of, heads):
    """A row for each world, a column for each placement and each of the heads; value_of: (world, placement, head)."""
    fields, names = varying(worlds, ('nodes', 'ranks_per_node')), placements_of(worlds)
    return table([NAMES[field] for field in fields] + [f'{name}, {head}' for head in heads for name in names],
                 [place_cells(world, fields) + [value_of(world, name, head) for head in heads for name in names]
                  for world in worlds], texts=0)


def peaks_table(measured):
    """The peaks that plans told, which measured points carry along."""
    worlds = all_worlds(measured)
    return values_table(worlds, lambda world, name, _: size(worlds[world].get(name, {}).get('peak_bytes_predicted')),
                        ['peak'])


def quotients_table(evaluation, what):
    """Predicted over measured times, where both are there."""
    here, there = all_worlds(evaluation['predicted_here']), all_worlds(evaluation['measured'])

    def quotient(world, name, _):
        predicted, measured = here[world].get(name), there[world].get(name)
        return ratio(predicted and measured and time_of(predicted, what) / time_of(measured, what))
    return values_table({world: here[world] for world in here if world in there}, quotient, ['predicted / measured'])


def peak_quotients_table(measured):
    worlds = all_worlds(measured)

    def quotient(world, name, _):
        point = worlds[world].get(name, {})
        peak = point.get('peak_bytes_predicted')
        return ratio(peak / point['peak_bytes'] if peak and point['peak_bytes'] else None)
    return values_table(worlds, quotient, ['predicted / counted'])


def gains_table(predicted, placement, what):
    """A row for each model and tokens, a column for each number of GPUs."""
    gains = predicted_gains(predicted, placement, what)
    counts = sorted({point['gpus'] for point in predicted})
    return table(['model', 'tokens of a rank'] + [f'{whole(gpus)} GPUs' for gpus in counts],
                 [[cell(model), whole(tokens)] + [ratio(row.get(gpus)) for gpus in counts]
                  for (model, tokens), row in gains.items()])


def clusters_table(groups):
    """Of one model: times, ratios and memory of each placement."""
    names = placements_of(groups)
    head = (['GPUs', 'tokens of a rank'] + [f'{name}, {word} ms' for word in ('optimizer', 'step') for name in names])
    return table(head, [[whole(cluster.gpus), whole(cluster.tokens)] +
                        [digits(time_of(group.get(name), what)) for what in ('optimizer_ms', 'step_ms')
                         for name in names] for cluster, group in groups.items()], texts=0)


def memory_table(groups):
    """Peak of the worst rank, what it has at rest, and whether that fits."""
    names = placements_of(groups)

    def told(point):
        if point is None:
            return NONE
        return f'{size(point["rest_bytes"])}, {size(point["peak_bytes"])}' + ('' if point['fits'] else ': too much')
    return table(['GPUs', 'tokens of a rank'] + names,
                 [[whole(cluster.gpus), whole(cluster.tokens)] + [told(group.get(name)) for name in names]
                  for cluster, group in groups.items()], texts=0)


def advice_table(groups):
    """Of one model: what `mxs plan --compare` advises, which stands with one of the placements."""
    rows = []
    for cluster, group in groups.items():
        advices = dict.fromkeys(point['advice'] for point in group.values() if 'advice' in point)
        rows += [[whole(cluster.gpus), whole(cluster.tokens), cell(advice)] for advice in advices]
    return table(['GPUs', 'tokens of a rank', 'advice'], rows, texts=3)


def factors_table(evaluation):
    factors = evaluation.get('calibration', {}).get('factors', {})
    return table(['algorithm', 'factor'], [[cell(name), ratio(factor)] for name, factor in factors.items()])


def uncalibrated_table(predicted):
    """What times would be without the factors, over what they are with them: the least and the most of all clusters."""
    rows = []
    for name in PLACEMENTS:
        points = [point for point in predicted if point['placement'] == name and 'uncalibrated' in point]
        quotients = [sorted(point['uncalibrated'][what] / point[what] for point in points) for what in WHAT]
        rows += [[name] + [ratio(each[place]) for each in quotients for place in (0, -1)]] if points else []
    return table(['without / with the factors'] + [f'{word}, {end}' for word in WHAT.values()
                                                   for end in ('least', 'most')], rows)


def facts_table(evaluation):
    """The machine, what ran there, and how."""
    machine, model, settings = (evaluation[key] for key in ('machine', 'model', 'settings'))
    virtual = f', virtual ({machine["virtual"]})' if machine['virtual'] else ''
    memory = f', {size(machine["memory_bytes"])} of memory' if machine['memory_bytes'] else ''
    rows = [
        ['date', evaluation['date'] + (', a quick run: fewer worlds, rounds and steps' if evaluation['quick'] else '')],
        ['machine', f'{machine["processor"] or "a processor without a name"}, '
                    f'{plural(machine["cores"], "core", "cores")}{virtual}{memory}, kernel {machine["kernel"]}'],
        ['instructions', ', '.join(machine['instructions'])],
        ['versions', ', '.join(f'{name} {told}' for name, told in evaluation['versions'].items() if told)],
        ['links', f'{rate(settings["rate_bits"])} in each direction of each node'],
        ['model', f'{plural(model["layers"], "layer", "layers")}, width {model["width"]}, '
                  f'{plural(model["heads"], "head", "heads")}, {model["dtype"]}; {whole(model["parameters"])} '
                  f'parameters, {whole(model["matrix_parameters"])} of them in {whole(model["matrices"])} matrices'],
        ['optimizer', f'Muon, {plural(model["newton_schulz_steps"], "Newton-Schulz step", "Newton-Schulz steps")}'],
        ['each point', plural(settings['rounds'], 'round', 'rounds') + ' of ' +
                       plural(settings['steps'], 'step', 'steps')],
        ['all of it took', duration(evaluation['seconds'])],
    ]
    return table(['', ''], [[name, cell(told)] for name, told in rows] + [['command', code(evaluation['command'])]],
                 texts=2)
