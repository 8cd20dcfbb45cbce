# SPDX-License-Identifier: Apache-2.0
"""Outside programs, with nothing but an installed copy and pkg-config or CMake: installed.py ROOT BUILD CC CXX

CMake's part is skipped where there is no cmake. A fault that is planted by hand: another folder in
src/cmake/meson.build.
"""
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

CMAKE_PROJECT = """cmake_minimum_required(VERSION 3.13)
project(outside C)
find_package(matrixshard @WANTED@ REQUIRED)
find_package(matrixshard REQUIRED)  # twice is allowed, as for two parts of a program
add_executable(hello "@SOURCE@")
target_link_libraries(hello PRIVATE matrixshard::matrixshard)
"""
# What a program may ask for, and whether 0.1.0 is the answer: before 1.0 minor versions are not compatible.
REQUESTS = {'': True, '0': True, '0.1': True, '0.1.0 EXACT': True, '0.1...0.2': True, '0.0.9...<0.1.1': True,
            '0.2': False, '0.0': False, '0.1.1': False, '1.0': False, '0.0...<0.1': False,
            '0.1 COMPONENTS torch': False, '0.1 OPTIONAL_COMPONENTS torch': True}


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


def cmake_configures(folder, prefix, source, request):
    """A project beside nothing else that asks for this version: the result of cmake."""
    os.makedirs(folder)
    with open(os.path.join(folder, 'CMakeLists.txt'), 'w', encoding='utf-8') as file:
        file.write(CMAKE_PROJECT.replace('@WANTED@', request).replace('@SOURCE@', source))
    return run(['cmake', '-S', folder, '-B', os.path.join(folder, 'b'), f'-DCMAKE_PREFIX_PATH={prefix}'])


def cmake_answers(folder, installed):
    """One cmake run asks for every version, without a compiler."""
    lines = ['cmake_minimum_required(VERSION 3.19)', 'project(requests NONE)']
    for request in REQUESTS:
        lines += [f'find_package(matrixshard {request} QUIET NO_DEFAULT_PATH PATHS "{installed}")',
                  f'message("asked for {request}: ${{matrixshard_FOUND}}")', 'unset(matrixshard_DIR CACHE)']
    os.makedirs(folder)
    with open(os.path.join(folder, 'CMakeLists.txt'), 'w', encoding='utf-8') as file:
        file.write('\n'.join(lines) + '\n')
    asked = run(['cmake', '-S', folder, '-B', os.path.join(folder, 'b')])
    answers = dict(re.findall(r'^asked for (.*): (\w+)$', asked.stdout + asked.stderr, re.MULTILINE))
    return failed(asked) + [f'"{request}" is answered with {answers.get(request)}'
                            for request, wanted in REQUESTS.items() if answers.get(request) != str(int(wanted))]


def cmake_cases(folder, prefix, source, environment):
    """The installed tree was moved to prefix, so nothing may remember where it was installed to."""
    sentences = ['CMake finds it', 'a C program builds by CMake', 'it runs with two ranks',
                 'CMake finds no version but those that are compatible']
    if not shutil.which('cmake'):
        return [(f'{sentence} # SKIP no cmake', []) for sentence in sentences]
    project = os.path.join(folder, 'project')
    configured = cmake_configures(project, prefix, source, '0.1')
    built = run(['cmake', '--build', os.path.join(project, 'b')])
    ran = run([find(prefix, 'mxs'), 'run', '-n', '2', '--', os.path.join(project, 'b', 'hello')], env=environment)
    answers = cmake_answers(os.path.join(folder, 'requests'), prefix)
    return list(zip(sentences, [failed(configured), failed(built), failed(ran), answers]))


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

        moved = os.path.join(folder, 'moved')
        os.rename(prefix, moved)
        libraries = os.path.dirname(find(moved, 'libmatrixshard.so'))
        cases += cmake_cases(folder, os.path.dirname(libraries), source, dict(os.environ, LD_LIBRARY_PATH=libraries))
        public_surface.run(cases)


if __name__ == '__main__':
    main(*sys.argv[1:])
