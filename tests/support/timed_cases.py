# SPDX-License-Identifier: Apache-2.0
"""Cases of a test that runs programs, as TAP: each with the time that it took, a complaint as its comment."""
import re
import subprocess
import time


def need(truth, *what):
    if not truth:
        raise AssertionError(' '.join(str(word) for word in what))


def run(cases, pattern=''):
    """Functions that raise where something is wrong; those in whose name the pattern is found."""
    chosen = [body for body in cases if re.search(pattern, body.__name__)]
    print(f'1..{len(chosen)}')
    for number, body in enumerate(chosen, 1):
        began = time.monotonic()
        try:
            body()
            complaint = ''
        except (AssertionError, OSError, KeyError, subprocess.TimeoutExpired) as problem:
            complaint = str(problem) or repr(problem)
        print(f'{"not ok" if complaint else "ok"} {number} - {body.__name__}')
        for line in complaint.splitlines():
            print(f'# {line}')
        print(f'# {time.monotonic() - began:.1f} s', flush=True)
