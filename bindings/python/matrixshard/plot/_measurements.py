# SPDX-License-Identifier: Apache-2.0
"""What mxs-perf measures beside sweeps over sizes: latency, waiting, steps, kernels, planning and tuning."""
from __future__ import annotations

from typing import Any, Callable, Optional

from ..errors import InvalidArgumentError
from ._draw import Bar, Line, bars_height, bars_most, draw_bars, draw_lines, names_width
from ._look import Look, bytes_text, clean, counted, grouped, percent_text, three_digits, tick_text, time_text
from ._read import SWEEPS, Row
from ._sheet import NORMAL, SIDE, WIDTH, Panel, Sheet, text_pixels
from ._sweep import KINDS, sweep_sheet, us_text

Sourced = list[tuple[str, Row]]


def sheet_of(rows: Sourced, kind: Optional[str], look: Look) -> Sheet:
    """Of rows of one command, which their "operation" names; gather, reduce and allreduce may stand together."""
    operations = {row.text('operation') for _, row in rows}
    if operations <= set(SWEEPS):
        if kind not in (None, *KINDS):
            raise InvalidArgumentError(f'{rows[0][1].place}: {kind!r} is no picture of '
                                       f'{" and ".join(sorted(operations))}; there are {" and ".join(KINDS)}')
        return sweep_sheet(rows, kind, look)
    if len(operations) > 1:
        raise InvalidArgumentError(f'{rows[0][1].place}: rows of {", ".join(sorted(operations))} have no axis in '
                                   'common: make a picture of each')
    operation = operations.pop()
    if kind is not None:
        raise InvalidArgumentError(f'{rows[0][1].place}: there is one picture of {operation}, and no {kind!r}')
    return SHEETS[operation](rows, look)


def where(rows: Sourced) -> str:
    """`2 ranks on 1 node`, if that is so of all rows."""
    places = {(int(row.number('ranks')), int(row.number('nodes'))) for _, row in rows}
    if len(places) > 1:
        return ''
    ranks, nodes = places.pop()
    return f', {counted(ranks, "rank", "ranks")} on {counted(nodes, "node", "nodes")}'


def said_time(us: float) -> str:
    return time_text(us * 1000)


def run_name(source: str, row: Row, rows: Sourced, keys: tuple[str, ...]) -> str:
    """What differs from other rows, else the file."""
    words = []
    for key in keys:
        value = row.raw(key)
        if len({str(other.raw(key)) for _, other in rows}) > 1:
            is_flag = isinstance(value, bool)
            words.append((key if value else f'no {key}') if is_flag else f'{value} {key}' if isinstance(value, int)
                         else str(value))
    same = [other for _, other in rows if all(other.raw(key) == row.raw(key) for key in keys)]
    words += [source] if len(same) > 1 and len(rows) > 1 else []
    return clean(', '.join(words) or row.text('algorithm', source))


def bars_panel(bars: list[Bar], look: Look, text: Callable[[float], str], label: str, title: str = '', note: str = '',
               marks: Any = (), most: Optional[float] = None) -> Panel:
    return Panel(lambda axes: draw_bars(axes, bars, look, text, label, marks, most), title, note, bars_height(bars),
                 names_width(bars), 10)


def latency_sheet(rows: Sourced, look: Look) -> Sheet:
    bars = []
    for source, row in rows:
        middle, p90, p99 = (row.number(f'time_us.{key}', above=True) for key in ('median', 'p90', 'p99'))
        name = run_name(source, row, rows, ('ranks', 'nodes', 'bytes', 'layout', 'algorithm', 'spin', 'pin'))
        bars.append(Bar(name, middle, f'{said_time(middle)}, 90% {said_time(p90)}, 99% {said_time(p99)}', look.accent,
                        beyond=[(p90, look.heat[3]), (p99, look.heat[1])]))
    sizes = {row.number('bytes') for _, row in rows}
    size = f' of {tick_text(bytes_text(sizes.pop()))}' if len(sizes) == 1 else ''
    sheet = Sheet(f'Latency of gathers{size}{where(rows)}', 'start after start without a barrier · medians, then in '
                  'lighter colours what 90% and 99% of the gathers took, of the slowest rank each', look=look)
    sheet.rows.append([bars_panel(bars, look, us_text, 'time of a gather')])
    return sheet


