# SPDX-License-Identifier: Apache-2.0
"""Which Pythons have what tests need: interpreters.py PYTHON... A line for each that runs and is no other's twin:

    /usr/bin/python3|3.11.2|numpy 1.24|torch 1.13

The packages are found, not imported: PyTorch alone would take seconds.
"""
import subprocess
import sys

PACKAGES = ['numpy', 'torch', 'matplotlib']
# Run by each of them. The prefix tells a virtual environment from the Python that it is made of.
PROBE = '''
import importlib.util, platform, sys
from importlib.metadata import PackageNotFoundError, version
if sys.version_info < (3, 9): sys.exit('older than 3.9')
words = [platform.python_version()]
for name in sys.argv[1:]:
    if importlib.util.find_spec(name) is None: continue
    try: numbers = version(name).split('.')[:2]
    except PackageNotFoundError: numbers = ['of', 'unknown', 'version']
    words.append(name + ' ' + ('.' if numbers[0].isdigit() else ' ').join(numbers))
print(sys.prefix + '|' + '|'.join(words))
'''


def probe(python):
    """Returns (prefix, words), or None with a line on standard error."""
    try:
        run = subprocess.run([python, '-c', PROBE, *PACKAGES], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, 'stderr', None) or str(error)).strip().splitlines()[-1]
        print(f'{python} is left out: {why}', file=sys.stderr)
        return None
    return run.stdout.strip().split('|', 1)


def main(pythons):
    seen = set()
    for python in pythons:
        found = probe(python)
        if found and found[0] not in seen:
            seen.add(found[0])
            print(f'{python}|{found[1]}')


if __name__ == '__main__':
    main(sys.argv[1:])
