# SPDX-License-Identifier: Apache-2.0
"""doxygen makes a page of each header, and has nothing to say: pages.py ROOT. Speaks TAP."""
import os
import shutil
import subprocess
import sys
import tempfile

import public_surface


def pages(root, folder):
    with open(os.path.join(root, 'docs', 'Doxyfile.in'), encoding='utf-8') as file:
        text = file.read()
    for name, value in (('version', '0'), ('root', root), ('output', folder), ('python', sys.executable)):
        text = text.replace(f'@{name}@', value)
    done = subprocess.run(['doxygen', '-'], input=text, capture_output=True, text=True, check=False, timeout=120)
    # doxygen goes on with an empty file where its filter ends with an exception, whose words come here, too.
    said = done.stdout + done.stderr
    if done.returncode != 0 or said.strip():
        return [f'status {done.returncode}: {said}']
    found = os.listdir(os.path.join(folder, 'html'))
    headers = [os.path.basename(path)[:-2] for path in public_surface.headers(root)]
    return [f'{name}.h has no page' for name in headers if name != 'matrixshard' and f'group__{name}.html' not in found]


def main(root):
    if not shutil.which('doxygen'):
        print('1..0 # SKIP no doxygen here: ./dev docs installs it')
        return
    with tempfile.TemporaryDirectory() as folder:
        public_surface.run([('doxygen makes pages of the headers without a warning', pages(root, folder))])


if __name__ == '__main__':
    main(os.path.abspath(sys.argv[1]))
