# SPDX-License-Identifier: Apache-2.0
"""A plan as `mxs plan --html` shows it: objectives, owners of each unit, time and memory of each rank."""
from __future__ import annotations

import math
from typing import Any, Mapping, Optional, Sequence

from ..errors import InvalidArgumentError
from ._look import (Look, bytes_text, clean, count_text, counted, gap_text, grouped, percent_text, tick_text,
                    ticks_up_to, time_text)
from ._read import Row, is_plan, is_saved_plan, refuse_others
from ._sheet import SMALL, Panel, Sheet, beside, fitted, pixels_of, spread, text_pixels, ticks, write

KINDS = ('objectives', 'owners', 'step', 'memory')
# From the bottom up: what stays, then what comes on top.
PARTS = {'weights': 'weights', 'masters': 'masters', 'gradients': 'gradient sums', 'state': 'optimizer state',
         'slack': 'slack', 'slots': 'slots', 'gradient_slots': 'gradient slots', 'workspace': 'workspace'}
HATCHES = {'masters': ('//', False), 'state': ('\\\\', True), 'slack': ('..', True), 'gradient_slots': ('//', False),
           'workspace': ('..', True)}
HEAT_LEVELS = 8


class Plan:
    """The plan with everything checked that is drawn."""

    def __init__(self, data: Mapping[str, Any], name: str):
        self.row = Row(data, name)
        self.ranks = [Row(entry, f'{name}, ranks[{i}]') for i, entry in enumerate(self._list('ranks'))]
        self.units = [Row(entry, f'{name}, units[{i}]') for i, entry in enumerate(self._list('units'))]
        if not self.ranks:
            raise InvalidArgumentError(f'{name} is a plan without ranks: there is nothing to draw')
        self.nodes = [int(rank.number('node')) for rank in self.ranks]
        self.node_count = len(set(self.nodes))
        self.owned: list[dict[int, float]] = []
        for unit in self.units:
            self.owned.append(self._owned(unit))

    def _list(self, key: str) -> list[Mapping[str, Any]]:
        value = self.row.raw(key)
        if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
            raise InvalidArgumentError(f'{self.row.place}: "{key}" of a plan is an array of objects, and here is not')
        return value

    def _owned(self, unit: Row) -> dict[int, float]:
        result: dict[int, float] = {}
        pairs = unit.raw('owned') or []
        for pair in pairs if isinstance(pairs, list) else [None]:
            if not isinstance(pair, list) or len(pair) != 2 or not all(
                    isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in pair) or \
                    pair[0] >= len(self.ranks):
                raise InvalidArgumentError(f'{unit.place}: "owned" holds {pair!r:.60}, not [a rank below '
                                           f'{len(self.ranks)}, bytes]')
            result[pair[0]] = result.get(pair[0], 0) + pair[1]
        return result

    def unit_name(self, index: int) -> str:
        return clean(self.units[index].text('name')) or f'unit {index}' if index < len(self.units) else f'unit {index}'

    def of_ranks(self, key: str) -> list[float]:
        return [rank.number(key) for rank in self.ranks]


def plan_sheet(data: Any, kind: Optional[str], look: Look, alone: bool = False, name: str = 'the plan') -> Sheet:
    """alone: of one panel, without facts and verdict."""
    if is_saved_plan(data):
        raise InvalidArgumentError(f'{name} is the JSON of a saved plan, which has owners but no loads and times: '
                                   'plot.read(its file) asks the library for them')
    refuse_others(data, name)
    if not is_plan(data):
        raise InvalidArgumentError(f'{name} holds rows of mxs-perf, not a plan: they are drawn by plot.perf')
    if kind not in (None, *KINDS):
        raise InvalidArgumentError(f'{name}: {kind!r} is no picture of a plan; there are {", ".join(KINDS)}')
    plan = Plan(data, name)
    sheet = Sheet(title_of(plan), facts_of(plan), look=look)
    verdict = clean(plan.row.text('verdict'))
    if verdict:
        sheet.said = [verdict]
        sheet.is_warning = not verdict.startswith('Nothing is wrong') or bool(plan.row.raw('warnings'))
    for one in [kind] if kind else ['owners'] if alone else KINDS:
        if one != 'owners' or plan.units:
            row = ROWS[one](plan, look)
            sheet.rows += [row] if row else []
    if not sheet.rows:
        lacks = 'objectives' if kind == 'objectives' else 'units'
        raise InvalidArgumentError(f'{name} is a plan without {lacks}: there is nothing to draw')
    if alone:
        sheet.title, sheet.facts, sheet.said = sheet.rows[0][0].title, '', []
        sheet.rows[0][0].title = ''
    return sheet


