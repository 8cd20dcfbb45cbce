# SPDX-License-Identifier: Apache-2.0
"""perf/torch/compare.py: contenders that this PyTorch has train to equal losses, and the figures are there."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

COMPARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'perf', 'torch', 'compare.py')
SMALL = ['--ranks=2', '--layers=2', '--width=32', '--heads=2', '--length=16', '--batch=2', '--steps=3', '--warmup=1',
         '--rounds=1']


def compare(*options):
    """Whoever waits for too long says so within 100 s, or else what was said until then is told."""
    try:
        return subprocess.run([sys.executable, '-B', COMPARE, *options], capture_output=True, text=True, check=False,
                              timeout=220, env=dict(os.environ, MXS_TIMEOUT='100'))
    except subprocess.TimeoutExpired as late:
        said = b'\n'.join(text[-2000:] for text in (late.stdout, late.stderr) if text)
        raise AssertionError('no end within 220 s: ' + said.decode(errors='replace')) from late


class Compare(unittest.TestCase):
    def test_all_contenders_train_alike(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'figures.json')
            run = compare(*SMALL, '--dtype=fp32', '--json=' + path)
            self.assertEqual(run.returncode, 0, run.stderr)
            with open(path, encoding='utf-8') as file:
                rows = json.load(file)['dtypes']['fp32']
        left_out = [line.split()[0] for line in run.stderr.splitlines() if ' is left out: ' in line]
        self.assertEqual(sorted([*rows, *left_out]), ['ddp-muon', 'fsdp2-alltoall', 'fsdp2-muon', 'matrixshard'])
        ours = rows['matrixshard']
        for name, row in rows.items():
            self.assertIn(name, run.stdout)
            self.assertEqual(len(row['losses']), 4)
            for theirs, own in zip(row['losses'], ours['losses']):
                self.assertAlmostEqual(theirs, own, delta=0.01, msg=name)
            self.assertLess(row['losses'][-1], row['losses'][0])
            for key in ('gradient_ms', 'step_ms', 'whole_ms', 'at_rest_bytes', 'whole_ratio'):
                self.assertGreater(row[key], 0, f'{name} {key}')
        # Slices and owners hold half, whole weights on each rank more.
        self.assertLess(ours['at_rest_bytes'], 0.8 * rows['ddp-muon']['at_rest_bytes'])

    def test_words_that_make_no_sense_are_refused(self):
        for options, sentence in ((['--contenders=fsdp1'], 'none of'), (['--dtype=fp8'], 'neither fp32 nor bf16'),
                                  (['--width=30'], 'not a multiple'), (['--ranks=0'], 'whole number')):
            run = compare(*options)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(sentence, run.stderr)


if __name__ == '__main__':
    unittest.main()
