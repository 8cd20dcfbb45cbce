# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/python.md about plans, kernels, ranks and checkpoints run as they stand there, in order."""
import contextlib
import io
import os
import tempfile
import unittest

import numpy  # noqa: F401  the local step alone has an example with it
from pages import ROOT, claimed


class Docs(unittest.TestCase):
    def test_examples_of_the_page_run(self):
        names = {}
        os.chdir(ROOT)
        os.environ.update(RANK='0', WORLD_SIZE='1')
        printed = io.StringIO()
        for block in claimed.blocks('docs/python.md', 'tests/python/test_docs.py'):
            with contextlib.redirect_stdout(printed), tempfile.TemporaryDirectory() as folder:
                if block.heading == 'Checkpoints':
                    os.chdir(folder)
                exec(compile(block.text, f'docs/python.md: {block.heading}', 'exec'), names)
                os.chdir(ROOT)
        self.assertIn('llama, 32 layers, 8.0 billion parameters', printed.getvalue())
        self.assertRegex(printed.getvalue(), r'shampoo matrix on rank \d+ \(14336, 4096\)')
        self.assertRegex(printed.getvalue(), r'\d+ MiB move when 4 ranks go')
        self.assertIn("('w.momentum', 'F32', (64, 32))", printed.getvalue())
        print(printed.getvalue())


if __name__ == '__main__':
    unittest.main()
