# SPDX-License-Identifier: Apache-2.0
"""Which claim has which block: pure, from a page (markdown.py) and its claims (claims.py).

A block begins a new part where, below an empty line, a line begins as a claim says, since Markdown joins indented
blocks that only empty lines part. Each part has one way: that of the claim which names it (with most letters), else
Shell or Session if it looks like commands.
"""
import dataclasses
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import claims
import markdown
import ways

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADVICE = ('it has no claim, and it does not look like commands: say in tests/docs/claims.py how it is checked '
          '(tests/docs/ways.py lists the ways), or write it as a claimed block is written')
PROGRAMS = (r'(?:\./dev|mxs(?:-perf|-train|-perf-\w+)?|(?:b|venv/bin)/\S+|perf/\w+(?:/\w+(?:\.py)?)?|tests/\S+\.py|'
            r'meson|ninja|python3?|pip|torchrun|cc|c\+\+|cmake|git|cd|export|sed|apt-get|apt|dpkg|sudo|\[)')
COMMAND = re.compile(rf'^(?:[A-Z_]+=\S+ )*{PROGRAMS}(?:\s|$)')


@dataclasses.dataclass
class Part:
    page: str
    heading: str
    number: int
    lines: list
    way: ways.Way = None

    @property
    def first(self):
        return self.lines[0].strip()

    @property
    def text(self):
        return '\n'.join(self.lines) + '\n'

    @property
    def place(self):
        return f'{self.page}:{self.number} ({self.heading}): {self.first[:70]}'


def commands_of(lines):
    """Lines with those that a backslash continues joined, without comments and empty ones."""
    joined = re.sub(r'\\\n\s*', '', '\n'.join(lines))
    return [command for command in map(without_comment, joined.split('\n')) if command]


def without_comment(line):
    quote = ''
    for at, sign in enumerate(line):
        if quote:
            quote = '' if sign == quote else quote
        elif sign in '"\'':
            quote = sign
        elif sign == '#' and (at == 0 or line[at - 1].isspace()):
            return line[:at].strip()
    return line.strip()


def looks_like_commands(lines):
    commands = commands_of(lines)
    return bool(commands) and all(COMMAND.match(command) for command in commands)


def names(claim, heading, line):
    return claim.heading == heading and line.strip().startswith(claim.first)


def parts_of(block, page_claims):
    """The block, cut where a claim begins."""
    starts = [0] + [at for at in range(1, len(block.lines)) if not block.lines[at - 1].strip()
                    and any(names(claim, block.heading, block.lines[at]) for claim in page_claims)]
    for start, end in zip(starts, starts[1:] + [len(block.lines)]):
        lines = block.lines[start:end]
        while lines and not lines[-1].strip():
            lines.pop()
        yield Part(block.page, block.heading, block.number + start, lines)


def assign(page, page_claims):
    """(parts with their ways, complaints)."""
    complaints = [f'{page.name}: {fault}' for fault in page.faults]
    parts, taken = [], {}
    for block in page.blocks:
        if not any(line.strip() for line in block.lines):
            complaints.append(f'{page.name}:{block.number} ({block.heading}): an empty block')
            continue
        for part in parts_of(block, page_claims):
            found = [claim for claim in page_claims if names(claim, part.heading, part.first)]
            if found:
                longest = max(found, key=lambda claim: len(claim.first))
                taken.setdefault(longest, []).append(part)
                part.way = longest.way
            elif looks_like_commands(part.lines):
                part.way = ways.Shell()
            elif part.first.startswith('$ ') and looks_like_commands([part.first[2:]]):
                part.way = ways.Session()
            else:
                complaints.append(f'{part.place}: {ADVICE}')
            parts.append(part)
    for claim in page_claims:
        if claim not in taken:
            complaints.append(f'{page.name} ({claim.heading}): no block begins with "{claim.first}": mend or remove '
                              'its claim in tests/docs/claims.py')
        elif len(taken[claim]) > 1:
            complaints.append(f'{taken[claim][1].place}: the claim of line {taken[claim][0].number} names it, too')
    return parts, complaints


def read(name, page_claims, text=None):
    """(page, parts, complaints)."""
    page = markdown.read(name, (ROOT / name).read_text(encoding='utf-8') if text is None else text)
    return page, *assign(page, page_claims)


def blocks(name, path):
    """What a test of another folder is to execute of a page: the parts that claims leave to it, in order."""
    _, found, _ = read(name, claims.CLAIMS.get(name, []))
    mine = [part for part in found if part.way == ways.Tested(path)]
    if not mine:
        raise LookupError(f'no claim of {name} in tests/docs/claims.py leaves a block to {path}')
    return mine
