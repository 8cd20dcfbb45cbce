# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/python.md about PyTorch run as they stand there, each with a small GPT and on one rank."""
import json
import os
import re
import tempfile
import unittest

import torch
import torch_models
from pages import claimed

import matrixshard as mxs
import matrixshard.torch as mt


class Docs(unittest.TestCase):
    def test_examples_about_pytorch_run(self):
        os.environ.update(RANK='0', WORLD_SIZE='1')
        tokens, targets = torch_models.batch(0)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chdir(folder.name)
        for block in claimed.blocks('docs/python.md', 'tests/python/test_docs_torch.py'):
            if block.first.startswith('{'):
                self.look_at_json_of_a_checkpoint(block.text)
                continue
            names = {'torch': torch, 'mt': mt, 'GPT': lambda config: torch_models.small_gpt(**config), 'config': {},
                     'Block': torch_models.Block, 'tokens': tokens, 'targets': targets,
                     'batches': [torch_models.batch(step) for step in range(3)]}
            exec(compile(block.text, f'docs/python.md: {block.heading}', 'exec'), names)
            if isinstance(names.get('optimizer'), mt.Optimizer):
                self.assertEqual(names['optimizer'].step_number, 3)
                names['optimizer'].close()
            mt.sharded(names['model']).close()

    def look_at_json_of_a_checkpoint(self, text):
        """The block above it has saved one, without random state of others than torch."""
        shown = json.loads(re.sub(r',?\s*\.\.\.', '', text))
        with mxs.Checkpoint('checkpoints') as checkpoint:
            saved = json.loads(bytes(checkpoint.user(0)))
        self.assertEqual(set(shown), set(saved))
        self.assertLessEqual(set(shown['groups'][0]), set(saved['groups'][0]))
        self.assertIn('torch', saved['random'])


if __name__ == '__main__':
    unittest.main()
