# SPDX-License-Identifier: Apache-2.0
"""Charts: lines over an axis, and stacked bars, in panels beside each other. Equal input gives equal bytes.

    title
    -o- owner   -#- slices                       the legend, of all panels
    panel           panel
    12 |      /#    12 |
     1 |-o-o-o      ...                          the last figure of each line stands beside it
"""
import dataclasses
import math

from svg import MARGIN, NORMAL, SMALL, WIDTH, document, fitted, heading, marker, path, place, text_width, write

GAP = 20
PANEL_HEAD, PANEL_HEIGHT, PANEL_FOOT = 44, 180, 38  # title and what y is; the axes; ticks and what x is
PANEL_STEP = PANEL_HEAD + PANEL_HEIGHT + PANEL_FOOT + GAP
BAR, BAR_STEP = 16, 26


@dataclasses.dataclass
class Line:
    name: str
    look: int                        # which of SERIES
    points: list                     # (x, y), y above 0
    told: str = ''                   # beside the last point
    hollow: frozenset = frozenset()  # which x have a hollow marker


@dataclasses.dataclass
class Panel:
    title: str
    unit: str                        # of y, above the axis
    below: str                       # what x is
    lines: list


@dataclasses.dataclass
class Bar:
    name: str
    parts: list                      # amounts, one for each name of the legend
    told: str = ''                   # at its end


class Scale:
    """From values to a share of the axis; logarithmic where the values are far apart, or always with `log`."""

    def __init__(self, values, log=None):
        least, most = (min(values), max(values)) if values else (1, 1)
        self.log = most > 8 * least if log is None else log
        if self.log:
            room = max((most / least) ** 0.06, 1.1)
            self.least, self.most = least / room, most * room
            self.ticks = ticks_log(self.least, self.most)
        else:
            self.ticks = ticks_linear(most)
            self.least, self.most = 0, self.ticks[-1]

    def share(self, value):
        if self.log:
            return math.log(value / self.least) / math.log(self.most / self.least)
        return value / self.most


