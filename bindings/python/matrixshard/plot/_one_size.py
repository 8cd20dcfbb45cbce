# SPDX-License-Identifier: Apache-2.0
"""gather, reduce and allreduce of one size: bars, or lines over the number of ranks."""
from __future__ import annotations

from typing import Any

from ..errors import InvalidArgumentError
from ._draw import Bar, Line, bars_height, draw_bars, draw_lines, names_width, range_of
from ._look import MARKERS, three_digits, time_text
from ._sheet import NORMAL, Panel, Sheet, text_pixels
from ._sweep import FORMS, Run, size_text, us_text


def of_one_size(runs: list[Run], sheet: Sheet) -> Sheet:
    """Bars of time: contenders of one run, or runs."""
    look, row = sheet.look, []
    size = runs[0].points[0].bytes
    for form in sorted({form for run in runs for form in run.forms()}):
        bars, marks = [], []
        for run in runs:
            bound = run.bounds().get(size)
            points = [point for point in run.points if point.is_in_place == form and not point.is_peer]
            points += [point for point in run.points if point.is_peer]
            for point in points if len(runs) == 1 else [p for p in run.chosen(form) if p.is_in_place == form]:
                said = time_text(point.median * 1000)
                said += f', {three_digits(point.median / bound)}× bound' if bound else ''
                colour = look.peer if point.is_peer else look.accent if point.is_chosen else look.heat[3]
                bars.append(Bar(point.algorithm if len(runs) == 1 else run.name, point.median, said, colour, point.low,
                                point.high, point.is_chosen and len(runs) == 1 and len(points) > 1))
            if bound and len(runs) == 1:
                marks.append((bound, 'bound', look.bound))

        def draw(axes: Any, bars: list[Bar] = bars, marks: list = marks) -> None:
            draw_bars(axes, bars, look, us_text, 'time of a turn', marks)

        row.append(Panel(draw, f'{size_text(size)}, {FORMS[form]}', '', bars_height(bars), names_width(bars), 10))
    if len(row) > 1:
        for panel in row:
            panel.height = max(other.height for other in row)
    sheet.rows.append(row)
    sheet.facts = sheet.facts.replace('bands', 'whiskers')
    return sheet


def over_ranks(runs: list[Run], sheet: Sheet) -> Sheet:
    look, row = sheet.look, []
    size = runs[0].points[0].bytes
    runs = sorted(runs, key=lambda run: int(run.facts['ranks']) if run.facts['ranks'].isdigit() else 0)
    if not all(run.facts['ranks'].isdigit() for run in runs):
        raise InvalidArgumentError(f'{runs[0].source}: "ranks" is no number in some of the rows')
    for ratio in (False, True):
        lines = []
        for i, form in enumerate(sorted({form for run in runs for form in run.forms()})):
            line = Line(FORMS[form], [], [], [], [], look.series[i], MARKERS[i])
            for run in runs:
                bound = run.bounds().get(size)
                for point in run.chosen(form)[:1]:
                    if point.is_in_place != form or (ratio and not bound):
                        continue
                    scale = bound if ratio and bound else 1.0
                    line.x.append(int(run.facts['ranks']))
                    line.y.append(point.median / scale)
                    line.low.append(point.low / scale)    # type: ignore[union-attr]
                    line.high.append(point.high / scale)  # type: ignore[union-attr]
            lines.append(line)
        bounds = [(int(run.facts['ranks']), run.bounds()[size]) for run in runs if size in run.bounds()]
        if bounds and not ratio:
            lines.append(Line('bound', [x for x, _ in bounds], [y for _, y in bounds], colour=look.bound, marker=None,
                              dashes=(0, (1, 1.2)), width=1.6))
        lines = [line for line in lines if line.x]
        if not lines:
            continue

        def draw(axes: Any, lines: list[Line] = lines, ratio: bool = ratio) -> None:
            if ratio:
                axes.axhline(1, color=look.bound, linewidth=1.6, linestyle=(0, (1, 1.2)))
            least, most = range_of(lines, True)
            draw_lines(axes, lines, look, lambda v: f'{v:g}', (lambda v: f'{v:g}×') if ratio else us_text, True,
                       (min(least, 0.8), max(most, 1.25)) if ratio else (least, most), x_label='ranks',
                       y_label='times the bound' if ratio else 'time of a turn')

        row.append(Panel(draw, 'Time over bound' if ratio else f'Time of {size_text(size)}', height=330, left=70,
                         right=26 + max(text_pixels(line.name, NORMAL) for line in lines)))
    sheet.rows.append(row)
    return sheet

