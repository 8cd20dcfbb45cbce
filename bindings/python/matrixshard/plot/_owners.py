# SPDX-License-Identifier: Apache-2.0
"""The heat map of a plan: units by ranks (by nodes, if ranks are too many), and columns of ranks for other panels."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Optional, Sequence

from ._look import Look, bytes_text, grouped, tick_text, time_text
from ._sheet import SMALL, Panel, fitted, pixels_of, text_pixels, write

if TYPE_CHECKING:
    from ._plan import Plan

HEAT_LEVELS = 8
Box = tuple[float, float, float, float]  # x, y, width, height


def columns_over(width: float, nodes: Sequence[int], cell_least: float) -> tuple[list[float], float, float, float]:
    """(left edge of each, cell, what is filled of a cell, whole width), with a gap between nodes where there is
    room."""
    borders = sum(a != b for a, b in zip(nodes, nodes[1:]))
    gap = math.floor(min(8, 0.5 * max(cell_least, width / len(nodes)))) if borders else 0
    cell = max(cell_least, (width - gap * borders) / len(nodes))
    if cell >= 5:
        cell = min(math.floor(cell), 130)  # whole pixels stay crisp
    x, at = [], 0.0
    for i, node in enumerate(nodes):
        at += gap if i and node != nodes[i - 1] else 0
        x.append(at)
        at += cell
    return x, cell, cell - (2 if cell >= 8 else 1 if cell >= 4 else 0), at


def filled(axes: Any, boxes: Sequence[Box], colour: str, **more: Any) -> None:
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
    return [Panel(draw, 'Owners', note, height=ABOVE + row * count, left=left, right=150, below=4)]


ABOVE = 56  # pixels over the first row: the scale, then names of nodes and ranks


def draw_heat(axes: Any, plan: Plan, by_node: bool, row: float, left: float, look: Look) -> None:
    width, _ = pixels_of(axes)
    ids = list(dict.fromkeys(plan.nodes)) if by_node else list(range(len(plan.ranks)))
    nodes = [0] * len(ids) if by_node else plan.nodes
    x, cell, inner, whole = columns_over(width - 2, nodes, 0.5)
    cells = owned_by_column(plan, {node: i for i, node in enumerate(ids)} if by_node else None)
    most = max([0.0] + [count for sums in cells for count in sums.values()])
    tall = row - (1 if row >= 6 else 0)
    axes.set_xlim(0, width)
    axes.set_ylim(ABOVE + row * len(cells), 0)
    axes.axis('off')
    filled(axes, [(left_x, ABOVE, inner, row * len(cells)) for left_x in x], look.heat[0], antialiased=cell < 5)
    levels: dict[int, list[Box]] = {}
    for unit, sums in enumerate(cells):
        for place, count in sums.items():
            if count > 0:
                level = max(1, HEAT_LEVELS - math.floor(math.log2(most / count) + 1e-12))
                levels.setdefault(level, []).append((x[place], ABOVE + unit * row, inner, tall))
    for level, boxes in sorted(levels.items()):
        filled(axes, boxes, look.heat[level], antialiased=cell < 5)
    write_scale(axes, most, look)
    write_columns(axes, x, cell, inner, nodes, ABOVE - 7, ABOVE - 22, look, 'node' if by_node else 'rank')
    write_rows(axes, plan, row, tall, left, min(whole, width) + 12, look)


def owned_by_column(plan: Plan, column_of_node: Optional[dict[int, int]]) -> list[dict[int, float]]:
    """Bytes of each unit; a column is a rank, or without None a node."""
    if column_of_node is None:
        return plan.owned
    result = []
    for owned in plan.owned:
        sums: dict[int, float] = {}
        for rank, count in owned.items():
            column = column_of_node[plan.nodes[rank]]
            sums[column] = sums.get(column, 0) + count
        result.append(sums)
    return result


def write_rows(axes: Any, plan: Plan, row: float, tall: float, left: float, edge: float, look: Look) -> None:
    """Beside the rows: names of units on the left, how long their gathers take at best on the right."""
    times = [unit.number('gather_bound_ns') for unit in plan.units]
    slowest = max([0.0, *times])
    if slowest > 0:
        write(axes, edge, ABOVE - 7, 'gather, at best', size=SMALL, color=look.quiet, va='baseline')
        bars = [(edge, ABOVE + (i + 0.28) * row, 70 * time / slowest, 0.44 * row) for i, time in enumerate(times)]
        filled(axes, bars, look.quiet)
    said = {'size': min(SMALL, 0.62 * row + 1), 'color': look.quiet, 'va': 'center'}
    for i in range(0, len(times), math.ceil(13 / row)):
        middle = ABOVE + i * row + tall / 2
        write(axes, -10, middle, fitted(plan.unit_name(i), left - 12, SMALL), ha='right', **said)
        if slowest > 0:
            write(axes, edge + 76, middle, time_text(times[i]), **said)


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
