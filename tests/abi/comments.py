# SPDX-License-Identifier: Apache-2.0
"""What comments of the public headers must say: comments.py ROOT. Speaks TAP.

A function says since when it is there, and names in words each argument that neither its type (one of ours) nor a name
that means the same everywhere explains. doxygen can't look for that: to it prose is no @param.
"""
import os
import re
import sys

import public_surface

DECLARED = re.compile(r'(?:/\*\*((?:(?!\*/).)*)\*/\s*)?((?:^MXS_API\s[^;]*;[^\n]*\n)+)', re.S | re.M)
# How many an array has, and has room for; one of what is counted; a file or folder.
EVERYWHERE = re.compile(r'\w+_count|\w+_capacity|index|path')


def unexplained(arguments, comment):
    """Names of arguments that nothing explains."""
    for argument in arguments.split(','):
        name = re.search(r'(\w+)$', argument.strip())[1]
        ours = re.search(r'\bmxs_\w+', argument)
        if not (name == 'void' or ours or EVERYWHERE.fullmatch(name) or re.search(rf'\b{name}\b', comment)):
            yield name


def complaints(path):
    with open(path, encoding='utf-8') as file:
        text = file.read()
    header = os.path.basename(path)
    for above, declarations in DECLARED.findall(text):
        for name, arguments, behind in re.findall(r'\b(mxs_\w+)\s*\(([^;]*)\);([^\n]*)', declarations):
            comment = re.sub(r'\bmxs_\w+', '', above + behind)
            if not re.search(r'Since \d+\.\d+\.', comment):
                yield f'{header}: {name} does not say since when it is there'
            for argument in unexplained(arguments, comment):
                yield f'{header}: {name} does not say what {argument} is'


def main(root):
    found = [complaint for path in public_surface.headers(root) for complaint in complaints(path)]
    public_surface.run([('each function says since when, and what its arguments are', found)])


if __name__ == '__main__':
    main(os.path.abspath(sys.argv[1]))
