# SPDX-License-Identifier: Apache-2.0
"""Headers, symbols.txt, the symbol map and the library name the same functions: names.py ROOT LIBRARY"""
import os
import subprocess
import sys

import public_surface


def exported(library):
    """Names that a program can link with; the version's own name (type A) is none."""
    listed = subprocess.run(['nm', '-D', '--defined-only', library], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return {row[-1].split('@')[0] for row in rows if row[-2] != 'A'}


def differences(first, first_name, second, second_name):
    return ([f'{name}: in {first_name}, not in {second_name}' for name in sorted(first - second)] +
            [f'{name}: in {second_name}, not in {first_name}' for name in sorted(second - first)])


def main(root, library):
    symbols = public_surface.names_in(os.path.join(root, 'tests', 'abi', 'symbols.txt'))
    mapped = public_surface.names_in(os.path.join(root, 'src', 'matrixshard.map'))
    declared = public_surface.functions(root)
    public_surface.run([
        ('the headers declare what symbols.txt lists', differences(declared, 'headers', symbols, 'symbols.txt')),
        ('the map exports what symbols.txt lists', differences(mapped, 'matrixshard.map', symbols, 'symbols.txt')),
        ('the library exports what symbols.txt lists',
         differences(exported(library), 'the library', symbols, 'symbols.txt')),
    ])


if __name__ == '__main__':
    main(*sys.argv[1:])
