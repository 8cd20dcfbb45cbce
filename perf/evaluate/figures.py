# SPDX-License-Identifier: Apache-2.0
"""How figures are written: three digits or so, and a dash where there is none."""
import math

NONE = '–'


def digits(value):
    """0.123, 1.23, 12.3, 1,234."""
    if value is None:
        return NONE
    if value == 0:
        return '0'
    if abs(value) < 0.001:
        return f'{value:.0e}'.replace('e-0', 'e-')
    return f'{value:,.{min(3, max(0, 2 - math.floor(math.log10(abs(value)))))}f}'


def ratio(value):
    """Two decimals up to 10, so that 1.00 and 0.97 can be told apart."""
    return NONE if value is None else f'{value:.2f}' if value < 9.995 else digits(value)


def percent(value):
    return NONE if value is None else f'{100 * value:.0f}%' if value >= 0.0995 or value == 0 else f'{100 * value:.2g}%'


def size(value):
    if value is None:
        return NONE
    unit = 0
    while value >= 999.5 and unit < 5:
        value, unit = value / 1024, unit + 1
    return f'{digits(value) if unit else f"{value:.0f}"} {("B", "KiB", "MiB", "GiB", "TiB", "PiB")[unit]}'


def scientific(value):
    return NONE if value is None else '0' if value == 0 else f'{value:.1e}'


def duration(seconds):
    return plural(round(seconds), 'second', 'seconds') if seconds < 120 else f'{seconds / 60:.0f} minutes'


def whole(value):
    return f'{value:,.0f}'


def plural(value, one, many):
    return f'{whole(value)} {one if value == 1 else many}'


def listed(words):
    """a, b and c."""
    words = list(words)
    return words[0] if len(words) == 1 else ', '.join(words[:-1]) + ' and ' + words[-1]


def rate(bits):
    for unit, least in (('Gbit/s', 10 ** 9), ('Mbit/s', 10 ** 6), ('kbit/s', 10 ** 3)):
        if bits >= least:
            return f'{bits / least:g} {unit}'
    return f'{bits:g} bit/s'
