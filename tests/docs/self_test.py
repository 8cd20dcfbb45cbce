# SPDX-License-Identifier: Apache-2.0
"""The checks of pages find what is wrong in made-up ones, and say nothing about a good one: self_test.py ROOT BUILD.

Speaks TAP. A case is a function; its name is a sentence.
"""
import contextlib
import dataclasses
import io
import pathlib
import re
import sys

sys.dont_write_bytecode = True
ROOT, BUILD = sys.argv[1:3]
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'support')]

import claims
import markdown
import outputs
import page
from tap_cases import case, run_cases
from ways import C, Claim, Data, File, Output, Picture, Python, Session, Tested

GOOD = '''# A page

It begins with `mxs info --json`, and with a table:

| a | b |
|---|---|
| `mxs plan` | `mxs run -n 2 -- mxs info` |

    mxs info --topology "nodes:2 ranks:2"     # a comment
    A=1 mxs run -n 2 -- \\
      python -c "print(1)"

- An item with a block:

      mxs plan list.json --world ranks:2
  and text.
- Another, with a fence:
  ```
  mxs simulate --topology "nodes:2 ranks:1" --bytes 1M
  ```

## Prints

    $ python -c "print('size 3 KiB'); print('  a  1.5 ms')"
    size 12 KiB
      a  7 us

A drawing:

    a -> b
'''
GOOD_CLAIMS = [
    Claim('Prints', '$ python', Session()),
    Claim('Prints', 'a -> b', Picture()),
]


@dataclasses.dataclass
class Rules:
    CLAIMS: dict
    REWRITES: list = dataclasses.field(default_factory=list)
    NEEDS: list = dataclasses.field(default_factory=list)
    NOT_HERE: list = dataclasses.field(default_factory=list)
    WRITES: str = claims.WRITES


