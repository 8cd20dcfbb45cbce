# SPDX-License-Identifier: Apache-2.0
"""Examples in Python, started as they say, and alone."""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / 'docs/examples/owner_step.py')
GO_ON = str(ROOT / 'docs/examples/go_on.py')


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

    def test_go_on_goes_on_without_the_rank_that_is_killed(self):
        for victim in ('2', '0'):
            found = run([os.environ['MXS_PROGRAM'], 'run', '--keep-going', '-n', '4', '--', sys.executable, GO_ON,
                         victim])
            self.assertEqual(found.returncode, 0, found.stderr)
            self.assertRegex(found.stdout, '(?s)(3 ranks go on after step [34].*){3}')
            for rank in range(3):
                self.assertIn(f'rank {rank} of 3 has done 8 steps', found.stdout)

    def test_go_on_takes_all_steps_if_nobody_dies(self):
        found = run([sys.executable, GO_ON], RANK='0', WORLD_SIZE='1')
        self.assertEqual((found.returncode, found.stdout, found.stderr), (0, 'rank 0 of 1 has done 8 steps\n', ''))


if __name__ == '__main__':
    unittest.main()
