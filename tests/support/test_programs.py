# SPDX-License-Identifier: Apache-2.0
"""Prints what ninja must build for some tests: test_programs.py [--names] BUILD_FOLDER SUITE...

All tests but those of the suites that are named, so that a build with a sanitizer, which takes its time, compiles only
what it runs. One target a line; with --names the name of each test whose program the build has made, as others run
Python, which isn't ours to look at.
"""
import json
import os
import subprocess
import sys


def introspect(folder, what):
    return json.loads(subprocess.check_output(['meson', 'introspect', '--' + what, folder]))


def tests_but(folder, left_out):
    return [test for test in introspect(folder, 'tests')
            if not left_out & {suite.split(':')[-1] for suite in test['suite']}]


def targets_of(tests, files_by_id):
    """Files of the build: the programs that tests run, and what they depend on."""
    files = set()
    for test in tests:
        files.update(file for target in test['depends'] for file in files_by_id.get(target, []))
        files.add(test['cmd'][0])
    return files


def main(folder, left_out):
    root = os.path.realpath(folder)
    files_by_id = {target['id']: target['filename'] for target in introspect(folder, 'targets')}
    files = {os.path.realpath(file) for file in targets_of(tests_but(folder, left_out), files_by_id)}
    for file in sorted(files):
        if file.startswith(root + os.sep):
            print(os.path.relpath(file, root))


def print_names(folder, left_out):
    root = os.path.realpath(folder)
    for test in tests_but(folder, left_out):
        if os.path.realpath(test['cmd'][0]).startswith(root + os.sep):
            print(test['name'])


if __name__ == '__main__':
    if sys.argv[1] == '--names':
        print_names(sys.argv[2], set(sys.argv[3:]))
    else:
        main(sys.argv[1], set(sys.argv[2:]))