def idle_sheet(rows: Sourced, look: Look) -> Sheet:
    bars = []
    for source, row in rows:
        percent, wall = row.number('cpu_percent'), row.number('wall_ms')
        name = run_name(source, row, rows, ('ranks', 'nodes', 'bytes', 'memory', 'algorithm', 'spin', 'late_ms'))
        said = f'{three_digits(percent)}% of a core in waits of {said_time(wall * 1000)}'
        bars.append(Bar(name, percent, said, look.accent))
    sheet = Sheet(f'Cost of waiting{where(rows)}', 'cpu time over wall time of the busiest rank that waits for the '
                  'last one in a gather', look=look)
    width = WIDTH - 2 * SIDE - names_width(bars) - 10
    most = min(100.0, bars_most(bars, width)) if all(bar.value <= 100 for bar in bars) else None
    sheet.rows.append([bars_panel(bars, look, lambda v: f'{v:g}%', 'of a core',
                                  most=max(most or 0, bars_most(bars, width)) if most else None)])
    return sheet


def step_sheet(rows: Sourced, look: Look) -> Sheet:
    """gather, reduce, step: bars of each run."""
    panels = []
    for part, colour in (('gather', look.accent), ('reduce', look.heat[4]), ('step', look.over)):
        bars = []
        for source, row in rows:
            low, middle, high = (row.number(f'{part}.time_us.{key}', above=True) for key in ('min', 'median', 'max'))
            said = f'{said_time(middle)}, {tick_text(bytes_text(row.number(f"{part}.bytes_in")))} in'
            if part == 'step':
                said += f', {three_digits(row.number("flops_max") / middle * 1e-3)} Gflop/s'
            keys = ('ranks', 'nodes', 'dtype', 'units', 'shapes')
            name = part if len(rows) == 1 else run_name(source, row, rows, keys)
            bars.append(Bar(name, middle, said, colour, low, high))
        panels.append((part, bars))
    first = rows[0][1]
    shapes = f'{first.text("units")} units of {first.text("shapes")} in {first.text("dtype")}'
    is_same = len({(row.text('units'), row.text('shapes'), row.text('dtype')) for _, row in rows}) == 1
    sheet = Sheet(f'One training step without the model{where(rows)}', clean(
        (shapes + ' · ' if is_same else '') + 'medians, whiskers from the least to the most of the turns · bytes in: '
        'of the rank that receives most'), look=look)
    if len(rows) == 1:
        sheet.rows.append([bars_panel([bar for _, bars in panels for bar in bars], look, us_text, 'time of a turn')])
    else:
        about = {'gather': 'Gathers of all units', 'reduce': 'Reduces of all units', 'step': 'Optimizer steps'}
        for part, bars in panels:
            sheet.rows.append([bars_panel(bars, look, us_text, 'time of a turn', about[part])])
    return sheet


