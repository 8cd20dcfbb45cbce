# SPDX-License-Identifier: Apache-2.0
"""What the tests of whole runs share: a tiny model, one run of it, and cases told in TAP."""
import json
import os
import subprocess
import sys
import tempfile
import traceback

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
    print(f'1..{len(cases)}')
    for number, case in enumerate(cases, 1):
        try:
            with tempfile.TemporaryDirectory() as folder:
                case(folder)
            print(f'ok {number} - {case.__name__}', flush=True)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            print(f'not ok {number} - {case.__name__}')
            for line in traceback.format_exc().splitlines():
                print(f'# {line}', flush=True)
