# SPDX-License-Identifier: Apache-2.0
"""A picture 1,400 pixels wide, filled from the top down: title, facts, then rows of panels.

Places are counted in pixels, as on a page, because text doesn't shrink with an axis: a margin is as wide as what is
written in it. Nothing here goes through pyplot or the reader's matplotlibrc, and every text says that it is no formula.
"""
from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from ..errors import InvalidArgumentError, SystemCallError
from ._look import LIGHT, Look

WIDTH = 1400
DPI = 100
SIDE = 40               # left and right of everything
SMALL, NORMAL, HEAD, TITLE = 8.5, 9.5, 11.5, 18.0  # points; one is 1.39 pixels


def matplotlib() -> Any:
    """The package, or a sentence that says what to install."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.figure
        import matplotlib.style
    except ImportError as error:
        import sys
        raise ImportError(f'matrixshard.plot draws with matplotlib, which {sys.executable} does not have ({error}): '
                          'pip install matplotlib, or Debian\'s python3-matplotlib') from None
    return matplotlib


def style() -> Any:
    """A context with matplotlib's own defaults, whatever the reader's are, and SVG that is the same each time."""
    return matplotlib().style.context(['default', {
        'font.family': ['DejaVu Sans'], 'text.usetex': False, 'svg.hashsalt': 'matrixshard', 'svg.fonttype': 'path',
        'hatch.linewidth': 1.0, 'path.simplify': False, 'axes.unicode_minus': False, 'savefig.bbox': None}])


@functools.lru_cache(maxsize=4096)
def text_pixels(text: str, size: float = NORMAL, weight: str = 'normal') -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path
    font = FontProperties(family='DejaVu Sans', size=size, weight=weight)
    # Pixels are up to 3 % more, because hinting rounds the step of each letter.
    return text_to_path.get_text_width_height_descent(text, font, False)[0] * DPI / 72 * 1.03


def fitted(text: str, pixels: float, size: float = NORMAL, weight: str = 'normal') -> str:
    """The text, or as much of its begin and end as fits."""
    if text_pixels(text, size, weight) <= pixels:
        return text
    least, most = 0, len(text)
    while least < most:
        kept = (least + most + 1) // 2
        cut = text[:(kept + 1) // 2] + '…' + text[len(text) - kept // 2:]
        least, most = (kept, most) if text_pixels(cut, size, weight) <= pixels else (least, kept - 1)
    return text[:(least + 1) // 2] + '…' + text[len(text) - least // 2:]


def wrapped(text: str, pixels: float, size: float = NORMAL) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and text_pixels(f'{lines[-1]} {word}', size) <= pixels:
            lines[-1] += ' ' + word
        else:
            lines.append(fitted(word, pixels, size))
    return lines


def write(axes: Any, x: float, y: float, text: str, **more: Any) -> Any:
    """Text in an axes: never a formula, never cut at the axes' edge."""
    more.setdefault('size', NORMAL)
    return axes.text(x, y, text, parse_math=False, clip_on=False, **more)


def points(pixels: float) -> float:
    return pixels * 72 / DPI


def beside(axes: Any, text: str, x: float, y: float, dx: float, dy: float, transform: Any = None, **more: Any) -> Any:
    """Text that many pixels (up and right) from a point."""
    more.setdefault('size', NORMAL)
    return axes.annotate(text, (x, y), (points(dx), points(dy)), xycoords=transform or 'data',
                         textcoords='offset points', annotation_clip=False, parse_math=False, **more)


@dataclass
class Panel:
    """One axes. `left`, `right`: pixels for what is written beside it; `below`: under it."""
    draw: Callable[[Any], None]
    title: str = ''
    note: str = ''
    height: float = 240
    left: float = 66
    right: float = 148
    below: float = 44
    weight: float = 1


def head_of(row: list[Panel]) -> float:
    return 34 if any(panel.title for panel in row) else 4


def row_height(row: list[Panel]) -> float:
    return head_of(row) + max(panel.height + panel.below for panel in row) + 14


