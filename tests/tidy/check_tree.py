# SPDX-License-Identifier: Apache-2.0
"""Runs every rule on the tree: check_tree.py ROOT. Speaks TAP, one case a rule."""
import os
import subprocess
import sys

import rules


def paths_of(root):
    """What git tracks or would track; without git, everything outside of build folders."""
    listed = subprocess.run(['git', '-C', root, 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
                            capture_output=True, check=False)
    if listed.returncode == 0:
        paths = listed.stdout.decode().split('\0')
        return [path for path in paths if path and os.path.isfile(os.path.join(root, path))]
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith('.git') and name != '__pycache__'
                      and not os.path.exists(os.path.join(folder, name, 'meson-private'))]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return found


def read_tree(root):
    tree = {}
    for path in paths_of(root):
        with open(os.path.join(root, path), 'rb') as file:
            data = file.read()
        if b'\0' not in data:
            tree[path] = data.decode('utf-8')
    return tree


def main(root):
    tree = read_tree(root)
    print(f'1..{len(rules.RULES)}')
    for number, rule in enumerate(rules.RULES, 1):
        complaints = rule(tree)
        print(f'{"not ok" if complaints else "ok"} {number} - {rule.__name__}')
        for complaint in complaints:
            print(f'# {complaint}')


if __name__ == '__main__':
    main(sys.argv[1])