def title_of(plan: Plan) -> str:
    name = clean(plan.row.text('model.title') or plan.row.text('model.path') or 'A plan')
    return f'{fitted(name, 900, 18, "bold")}: {counted(len(plan.ranks), "rank", "ranks")} on ' + \
        counted(plan.node_count, 'node', 'nodes')


def facts_of(plan: Plan) -> str:
    words = [clean(plan.row.text('topology.words'))]
    if plan.row.raw('model.parameters') is not None:
        words.append(f'{count_text(plan.row.number("model.parameters"))} parameters')
    if plan.row.raw('model.tensors') is not None:
        tensors = counted(int(plan.row.number("model.tensors")), 'tensor', 'tensors')
        words.append(f'{tensors} in {counted(len(plan.units), "unit", "units")}')
    if plan.row.raw('fingerprint') is not None:
        words.append(f'fingerprint {clean(plan.row.text("fingerprint"))}')
    return ' · '.join([word for word in words if word] + ['predicted; nothing here was measured'])


# Objectives

def objectives_row(plan: Plan, look: Look) -> list[Panel]:
    """A meter for each: the worst as a bar whose part above the bound is hatched, and the mean of ranks as a mark."""
    panels = []
    for key, title, text, scale in (('bytes', 'Owned bytes of a rank', bytes_text, 1),
                                    ('step_ps', 'Step time of a rank', time_text, 1000),
                                    ('egress', 'Egress of a rank in one unit', bytes_text, 1),
                                    ('nic', 'Egress per NIC in one unit', bytes_text, 1)):
        if plan.row.raw(f'objectives.{key}') is None:
            continue
        worst, bound = (plan.row.number(f'objectives.{key}.{end}') / scale for end in ('worst', 'bound'))
        mean = mean_of(plan, key)
        place = place_of(plan, key)

        def draw(axes: Any, worst: float = worst, bound: float = bound, mean: Optional[float] = mean, text: Any = text,
                 place: str = place) -> None:
            draw_meter(axes, worst, bound, mean, text, place, look)

        panels.append(Panel(draw, title, height=92, left=0, right=0, below=10))
    return panels


def mean_of(plan: Plan, key: str) -> Optional[float]:
    """What an even placement would have; of a NIC it isn't in the plan."""
    if key == 'bytes':
        return sum(plan.of_ranks('owned_bytes')) / len(plan.ranks)
    if key == 'step_ps':
        return sum(plan.of_ranks('step_ns')) / len(plan.ranks)
    unit = plan.row.raw('objectives.egress.unit')
    if key == 'egress' and isinstance(unit, int) and 0 <= unit < len(plan.units):
        return sum(plan.owned[unit].values()) / len(plan.ranks)
    return None


def place_of(plan: Plan, key: str) -> str:
    words = []
    for word in ('rank', 'node'):
        number = plan.row.raw(f'objectives.{key}.{word}')
        if isinstance(number, int) and number >= 0:
            words.append(f'{word} {number}')
    unit = plan.row.raw(f'objectives.{key}.unit')
    if isinstance(unit, int) and unit >= 0:
        words.append(plan.unit_name(unit))
    return ', '.join(words)


def draw_meter(axes: Any, worst: float, bound: float, mean: Optional[float], text: Any, place: str, look: Look) -> None:
    from matplotlib.patches import Rectangle
    width, height = pixels_of(axes)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis('off')
    number = text(worst) if worst else 'none'
    write(axes, 0, 24, number, size=17, weight='bold', color=look.ink, va='baseline')
    left = text_pixels(number, 17, 'bold') + 12
    where = place if worst else 'one node' if plan_is_local(place) else 'nothing to carry'
    write(axes, left, 24, fitted(where, max(60.0, width - left)), color=look.quiet, va='baseline')
    axes.add_patch(Rectangle((0, 38), width, 10, color=look.line, linewidth=0))
    if worst:
        share = min(1.0, bound / worst)
        axes.add_patch(Rectangle((0, 38), width * share, 10, color=look.accent, linewidth=0))
        axes.add_patch(Rectangle((width * share, 38), width * (1 - share), 10, facecolor=look.over,
                                 edgecolor=look.pattern, hatch='////', linewidth=0))
        if mean is not None:
            axes.plot([width * mean / worst] * 2, [33, 53], color=look.mean, linewidth=2.5, solid_capstyle='butt')
    words = [f'bound {text(bound)}' if worst else '', f'mean {text(mean)}' if mean is not None and worst else '']
    write(axes, 0, 70, ' · '.join(word for word in words if word), size=SMALL, color=look.quiet, va='baseline')
    write(axes, 0, 87, gap_text(worst, bound).capitalize() if worst else '', size=SMALL, color=look.ink, va='baseline')