def ticks_log(least, most):
    """Up to 7 of 1, 2, 5, 10, ..., of powers of ten, or of every so manieth of them."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    found = []
    for factors in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1,)):
        found = [factor * 10.0 ** power for power in powers for factor in factors
                 if least <= factor * 10.0 ** power <= most]
        if len(found) <= 7:
            break
    return found[::math.ceil(len(found) / 7)]


def ticks_linear(most):
    step = 10.0 ** math.floor(math.log10(most / 5))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (step * factor) <= 6)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def tick_text(value):
    return f'{value:,.0f}' if value >= 1 and value == round(value) else f'{value:g}'


def spread(wanted, least_gap, low, high):
    """Heights near the wanted ones, at least a gap apart, inside [low, high] as far as there is room."""
    order = sorted(range(len(wanted)), key=lambda number: wanted[number])
    heights, below = list(wanted), low
    for number in order:
        heights[number] = max(wanted[number], below)
        below = heights[number] + least_gap
    above = high
    for number in reversed(order):
        heights[number] = min(heights[number], above)
        above = heights[number] - least_gap
    return heights


def add_legend(elements, names, sign, top):
    """Signs and names, in as many rows as they need. Returns where the rest begins."""
    x = MARGIN
    for number, name in enumerate(names):
        width = 34 + text_width(name) + 20
        if x > MARGIN and x + width - 20 > WIDTH - MARGIN:
            x, top = MARGIN, top + 20
        elements += sign(number, x, top) + [write(x + 34, top + 4, name)]
        x += width
    return top + 24


def line_sign(looks):
    def sign(number, x, y):
        look = looks[number]
        return [path(look, [(x, y), (x + 28, y)]), marker(look, x + 14, y)]
    return sign


def lines_chart(title, panels, columns, log=None, shared=False):
    """Panels in rows of up to `columns`; shared: with one scale of y, else with one each."""
    columns = min(columns, len(panels))
    elements, top = heading(title)
    looks = sorted({(line.look, line.name) for panel in panels for line in panel.lines})
    top = add_legend(elements, [name for _, name in looks], line_sign([look for look, _ in looks]), top)
    width = (WIDTH - 2 * MARGIN - GAP * (columns - 1)) / columns
    for number, panel in enumerate(panels):
        scale = Scale(heights_of(panels if shared else [panel]), log)
        elements += lines_panel(panel, scale, MARGIN + (number % columns) * (width + GAP),
                                top + number // columns * PANEL_STEP, width)
    return document(title, described_lines(panels), top + math.ceil(len(panels) / columns) * PANEL_STEP, elements)


def heights_of(panels):
    return [y for panel in panels for line in panel.lines for _, y in line.points]


def described_lines(panels):
    return '; '.join(f'{panel.title}, {line.name}: ' + ', '.join(f'{y:.4g} at {x:g}' for x, y in line.points)
                     for panel in panels for line in panel.lines) + '.'


def lines_panel(panel, scale, left, top, width):
    labels = [tick_text(tick) for tick in scale.ticks]
    inner_left = left + max(text_width(label, SMALL) for label in labels) + 8
    inner_right = left + width - max([text_width(line.told, SMALL) for line in panel.lines] + [0]) - 12
    inner_top, inner_bottom = top + PANEL_HEAD, top + PANEL_HEAD + PANEL_HEIGHT
    unit = panel.unit + (', logarithmic' if scale.log else '')
    elements = [write(left, top + 14, fitted(panel.title, width, NORMAL, True), NORMAL, bold=True),
                write(left, top + 31, fitted(unit, width, SMALL), SMALL, kind='quiet')]

    def y_of(value):
        return inner_bottom - scale.share(value) * PANEL_HEIGHT
    for tick, label in zip(scale.ticks, labels):
        y = y_of(tick)
        elements += [f'<line class="line" x1="{place(inner_left)}" y1="{place(y)}" x2="{place(inner_right)}" '
                     f'y2="{place(y)}"/>', write(inner_left - 6, y + 4, label, SMALL, 'end', 'quiet')]
    x_of = places_of_x(panel, inner_left + 8, inner_right - 8)
    elements += x_ticks(x_of, inner_bottom, left, left + width)
    elements.append(write((inner_left + inner_right) / 2, inner_bottom + 34,
                          fitted(panel.below, width, SMALL), SMALL, 'middle', 'quiet'))
    for line in reversed(panel.lines):  # the first one lies on top
        if len(line.points) > 1:
            elements.append(path(line.look, [(x_of[x], y_of(y)) for x, y in line.points]))
        elements += [marker(line.look, x_of[x], y_of(y), x in line.hollow) for x, y in line.points]
    return elements + ends(panel.lines, y_of, inner_right, inner_top, inner_bottom)


def ends(lines, y_of, inner_right, inner_top, inner_bottom):
    """What the last point of each line is, beside it."""
    told = [line for line in lines if line.told and line.points]
    heights = spread([y_of(line.points[-1][1]) for line in told], 15, inner_top, inner_bottom)
    return [write(inner_right + 6, y + 4, line.told, SMALL, kind=f't{line.look}') for line, y in zip(told, heights)]


def places_of_x(panel, left, right):
    """x -> pixels, by its logarithm: nodes, GPUs and tokens are doubled from point to point."""
    values = sorted({x for line in panel.lines for x, _ in line.points})
    if len(values) < 2:
        return {x: (left + right) / 2 for x in values}
    whole = math.log(values[-1] / values[0])
    return {x: left + (right - left) * math.log(x / values[0]) / whole for x in values}


def x_ticks(x_of, bottom, left, right):
    """A text at the last one, and at every first, second or so manieth before it, as there is room."""
    ticks = sorted(x_of.items())
    elements = [f'<line class="line" x1="{place(x)}" y1="{place(bottom)}" x2="{place(x)}" y2="{place(bottom + 4)}"/>'
                for _, x in ticks]
    halves = {value: text_width(tick_text(value), SMALL) / 2 for value, _ in ticks}
    for step in range(1, len(ticks) + 1):
        kept = ticks[::-1][::step][::-1]
        edges = [edge for value, x in kept for edge in (x - halves[value] - 2, x + halves[value] + 2)]
        if [left, *edges, right] == sorted([left, *edges, right]):
            break
    return elements + [write(x, bottom + 16, tick_text(value), SMALL, 'middle', 'quiet') for value, x in kept]


def bars_chart(title, part_names, panels):
    """Stacked bars, one below the other: panels are (title, [Bar]), on one scale."""
    elements, top = heading(title)

    def sign(number, x, y):
        return [f'<rect class="b{number}" x="{place(x + 10)}" y="{place(y - 7)}" width="14" height="14"/>']
    top = add_legend(elements, part_names, sign, top)
    every = [bar for _, bars in panels for bar in bars]
    left = MARGIN + max([text_width(bar.name) for bar in every] + [0]) + 10
    right = WIDTH - MARGIN - max([text_width(bar.told, SMALL) for bar in every] + [0]) - 8
    most = max([sum(bar.parts) for bar in every] + [0]) or 1
    for panel_title, bars in panels:
        elements.append(write(MARGIN, top + 14, fitted(panel_title, WIDTH - 2 * MARGIN, NORMAL, True), bold=True))
        top += 24
        for bar in bars:
            elements += bar_elements(bar, left, top, (right - left) / most)
            top += BAR_STEP
        top += GAP / 2
    return document(title, described_bars(part_names, panels), top + MARGIN / 2, elements)


def bar_elements(bar, left, top, pixels):
    elements, x = [write(left - 10, top + 13, bar.name, anchor='end')], left
    for number, part in enumerate(bar.parts):
        if part * pixels >= 0.05:
            elements.append(f'<rect class="b{number}" x="{place(x)}" y="{place(top)}" width="{place(part * pixels)}" '
                            f'height="{BAR}"/>')
        x += part * pixels
    return elements + [write(x + 8, top + 13, bar.told, SMALL)]


def described_bars(part_names, panels):
    return '; '.join(f'{title}, {bar.name}: ' + ', '.join(f'{name} {part:.4g}'
                                                          for name, part in zip(part_names, bar.parts))
                     for title, bars in panels for bar in bars) + '.'
