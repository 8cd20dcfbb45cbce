# SPDX-License-Identifier: Apache-2.0
"""Prints what ninja must build for some tests: test_programs.py BUILD_FOLDER SUITE...

All tests but those of the suites that are named, so that a build with a sanitizer, which takes its time, compiles only
what it runs. One target a line.
"""
import json
import os
import subprocess
import sys


def introspect(folder, what):
    return json.loads(subprocess.check_output(['meson', 'introspect', '--' + what, folder]))


def targets_of(tests, files_by_id, left_out):
    """Files of the build: the programs that tests run, and what they depend on."""
    files = set()
    for test in tests:
        if left_out & {suite.split(':')[-1] for suite in test['suite']}:
            continue
        files.update(file for target in test['depends'] for file in files_by_id.get(target, []))
        files.add(test['cmd'][0])
    return files


def main(folder, left_out):
    root = os.path.realpath(folder)
    files_by_id = {target['id']: target['filename'] for target in introspect(folder, 'targets')}
    files = {os.path.realpath(file) for file in targets_of(introspect(folder, 'tests'), files_by_id, left_out)}
    for file in sorted(files):
        if file.startswith(root + os.sep):
            print(os.path.relpath(file, root))


if __name__ == '__main__':
    main(sys.argv[1], set(sys.argv[2:]))
