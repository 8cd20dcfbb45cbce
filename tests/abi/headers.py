# SPDX-License-Identifier: Apache-2.0
"""Every public header compiles alone, in C11 and C++17; structs keep their sizes: headers.py ROOT CC CXX

A fault that is planted by hand: remove <stdint.h> from a header, or put a field in the middle of a struct.
"""
import os
import platform
import re
import subprocess
import sys
import tempfile

import public_surface

STRICT = ['-Wall', '-Wextra', '-Wpedantic', '-Werror', '-Wstrict-prototypes']
STRICT_CXX = ['-Wall', '-Wextra', '-Wpedantic', '-Werror']


def compiles(command, source):
    done = subprocess.run(command + ['-fsyntax-only', '-'], input=source, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [done.stderr]


def pinned_structs(root):
    """Every struct and every field has its line in sizes.c, begins with its size, and has an INIT."""
    with open(os.path.join(root, 'tests', 'abi', 'sizes.c'), encoding='utf-8') as file:
        pinned = file.read()
    text = ''.join(public_surface.text_without_comments(path) for path in public_surface.headers(root))
    complaints = []
    for name, fields in public_surface.structs(root).items():
        if f'\nSIZE({name}, ' not in pinned:
            complaints.append(f'sizes.c has no line SIZE({name}, ...)')
        complaints += [f'sizes.c has no line AT({name}, {field}, ...)' for field in fields
                       if f'\nAT({name}, {field}, ' not in pinned]
        if name == 'mxs_counter':  # never alone: a part of mxs_comm_stats, which can't grow
            continue
        if fields[0] != 'size':
            complaints.append(f'{name} does not begin with size')
        if not re.search(rf'#define {name.upper()}_INIT\b', text):
            complaints.append(f'{name} has no {name.upper()}_INIT')
    return complaints


def init_macros(root, compiler, language):
    """They compile without warnings and set size to the struct's."""
    names = [name for name in public_surface.structs(root) if name != 'mxs_counter']
    lines = [f'  {name} v{i} = {name.upper()}_INIT; if (v{i}.size != sizeof v{i}) return {i + 1};'
             for i, name in enumerate(names)]
    source = '#include "matrixshard/matrixshard.h"\nint main(void) {\n' + '\n'.join(lines) + '\n  return 0;\n}\n'
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, 'init')
        built = subprocess.run(compiler + ['-x', language, '-', '-o', program], input=source, capture_output=True,
                               text=True, check=False)
        if built.returncode:
            return [built.stderr]
        wrong = subprocess.run([program], check=False).returncode
    return [f'{names[wrong - 1].upper()}_INIT sets another size'] if wrong else []


def main(root, cc, cxx):
    include = ['-I', os.path.join(root, 'include')]
    c11 = cc.split() + ['-std=c11', *STRICT, *include]
    cxx17 = cxx.split() + ['-std=c++17', *STRICT_CXX, *include]
    cases = []
    for path in public_surface.headers(root):
        name = os.path.basename(path)
        source = f'#include "matrixshard/{name}"\n' * 2
        cases.append((f'{name} alone in C11', compiles(c11 + ['-x', 'c'], source)))
        cases.append((f'{name} alone in C++17', compiles(cxx17 + ['-x', 'c++'], source)))
    hpp = os.path.join(root, 'include', 'matrixshard', 'matrixshard.hpp')
    if os.path.exists(hpp):
        cases.append(('matrixshard.hpp alone in C++17',
                      compiles(cxx17 + ['-x', 'c++'], '#include "matrixshard/matrixshard.hpp"\n' * 2)))
    cases.append(('every struct is pinned', pinned_structs(root)))
    cases.append(('INIT macros in C11', init_macros(root, c11, 'c')))
    cases.append(('INIT macros in C++17', init_macros(root, cxx17, 'c++')))
    if platform.machine() in ('x86_64', 'aarch64'):
        with open(os.path.join(root, 'tests', 'abi', 'sizes.c'), encoding='utf-8') as file:
            cases.append(('sizes and offsets are as released', compiles(c11 + ['-x', 'c'], file.read())))
    public_surface.run(cases)


if __name__ == '__main__':
    main(*sys.argv[1:])
