# SPDX-License-Identifier: Apache-2.0
"""The program of docs/checkpoints.md that checks every byte of a checkpoint without matrixshard, as it stands there."""
import contextlib
import ctypes
import ctypes.util
import io
import os
import sys
import tempfile
import types
import unittest

import matrixshard as mxs
import world
from pages import claimed

SHAPES = {'tall': (1500, 700), 'flat': (3000, 7), 'bias': (17,)}


def hasher():
    """The package xxhash, or as much of it as the program needs, by the library."""
    try:
        import xxhash
        return xxhash
    except ImportError:
        name = ctypes.util.find_library('xxhash') or 'libxxhash.so.0'
    try:
        function = ctypes.CDLL(name).XXH3_64bits
    except (OSError, AttributeError) as error:
        raise unittest.SkipTest(f'neither the package xxhash nor its library: {error}') from None
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_uint64
    module = types.ModuleType('xxhash')
    module.xxh3_64_hexdigest = lambda data: f'{function(data, len(data)):016x}'
    return module


def save(rank, path):
    tensors = [mxs.Tensor(name, shape, rule='adamw' if name == 'flat' else 'auto') for name, shape in SHAPES.items()]
    with mxs.Comm() as comm:
        plan = mxs.Plan(tensors, comm.topology(), flat_bytes=4096)
        unit = mxs.Unit(comm, plan, 0)
        optimizer = mxs.Optimizer([unit], backend='reference')
        for index in range(len(plan.placements)):
            shard = unit.shard(index)
            if shard.bytes:
                shard.memory()[:] = bytes((at * 7 + index) % 61 for at in range(shard.bytes))
                unit.commit(shard)
        optimizer.step_number = 500
        mxs.save(path, [unit], optimizer,
                 extras={'counter': ('I64', (3,), bytes(24)), 'mask': ('BOOL', (5,), bytes(5))})


class Format(unittest.TestCase):
    def run_program(self, folder):
        """What it prints, lines; in that folder."""
        program, = claimed.blocks('docs/checkpoints.md', 'tests/python/test_checkpoint_format.py')
        printed = io.StringIO()
        before = os.getcwd()
        had = sys.modules.get('xxhash')
        sys.modules['xxhash'] = hasher()
        try:
            os.chdir(folder)
            with contextlib.redirect_stdout(printed):
                exec(compile(program.text, 'docs/checkpoints.md', 'exec'), {})
        finally:
            os.chdir(before)
            if had is None:
                del sys.modules['xxhash']
        return printed.getvalue().splitlines()

    def test_the_program_of_the_page_finds_all_hashes_good_and_a_flipped_bit(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'checkpoints')
            world.run_ranks(3, save, path)
            lines = self.run_program(folder)
            tall, = (line for line in lines if line.startswith('tall '))
            self.assertRegex(tall, r'^tall F32 \[1500, 700\] of ranks \[\d\]$')
            flat, = (line for line in lines if line.startswith('flat '))
            self.assertRegex(flat, r'^flat F32 \[3000, 7\] of ranks \[\d, \d, \d\]$')
            self.assertTrue(any(line.startswith('flat.exp_avg_sq F32 [3000, 7]') for line in lines), lines)
            with mxs.Checkpoint(path) as checkpoint:
                entry, = (one for one in checkpoint.arrays if one.name == 'flat')
                file = os.path.join(checkpoint.info.path, entry.file)
            with open(file, 'r+b') as data:
                data.seek(entry.file_offset + entry.bytes - 1)
                last = data.read(1)[0]
                data.seek(-1, os.SEEK_CUR)
                data.write(bytes([last ^ 1]))
            with self.assertRaisesRegex(AssertionError, 'flat'):
                self.run_program(folder)


if __name__ == '__main__':
    unittest.main()