def plan_is_local(place: str) -> bool:
    return 'node 0' in place or not place


# Owners

def columns_over(width: float, nodes: Sequence[int], cell_least: float) -> tuple[list[float], float, float, float]:
    """(left edge of each, cell, what is filled of a cell, whole width), with a gap between nodes where there is
    room."""
    borders = sum(a != b for a, b in zip(nodes, nodes[1:]))
    gap = math.floor(min(8, 0.5 * max(cell_least, width / len(nodes)))) if borders else 0
    cell = max(cell_least, (width - gap * borders) / len(nodes))
    if cell >= 5:
        cell = min(math.floor(cell), 80)  # whole pixels stay crisp
    x, at = [], 0.0
    for i, node in enumerate(nodes):
        at += gap if i and node != nodes[i - 1] else 0
        x.append(at)
        at += cell
    return x, cell, cell - (2 if cell >= 8 else 1 if cell >= 4 else 0), at


def filled(axes: Any, boxes: Sequence[tuple[float, float, float, float]], colour: str, **more: Any) -> None:
    """Boxes (x, y, width, height) as one patch, so that thousands of cells are one element of an SVG."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    if not boxes:
        return
    corners, codes = [], []
    for x, y, width, height in boxes:
        corners += [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
        codes += [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    more.setdefault('edgecolor', 'none')
    axes.add_patch(PathPatch(Path(corners, codes), facecolor=colour, linewidth=0, clip_on=False, **more))


def owners_row(plan: Plan, look: Look) -> list[Panel]:
    count = len(plan.units)
    row = 20 if count <= 24 else 14 if count <= 120 else max(4, 1600 // count)
    by_node = plan.node_count > 1 and len(plan.ranks) > 256
    names = [plan.unit_name(i) for i in range(count)]
    left = 12 + min(220, max(text_pixels(name, SMALL) for name in names))
    word = 'nodes' if by_node else 'ranks'

    def draw(axes: Any) -> None:
        draw_heat(axes, plan, by_node, row, left, look)

    note = f'bytes of each unit\'s weights on {word}; each step of colour is a doubling'
    return [Panel(draw, 'Owners', note, height=56 + row * count, left=left, right=150, below=4)]


def draw_heat(axes: Any, plan: Plan, by_node: bool, row: float, left: float, look: Look) -> None:
    width, _ = pixels_of(axes)
    above = 56  # the scale, then names of nodes and ranks
    ids = list(dict.fromkeys(plan.nodes)) if by_node else list(range(len(plan.ranks)))
    x, cell, inner, whole = columns_over(width - 2, [0] * len(ids) if by_node else plan.nodes, 0.5)
    column = {node: i for i, node in enumerate(ids)}
    cells: list[dict[int, float]] = []
    for owned in plan.owned:
        sums: dict[int, float] = {}
        for rank, count in owned.items():
            place = column[plan.nodes[rank]] if by_node else rank
            sums[place] = sums.get(place, 0) + count
        cells.append(sums)
    most = max([0.0] + [count for sums in cells for count in sums.values()])
    tall = row - (1 if row >= 6 else 0)
    axes.set_xlim(0, width)
    axes.set_ylim(above + row * len(cells), 0)
    axes.axis('off')
    filled(axes, [(left_x, above, inner, row * len(cells)) for left_x in x], look.heat[0], antialiased=cell < 5)
    levels: dict[int, list] = {}
    for unit, sums in enumerate(cells):
        for place, count in sums.items():
            if count > 0:
                level = max(1, HEAT_LEVELS - math.floor(math.log2(most / count) + 1e-12))
                levels.setdefault(level, []).append((x[place], above + unit * row, inner, tall))
    for level, boxes in sorted(levels.items()):
        filled(axes, boxes, look.heat[level], antialiased=cell < 5)
    write_scale(axes, most, look)
    write_columns(axes, x, cell, inner, [0] * len(ids) if by_node else plan.nodes, above - 7, above - 22, look,
                  'node' if by_node else 'rank')
    every = math.ceil(13 / row)
    slowest = max([0.0] + [unit.number('gather_bound_ns') for unit in plan.units])
    # What stands beside the rows: the name of the unit, and how long its gather takes at best.
    edge = min(whole, width) + 12
    if slowest > 0:
        write(axes, edge, above - 7, 'gather, at best', size=SMALL, color=look.quiet, va='baseline')
    filled(axes, [(edge, above + i * row + 0.28 * row, 70 * unit.number('gather_bound_ns') / (slowest or 1), 0.44 * row)
                  for i, unit in enumerate(plan.units)], look.quiet)
    for i, unit in enumerate(plan.units):
        if i % every == 0:
            middle = above + i * row + tall / 2
            write(axes, -10, middle, fitted(plan.unit_name(i), left - 12, SMALL), size=min(SMALL, 0.62 * row + 1),
                  color=look.quiet, ha='right', va='center')
            if slowest > 0:
                write(axes, edge + 76, middle, time_text(unit.number('gather_bound_ns')), color=look.quiet, va='center',
                      size=min(SMALL, 0.62 * row + 1))


def write_scale(axes: Any, most: float, look: Look) -> None:
    at = 0.0
    for level in range(HEAT_LEVELS + 1 if most > 0 else 1):
        text = 'none' if level == 0 else ('up to ' if level == 1 else '') + \
            tick_text(bytes_text(most / 2 ** (HEAT_LEVELS - level)))
        filled(axes, [(at, 2, 14, 14)], look.heat[level])
        write(axes, at + 20, 9, text, size=SMALL, color=look.ink, va='center')
        at += 20 + text_pixels(text, SMALL) + 18


def write_columns(axes: Any, x: Sequence[float], cell: float, inner: float, nodes: Sequence[int], rank_y: float,
                  node_y: float, look: Look, word: str) -> None:
    """Numbers of ranks where they fit, names of nodes over or under their columns; y of both lines in data."""
    steps = [2 ** i for i in range(13)]
    room = 12 + text_pixels(grouped(len(x) - 1), SMALL)
    step = next((count for count in steps if count * cell >= room), steps[-1])
    for i in range(0, len(x), step):
        write(axes, x[i] + inner / 2, rank_y, grouped(i), size=SMALL, color=look.quiet, ha='center', va='baseline')
    starts = [i for i in range(len(x)) if i == 0 or nodes[i] != nodes[i - 1]]
    if word != 'rank' or len(starts) < 2:
        return
    per_node = max(1, starts[1] - starts[0])
    every = next((count for count in steps if count * per_node * cell >= 64), steps[-1])
    for number, i in enumerate(starts):
        if number % every == 0:
            last = (starts[number + 1] if number + 1 < len(starts) else len(x)) - 1
            is_all = every == 1
            at = (x[i] + x[last] + inner) / 2 if is_all else x[i]
            write(axes, at, node_y, f'node {nodes[i]}', size=SMALL, color=look.quiet, ha='center' if is_all else 'left',
                  va='baseline')


# Bars of ranks

def frame(axes: Any, plan: Plan, most: float, text: Any, binary: bool, look: Look) -> tuple[list[float], float, float]:
    """x of each rank's bar, their width, and the right end. Data are pixels in x."""
    width, height = pixels_of(axes)
    x, cell, inner, whole = columns_over(width, plan.nodes, 0)
    axes.set_xlim(0, width)
    axes.set_ylim(0, (most or 1) * 1.02)
    values = ticks_up_to(most, binary)
    ticks(axes, 'y', values, [tick_text(text(value)) for value in values], look, grid=False)
    axes.set_xticks([])
    for value in values:
        axes.plot([0, min(whole, width)], [value, value], color=look.line if value else look.quiet, linewidth=0.8,
                  zorder=3 if value == 0 else 0.5)
    axes.spines['bottom'].set_visible(False)
    pixel = (most or 1) * 1.02 / height
    write_columns(axes, x, cell, inner, plan.nodes, -16 * pixel, -32 * pixel, look, 'rank')
    lines = 2 if plan.node_count > 1 else 1
    beside(axes, 'rank' if lines == 1 else 'rank, node', min(whole, width), 0, 8, -13, color=look.quiet, size=SMALL,
           va='center')
    return x, inner, min(whole, width)


