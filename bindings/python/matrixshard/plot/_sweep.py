# SPDX-License-Identifier: Apache-2.0
"""gather, reduce and allreduce over sizes: bandwidth (or time), and time over the bound below it.

One run has a column for each form (out of place, in place), a line for each contender and peer, and the bound. Several
runs have a line each, of what the library chose there, and names that say in what they differ. Runs of one size are
drawn over their numbers of ranks if these differ, else as bars: _one_size.py.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional

from ..errors import InvalidArgumentError
from ._draw import Line, draw_lines, range_of, thin_out_bands
from ._look import MARKERS, Look, bytes_text, clean, tick_text, time_text
from ._read import Row
from ._sheet import NORMAL, Panel, Sheet, fitted, text_pixels

FORMS = {False: 'out of place', True: 'in place'}
FACTS = ('operation', 'layout', 'ranks', 'nodes', 'transports', 'dtype', 'memory')
KINDS = ('bandwidth', 'time')


@dataclass
class Point:
    bytes: float
    algorithm: str
    is_chosen: bool
    is_peer: bool
    is_in_place: bool
    low: float       # microseconds, as all times here
    median: float
    high: float
    busbw: float     # GB/s at the median
    bound: Optional[float]

    def bandwidth(self, time: float) -> Optional[float]:
        """None where no bytes move, as on one rank."""
        return self.busbw * self.median / time if self.busbw > 0 else None


@dataclass
class Series:
    """What becomes a line once it is said which value of a point is drawn."""
    name: str
    points: list[Point]
    colour: str
    marker: Optional[str] = None
    dashes: Any = '-'
    has_band: bool = False

    def line(self, value: Callable[[Point, float], Optional[float]], is_time: bool) -> Line:
        """value(point, time in microseconds); None where there is none."""
        points = [point for point in self.points if value(point, point.median) is not None]
        median, least, most = ([value(point, getattr(point, key)) or 0.0 for point in points]
                               for key in ('median', 'low', 'high'))
        low, high = (least, most) if is_time else (most, least)
        return Line(self.name, [point.bytes for point in points], median, low, high, self.colour, self.marker,
                    self.dashes, has_band=self.has_band)


@dataclass
class Run:
    """Rows of one setting. name: what is special about it among others."""
    facts: dict[str, Any]
    source: str
    points: list[Point]
    name: str = ''

    def bounds(self) -> dict[float, float]:
        return {point.bytes: point.bound for point in self.points if point.bound}

    def forms(self) -> list[bool]:
        """Out of place first. A peer alone makes no form: it is drawn beside the contenders of each."""
        return sorted({point.is_in_place for point in self.points if not point.is_peer}) or [False]

    def chosen(self, form: bool) -> list[Point]:
        """One point a size: the only contender, or the one that the library would take, of this form if it is there."""
        result = []
        for size in sorted({point.bytes for point in self.points}):
            here = [point for point in self.points if point.bytes == size and not point.is_peer]
            here = [point for point in here if point.is_in_place == form] or here
            here = [point for point in here if point.is_chosen] or here
            result += here[:1]
        return result


def point_of(row: Row) -> Point:
    low, median, high = (row.number(f'time_us.{key}', above=True) for key in ('min', 'median', 'max'))
    return Point(row.number('bytes', above=True), clean(row.text('algorithm', '?')), bool(row.raw('chosen')),
                 bool(row.raw('peer')), bool(row.raw('inplace')), low, median, high, row.number('busbw'),
                 row.maybe('bound_us'))


def runs_of(rows: list[tuple[str, Row]]) -> list[Run]:
    """Rows by file and setting."""
    runs: dict[tuple, Run] = {}
    for source, row in rows:
        facts = {key: clean(row.text(key, '?')) for key in FACTS}
        run = runs.setdefault((source, *facts.values()), Run(facts, source, []))
        run.points.append(point_of(row))
    result = list(runs.values())
    for run in result:
        differing = [key for key in FACTS if len({other.facts[key] for other in result}) > 1]
        same = [other for other in result if all(other.facts[key] == run.facts[key] for key in FACTS)]
        words = [fact_text(key, run.facts) for key in differing]
        run.name = ', '.join(words + ([run.source] if len(same) > 1 or not words else []))
    return result


def fact_text(key: str, facts: dict[str, Any]) -> str:
    value = facts[key]
    if key in ('ranks', 'nodes'):
        return f'{value} {key[:-1] if value == "1" else key}'
    return {'layout': f'layout {value}', 'memory': f'{value} memory'}.get(key, value)


def sweep_sheet(rows: list[tuple[str, Row]], kind: Optional[str], look: Look) -> Sheet:
    runs = runs_of(rows)
    if all(point.busbw == 0 for run in runs for point in run.points):
        if kind == 'bandwidth':
            raise InvalidArgumentError(f'{runs[0].source}: nothing is sent here, so there is no bandwidth: draw '
                                       'the time')
        kind = 'time'
    kind = kind or KINDS[0]
    from ._one_size import of_one_size, over_ranks
    sheet = Sheet(title_of(runs), facts_of(runs), look=look)
    sizes = {point.bytes for run in runs for point in run.points}
    ranks = {run.facts['ranks'] for run in runs}
    if len(runs) > 1 and len(sizes) == 1 and len(ranks) == len(runs):
        return over_ranks(runs, sheet)
    if len(sizes) == 1:
        return of_one_size(runs, sheet)
    over_sizes(runs, sheet, kind)
    return sheet


def title_of(runs: list[Run]) -> str:
    def common(key: str) -> str:
        values = list(dict.fromkeys(run.facts[key] for run in runs))
        return fact_text(key, runs[0].facts) if len(values) == 1 else ''
    operations = ' and '.join(sorted({run.facts['operation'] for run in runs}))
    where = ' on '.join(word for word in (common('ranks'), common('nodes')) if word)
    words = [operations.capitalize(), where, common('transports')]
    if not common('ranks'):
        words[1] = ' '.join(['by number of ranks', common('nodes') and f'on {common("nodes")}']).strip()
    return ', '.join(word for word in words if word)


def facts_of(runs: list[Run]) -> str:
    words = [fact_text(key, runs[0].facts) for key in ('layout', 'dtype', 'memory')
             if len({run.facts[key] for run in runs}) == 1]
    return ' · '.join(words + ['medians of turns, bands from the least to the most',
                               'bound: the least time for the busiest rank\'s bytes'])


def contenders_of(run: Run, form: bool, look: Look) -> list[Series]:
    """Of one form, in the order of their rows, then peers. Without --compare the library's choice is one series,
    whatever it chose at each size."""
    contenders: dict[str, list[Point]] = {}
    peers: dict[str, list[Point]] = {}
    for point in run.points:
        if point.is_peer:
            peers.setdefault(point.algorithm, []).append(point)
        elif point.is_in_place == form:
            contenders.setdefault(point.algorithm, []).append(point)
    sizes = [point.bytes for points in contenders.values() for point in points]
    if len(set(sizes)) == len(sizes) and len(contenders) > 1:
        contenders = {'chosen: ' + ', '.join(contenders): [p for points in contenders.values() for p in points]}
    result = []
    for i, (name, points) in enumerate(contenders.items()):
        is_taken = len(contenders) > 1 and any(point.is_chosen for point in points)
        result.append(series_of(name + ('*' if is_taken else ''), points, i, look))
        result[-1].has_band = is_taken
    for name, points in peers.items():
        of_form = [point for point in points if point.is_in_place == form] or points
        series = series_of(name, of_form, 0, look)
        series.colour, series.marker, series.dashes = look.quiet, None, (0, (4, 2))
        result.append(series)
    return result


def series_of(name: str, points: list[Point], number: int, look: Look) -> Series:
    by_size = {point.bytes: point for point in points}
    return Series(name, [by_size[size] for size in sorted(by_size)], look.series[number % 8], MARKERS[number % 8],
                  '-' if number < 8 else '--')


def bound_line(run: Run, kind: str, look: Look, name: str = 'bound', colour: str = '') -> Optional[Line]:
    found: dict[float, tuple[float, float]] = {}
    for point in run.points:
        if point.bound and point.busbw > 0:
            found[point.bytes] = (point.bound, point.bandwidth(point.bound) or 0.0)
    if not found:
        return None
    sizes = sorted(found)
    return Line(name, sizes, [found[size][kind == 'bandwidth'] for size in sizes], colour=colour or look.bound,
                marker='_' if len(sizes) == 1 else None, dashes=(0, (1, 1.2)), width=1.6)


def size_text(size: float) -> str:
    return tick_text(bytes_text(size))


def us_text(us: float) -> str:
    return tick_text(time_text(us * 1000))


def over_sizes(runs: list[Run], sheet: Sheet, kind: str) -> None:
    look, is_time = sheet.look, kind == 'time'
    value: Callable[[Point, float], Optional[float]] = (lambda point, time: time) if is_time else Point.bandwidth
    upper, lower = [], []
    for form in sorted({form for run in runs for form in run.forms()}):
        if len(runs) == 1:
            bound = bound_line(runs[0], kind, look)
            pairs = [(series, runs[0]) for series in contenders_of(runs[0], form, look)]
            drawn = [bound] if bound else []
        else:
            pairs, drawn = choices_of(runs, form, kind, look)
        lines = [series.line(value, is_time) for series, _ in pairs]
        upper.append((FORMS[form], [line for line in lines if line.x] + drawn))
        ratios = []
        for series, run in pairs:
            bounds = run.bounds()
            ratios.append(series.line(lambda p, time: time / bounds[p.bytes] if p.bytes in bounds else None, True))
        lower.append((FORMS[form], [line for line in ratios if line.x]))
    if len(runs) > 1 and any(len(run.points) > len(run.chosen(False)) + len(run.chosen(True)) for run in runs):
        sheet.facts += ' · of each run what the library chose there'
    if any('*' in line.name for _, lines in upper for line in lines):
        sheet.facts += ' · *: chosen by the library'
    add_row(sheet, upper, 'Time' if is_time else 'Bus bandwidth', is_time,
            us_text if is_time else lambda v: f'{v:g}', 'time of a turn' if is_time else 'GB/s', 330)
    if any(lines for _, lines in lower):
        add_row(sheet, lower, 'Time over bound', True, lambda v: f'{v:g}×', 'times the bound', 230, at_least=1.0)


def choices_of(runs: list[Run], form: bool, kind: str, look: Look) -> tuple[list[tuple[Series, Run]], list[Line]]:
    """A series for each run, and their bounds: one if all runs have the same, else each in its run's colour."""
    pairs: list[tuple[Series, Run]] = []
    drawn: list[Line] = []
    same = len({tuple(sorted(run.bounds().items())) for run in runs}) == 1
    for i, run in enumerate(runs):
        points = [point for point in run.chosen(form) if point.is_in_place == form]
        if not points:
            continue
        pairs.append((series_of(run.name, points, i, look), run))
        bound = bound_line(run, kind, look, 'bound' if same else '', '' if same else look.series[i % 8])
        if bound and not (same and drawn):
            drawn.append(bound)
    if drawn and not same:
        drawn[0].name = 'dotted: bounds'
    return pairs, drawn


def add_row(sheet: Sheet, columns: list[tuple[str, list[Line]]], title: str, log: bool, text: Callable[[float], str],
            unit: str, height: float, at_least: Optional[float] = None) -> None:
    """Columns with one scale. at_least: a value that the scale shows, with a line."""
    for _, lines in columns:
        thin_out_bands(lines)
    everything = [line for _, lines in columns for line in lines]
    least, most = range_of(everything, log)
    if at_least:
        least, most = min(least, at_least / 1.25), max(most, at_least * 1.25)
    row = []
    for name, lines in columns:
        limit = 330 if len(columns) == 1 else 190
        for line in lines:
            line.name = fitted(line.name, limit)
        if not lines:
            continue
        right = 26 + max(text_pixels(line.name, NORMAL) for line in lines)

        def draw(axes: Any, lines: list[Line] = lines) -> None:
            if at_least:
                axes.axhline(at_least, color=sheet.look.bound, linewidth=1.6, linestyle=(0, (1, 1.2)))
            draw_lines(axes, lines, sheet.look, size_text, text, log, (least, most), x_label='size of the whole buffer',
                       y_label=unit)

        row.append(Panel(draw, f'{title}, {name}', height=height, left=70, right=right))
    sheet.rows.append(row)
