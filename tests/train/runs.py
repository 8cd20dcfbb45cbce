# SPDX-License-Identifier: Apache-2.0
"""What the tests of whole runs share: a tiny model, one run of it, and cases told in TAP."""
import functools
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../support'))
import tap_cases  # noqa: E402

MXS, TRAIN = sys.argv[1:3]
TINY = ['--layers', '2', '--width', '64', '--heads', '2', '--context', '16', '--micro-batches', '12', '--quiet']


def start(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def train(folder, placement, ranks, *options):
    """One run's figures and the bytes of its weights."""
    figures, weights = os.path.join(folder, 'figures'), os.path.join(folder, 'weights')
    command = [TRAIN, '--placement', placement, '--json', figures, '--save-weights', weights, *TINY, *options]
    if placement != 'single':
        command = [MXS, 'run', '-n', str(ranks), '--'] + command
    done = start(command)
    assert done.returncode == 0, f'{" ".join(command)}: {done.returncode}\n{done.stdout}{done.stderr}'
    with open(figures, encoding='utf-8') as file, open(weights, 'rb') as data:
        return json.load(file), data.read()


def run_cases(cases):
    """Each gets an empty folder."""
    tap_cases.run_cases([in_an_empty_folder(case) for case in cases])


def in_an_empty_folder(case):
    @functools.wraps(case)
    def with_folder():
        with tempfile.TemporaryDirectory() as folder:
            case(folder)
    return with_folder
