# SPDX-License-Identifier: Apache-2.0
"""Cases of a test program, told as TAP: each with the time that it took, what it raised as its comment.

    @case
    def a_name_is_a_sentence():
        assert ..., what_was_seen

    run_cases()
"""
import os
import re
import time

CASES = []


class Skipped(Exception):
    """A case that can't run here; says why."""


def case(body):
    CASES.append(body)
    return body


def need(truth, *what):
    if not truth:
        raise AssertionError(' '.join(str(word) for word in what))


def run_cases(bodies=None, arguments=(), pattern=''):
    """The bodies, or all that are marked as a case, in whose name the pattern is found, each with these arguments."""
    chosen = [body for body in (CASES if bodies is None else bodies) if re.search(pattern, body.__name__)]
    print(f'1..{len(chosen)}')
    for number, body in enumerate(chosen, 1):
        began = time.monotonic()
        word, skip, complaint = 'ok', '', ''
        try:
            body(*arguments)
        except Skipped as reason:
            skip = f' # SKIP {reason}'
        except Exception as problem:  # a case that breaks is a case that fails
            word, complaint = 'not ok', complaint_of(problem)
        print(f'{word} {number} - {body.__name__}{skip}')
        for line in complaint.splitlines():
            print(f'# {line}')
        print(f'# {time.monotonic() - began:.1f} s', flush=True)


def complaint_of(problem):
    """Where it was raised, by lines of the files that lead there, and what it says: 4,000 letters are enough."""
    places, frame = [], problem.__traceback__.tb_next
    while frame:
        places.append(f'{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}')
        frame = frame.tb_next
    return f'{" ".join(places)}: {type(problem).__name__}: {problem}'[:4000]
