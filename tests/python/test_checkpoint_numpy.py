# SPDX-License-Identifier: Apache-2.0
"""Arrays of checkpoints as numpy's, and numpy's as extra tensors; the safetensors package, where it is, reads the
same."""
import os
import shutil
import tempfile
import unittest

import matrixshard as mxs
import numpy
import safetensors_files as files
from comm_case import CommCase

TYPES = {'F64': 'f8', 'F32': 'f4', 'F16': 'f2', 'I64': 'i8', 'I32': 'i4', 'I16': 'i2', 'I8': 'i1', 'U64': 'u8',
         'U32': 'u4', 'U16': 'u2', 'U8': 'u1', 'BOOL': '?', 'C64': 'c8'}
BITS = {'BF16': 'u2', 'F8_E4M3': 'u1', 'F8_E5M2': 'u1', 'F8_E8M0': 'u1'}


def arrays():
    """One of each type that numpy has, of different shapes."""
    return {word: (numpy.arange(24).reshape([(24,), (4, 6), (2, 3, 4)][index % 3]) % 3).astype(kind)
            for index, (word, kind) in enumerate(TYPES.items())}


class Arrays(CommCase):
    def setUp(self):
        self.path = tempfile.mkdtemp(prefix='mxs-checkpoint-')
        self.addCleanup(shutil.rmtree, self.path, ignore_errors=True)

    def test_every_dtype_of_a_model_of_others_comes_as_numpys(self):
        path = os.path.join(self.path, 'model.safetensors')
        given = arrays()
        tensors = {word: (word, one.shape, one.tobytes()) for word, one in given.items()}
        bits = {word: numpy.arange(6, dtype=kind).reshape(2, 3) for word, kind in BITS.items()}
        tensors.update({word: (word, one.shape, one.tobytes()) for word, one in bits.items()})
        tensors.update(scalar=('F32', (), numpy.float32(7).tobytes()), empty=('I64', (0, 3), b''))
        files.write_file(path, tensors)
        with mxs.Checkpoint(path) as checkpoint:
            self.assertEqual({one.name for one in checkpoint}, set(tensors))
            for word, one in {**given, **bits}.items():
                found = checkpoint.array(word)
                self.assertEqual((found.dtype, found.shape), (one.dtype, one.shape), word)
                numpy.testing.assert_array_equal(found, one)
                self.assertTrue(found.flags.writeable)
            self.assertEqual((checkpoint.array('scalar').shape, float(checkpoint.array('scalar'))), ((), 7))
            self.assertEqual(checkpoint.array('empty').shape, (0, 3))
            numpy.testing.assert_array_equal(checkpoint.array(checkpoint.find('I32')), given['I32'])
            out = numpy.empty(given['F32'].shape, numpy.float32)
            self.assertIs(checkpoint.read('F32', out=out), out)
            numpy.testing.assert_array_equal(out, given['F32'])

    def test_arrays_are_saved_as_extra_tensors(self):
        given = arrays()
        words = numpy.arange(8, dtype='u2').reshape(2, 4)
        transposed = numpy.arange(6, dtype='f4').reshape(2, 3).T

        def body(comm):
            plan = mxs.Plan([mxs.Tensor('w', (8, 4), rule='frozen', dtype='f64')], comm.topology())
            unit = mxs.Unit(comm, plan, 0)
            for index, placement in enumerate(plan.placements):
                shard = unit.shard(index)
                if shard.bytes:
                    first = placement.element_offset
                    shard.numpy().reshape(-1)[:] = numpy.arange(first, first + placement.element_count)
                    unit.commit(shard)
            extras = {**given, 'bits': ('BF16', (2, 4), words), 'scalar': numpy.array(3, 'i8')}
            for extra in (transposed, numpy.array(['text']), numpy.zeros(2, 'c16'), numpy.zeros(2, '>f4')):
                with self.assertRaisesRegex((TypeError, ValueError), r"extras\['wrong'\]"):
                    mxs.save(self.path, [unit], extras={'wrong': extra})
            mxs.save(self.path, [unit], extras=extras)
        for ranks in (1, 2):
            self.run_world(ranks, body)
            folder = os.path.join(self.path, os.listdir(self.path)[0])
            found = files.read_model(folder)
            self.assertEqual(found.pop('bits'), ('BF16', (2, 4), words.tobytes()))
            self.assertEqual(found.pop('scalar'), ('I64', (), numpy.int64(3).tobytes()))
            self.assertEqual(found.pop('w'), ('F64', (8, 4), numpy.arange(32, dtype='f8').tobytes()))
            self.assertEqual(found, {word: (word, one.shape, one.tobytes()) for word, one in given.items()})
            with mxs.Checkpoint(folder) as checkpoint:
                numpy.testing.assert_array_equal(checkpoint.array('w'), numpy.arange(32.0).reshape(8, 4))
                numpy.testing.assert_array_equal(checkpoint.array('bits'), words)
                self.assertEqual(checkpoint.array_at('bits').kind, mxs.ArrayKind.EXTRA)
            try:
                from safetensors.numpy import load_file
            except ImportError:
                continue
            for name in os.listdir(folder):
                if name.endswith('.safetensors') and 'bits' not in files.read_file(os.path.join(folder, name)):
                    for word, one in load_file(os.path.join(folder, name)).items():
                        numpy.testing.assert_array_equal(one, given.get(word, one))


if __name__ == '__main__':
    unittest.main()
