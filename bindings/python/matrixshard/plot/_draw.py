# SPDX-License-Identifier: Apache-2.0
"""The two shapes that measurements take: lines with bands over a scale, and bars beside names."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence

from ._look import Look, ticks_up_to
from ._sheet import NORMAL, SMALL, beside, fitted, pixels_of, spread, text_pixels, ticks


@dataclass
class Line:
    """A median over x, with the least and most of the turns where they are known."""
    name: str
    x: list[float]
    y: list[float]
    low: Optional[list[float]] = None
    high: Optional[list[float]] = None
    colour: str = ''
    marker: Optional[str] = 'o'
    dashes: Any = '-'
    width: float = 2
    has_band: bool = False  # even among many


BANDS_MOST = 4  # more than that are mud


def thin_out_bands(lines: Sequence[Line]) -> None:
    """Among many lines those that are to have a band keep theirs."""
    if sum(line.low is not None for line in lines) > BANDS_MOST:
        for line in lines:
            if not line.has_band:
                line.low = line.high = None


def draw_lines(axes: Any, lines: Sequence[Line], look: Look, x_text: Callable[[float], str],
               y_text: Callable[[float], str], y_log: bool = False, y_range: Optional[tuple[float, float]] = None,
               binary: bool = True, x_label: str = '', y_label: str = '') -> None:
    """Names stand at the lines' ends in their colours."""
    set_x(axes, sorted({x for line in lines for x in line.x}), look, x_text, binary)
    set_y(axes, y_range or range_of(lines, y_log), look, y_text, y_log)
    for line in lines:
        if line.low and line.high:
            axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.14, linewidth=0)
        axes.plot(line.x, line.y, color=line.colour, linewidth=line.width, linestyle=line.dashes, marker=line.marker,
                  markersize=5 if line.marker != '*' else 7, markeredgewidth=0, solid_capstyle='round',
                  label='_' + line.name, zorder=3)
    name_ends(axes, lines, look)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)


def range_of(lines: Sequence[Line], log: bool) -> tuple[float, float]:
    """Of medians, and of bands as far as they are no more than 1.5 times beyond: one late turn shall not press all
    flat."""
    middles = [y for line in lines for y in line.y]
    least, most = min(middles), max(middles)
    highs = [y for line in lines for y in (line.high or []) if y <= 1.5 * most] + [most]
    lows = [y for line in lines for y in (line.low or []) if y >= least / 1.5] + [least]
    if log:
        return min(lows) / 1.25, max(highs) * 1.25
    return 0.0, (max(highs) or 1.0) * 1.06


def set_x(axes: Any, values: list[float], look: Look, text: Callable[[float], str], binary: bool) -> None:
    """A scale of doublings where values double, or nearly; a tick at each value, or as many of them as fit."""
    least, most = values[0], values[-1]
    steps = [after - before for before, after in zip(values, values[1:])]
    is_even = len(steps) > 1 and max(steps) - min(steps) <= 0.01 * max(steps)
    log = least > 0 and most >= 4 * least and not is_even
    if log:
        axes.set_xscale('log', base=2)
        room = (most / least) ** 0.03
        axes.set_xlim(least / room, most * room)
    else:
        room = 0.04 * (most - least) or 1
        axes.set_xlim(least - room, most + room)
    width, _ = pixels_of(axes)
    place = math.log2 if log else float
    span = place(most) - place(least) or 1
    shown: list[float] = []
    apart = 22 + max(text_pixels(text(value), SMALL) for value in values)
    for value in values:
        if not shown or (place(value) - place(shown[-1])) / span * width * 0.94 >= apart:
            shown.append(value)
    ticks(axes, 'x', shown, [text(value) for value in shown], look, grid=False)


def set_y(axes: Any, limits: tuple[float, float], look: Look, text: Callable[[float], str], log: bool) -> None:
    least, most = limits
    if not log:
        axes.set_ylim(least, most)
        values = [value for value in ticks_up_to(most) if value >= least]
    else:
        axes.set_yscale('log')
        axes.set_ylim(least, most)
        decades = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            values = [factor * 10.0 ** decade for decade in decades for factor in factors]
            values = [value for value in values if least <= value <= most]
            if len(values) <= 7:
                break
        values = values[::math.ceil(len(values) / 8)]
    ticks(axes, 'y', values, [text(value) for value in values], look)


