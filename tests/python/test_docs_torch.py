# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/python.md about PyTorch run as they stand there, each with a small GPT and on one rank."""
import os
import tempfile
import unittest

import torch
import torch_models
from pages import ROOT, blocks_of

import matrixshard.torch as mt


class Docs(unittest.TestCase):
    def test_examples_about_pytorch_run(self):
        text = (ROOT / 'docs/python.md').read_text()
        os.environ.update(RANK='0', WORLD_SIZE='1')
        tokens, targets = torch_models.batch(0)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chdir(folder.name)
        for heading, count in (('Models of PyTorch', 1), ('The optimizer for PyTorch', 2),
                               ('Checkpoints of PyTorch models', 2)):
            blocks = blocks_of(text, heading)
            self.assertEqual(len(blocks), count)
            for block in blocks:
                if block.startswith('{'):  # of JSON
                    continue
                names = {'torch': torch, 'mt': mt, 'GPT': lambda config: torch_models.small_gpt(**config), 'config': {},
                         'Block': torch_models.Block, 'tokens': tokens, 'targets': targets,
                         'batches': [torch_models.batch(step) for step in range(3)]}
                exec(compile(block, f'docs/python.md: {heading}', 'exec'), names)
                if isinstance(names.get('optimizer'), mt.Optimizer):
                    self.assertEqual(names['optimizer'].step_number, 3)
                    names['optimizer'].close()
                mt.sharded(names['model']).close()


if __name__ == '__main__':
    unittest.main()
