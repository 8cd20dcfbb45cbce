# SPDX-License-Identifier: Apache-2.0
"""docs/examples/train_gpt.py under a real torchrun, as its first line says, and the other examples of PyTorch."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from test_torchrun import DEBIAN

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'docs/examples'
EXAMPLE = FOLDER / 'train_gpt.py'


class Examples(unittest.TestCase):
    def run_example(self, ranks, *arguments):
        """{step: loss} of rank 0."""
        command = [sys.executable, '-m', 'torch.distributed.run', *DEBIAN, '--standalone', '--nproc_per_node',
                   str(ranks), str(EXAMPLE), *arguments]
        found = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False,
                               env={**os.environ, 'OMP_NUM_THREADS': '1'})
        self.assertEqual(found.returncode, 0, found.stderr[-2000:])
        lines = re.findall(r'^step +(\d+)  loss (\d+\.\d+)  norm \d', found.stdout, re.M)
        self.assertEqual(len(lines), len(dict(lines)), found.stdout)
        return {int(step): float(loss) for step, loss in lines}

    def test_train_gpt_learns_its_own_text_on_four_ranks_and_goes_on_where_it_was_stopped(self):
        folder = tempfile.mkdtemp(prefix='mxs-example-')
        self.addCleanup(shutil.rmtree, folder)
        losses = self.run_example(4, folder)
        self.assertEqual(list(losses), [0, 10, 20, 30, 40, 50, 59])
        self.assertAlmostEqual(losses[0], 4.85, delta=0.2)  # the logarithm of 128 letters
        self.assertLess(losses[59], 3.0)
        self.assertEqual(sorted(os.listdir(folder)), ['step-00000040', 'step-00000060'])
        shutil.rmtree(os.path.join(folder, 'step-00000060'))
        self.assertEqual(self.run_example(4, folder), {step: losses[step] for step in (40, 50, 59)})
        shutil.rmtree(os.path.join(folder, 'step-00000060'))
        self.assertLess(self.run_example(2, folder)[59], 3.1)

    def output_of(self, name):
        command = [os.environ['MXS_PROGRAM'], 'run', '-n', '2', '--', sys.executable, str(FOLDER / name)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False,
                               env={**os.environ, 'OMP_NUM_THREADS': '1'})
        self.assertEqual(found.returncode, 0, found.stderr[-2000:])
        return found.stdout

    def test_a_module_is_sharded_and_learns_on_two_ranks(self):
        # Under PYTHONUNBUFFERED a line is written in parts, between which another rank's may come.
        output = self.output_of('shard_module.py')
        found = re.findall(r'loss (0\.\d+), (\d+) numbers here', output)
        self.assertEqual(len(found), 2, output)
        self.assertEqual(sum(int(count) for _, count in found), 4 * (64 * 64 + 64))
        for loss, _ in found:
            self.assertLess(float(loss), 0.01)

    def test_programs_of_others_learn_here_on_two_ranks(self):
        for name, at_last in (('from_fsdp2.py', 0.65), ('from_dion.py', 3.8)):
            output = self.output_of(name)
            losses = [float(loss) for loss in re.findall(r'^step \d+, loss (\d\.\d+)', output, re.M)]
            self.assertGreater(losses[0], at_last + 0.2, output)
            self.assertLess(losses[-1], at_last, output)

    def test_it_is_as_short_as_it_is_called(self):
        self.assertLess(len(EXAMPLE.read_text().splitlines()), 75)


if __name__ == '__main__':
    unittest.main()
