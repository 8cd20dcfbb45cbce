# SPDX-License-Identifier: Apache-2.0
"""An outside program, with nothing but an installed copy and pkg-config: installed.py ROOT BUILD CC CXX"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import public_surface

CPP_PROGRAM = '''#include <matrixshard/matrixshard.hpp>
int main() { return mxs_topology_rank_count(mxs::make_topology("nodes:2 ranks:4").get()) == 8 ? 0 : 1; }
'''


def run(words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, **options)


def failed(result):
    return [] if result.returncode == 0 else [f'status {result.returncode}: {result.stdout}{result.stderr}']


def find(folder, name):
    for place, _, files in os.walk(folder):
        if name in files:
            return os.path.join(place, name)
    return ''


def dynamic(library, tag):
    return re.findall(rf'\({tag}\).*\[(.+)\]', run(['readelf', '-d', library]).stdout)


def main(root, build, cc, cxx):
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, 'root')
        cases = [('it installs', failed(run([shutil.which('meson'), 'install', '-C', build, '--no-rebuild', '--quiet',
                                             '--destdir', prefix])))]
        description, library = find(prefix, 'matrixshard.pc'), find(prefix, 'libmatrixshard.so')
        environment = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(description), PKG_CONFIG_SYSROOT_DIR=prefix,
                           LD_LIBRARY_PATH=os.path.dirname(library))
        environment.pop('PKG_CONFIG_LIBDIR', None)
        flags = run(['pkg-config', '--cflags', '--libs', 'matrixshard'], env=environment)
        cases.append(('pkg-config finds it', failed(flags)))

        hello, source = os.path.join(folder, 'hello'), os.path.join(root, 'docs', 'examples', 'hello.c')
        built = run(cc.split() + ['-std=c11', '-Wall', '-Wextra', '-Wpedantic', '-Werror', source, '-o', hello] +
                    flags.stdout.split(), env=environment)
        cases.append(('a C program builds', failed(built)))
        cases.append(('it runs with two ranks, by the installed mxs',
                      failed(run([find(prefix, 'mxs'), 'run', '-n', '2', '--', hello], env=environment))))

        program = os.path.join(folder, 'program')
        built = run(cxx.split() + ['-std=c++17', '-Wall', '-Wextra', '-Wpedantic', '-Werror', '-x', 'c++', '-', '-o',
                                   program] + flags.stdout.split(), input=CPP_PROGRAM, env=environment)
        cases.append(('a C++17 program builds', failed(built)))
        cases.append(('it runs', failed(run([program], env=environment))))

        wanted = {os.path.basename(path) for path in public_surface.headers(root)} | {'matrixshard.hpp'}
        there = set(os.listdir(os.path.dirname(find(prefix, 'matrixshard.h'))))
        cases.append(('all headers are there, and nothing else', sorted(wanted ^ there)))
        name = dynamic(library, 'SONAME')
        cases.append(('the soname is libmatrixshard.so.0.1', [f'it is {name}'] * (name != ['libmatrixshard.so.0.1'])))
        linked = [name for name in dynamic(library, 'NEEDED') if name.startswith(('libuc', 'libnccl', 'libcuda'))]
        cases.append(('UCX is not linked, but loaded when used', linked))
        public_surface.run(cases)


if __name__ == '__main__':
    main(*sys.argv[1:])
