# SPDX-License-Identifier: Apache-2.0
"""The example of README.md in Python, started as it says there, and alone."""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / 'docs/examples/owner_step.py')


def run(command, **variables):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **variables})


class Examples(unittest.TestCase):
    def test_owner_step_runs_on_two_ranks(self):
        found = run([os.environ['MXS_PROGRAM'], 'run', '-n', '2', '--', sys.executable, EXAMPLE])
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertEqual(found.stdout.split().count('norm'), 2, found.stdout)
        self.assertEqual(found.stdout.count('step 1, norm 22.6274, first weight -0.03'), 2, found.stdout)

    def test_owner_step_runs_alone(self):
        found = run([sys.executable, EXAMPLE], RANK='0', WORLD_SIZE='1')
        self.assertEqual((found.returncode, found.stderr), (0, ''))
        self.assertRegex(found.stdout, r'^step 1, norm 11\.3137, first weight -0\.03\d+\n$')


if __name__ == '__main__':
    unittest.main()
