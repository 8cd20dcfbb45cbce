# SPDX-License-Identifier: Apache-2.0
"""docs/examples/train_gpt.py, as its first line says, under a real torchrun."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

from test_torchrun import DEBIAN

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / 'docs/examples/train_gpt.py'


class Examples(unittest.TestCase):
    def test_train_gpt_learns_its_own_text_on_four_ranks(self):
        command = [sys.executable, '-m', 'torch.distributed.run', *DEBIAN, '--standalone', '--nproc_per_node', '4',
                   str(EXAMPLE)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False,
                               env={**os.environ, 'OMP_NUM_THREADS': '1'})
        self.assertEqual(found.returncode, 0, found.stderr[-2000:])
        losses = [float(loss) for loss in re.findall(r'^step +\d+  loss (\d+\.\d+)  norm \d', found.stdout, re.M)]
        self.assertEqual(len(losses), 7, found.stdout)  # of rank 0 alone
        self.assertAlmostEqual(losses[0], 4.85, delta=0.2)  # the logarithm of 128 letters
        self.assertLess(losses[-1], 3.0)

    def test_it_is_as_short_as_it_is_called(self):
        self.assertLess(len(EXAMPLE.read_text().splitlines()), 65)


if __name__ == '__main__':
    unittest.main()
