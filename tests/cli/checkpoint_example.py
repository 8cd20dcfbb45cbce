# SPDX-License-Identifier: Apache-2.0
"""docs/examples/checkpoint.c: each run, of another number of ranks, goes on where the one before ended."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../support'))
from tap_cases import run_cases  # noqa: E402

MXS, EXAMPLE = map(os.path.abspath, sys.argv[1:])


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60)


def runs_of_two_three_and_one_rank_go_on(folder):
    for number, ranks in enumerate((2, 3, 1), 1):
        result = run(MXS, 'run', '-n', str(ranks), '--', EXAMPLE, folder)
        assert result.returncode == 0 and result.stderr == '', result
        assert result.stdout == f'step {number} is in {folder}\n' * ranks, result
        shown = run(MXS, 'checkpoint', 'show', os.path.join(folder, f'step-{number:08}'))
        assert f'step {number}, saved by {ranks} rank' in shown.stdout, shown


def the_newest_two_stay(folder):
    assert sorted(os.listdir(folder)) == ['step-00000002', 'step-00000003'], os.listdir(folder)
    assert run(MXS, 'checkpoint', 'verify', folder).returncode == 0


def a_damaged_one_is_not_passed_over(folder):
    os.truncate(os.path.join(folder, 'step-00000003', 'matrixshard.json'), 9)
    result = run(MXS, 'run', '-n', '2', '--', EXAMPLE, folder)
    assert result.returncode == 1 and 'DAMAGED: ' in result.stderr and 'matrixshard.json' in result.stderr, result
    assert sorted(os.listdir(folder)) == ['step-00000002', 'step-00000003'], os.listdir(folder)


with tempfile.TemporaryDirectory() as shared:
    run_cases([runs_of_two_three_and_one_rank_go_on, the_newest_two_stay, a_damaged_one_is_not_passed_over], [shared])