def kernels_sheet(rows: Sourced, look: Look) -> Sheet:
    """step --local: a panel for each batch and number of threads, then the passes over memory."""
    products: dict[tuple, dict[int, list[Bar]]] = {}
    passes: dict[tuple, dict[int, list[Bar]]] = {}
    sources = list(dict.fromkeys(source for source, _ in rows))
    for source, row in rows:
        file = source if len(sources) > 1 else ''
        threads = int(row.number('threads', 1))
        key: tuple
        if row.text('part') == 'pass':
            key = (file, int(row.number('elements', 1)))
            passes.setdefault(key, {}).setdefault(threads, []).append(pass_bar(row, look))
        else:
            key = (file, *(int(row.number(name, 1)) for name in ('rows', 'columns', 'count')))
            products.setdefault(key, {}).setdefault(threads, []).append(product_bar(row, look))
    sheet = Sheet('Kernels of the step, one process', 'medians, whiskers from the least to the most of the turns · '
                  'Gflop/s count 5 (4 m n² + 2 n³) whoever multiplies · bare: the matrix products alone, plain: '
                  'Newton-Schulz written with them', look=look)
    for key, by_threads in products.items():
        batch = f'{grouped(key[1])} × {grouped(key[2])}' + (f', {grouped(key[3])} of them' if key[3] > 1 else '')
        sheet.rows.append(thread_row(by_threads, clean(f'{key[0]}: {batch}' if key[0] else batch), 'Gflop/s', look))
    for key, by_threads in passes.items():
        title = f'Passes over {grouped(key[1])} elements'
        sheet.rows.append(thread_row(by_threads, clean(f'{key[0]}: {title}' if key[0] else title), 'GB/s', look))
    return sheet


def thread_row(by_threads: dict[int, list[Bar]], title: str, unit: str, look: Look) -> list[Panel]:
    """Numbers of threads beside each other, with one scale."""
    row = [bars_panel(bars, look, lambda v: f'{v:,g}', unit, f'{title}, {counted(threads, "thread", "threads")}')
           for threads, bars in sorted(by_threads.items())]
    height = max(panel.height for panel in row)
    for panel in row:
        panel.height = height
    return row


def product_bar(row: Row, look: Look) -> Bar:
    part, name = row.text('part'), clean(row.text('contender', '?'))
    flops, rate = row.number('flops', above=True), row.number('gflops', above=True)
    low, high = (flops / row.number(f'wall_ms.{key}', above=True) * 1e-6 for key in ('max', 'min'))
    plain, bare = row.maybe('faster_than_plain'), row.maybe('faster_than_bare')
    words = [f'{rate:,.0f} GF']
    words += [f'{three_digits(plain)}× plain'] if plain and name != 'plain form' else []
    words += [f'{three_digits(bare)}× bare'] if bare and part == 'newton-schulz' else []
    is_chosen = row.raw('chosen') is True
    colour = (look.accent if is_chosen else look.heat[3]) if part == 'newton-schulz' else \
        look.heat[4] if part == 'muon step' else look.peer
    return Bar(name + (' (chosen)' if is_chosen else ''), rate, ', '.join(words), colour, low, high, is_chosen)


def pass_bar(row: Row, look: Look) -> Bar:
    rate, wall = row.number('gigabytes_per_second', above=True), row.number('wall_ms.median', above=True)
    low, high = (rate * wall / row.number(f'wall_ms.{key}', above=True) for key in ('max', 'min'))
    name, of_memcpy = clean(row.text('contender', '?')), row.maybe('of_memcpy')
    is_peer = name in ('memcpy', 'in-place scale')
    said = f'{three_digits(rate)} GB/s' + (f', {of_memcpy:.2f}× memcpy' if of_memcpy and name != 'memcpy' else '')
    return Bar(name, rate, said, look.peer if is_peer else look.accent, low, high)


