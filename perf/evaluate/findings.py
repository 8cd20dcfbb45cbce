# SPDX-License-Identifier: Apache-2.0
"""What follows from the figures, in sentences: whether owner gains with nodes, and where it loses. Computed, so that a
run in which it comes out the other way says the other thing."""
import collections
import re

from evaluation import WHAT, all_worlds, by_cluster, by_world, over_owner, placements_of, time_of, tokens_of
from figures import listed, percent, plural, ratio, whole

CONTENDERS = ('slices', 'alltoall')  # the recipe that one finds most often, and the stronger one

# what: step_ms or optimizer_ms; owner and other are points.
Loss = collections.namedtuple('Loss', 'place placement what owner other')


def losses_among(groups):
    """Where another placement has the smaller median, the largest loss first."""
    found = [Loss(place, placement, what, group['owner'], point)
             for place, group in groups.items() for placement, point in group.items()
             for what in WHAT if (over_owner(group, placement, what) or 1) < 1]
    return sorted(found, key=excess, reverse=True)


def excess(loss):
    """Owner's time over the other's: above 1."""
    return time_of(loss.owner, loss.what) / time_of(loss.other, loss.what)


def rounds_overlap(loss):
    """A round of owner's was as fast as one of the other's."""
    return loss.owner[loss.what]['min'] <= loss.other[loss.what]['max']


def losses_in_short(measured):
    """At how many points owner loses, and where it does most."""
    worlds = all_worlds(measured)
    losses = losses_among(worlds)
    count = sum(name != 'owner' for group in worlds.values() if 'owner' in group for name in group)
    if not count:
        return ''
    where = 'in the optimizer step or in the whole one'
    if not losses:
        return f'At none of {plural(count, "point", "points")} another placement is faster {where}.'
    points, most = {(loss.place, loss.placement) for loss in losses}, losses[0]
    return (f'At {len(points)} of {plural(count, "point", "points")} another placement is faster {where}. Most of all '
            f'{most.placement}, in the {WHAT[most.what]} on {plural(most.place.nodes, "node", "nodes")} of '
            f'{plural(most.place.ranks_per_node, "rank", "ranks")}: there owner takes {ratio(excess(most))} times as '
            f'long.')


def course(values, places):
    """How ratios go over places, in a clause: that it rises throughout, or where it does not."""
    falls = [place for place in range(1, len(values)) if values[place] <= values[place - 1]]
    if len(values) < 2:
        return 'there is one such point only'
    if not falls:
        return 'it rises throughout'
    if len(falls) == len(values) - 1:
        return 'it does not rise anywhere'
    return 'it does not rise throughout: ' + listed(
        f'from {places[place - 1]} to {places[place]} it goes from {ratio(values[place - 1])} to {ratio(values[place])}'
        for place in falls)


def ratios_by_nodes(worlds, placement, what):
    """ranks_per_node, context, sequences -> [(nodes, ratio)]."""
    found = {}
    for world, group in worlds.items():
        value = over_owner(group, placement, what)
        if value is not None:
            found.setdefault((world.ranks_per_node, world.context, world.sequences), []).append((world.nodes, value))
    return found


def gains_by_nodes(measured, placement, what):
    """One sentence for each number of ranks a node; or that there is nothing to say."""
    sentences = []
    for (ranks, _, _), points in ratios_by_nodes(by_world(measured, 'nodes'), placement, what).items():
        nodes, values = zip(*points)
        sentences.append(f'with {plural(ranks, "rank", "ranks")} a node, on {listed(map(str, nodes))} '
                         f'{"node" if nodes == (1,) else "nodes"}, {listed(map(ratio, values))} '
                         f'({course(values, nodes)})')
    if not sentences:
        return f'Of the {WHAT[what]} under {placement} beside owner there are no figures.'
    return f"The {WHAT[what]} under {placement} takes, as a multiple of owner's: {'; '.join(sentences)}."


def gains_by_tokens(measured):
    """How the whole step's ratio goes with tokens of a step."""
    worlds = by_world(measured, 'sequences')
    sentences = []
    for placement in [name for name in placements_of(worlds) if name != 'owner']:
        points = sorted((tokens_of(group), value) for group in worlds.values()
                        if (value := over_owner(group, placement, 'step_ms')) is not None)
        if not points:
            continue
        (least, first), (most, last) = points[0], points[-1]
        if least == most:
            sentences.append(f'{placement} {ratio(first)} at {whole(least)} tokens')
        else:
            sentences.append(f'{placement} {ratio(first)} at {whole(least)} tokens of a step and {ratio(last)} at '
                             f'{whole(most)}')
    return "The whole step, as a multiple of owner's: " + '; '.join(sentences) + '.' if sentences else ''


def spread_of_rounds(measured):
    """How far rounds lie from their median, so that readers know which differences mean something."""
    spreads = sorted(max(point[what]['max'] / point[what]['median'], point[what]['median'] / point[what]['min']) - 1
                     for point in measured for what in WHAT)
    if not spreads:
        return ''
    if all(point['rounds'] == 1 for point in measured):
        return 'There was one round of each point, so that nothing here says how far figures scatter.'
    return (f'In half of all figures the rounds lie up to {percent(spreads[len(spreads) // 2])} from their median, in '
            f'the rest up to {percent(spreads[-1])}.')


def worlds_of(predicted):
    """In the planner's words, N for the number of nodes."""
    return list(dict.fromkeys(re.sub(r'\bnodes:\d+', 'nodes:N', point['world']) for point in predicted))


def predicted_gains(predicted, placement, what):
    """model and tokens -> {gpus: ratio}, None where a placement is missing."""
    found = {}
    for cluster, group in by_cluster(predicted).items():
        found.setdefault((cluster.model, cluster.tokens), {})[cluster.gpus] = over_owner(group, placement, what)
    return found
