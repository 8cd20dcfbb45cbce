# SPDX-License-Identifier: Apache-2.0
"""What a picture is made of: texts with their widths, colours, markers and dashes of series, and the SVG around them.

Places are counted in pixels. A picture has a background of its own, light or dark as its reader has it, and is 720
wide, so that a page of that width shows its texts as they are. Each series has a colour, a marker and a dash of its
own.
"""
LICENCE = 'SPDX-License-' + 'Identifier: Apache-2.0'  # in pieces: of this file's own there is one
WIDTH = 720
MARGIN = 16
SMALL, NORMAL, LARGE = 12, 13, 16  # pixels of text

# Those of the page of mxs plan --html (src/cli/plan_page.html), light and dark.
COLOURS = {'page': ('#ffffff', '#0f141a'), 'ink': ('#1c2128', '#e6ebf1'), 'quiet': ('#57606a', '#a0abb8'),
           'line': ('#d5dbe1', '#303a45')}
SERIES = (('#1d61af', '#7db6ff'), ('#c4570b', '#f0913f'), ('#007a66', '#35c4a5'), ('#9a4a94', '#e18bd2'),
          ('#57606a', '#a0abb8'))
STACK = (('#004b96', '#1762b6'), ('#8db7ed', '#9bc1f1'), ('#c4570b', '#f0913f'), ('#57606a', '#a0abb8'))
DASHES = ('', '7 3', '2 3', '9 3 2 3', '4 4')

# Widths of DejaVu Sans, the widest of the fonts that the style asks for, as shares of its size; others have 0.64.
WIDTHS = {' .,': 0.32, 'ijlI|J': 0.30, ':;/-f()': 0.39, 'rtszc': 0.52, 'mMWw@%': 0.99, '×<>&+=–…': 0.84,
          'ABCDEFGHKLNOPQRSTUVXYZ': 0.79}
LETTERS = {letter: width for letters, width in WIDTHS.items() for letter in letters}


def text_width(text, size=NORMAL, bold=False):
    widths = (LETTERS.get(letter, 0.64 if letter.isascii() else 1) for letter in text)
    return sum(widths) * size * (1.12 if bold else 1)


def fitted(text, pixels, size=NORMAL, bold=False):
    while len(text) > 1 and text_width(text, size, bold) > pixels:
        text = text[:-2].rstrip() + '…'
    return text


def wrapped(text, pixels, size=NORMAL):
    lines = []
    for word in text.split():
        if lines and text_width(f'{lines[-1]} {word}', size) <= pixels:
            lines[-1] += ' ' + word
        else:
            lines.append(fitted(word, pixels, size))
    return lines


def escaped(text):
    clean = ''.join(letter if letter.isprintable() else '\N{REPLACEMENT CHARACTER}' for letter in text)
    return clean.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;').replace('"', '&quot;')


def place(value):
    """A coordinate, to a tenth of a pixel."""
    text = f'{value:.1f}'.removesuffix('.0')
    return '0' if text == '-0' else text


def write(x, y, text, size=NORMAL, anchor='start', kind='ink', bold=False):
    more = '' if anchor == 'start' else f' text-anchor="{anchor}"'
    more += ' font-weight="bold"' if bold else ''
    return f'<text class="{kind}" x="{place(x)}" y="{place(y)}" font-size="{size}"{more}>{escaped(text)}</text>'


def style():
    """Classes: page, ink, quiet, line; of series s0.. for strokes, d0.. for markers, h0.. for hollow ones, t0.. for
    texts; b0.. of bars."""
    def rules(theme):
        page, ink, quiet, line = (COLOURS[name][theme] for name in ('page', 'ink', 'quiet', 'line'))
        text = f'.page{{fill:{page};stroke:{line}}}.ink{{fill:{ink}}}.quiet{{fill:{quiet}}}.line{{stroke:{line}}}'
        for number, colours in enumerate(SERIES):
            own = colours[theme]
            text += f'.s{number}{{stroke:{own};fill:none}}.d{number}{{fill:{own};stroke:{page}}}'
            text += f'.t{number}{{fill:{own}}}.h{number}{{fill:{page};stroke:{own};stroke-width:1.5}}'
        for number, colours in enumerate(STACK):
            text += f'.b{number}{{fill:{colours[theme]};stroke:{page}}}'
        return text
    return (f'<style>text{{font-family:system-ui,"Segoe UI","Noto Sans","Liberation Sans","DejaVu Sans",sans-serif}}'
            f'{rules(0)}\n@media (prefers-color-scheme:dark){{{rules(1)}}}</style>')


def marker(look, x, y, hollow=False):
    """A sign about 9 pixels wide."""
    kind = f'class="{"h" if hollow else "d"}{look}"'
    if look == 0:
        return f'<circle {kind} cx="{place(x)}" cy="{place(y)}" r="4.5"/>'
    corners = {1: ((-4, -4), (4, -4), (4, 4), (-4, 4)), 2: ((0, -5.5), (5.2, 4), (-5.2, 4)),
               3: ((0, -5.8), (5.8, 0), (0, 5.8), (-5.8, 0)), 4: ((-5.2, -4), (5.2, -4), (0, 5.5))}[look]
    return f'<polygon {kind} points="{" ".join(f"{place(x + dx)},{place(y + dy)}" for dx, dy in corners)}"/>'


def path(look, points):
    dash = f' stroke-dasharray="{DASHES[look]}"' if DASHES[look] else ''
    width = 2.5 if look == 0 else 2
    return (f'<polyline class="s{look}" stroke-width="{width}"{dash} points="' +
            ' '.join(f'{place(x)},{place(y)}' for x, y in points) + '"/>')


def document(title, description, height, elements):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{place(height)}" '
            f'viewBox="0 0 {WIDTH} {place(height)}" role="img" aria-labelledby="title description">')
    return '\n'.join([head, f'<!-- {LICENCE} -->', f'<title id="title">{escaped(title)}</title>',
                      f'<desc id="description">{escaped(description)}</desc>', style(),
                      f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{place(height - 1)}" rx="6"/>',
                      *elements, '</svg>', ''])


def heading(title):
    """(elements, where the rest begins) of the title, in as many rows as it needs."""
    rows = wrapped(title, (WIDTH - 2 * MARGIN) / 1.12, LARGE)
    return ([write(MARGIN, 30 + 20 * number, row, LARGE, bold=True) for number, row in enumerate(rows)],
            30 + 20 * len(rows) + 4)
