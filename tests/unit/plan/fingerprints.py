# SPDX-License-Identifier: Apache-2.0
"""The same plans without optimization, with all of it, and on the machine that wrote tests/data/plans/fingerprints.txt.

    fingerprints.py GOLDEN PROGRAM PROGRAM      compares
    fingerprints.py --write GOLDEN PROGRAM      writes the file anew, where the planner was changed on purpose
"""
import subprocess
import sys

# In pieces, so that this file has one licence line.
HEAD = ('# SPDX-License-' + 'Identifier: Apache-2.0\n'
        '# model, cluster, status, fingerprint; written by fingerprints.py --write\n')


def lines_of(program):
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def first_difference(one, other):
    if len(one) != len(other):
        return f'{len(one)} and {len(other)} lines'
    return next((f'"{a}" and "{b}"' for a, b in zip(one, other) if a != b), None)


def report(number, name, difference):
    print(f'{"not ok" if difference else "ok"} {number} - {name}')
    if difference:
        print(f'# {difference}')


def main(arguments):
    if arguments[0] == '--write':
        with open(arguments[1], 'w', encoding='utf-8') as file:
            file.write(HEAD + '\n'.join(lines_of(arguments[2])) + '\n')
        return
    golden, plain, optimized = arguments
    with open(golden, encoding='utf-8') as file:
        saved = [line.rstrip('\n') for line in file if not line.startswith('#')]
    plain, optimized = lines_of(plain), lines_of(optimized)
    print('1..3')
    report(1, 'plans_are_equal_without_optimization_and_with_all_of_it', first_difference(plain, optimized))
    report(2, 'plans_are_equal_on_this_machine_and_on_another', first_difference(saved, plain))
    differ = len({line.split()[-1] for line in plain})
    report(3, 'fingerprints_differ_from_plan_to_plan',
           None if differ > len(plain) * 9 // 10 else f'only {differ} of {len(plain)} differ')


main(sys.argv[1:])
