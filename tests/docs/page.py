# SPDX-License-Identifier: Apache-2.0
"""One page of documentation: every block is checked in one way, every command in its text names what there is.

    page.py ROOT BUILD PAGE [PYTHON|VERSION|MODULE VERSION|...]...      lines of tests/python/interpreters.py

Speaks TAP: a case for each command and block. claims.py says how each block is checked, ways.py which ways there are.
Commands run in a sandbox (sandbox.py). A comment says what a command was run as, where it is too long for a suite as it
stands; a skip says why a block is not for here.
"""
import pathlib
import subprocess
import sys
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / 'python'))

import checks
import claimed
import claims
import sandbox
import words
from tap import Tap


def code_words(page, dry):
    """Every command in a page's text."""
    case = checks.Case('commands in its text name programs, options, tests and files that there are')
    for word in page.words:
        if words.WORTH_A_LOOK.match(word.text) and not words.NO_COMMANDS.match(word.text):
            for fault in dry.faults(word.text):
                case.complaints.append(f'line {word.number}: `{word.text}`: {fault}')
    return case


def cases_of(run, part):
    """A check that breaks is a case that fails."""
    try:
        return run.cases(part)
    except Exception:
        return [checks.Case(run.name(part), [traceback.format_exc()])]


def report(tap, case):
    details = case.notes + case.complaints
    tap.case(case.name.replace('#', 'number '), not case.complaints, case.skipped or None, '\n'.join(details))


def check(root, build, name, pythons, rules=claims, text=None):
    """Prints TAP; the number of cases that failed."""
    tap = Tap(sys.stdout)
    page, parts, complaints = claimed.read(name, rules.CLAIMS.get(name, []), text)
    box = sandbox.Sandbox(root, build, pythons)
    try:
        dry = words.Dry(box.run, lambda path: (box.folder / path).exists(), box.python_with)
        run = checks.Checks(root, box, dry, rules)
        report(tap, checks.Case('every block has one claim, every claim a block', complaints))
        for part in parts:
            for case in cases_of(run, part) if part.way else []:
                report(tap, case)
        report(tap, code_words(page, dry))
        tap.line(f'1..{tap.count}')
        return tap.failed_count
    finally:
        box.close()


def python_of(line):
    """(program, its packages): those that the line names, and ensurepip, which Debian has in python3-venv."""
    program, _, *modules = line.split('|')
    found = subprocess.run([program, '-c', 'import ensurepip'], stderr=subprocess.DEVNULL, check=False)
    return program, [module.split(' ')[0] for module in modules] + ['ensurepip'] * (found.returncode == 0)


if __name__ == '__main__':
    sys.exit(1 if check(*sys.argv[1:4], [python_of(line) for line in sys.argv[4:]]) else 0)
