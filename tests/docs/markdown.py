# SPDX-License-Identifier: Apache-2.0
"""Code blocks and code words of a Markdown page, as CommonMark has them, and what only looks like a block.

    page = markdown.read(text)
    page.blocks    every code block: heading above it, first line number, lines, fence's word ('' if indented)
    page.words     every `code word` of text, lists and tables: heading, line number, text
    page.faults    sentences: lines that somebody meant as a block and that a reader will see as text, open fences

A block is a fence of ``` or ~~~, or lines indented by four beyond the text around them: of the page, of a list item, of
a quotation, however deep these lie in each other. Not read, because no page of ours has it: blocks in HTML.
"""
import dataclasses
import re

FENCE = re.compile(r'^ {0,3}(`{3,}|~{3,})\s*([^`]*)$')
HEADING = re.compile(r'^ {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$')
ITEM = re.compile(r'^( {0,3})([-*+]|\d{1,9}[.)])( +|$)')
QUOTE = re.compile(r'^ {0,3}> ?')
RULE = re.compile(r'^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$')


@dataclasses.dataclass
class Block:
    page: str
    heading: str
    number: int        # of its first line, from 1
    fence: str         # the word after ```, '' if indented
    lines: list        # without the indentation

    @property
    def first(self):
        return self.lines[0].strip() if self.lines else ''

    @property
    def text(self):
        return '\n'.join(self.lines) + '\n'


@dataclasses.dataclass
class Word:
    page: str
    heading: str
    number: int
    text: str


@dataclasses.dataclass
class Page:
    name: str
    blocks: list = dataclasses.field(default_factory=list)
    words: list = dataclasses.field(default_factory=list)
    faults: list = dataclasses.field(default_factory=list)
    headings: list = dataclasses.field(default_factory=list)


class Reader:
    """Goes down the lines with the containers that are open: columns of list items, '>' of quotations."""

    def __init__(self, name):
        self.page = Page(name)
        self.heading = ''
        self.containers = []   # an item: the column of its text; a quotation: '>'
        self.paragraph = []    # (number, text) of the paragraph that is open
        self.block = None
        self.closing = ''      # of the fence that is open
        self.blanks = []       # empty lines of an indented block, if more of it follows

    def end_paragraph(self):
        # Code words may go over a line's end.
        text = '\n'.join(line for _, line in self.paragraph)
        for found in re.finditer(r'(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)', text, re.S):
            number = self.paragraph[0][0] + text.count('\n', 0, found.start())
            self.page.words.append(Word(self.page.name, self.heading, number, ' '.join(found[2].split())))
        self.paragraph = []

    def end_block(self):
        self.block, self.closing, self.blanks = None, '', []

    def begin_block(self, number, fence, lines):
        self.end_paragraph()
        self.block = Block(self.page.name, self.heading, number, fence, lines)
        self.page.blocks.append(self.block)

    def inside(self, line):
        """What is left of a line in the containers that go on in it, and how many do."""
        for depth, container in enumerate(self.containers):
            if container == '>':
                found = QUOTE.match(line)
                if not found:
                    return line, depth
                line = line[found.end():]
            elif not line.strip():
                line = ''
            elif line.startswith(' ' * container):
                line = line[container:]
            else:
                return line, depth
        return line, len(self.containers)

    def read_line(self, number, line):
        rest, depth = self.inside(line.expandtabs(4))
        if self.closing:
            if depth == len(self.containers):
                self.read_fenced(rest)
                return
            self.page.faults.append(f'line {self.block.number}: a fence that nothing closes')
            self.end_block()
        if not rest.strip():
            self.read_blank(depth)
            return
        if depth < len(self.containers):
            # A paragraph goes on, however little it is indented, unless something else begins.
            if self.paragraph and not self.begins_something(rest):
                self.read_text(number, rest)
                return
            self.end_paragraph()
            self.end_block()
            del self.containers[depth:]
        if rest.startswith('    '):
            self.read_indented(number, rest[4:])
            return
        self.end_block()
        self.read_start(number, rest)

    def begins_something(self, rest):
        return any(pattern.match(rest) for pattern in (FENCE, HEADING, ITEM, QUOTE, RULE))

    def read_fenced(self, rest):
        found = FENCE.match(rest)
        if found and found[1][0] == self.closing[0] and len(found[1]) >= len(self.closing) and not found[2]:
            self.end_block()
        else:
            self.block.lines.append(rest)

    def read_blank(self, depth):
        self.end_paragraph()
        if self.block:
            self.blanks.append('')
        if depth < len(self.containers) and '>' in self.containers[depth:]:
            del self.containers[depth:]

    def read_indented(self, number, code):
        if self.block:
            self.block.lines += [*self.blanks, code]
            self.blanks = []
        elif self.paragraph:
            self.page.faults.append(f'line {number}: indented by four under text without an empty line between, so '
                                    f'Markdown takes it for text: {code.strip()[:60]}')
            self.read_text(number, code)
        else:
            self.begin_block(number, '', [code])

    def read_start(self, number, rest):
        if found := QUOTE.match(rest):
            self.end_paragraph()
            self.containers.append('>')
            self.read_line_in_container(number, rest[found.end():])
        elif RULE.match(rest):
            self.end_paragraph()
        elif found := ITEM.match(rest):
            self.end_paragraph()
            marker = len(found[1]) + len(found[2])
            blanks = len(found[3])
            self.containers.append(marker + (blanks if 1 <= blanks <= 4 else 1))
            self.read_line_in_container(number, rest[self.containers[-1]:])
        elif found := FENCE.match(rest):
            self.begin_block(number + 1, found[2].split()[0] if found[2].split() else '', [])
            self.closing = found[1]
        elif found := HEADING.match(rest):
            self.end_paragraph()
            self.heading = found[2]
            self.page.headings.append(self.heading)
        else:
            self.look_for_a_block_beside_an_item(number, rest)
            self.read_text(number, rest)

    def read_line_in_container(self, number, rest):
        if not rest.strip():
            return
        if rest.startswith('    '):
            self.read_indented(number, rest[4:])
        else:
            self.read_start(number, rest)

    def look_for_a_block_beside_an_item(self, number, rest):
        """Under an item, four blanks are two of its text and two more: a paragraph, where somebody wanted a block."""
        column = sum(container for container in self.containers if container != '>')
        if not self.paragraph and self.containers and rest.startswith('  '):
            indent = column + len(rest) - len(rest.lstrip())
            self.page.faults.append(f'line {number}: indented by {indent}, which under a list item is text; a block '
                                    f'there wants {column + 4}: {rest.strip()[:60]}')

    def read_text(self, number, rest):
        if rest.lstrip().startswith('|'):  # code words of a table end in their row
            self.end_paragraph()
            self.paragraph = [(number, rest)]
            self.end_paragraph()
        else:
            self.paragraph.append((number, rest))

    def end(self):
        if self.closing:
            self.page.faults.append(f'line {self.block.number}: a fence that nothing closes')
        self.end_paragraph()


def read(name, text):
    reader = Reader(name)
    for number, line in enumerate(text.split('\n'), 1):
        reader.read_line(number, line.rstrip())
    reader.end()
    return reader.page
