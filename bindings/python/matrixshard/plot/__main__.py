# SPDX-License-Identifier: Apache-2.0
"""python -m matrixshard.plot INPUT.json... [-o OUTPUT.png|OUTPUT.svg] [--dark] [--kind KIND]"""
from __future__ import annotations

import argparse
import os
import sys
from typing import Optional, Sequence

from ..errors import InvalidArgumentError, MatrixShardError
from . import perf, plan, read, save
from ._read import is_rows, refuse_others
from ._sheet import suffix_of

KINDS = ('bandwidth', 'time', 'objectives', 'owners', 'step', 'memory')
ABOUT = '''A picture of what mxs-perf --json or mxs plan --json wrote, or of a plan that mxs_plan_save wrote; several
files of mxs-perf are drawn beside each other. Which it is, is told by the content.'''


def words() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='python -m matrixshard.plot', description=ABOUT)
    parser.add_argument('input', nargs='+', help='JSON file, or - for standard input')
    parser.add_argument('-o', '--output', help='.png or .svg (the first input\'s name with .png, where that file is)')
    parser.add_argument('--dark', action='store_true', help='for dark surroundings')
    parser.add_argument('--kind', choices=KINDS, help='of sweeps over sizes: bandwidth (which is what comes without '
                        'it) or time; of plans one part alone: objectives, owners, step, memory')
    return parser


def draw(inputs: Sequence[str], output: Optional[str], kind: Optional[str], dark: bool) -> str:
    """Returns the name of what was written."""
    target = output or ('plot.png' if inputs[0] == '-' else os.path.splitext(inputs[0])[0] + '.png')
    suffix_of(target)
    found = {}
    for path in inputs:
        name = 'standard input' if path == '-' else path
        if name in found:
            raise InvalidArgumentError(f'{name} is named twice')
        found[name] = read(path)
        refuse_others(found[name], name)
    if all(is_rows(data) for data in found.values()):
        figure = perf(found, kind=kind, dark=dark)
    elif len(found) > 1:
        first = next(name for name, data in found.items() if not is_rows(data))
        raise InvalidArgumentError(f'{first} is a plan: there is a picture of one plan, or of several measurements')
    else:
        figure = plan(next(iter(found.values())), kind=kind, dark=dark)
    save(figure, target)
    return target


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The exit status: 0, or 2 after a sentence on standard error."""
    given = words().parse_args(arguments)
    try:
        print(draw(given.input, given.output, given.kind, given.dark))
    except (MatrixShardError, ImportError) as error:
        print(f'matrixshard.plot: {error}', file=sys.stderr)
        return 2
    return 0


if __name__ == '__main__':
    sys.exit(main())
