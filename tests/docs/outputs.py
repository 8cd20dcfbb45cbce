# SPDX-License-Identifier: Apache-2.0
"""Is this what it prints, but for the numbers? Pure.

Words, headers, the order of lines and what stands between must be equal; numbers (with their signs, commas, exponents,
units of bytes and of time) and hashes may be others, and so may the width of columns. A line that is "..." on the page
stands for any lines, a line's end of "..." for any end, <word> for any text.
"""
import re

HASH = re.compile(r'\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,16}\b')
UNIT = r'(?: ?(?:[kMGT]?i?B|Ki?B|ns|us|ms|s|GB/s))?\b'
NUMBER = re.compile(rf'(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?(?:{UNIT})')


def shape(line, exact=False):
    if exact:
        return line.strip()
    line = NUMBER.sub('#', HASH.sub('#', line))
    return re.sub(r'[ \t]+', ' ', line.strip())


def pattern_of(line, exact):
    """A regular expression of the shape of a line of the page."""
    text = re.escape(shape(line, exact))
    text = re.sub(r'<[^<>]+>', '.+', text)
    return re.sub(r'(?:\\\.){3}$', '.*', text)


def difference(shown, printed, part=False, exact=False):
    """A sentence, or ''. part: before and after may stand other lines. exact: numbers and columns are equal, too."""
    wanted = [line for line in shown if line.strip()]
    got = [line for line in printed if line.strip()]
    for start in range(len(got) if part else 1):
        found = follow(wanted, got[start:], part, exact)
        if not found:
            return ''
        if not part:
            return found
    return f'none of its lines begins what stands there: "{wanted[0].strip()}"; it printed:\n' + '\n'.join(got[:30])


def follow(wanted, got, part, exact):
    at, skipping = 0, False
    for line in wanted:
        if line.strip() == '...':
            skipping = True
            continue
        pattern = re.compile(pattern_of(line, exact))
        while skipping and at < len(got) and not pattern.fullmatch(shape(got[at], exact)):
            at += 1
        if at == len(got):
            return f'it does not print "{line.strip()}" (there)'
        if not pattern.fullmatch(shape(got[at], exact)):
            return f'the page has "{line.strip()}" where it prints "{got[at].strip()}"'
        at, skipping = at + 1, False
    if at < len(got) and not skipping and not part:
        return f'it also prints "{got[at].strip()}"'
    return ''