def judged(text, page_claims=(), **tables):
    """What page.py prints of a made-up page."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        rules = Rules({'made-up.md': list(page_claims)}, **tables)
        page.check(ROOT, BUILD, 'made-up.md', [(sys.executable, [])], rules, text)
    return printed.getvalue()


def need(printed, *wanted):
    """Something fails, and says so."""
    if not re.search(r'^not ok ', printed, re.M):
        raise AssertionError(f'nothing fails:\n{printed}')
    for sentence in wanted:
        if sentence not in printed:
            raise AssertionError(f'it does not say "{sentence}":\n{printed}')


def good(printed):
    if re.search(r'^not ok ', printed, re.M):
        raise AssertionError(printed)


# The list needs a file that the page's reader has; it comes from a block here.
LIST = '''# Lists

    {"tensors": [{"name": "w", "shape": [64, 64]}]}

'''
LIST_CLAIM = Claim('Lists', '{"tensors"', Data('list.json', 'mxs plan list.json --world ranks:2'))


@case
def a_good_page_passes():
    printed = judged(LIST + GOOD, [LIST_CLAIM, *GOOD_CLAIMS])
    good(printed)
    for sentence in ('A page: A=1 mxs run -n 2 -- python -c "print(1)"', 'A page: mxs simulate',
                     'A page: mxs plan list.json'):
        if sentence not in printed:
            raise AssertionError(f'"{sentence}" was not run:\n{printed}')


@case
def a_block_without_a_claim_fails():
    need(judged('# A page\n\n    what is this?\n'), 'made-up.md:3 (A page): what is this?', 'tests/docs/claims.py')
    need(judged('# A page\n\n- item\n\n  1. deep\n\n     ```\n     what is this?\n     ```\n'), 'what is this?')
    need(judged('# A page\n\n> quoted\n>\n>     what is this?\n'), 'what is this?')
    need(judged('# A page\n\n    mxs info\n\n    what is this?\n'), 'mxs info')


@case
def what_only_looks_like_a_block_fails():
    need(judged('# A page\ntext\n    mxs info\n'), 'without an empty line')
    need(judged('# A page\n\n- item\n\n    mxs info\n'), 'under a list item is text')
    need(judged('# A page\n\n```\nmxs info\n'), 'nothing closes')


@case
def a_claim_whose_block_is_gone_fails():
    need(judged('# A page\n', [Claim('A page', 'a -> b', Picture())]), 'no block begins with "a -> b"')
    drawing, short = Claim('A page', 'a -> b', Picture()), Claim('A page', 'a', Picture())
    need(judged('# A page\n\n    a -> b\n\ntext\n\n    a -> b\n', [drawing]), 'names it, too')
    need(judged('# A page\n\n    a -> b\n', [drawing, short]), 'begins with "a"')


@case
def a_command_that_fails_fails():
    need(judged('# A page\n\n    mxs plan gone.json --world ranks:2\n'), 'ends with 1', 'gone.json')
    need(judged('# A page\n\n    mxs info\n    python -c "import sys; sys.exit(3)"\n'), 'ends with 3')
    need(judged('# A page\n\n    git checkout dev\n'), 'it would change the tree')


@case
def an_option_that_does_not_exist_fails():
    need(judged('# A page\n\nSay `mxs info --colour`.\n'), '`mxs info --colour`', 'does not know --colour')
    need(judged('# A page\n\nSay `mxs paint`.\n'), 'no command "paint"')
    need(judged('# A page\n\nSay `./dev paint`.\n'), 'no command "paint"')
    need(judged('# A page\n\nSay `meson setup b -Dpaint=on`.\n'), 'no option paint')
    need(judged('# A page\n\nSay `-Dpaint=on`, and not `-Dtests`.\n'), 'no option paint')
    need(judged('# A page\n\nSay `meson test -C b "no such test"`.\n'), 'no test "no such test"')
    need(judged('# A page\n\nSee `tests/gone.cpp`.\n'), 'tests/gone.cpp is not there')
    need(judged('# A page\n\nSay `mxs run -n 2 -- mxs info\n--colour`.\n'), 'does not know --colour')
    not_here = [claims.NotRun('^mxs info', 'a reason')]
    need(judged('# A page\n\n    mxs info --colour\n', NOT_HERE=not_here), 'does not know --colour')


@case
def output_with_another_header_fails():
    block = '# A page\n\n    size  time\n       7  3 ms\n'
    prints = 'python -c "print(\'size time\'); print(\'12 44 us\')"'
    good(judged(block, [Claim('A page', 'size', Output(of=prints))]))
    need(judged(block, [Claim('A page', 'size', Output(of=prints.replace('time', 'rate')))]), 'size  time')
    need(judged(block, [Claim('A page', 'size', Output(of=prints + '; echo more'))]), 'also prints "more"')
    need(judged(block, [Claim('A page', 'size', Output(of='echo size time'))]), 'does not print')
    need(judged(block, [Claim('A page', 'size', Output())]), 'no command above it')
    need(judged('# A page\n\n    $ echo one\n    two\n', [Claim('A page', '$ echo', Session())]), 'it prints "one"')


@case
def output_is_compared_but_for_its_numbers():
    for shown, printed, equal in (('a 1,024 KiB', 'a 3 MiB', True), ('rank 3 of 4', 'rank 1 of 2', True),
                                  ('rank 3', 'node 3', False), ('a  b', 'a b', True), ('1.5e-3 %', '2 %', True),
                                  ('id 5c0debad', 'id 11aa22bb', True), ('x', 'y', False),
                                  ('gpu <name>, yes', 'gpu H1, yes', True)):
        if (outputs.difference([shown], [printed]) == '') != equal:
            raise AssertionError(f'{shown} and {printed}: {outputs.difference([shown], [printed])}')
    more = ['a', '...', 'z']
    if outputs.difference(more, ['a', 'b', 'c', 'z']) or not outputs.difference(more, ['a', 'b']):
        raise AssertionError('... stands for any lines, and what comes after it is there')


@case
def code_that_does_not_compile_or_run_fails():
    need(judged('# A page\n\n    mxs_gone(1);\n', [Claim('A page', 'mxs_gone', C())]), 'does not compile', 'mxs_gone')
    need(judged('# A page\n\n    import matrixshard.gone\n', [Claim('A page', 'import', Python())]), 'ends with 1')
    good(judged('# A page\n\n    import matrixshard\n', [Claim('A page', 'import', Python())]))
    good(judged('# A page\n\n    mxs_version_text();    text\n', [Claim('A page', 'mxs', C(aside=r'(?<=;)\s{2,}.*$'))]))


@case
def other_files_are_looked_at():
    hello = File('docs/examples/hello.c', 'docs/examples/meson.build')
    need(judged('# A page\n\n    int main(void) {}\n', [Claim('A page', 'int', hello)]), 'is not docs/examples/hello.c')
    need(judged('# A page\n\n    a -> b\n', [Claim('A page', 'a', Tested('tests/tidy/rules.py'))]), 'does not ask')


@case
def what_is_not_run_here_says_why():
    printed = judged('# A page\n\n    ./dev test tidy\n', NOT_HERE=[claims.NotRun(r'^\./dev test\b', 'a reason')])
    good(printed)
    if '# SKIP a reason' not in printed:
        raise AssertionError(printed)


@case
def a_python_without_packages_skips_what_wants_them():
    lines = ['python3 -m venv venv', 'venv/bin/pip install ./x', 'python -m matrixshard.plot a.json -o a.svg']
    printed = judged('# A\n\n' + ''.join(f'    {line}\n' for line in lines), NEEDS=claims.NEEDS)
    good(printed)
    for package in ('matplotlib', 'ensurepip'):
        if f'# SKIP no Python here has {package}' not in printed:
            raise AssertionError(printed)


@case
def every_page_has_a_test():
    pages = {str(path.relative_to(ROOT)) for folder in ('', 'docs', 'bindings/python')
             for path in (pathlib.Path(ROOT) / folder).glob('*.md')} - {'NEWS.md'}
    meson = (pathlib.Path(ROOT) / 'tests/docs/meson.build').read_text(encoding='utf-8')
    listed = set(re.findall(r"^  '[\w ]+': '(\S+\.md)',$", meson, re.M))
    if pages != listed:
        raise AssertionError(f'without a test: {sorted(pages - listed)}; gone: {sorted(listed - pages)}: '
                             'docs_pages in tests/docs/meson.build')
    if set(claims.CLAIMS) - pages:
        raise AssertionError(f'claims of no page: {sorted(set(claims.CLAIMS) - pages)}')


@case
def words_of_code_are_found_where_they_stand():
    text = '# A\n\na `one` b ``two ` three`` c\n`over\na line` `\n\n    `no`\n| `cell` | `e\n'
    found = markdown.read('p', text).words
    wanted = [(3, 'one'), (3, 'two ` three'), (4, 'over a line'), (8, 'cell')]
    if [(word.number, word.text) for word in found] != wanted:
        raise AssertionError(found)


run_cases()
