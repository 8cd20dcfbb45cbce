# SPDX-License-Identifier: Apache-2.0
"""Counts the cases of a meson test run: count_cases.py testlog.json MESON_STATUS

A program that speaks TAP has one case a line; any other is one case. One that says '# not run: REASON' before its line
is skipped: cmocka 1.1.5 prints 'not ok' for its own skip(). A program that ended badly without a failed case (a crash,
a timeout) counts as one failed case. Prints the cases that failed or were skipped, then the line that build
servers read. The exit status is that of the run: 0 only if nothing failed and meson said so as well.
"""
import json
import re
import sys

TAP_CASE = re.compile(r'^(not ok|ok)\b\s*\d*\s*-?\s*(.*)$')
TAP_PLAN = re.compile(r'^1\.\.(\d+)(?:\s*#\s*skip\S*\s*(.*))?', re.IGNORECASE)
NOT_RUN = re.compile(r'^# not run: (.*)$')
TAP_SKIP = re.compile(r'#\s*skip\S*\s*(.*)$', re.IGNORECASE)
GOOD = {'OK', 'EXPECTEDFAIL', 'SKIP'}


def count(programs):
    """Returns (passed, failed, skipped): a number and two lists of sentences."""
    passed, failed, skipped = 0, [], []
    for program in programs:
        name, result = program['name'], program['result']
        plan, cases, failed_before, skipped_before, reason, not_run = None, 0, len(failed), len(skipped), '', ''
        for line in (program.get('stdout') or '').splitlines():
            if found := TAP_PLAN.match(line):
                plan, reason = int(found[1]), found[2] or ''
            elif found := TAP_CASE.match(line):
                cases += 1
                skip = TAP_SKIP.search(found[2]) or not_run
                if found[1] == 'not ok':
                    failed.append(f'{name}: {found[2]}')
                elif skip:
                    skipped.append(f'{name}: {found[2]}' + (f' # SKIP {not_run}' if not_run else ''))
                else:
                    passed += 1
                not_run = ''
            elif found := NOT_RUN.match(line):
                not_run = found[1]
        if result not in GOOD:
            if len(failed) == failed_before:
                failed.append(f'{name}: {result}')
        elif result == 'SKIP':
            skipped.append(f'{name}: {reason or "skipped"}')
        elif plan is None:
            # Not TAP: lines that only look like it don't count.
            passed -= cases - (len(failed) - failed_before) - (len(skipped) - skipped_before)
            del failed[failed_before:]
            del skipped[skipped_before:]
            passed += 1
    return passed, failed, skipped


def main(path, meson_status):
    try:
        with open(path, encoding='utf-8') as lines:
            programs = [json.loads(line) for line in lines]
    except OSError as error:
        print(f'no test log: {error}')
        programs = []
    passed, failed, skipped = count(programs)
    if meson_status and not failed:
        failed.append(f'meson test: exit status {meson_status}')
    if not programs and not failed:
        failed.append('no test ran')
    for sentence in skipped:
        print(f'skipped  {sentence}')
    for sentence in failed:
        print(f'FAILED   {sentence}')
    print(f'{passed} passed, {len(failed)} failed, {len(skipped)} skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