@dataclass
class Sheet:
    """title; facts: what holds for all of it; said: a sentence above the panels; rows of panels."""
    title: str
    facts: str = ''
    said: list[str] = field(default_factory=list)
    is_warning: bool = False
    rows: list[list[Panel]] = field(default_factory=list)
    look: Look = LIGHT

    def figure(self, axes: Any = None) -> Any:
        """A new figure; with `axes`, the first panel alone in there."""
        if axes is not None:
            with style():
                dress(axes, self.look)
                self.rows[0][0].draw(axes)
                heading = self.rows[0][0].title
                axes.set_title(self.title + (f': {heading}' if heading else ''), loc='left', size=HEAD,
                               color=self.look.ink, parse_math=False)
            return axes.figure
        with style():
            return self._whole()

    def _whole(self) -> Any:
        lines = [line for text in self.said for line in wrapped(text, WIDTH - 2 * SIDE - 36, HEAD)]
        facts = wrapped(self.facts, WIDTH - 2 * SIDE, NORMAL)
        begin = 68 + 18 * len(facts)  # of the sentence
        top: float = begin + 22 + (20 * len(lines) + 36 if lines else 0)
        height = top + sum(row_height(row) for row in self.rows) + 12
        package = matplotlib()
        figure = package.figure.Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, facecolor=self.look.page)
        package.backends.backend_agg.FigureCanvasAgg(figure)

        def say(x: float, y: float, text: str, **more: Any) -> None:
            figure.text(x / WIDTH, 1 - y / height, text, parse_math=False, va='baseline', **more)

        title = fitted(self.title, WIDTH - 2 * SIDE, TITLE, 'bold')
        say(SIDE, 58, title, size=TITLE, weight='bold', color=self.look.ink)
        for i, line in enumerate(facts):
            say(SIDE, 84 + 18 * i, line, size=NORMAL, color=self.look.quiet)
        if lines:
            from matplotlib.patches import Rectangle
            edge = self.look.warn if self.is_warning else self.look.accent
            for x, width, colour in ((SIDE, WIDTH - 2 * SIDE, self.look.panel), (SIDE, 5, edge)):
                box = 20 * len(lines) + 18
                figure.add_artist(Rectangle((x / WIDTH, 1 - (begin + 16 + box) / height), width / WIDTH, box / height,
                                            color=colour, linewidth=0))
            for i, line in enumerate(lines):
                say(SIDE + 20, begin + 16 + 24 + 20 * i, line, size=HEAD, color=self.look.ink)
        for row in self.rows:
            self._row(figure, row, top, height)
            top += row_height(row)
        return figure

    def _row(self, figure: Any, row: list[Panel], top: float, height: float) -> None:
        gap = 36
        share = (WIDTH - 2 * SIDE - gap * (len(row) - 1)) / sum(panel.weight for panel in row)
        x, head = float(SIDE), head_of(row)
        for panel in row:
            width = share * panel.weight
            inner = max(40.0, width - panel.left - panel.right)
            axes = figure.add_axes(((x + panel.left) / WIDTH, 1 - (top + head + panel.height) / height, inner / WIDTH,
                                    panel.height / height))
            dress(axes, self.look)
            panel.draw(axes)
            title = fitted(panel.title, width, HEAD, 'bold')
            figure.text(x / WIDTH, 1 - (top + 12) / height, title, size=HEAD, weight='bold', color=self.look.ink,
                        parse_math=False)
            said = text_pixels(title, HEAD, 'bold') + 14
            if panel.note and width - said > 100:
                figure.text((x + said) / WIDTH, 1 - (top + 12) / height, fitted(panel.note, width - said), size=NORMAL,
                            color=self.look.quiet, parse_math=False)
            x += width + gap


def dress(axes: Any, look: Look) -> None:
    axes.set_facecolor(look.page)
    for name, spine in axes.spines.items():
        spine.set_visible(name == 'bottom')
        spine.set_color(look.quiet)
    axes.tick_params(axis='both', which='both', length=0, labelsize=SMALL, labelcolor=look.quiet, pad=5)
    axes.minorticks_off()
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(size=SMALL, color=look.quiet, parse_math=False)


def ticks(axes: Any, which: str, values: list[float], texts: list[str], look: Look, grid: bool = True) -> None:
    axis = axes.xaxis if which == 'x' else axes.yaxis
    axis.set_ticks(values, texts)
    axis.set_ticks([], minor=True)
    if grid:
        axes.grid(True, axis=which, color=look.line, linewidth=0.8)


def pixels_of(axes: Any) -> tuple[float, float]:
    """Width and height in the pixels of this module, whatever the figure's own resolution is."""
    box = axes.get_window_extent()
    return box.width * DPI / axes.figure.dpi, box.height * DPI / axes.figure.dpi


def spread(places: list[float], least: float, most: float, apart: float = 16) -> list[float]:
    """Places (any order) moved so that they are `apart` and between `least` and `most` if they fit."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    result = list(places)
    for n, i in enumerate(order):
        result[i] = max(places[i], result[order[n - 1]] + apart if n else least)
    limit = most
    for i in reversed(order):
        result[i] = min(result[i], limit)
        limit = result[i] - apart
    return result


def save(figure: Any, path: str) -> None:
    """Writes a picture; PNG or SVG by the end of its name. The same figure gives the same bytes each time."""
    kind = suffix_of(path)
    import io
    import warnings
    from . import __name__ as maker
    metadata = {'Software': maker} if kind == 'png' else {'Date': None, 'Creator': maker}
    buffer = io.BytesIO()
    with style(), warnings.catch_warnings():
        warnings.filterwarnings('ignore', message='Glyph .* missing from')  # a box stands for it
        figure.savefig(buffer, format=kind, dpi=figure.dpi, facecolor=figure.get_facecolor(), metadata=metadata)
    try:
        with open(path, 'wb') as file:
            file.write(buffer.getvalue())
    except OSError as error:
        raise SystemCallError(f'{path} cannot be written: {error.strerror or error}') from None


def suffix_of(path: str) -> str:
    """`png` or `svg`, or a sentence."""
    suffix: Optional[str] = os.path.splitext(path)[1].lower().lstrip('.')
    if suffix not in ('png', 'svg'):
        raise InvalidArgumentError(f'{path}: pictures are written as .png or .svg' +
                                   (f', not as .{suffix}' if suffix else '; this name ends in neither'))
    return suffix