def label_right(axes: Any, right: float, labels: Sequence[tuple[float, str, str]], look: Look) -> None:
    """(y, text, colour) beside the bars, with a leader each, apart from each other."""
    _, height = pixels_of(axes)
    low, high = axes.get_ylim()
    pixel = (high - low) / height
    at = spread([y / pixel for y, _, _ in labels], 7, height)
    for (y, text, colour), place in zip(labels, at):
        axes.plot([right + 4, right + 14, right + 20], [y, place * pixel, place * pixel], color=colour, linewidth=1,
                  clip_on=False)
        write(axes, right + 25, place * pixel, text, size=SMALL, color=look.ink, va='center')


def step_row(plan: Plan, look: Look) -> list[Panel]:
    values = plan.of_ranks('step_ns')
    worst = max(range(len(values)), key=lambda i: values[i])
    mean = sum(values) / len(values)
    bound = plan.row.number('objectives.step_ps.bound') / 1000 if plan.row.raw('objectives.step_ps') else None
    note = f'{time_text(min(values))} to {time_text(values[worst])}, mean {time_text(mean)}'
    if mean > 0:
        note += f'; the worst, rank {int(plan.ranks[worst].number("rank"))}, is ' + \
            f'{percent_text(values[worst] / mean - 1)} above the mean'

    def draw(axes: Any) -> None:
        x, inner, right = frame(axes, plan, max([*values, bound or 0]), time_text, False, look)
        filled(axes, [(x[i], 0, inner, value) for i, value in enumerate(values)], look.heat[4])
        filled(axes, [(x[worst], 0, inner, values[worst])], look.over)
        labels = [(mean, f'mean {time_text(mean)}', look.mean), (values[worst], f'worst {time_text(values[worst])}',
                                                                 look.over)]
        axes.plot([0, right + 4], [mean, mean], color=look.mean, linewidth=1.3, linestyle=(0, (5, 3)), clip_on=False)
        if bound is not None:
            axes.plot([0, right + 4], [bound, bound], color=look.bound, linewidth=1.3, clip_on=False)
            labels.append((bound, f'bound {time_text(bound)}', look.bound))
        label_right(axes, right, labels, look)

    return [Panel(draw, 'Step time of each rank', note, height=150, left=72, right=150)]


