# SPDX-License-Identifier: Apache-2.0
"""Colours and numbers as words, both those of the page that `mxs plan --html` writes (src/cli/plan_page.html)."""
from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """Colours by what they are for. heat: one hue in even steps of lightness. series: lines; apart for every kind of
    colour blindness by hue or lightness, and each has a marker of its own besides. memory: parts from the bottom up."""
    page: str
    panel: str
    ink: str
    quiet: str
    peer: str
    line: str
    accent: str
    warn: str
    over: str
    mean: str
    bound: str
    heat: tuple[str, ...]
    series: tuple[str, ...]
    memory: dict[str, str]
    pattern: str
    pattern_dark: str


LIGHT = Look(
    page='#ffffff', panel='#f6f8fa', ink='#1c2128', quiet='#57606a', peer='#98a2ad', line='#d5dbe1',
    accent='#1d61af', warn='#9a5b00', over='#c4570b', mean='#1c2128', bound='#b3261e',
    heat=('#f0f2f5', '#c9e0ff', '#9cc7fe', '#6cacfe', '#4592ef', '#2c78d2', '#1d61af', '#174a87', '#15365d'),
    series=('#1d61af', '#c4570b', '#007a66', '#9a4a94', '#4592ef', '#a07800', '#8a5a2b', '#15365d'),
    memory={'weights': '#004b96', 'masters': '#3072c1', 'gradients': '#5d94da', 'state': '#8db7ed', 'slack': '#c6d9f2',
            'slots': '#b85f05', 'gradient_slots': '#e78537', 'workspace': '#feb98b'},
    pattern='#ffffff', pattern_dark='#1c2128')

DARK = Look(
    page='#0f141a', panel='#171e26', ink='#e6ebf1', quiet='#a0abb8', peer='#5d6874', line='#303a45',
    accent='#7db6ff', warn='#f2b866', over='#f0913f', mean='#e6ebf1', bound='#ff8f85',
    heat=('#1b232c', '#193d6a', '#1f5391', '#2a6ab6', '#3c82d8', '#559cf4', '#7db6ff', '#add0fe', '#d9eaff'),
    series=('#7db6ff', '#f0913f', '#35c4a5', '#e18bd2', '#4a90e2', '#d9b13b', '#c9a27a', '#d9eaff'),
    memory={'weights': '#1762b6', 'masters': '#4081d2', 'gradients': '#69a1e8', 'state': '#9bc1f1', 'slack': '#d1dff2',
            'slots': '#c96805', 'gradient_slots': '#ed914c', 'workspace': '#ffc29a'},
    pattern='#0f141a', pattern_dark='#0f141a')


def look_of(dark: bool) -> Look:
    return DARK if dark else LIGHT


MARKERS = ('o', 's', '^', 'D', 'v', 'P', 'X', '*')  # one for each of series


def grouped(number: float) -> str:
    return f'{number:,.0f}'


def counted(count: int, one: str, many: str) -> str:
    return f'{grouped(count)} {one if count == 1 else many}'


def shortened(value: float) -> str:
    """Two decimals below 100, one below 1,000."""
    return f'{value:.2f}' if value < 99.995 else f'{value:.1f}' if value < 999.95 else grouped(value)


def three_digits(value: float) -> str:
    """As many decimals as make three digits: 0.123, 1.23, 12.3, 1,234."""
    if value <= 0 or not math.isfinite(value):
        return '0'
    return f'{value:.2g}' if value < 0.01 else f'{value:,.{min(3, max(0, 2 - math.floor(math.log10(value))))}f}'


def bytes_text(count: float) -> str:
    units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB']
    unit = 0
    while count >= 1024 and unit < len(units) - 1:
        count /= 1024
        unit += 1
    return f'{count:.0f} B' if unit == 0 else f'{shortened(count)} {units[unit]}'


def time_text(ns: float) -> str:
    if ns == 0:
        return '0 ms'
    for most, size, unit in ((999995, 1e3, 'µs'), (9999950000, 1e6, 'ms'), (math.inf, 1e9, 's')):
        if ns < 999.5:
            return f'{ns:.0f} ns'
        if ns < most:
            return f'{shortened(ns / size)} {unit}'
    return f'{ns} ns'


def count_text(count: float) -> str:
    for size, word in ((1e12, 'trillion'), (1e9, 'billion'), (1e6, 'million')):
        if count >= size:
            return f'{shortened(count / size)} {word}'
    return grouped(count)


def percent_text(share: float) -> str:
    if share == 0:
        return '0%'
    decimals = 2 if share < 0.09995 else 1 if share < 0.9995 else 0
    return 'below 0.01%' if share < 0.0001 else f'{100 * share:.{decimals}f}%'


def gap_text(worst: float, bound: float) -> str:
    """How far a worst load is above its bound."""
    if bound <= 0:
        return ''
    gap = (worst - bound) / bound
    return 'no gap' if gap == 0 else f'gap {percent_text(gap)}' if gap < 9.995 else f'{grouped(gap + 1)}× the bound'


def tick_text(text: str) -> str:
    """`2.00 MiB` as `2 MiB`, and nothing as `0` of whatever unit."""
    number, _, unit = text.partition(' ')
    number = number.rstrip('0').rstrip('.') if '.' in number else number
    return '0' if number == '0' else f'{number} {unit}'.rstrip()


def ticks_up_to(most: float, binary: bool = False, count: int = 6) -> list[float]:
    """Powers of two for bytes, 1-2-5 for others."""
    if not most > 0:
        return [0]
    if binary:
        step = 2.0 ** math.ceil(math.log2(most / (count - 1)))
    else:
        step = 10.0 ** math.floor(math.log10(most / count))
        step *= next(factor for factor in (1, 2, 5, 10, 20) if most / (step * factor) <= count)
    return [step * i for i in range(int(most * 1.0001 / step) + 1)]


def clean(text: object) -> str:
    """A name as one line that every font and XML can hold."""
    return ''.join(letter if letter.isprintable() else '\N{REPLACEMENT CHARACTER}' for letter in str(text))
