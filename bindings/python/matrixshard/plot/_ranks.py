# SPDX-License-Identifier: Apache-2.0
"""Bars of a plan's ranks: time of the step, and memory as a stack."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from ._look import Look, bytes_text, percent_text, tick_text, ticks_up_to, time_text
from ._owners import columns_over, filled, write_columns
from ._sheet import SMALL, Panel, beside, pixels_of, spread, text_pixels, ticks, write

if TYPE_CHECKING:
    from ._plan import Plan

# From the bottom up: what stays, then what comes on top.
PARTS = {'weights': 'weights', 'masters': 'masters', 'gradients': 'gradient sums', 'state': 'optimizer state',
         'slack': 'slack', 'slots': 'slots', 'own_slots': 'own slots', 'gradient_slots': 'gradient slots',
         'workspace': 'workspace'}
COLOURS = {'own_slots': 'slots'}  # which of Look.memory, where it isn't that of the same name
# Patterns, and whether they are dark: parts are told apart without colour.
HATCHES = {'masters': ('//', False), 'state': ('\\\\', True), 'slack': ('..', True), 'own_slots': ('..', False),
           'gradient_slots': ('//', False), 'workspace': ('..', True)}


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
    parts = {key: plan.of_ranks(key) for key in PARTS if key != 'own_slots'}
    # Of units with own_slot alone, and not in what older tools wrote.
    parts['own_slots'] = [rank.maybe('own_slots') or 0 for rank in plan.ranks]
    parts = {key: parts[key] for key in PARTS}

    def draw(axes: Any) -> None:
        totals = [sum(values[i] for values in parts.values()) for i in range(len(peaks))]
        x, inner, right = frame(axes, plan, max(totals), bytes_text, True, look)
        bottoms = [0.0] * len(peaks)
        labels = []
        for key, values in parts.items():
            hatch, is_dark = HATCHES.get(key, (None, False))
            boxes = [(x[i], bottoms[i], inner, value) for i, value in enumerate(values) if value > 0]
            filled(axes, boxes, look.memory[COLOURS.get(key, key)], hatch=hatch,
                   edgecolor=look.pattern_dark if is_dark else look.pattern)
            if values[-1] > 0:
                labels.append((bottoms[-1] + values[-1] / 2, f'{PARTS[key]} {bytes_text(values[-1])}', look.quiet))
            bottoms = [bottom + value for bottom, value in zip(bottoms, values)]
            if key == 'slack' and inner >= 2:  # the border between what stays and what comes on top, without colour
                for i, top in enumerate(bottoms):
                    axes.plot([x[i], x[i] + inner], [top, top], color=look.page, linewidth=2.2, solid_capstyle='butt')
        label_right(axes, right, labels, look)

    longest = max(text_pixels(f'{name} {bytes_text(parts[key][-1])}', SMALL) for key, name in PARTS.items())
    return [Panel(draw, 'Memory of each rank', note, height=300, left=72, right=32 + longest)]