def memory_row(plan: Plan, look: Look) -> list[Panel]:
    peaks = plan.of_ranks('peak')
    worst = max(range(len(peaks)), key=lambda i: peaks[i])
    note = f'{bytes_text(min(peaks))} to {bytes_text(peaks[worst])}; the largest is rank ' + \
        f'{int(plan.ranks[worst].number("rank"))}. Blue is owned and stays, orange comes on top.'
    parts = {key: plan.of_ranks(key) for key in PARTS}

    def draw(axes: Any) -> None:
        totals = [sum(values[i] for values in parts.values()) for i in range(len(peaks))]
        x, inner, right = frame(axes, plan, max(totals), bytes_text, True, look)
        bottoms = [0.0] * len(peaks)
        labels = []
        for key, values in parts.items():
            hatch, is_dark = HATCHES.get(key, (None, False))
            filled(axes, [(x[i], bottoms[i], inner, value) for i, value in enumerate(values) if value > 0],
                   look.memory[key], hatch=hatch, edgecolor=look.pattern_dark if is_dark else look.pattern)
            if values[-1] > 0:
                labels.append((bottoms[-1] + values[-1] / 2, f'{PARTS[key]} {bytes_text(values[-1])}', look.quiet))
            bottoms = [bottom + value for bottom, value in zip(bottoms, values)]
            if key == 'slack' and inner >= 2:  # the border between what stays and what comes on top, without colour
                for i, top in enumerate(bottoms):
                    axes.plot([x[i], x[i] + inner], [top, top], color=look.page, linewidth=2.2, solid_capstyle='butt')
        label_right(axes, right, labels, look)

    longest = max(text_pixels(f'{name} {bytes_text(parts[key][-1])}', SMALL) for key, name in PARTS.items())
    return [Panel(draw, 'Memory of each rank', note, height=300, left=72, right=32 + longest)]


ROWS = {'objectives': objectives_row, 'owners': owners_row, 'step': step_row, 'memory': memory_row}