def planning_sheet(rows: Sourced, look: Look) -> Sheet:
    """Time of planning over ranks, and how even the loads became."""
    times: dict[str, list[Row]] = {}
    for source, row in rows:
        name = f'{grouped(row.number("tensors", 1))} tensors'
        times.setdefault(name, []).append(row)
    if any(len({row.raw('ranks') for row in run}) < len(run) for run in times.values()):
        times = {}
        for source, row in rows:
            times.setdefault(clean(f'{grouped(row.number("tensors", 1))} tensors, {source}'), []).append(row)
    lines: list[Line] = []
    skews: list[Line] = []
    for i, (name, run) in enumerate(times.items()):
        run = sorted({row.number('ranks', 1): row for row in run}.values(), key=lambda row: row.number('ranks', 1))
        x = [row.number('ranks', 1) for row in run]
        y, low, high = ([row.number(f'time_us.{key}', above=True) for row in run] for key in ('median', 'min', 'max'))
        lines.append(Line(name, x, y, low, high, look.series[i % 8]))
        for load, marker, dashes in (('owned_bytes', 'o', '-'), ('step_flops', 's', '--')):
            skew = [max(0.0, row.number(f'{load}.max') / (row.number(f'{load}.mean') or 1) - 1) for row in run]
            label = 'bytes' if load == 'owned_bytes' else 'flops'
            skews.append(Line(label if len(times) == 1 else f'{label}, {name}', x, skew,
                              colour=look.series[(i if len(times) > 1 else len(skews)) % 8], marker=marker,
                              dashes=dashes))
    sheet = Sheet('Planning, one process', 'medians, bands from the least to the most of the turns', look=look)
    middles = [y for line in lines for y in line.y]
    log = max(middles) >= 8 * min(middles)

    def draw_times(axes: Any) -> None:
        draw_lines(axes, lines, look, grouped, us_text, log, x_label='ranks planned for', y_label='time of planning')

    def draw_skews(axes: Any) -> None:
        most = max(0.01, max(y for line in skews for y in line.y) * 1.06)
        draw_lines(axes, skews, look, grouped, percent_text, False, (0.0, most), x_label='ranks planned for',
                   y_label='above the mean')

    sheet.rows.append([Panel(draw, title, height=330, left=78,
                             right=26 + max(text_pixels(line.name, NORMAL) for line in named))
                       for title, draw, named in (('Time', draw_times, lines),
                                                  ('Load of the worst rank above the mean', draw_skews, skews))])
    return sheet


def tuning_sheet(rows: Sourced, look: Look) -> Sheet:
    """Links between typical pairs, and how far the cost model was off for each algorithm."""
    several = len({source for source, _ in rows}) > 1
    links = [(source, row) for source, row in rows if row.raw('link') is not None]
    factors = [(source, row) for source, row in rows if row.raw('factor') is not None]
    sheet = Sheet('Tuning: what messages cost', 'medians · factor: measured over predicted time, over gathers and '
                  'reduces of 1 MiB', look=look)
    own = [(f'{source}, ' if several else '', row) for source, row in links]
    panels = []
    for key, title, text in (('latency_us', 'Latency', us_text), ('overhead_us', 'Overhead at each end', us_text),
                             ('bandwidth', 'Rate (GB/s)', lambda v: f'{v:g}')):
        bars = []
        for prefix, row in own:
            value = row.number(key)
            name = f'{prefix}{row.text("link")} {int(row.number("a"))}–{int(row.number("b"))}'
            said = said_time(value) if key != 'bandwidth' else f'{three_digits(value)} GB/s'
            bars.append(Bar(clean(name), value, said, look.over if row.text('link') == 'network' else look.accent))
        if bars:
            panels.append(bars_panel(bars, look, text, 'GB/s' if key == 'bandwidth' else 'one way', title))
    if panels:
        sheet.rows.append(panels)
    bars = []
    for source, row in factors:
        value = row.number('factor')
        name = f'{source}, {row.text("algorithm")}' if several else row.text('algorithm')
        said = f'{three_digits(value)}× predicted, {counted(int(row.number("cases")), "case", "cases")}'
        bars.append(Bar(clean(name), value, said, look.accent))
    if bars:
        sheet.rows.append([bars_panel(bars, look, lambda v: f'{v:g}×', 'measured over predicted time',
                                      'Factors of algorithms', marks=[(1.0, 'as predicted', look.bound)])])
    if not sheet.rows:
        raise InvalidArgumentError(f'{rows[0][1].place}: rows of tune have a "link" or a "factor"; none of these has')
    return sheet


SHEETS = {'latency': latency_sheet, 'idle': idle_sheet, 'step': step_sheet, 'step-local': kernels_sheet,
          'plan': planning_sheet, 'tune': tuning_sheet}
