# SPDX-License-Identifier: Apache-2.0
"""What the public headers declare, read from their text; and TAP for the programs that check it."""
import glob
import os
import re


def headers(root):
    return sorted(glob.glob(os.path.join(root, 'include', 'matrixshard', '*.h')))


def text_without_comments(path):
    with open(path, encoding='utf-8') as file:
        return re.sub(r'/\*.*?\*/', ' ', file.read(), flags=re.DOTALL)


def functions(root):
    return {name for path in headers(root)
            for name in re.findall(r'^MXS_API\s[^;(]*?\b(mxs_\w+)\s*\(', text_without_comments(path), re.MULTILINE)}


def structs(root):
    """name -> fields in order."""
    found = {}
    for path in headers(root):
        for name, body in re.findall(r'typedef struct (\w+) \{(.*?)\n\} \1;', text_without_comments(path), re.DOTALL):
            fields = []
            for declaration in filter(None, (part.strip() for part in body.split(';'))):
                pointer = re.search(r'\(\*(\w+)\)\s*\(', declaration)
                names = [pointer[1]] if pointer else [re.search(r'(\w+)\s*(\[[^\]]*\]\s*)*$', part)[1]
                                                      for part in declaration.split(',')]
                fields += names
            found[name] = fields
    return found


def names_in(path):
    """Lines of symbols.txt, or the names in a symbol map."""
    with open(path, encoding='utf-8') as file:
        lines = [line.split('#')[0].strip() for line in file]
    return {line.rstrip(';') for line in lines if line.startswith('mxs_')}


def run(cases):
    """cases: (sentence, complaints) in order."""
    cases = list(cases)
    print(f'1..{len(cases)}')
    for number, (sentence, complaints) in enumerate(cases, 1):
        print(f'{"not ok" if complaints else "ok"} {number} - {sentence}')
        for complaint in complaints:
            for line in complaint.strip().split('\n'):
                print(f'# {line}')