def name_ends(axes: Any, lines: Sequence[Line], look: Look) -> None:
    width, height = pixels_of(axes)
    scale = axes.figure.dpi / 100
    ends = [axes.transData.transform((line.x[-1], line.y[-1])) for line in lines]
    box = axes.get_window_extent()
    x = [(end[0] - box.x0) / scale for end in ends]
    y = [min(height, max(0.0, (end[1] - box.y0) / scale)) for end in ends]
    at = spread(y, 4, height - 4)
    for line, left, here, there in zip(lines, x, y, at):
        if not line.name:
            continue
        beside(axes, line.name, line.x[-1], line.y[-1], width + 14 - left, there - here, color=line.colour, va='center',
               arrowprops={'arrowstyle': '-', 'color': line.colour, 'linewidth': 0.8, 'shrinkA': 0, 'shrinkB': 3,
                           'relpos': (0, 0.5)})


@dataclass
class Bar:
    """low, high: whiskers. said: what stands behind the bar."""
    name: str
    value: float
    said: str
    colour: str
    low: Optional[float] = None
    high: Optional[float] = None
    is_strong: bool = False
    beyond: Sequence[tuple[float, str]] = ()  # further ends, each in its colour, from the nearest on

    def end(self) -> float:
        return max([self.value, self.high or 0, *(value for value, _ in self.beyond)])


BAR = 26  # pixels of a row


def bars_height(bars: Sequence[Bar]) -> float:
    return BAR * len(bars)


def names_width(bars: Sequence[Bar], most: float = 260) -> float:
    return min(most, max(text_pixels(bar.name, NORMAL, 'bold' if bar.is_strong else 'normal') for bar in bars)) + 14


def draw_bars(axes: Any, bars: Sequence[Bar], look: Look, x_text: Callable[[float], str], x_label: str,
              marks: Sequence[tuple[float, str, str]] = (), x_most: Optional[float] = None) -> None:
    """Bars from the top down; marks: (value, name, colour) of lines across all of them."""
    width, _ = pixels_of(axes)
    most = x_most or bars_most(bars, width, marks)
    axes.set_xlim(0, most)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    values = ticks_up_to(most, count=max(2, min(6, int(width / 90))))
    ticks(axes, 'x', values, [x_text(value) for value in values], look)
    axes.set_yticks([])
    axes.spines['bottom'].set_visible(False)
    axes.axvline(0, color=look.quiet, linewidth=1)
    for value, name, colour in marks:
        axes.plot([value, value], [-0.5, len(bars) - 0.5], color=colour, linewidth=1.5, dashes=(4, 2), zorder=3)
        beside(axes, name, value, -0.5, 0, 3, color=colour, ha='center', va='bottom', size=SMALL)
    cap = cap_of(bars)
    for i, bar in enumerate(bars):
        for value, colour in reversed(bar.beyond):
            axes.barh(i, value, height=0.68, color=colour, linewidth=0, zorder=2)
        axes.barh(i, bar.value, height=0.68, color=bar.colour, linewidth=0, zorder=2)
        if bar.low is not None and bar.high is not None:
            whisker(axes, i, bar.low, bar.high, cap, look)
        beside(axes, bar.said, min(bar.end(), cap), i, 8, 0, color=look.ink, va='center', size=SMALL,
               zorder=6,
               bbox={'facecolor': look.page, 'edgecolor': 'none', 'pad': 1})
        weight = 'bold' if bar.is_strong else 'normal'
        beside(axes, fitted(bar.name, 260, NORMAL, weight), 0, i, -10, 0, color=look.ink, ha='right', va='center',
               weight=weight)
    axes.set_xlabel(x_label)


def bars_most(bars: Sequence[Bar], width: float, marks: Sequence[tuple[float, str, str]] = ()) -> float:
    """The right end of an axis on which each bar has room for what stands behind it."""
    least_scale, cap = math.inf, cap_of(bars)
    for bar in bars:
        end = min(bar.end(), cap)
        if end > 0:
            least_scale = min(least_scale, max(40.0, width - 16 - text_pixels(bar.said, SMALL)) / end)
    for value, _, _ in marks:
        if value > 0:
            least_scale = min(least_scale, (width - 24) / value)
    return width / least_scale if math.isfinite(least_scale) else 1.0


def cap_of(bars: Sequence[Bar]) -> float:
    """Where whiskers are cut off: one late turn shall not press all bars flat."""
    return 1.5 * max(bar.value if not bar.beyond else bar.end() for bar in bars)


def whisker(axes: Any, y: float, low: float, high: float, cap: float, look: Look) -> None:
    end = min(high, cap)
    axes.plot([low, end], [y, y], color=look.ink, linewidth=1.2, solid_capstyle='butt', zorder=4)
    for x in (low, end) if high <= cap else (low,):
        axes.plot([x, x], [y - 0.14, y + 0.14], color=look.ink, linewidth=1.2, zorder=4)
    if high > cap:
        axes.plot([end], [y], color=look.ink, marker='>', markersize=5, markeredgewidth=0, zorder=4)

