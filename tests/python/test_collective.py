# SPDX-License-Identifier: Apache-2.0
"""Collectives over layouts and any memory: results, sizes, buffers that stay alive, wrong use."""
import array
import gc
import unittest

import matrixshard as mxs
import numpy
from comm_case import CommCase, status

WORLDS = (1, 2, 3, 4)


def layouts(count):
    """Even, one owner, some empty, odd sizes; bytes of floats."""
    yield mxs.Layout.even(4 * 1003, 4, count)
    yield mxs.Layout([(count - 1, 0, 4 * 77)], count)
    yield mxs.Layout([(rank, 4 * 10 * rank, 40 if rank % 2 == 0 else 0) for rank in range(count) if rank % 2 == 0] if
                     count < 2 else [(0, 0, 40), (1, 40, 0), (0, 40, 12)], count)


def packed(layout, rank, whole):
    """This rank's segments of a whole array of floats, in order."""
    parts = [whole[one.offset // 4:(one.offset + one.bytes) // 4] for one in layout.segments if one.owner == rank]
    return numpy.concatenate(parts) if parts else numpy.zeros(0, whole.dtype)


class Collectives(CommCase):
    def test_gather_brings_all_segments_to_all_ranks(self):
        def body(comm):
            for layout in layouts(comm.rank_count):
                whole = numpy.arange(layout.bytes // 4, dtype=numpy.float32)
                target = numpy.full(len(whole), -1, numpy.float32)
                source = packed(layout, comm.rank, whole)
                self.assertIs(mxs.gather(comm, layout, source if len(source) else None, target), target)
                numpy.testing.assert_array_equal(target, whole)
                with mxs.Collective(comm, 'gather', layout) as gather:
                    target[:] = -1
                    for segment in layout.segments:
                        if segment.owner == comm.rank:
                            begin, end = segment.offset // 4, (segment.offset + segment.bytes) // 4
                            target[begin:end] = whole[begin:end]
                    for _ in range(3):
                        request = gather.start(None, target, priority=2)  # in place
                        comm.wait(request)
                        gather.wait()
                    numpy.testing.assert_array_equal(target, whole)
        for count in WORLDS:
            self.run_world(count, body)

    def test_reduce_adds_all_ranks(self):
        def body(comm):
            for layout in layouts(comm.rank_count):
                count = layout.bytes // 4
                given = numpy.arange(count, dtype=numpy.float32) + 1000 * comm.rank
                wanted = sum(numpy.arange(count, dtype=numpy.float32) + 1000 * rank
                             for rank in range(comm.rank_count))
                target = numpy.full(layout.owned_bytes(comm.rank) // 4, 9, numpy.float32)
                mxs.reduce(comm, layout, given, target, rank_order=True)
                numpy.testing.assert_array_equal(target, packed(layout, comm.rank, wanted))
                mxs.reduce(comm, layout, given, target, accumulate=True)
                numpy.testing.assert_array_equal(target, 2 * packed(layout, comm.rank, wanted))
        for count in WORLDS:
            self.run_world(count, body)

    def test_words_of_16_bits_are_added_in_fp32(self):
        def body(comm):
            layout = mxs.Layout.even(2 * 64, 2, comm.rank_count)
            target = numpy.zeros(layout.owned_bytes(comm.rank) // 2, numpy.float32)
            with mxs.Collective(comm, mxs.CollectiveKind.REDUCE, layout, dtype='bf16') as reduce:
                reduce.start(numpy.full(64, 0x3f80, numpy.uint16), target)
                reduce.wait(timeout=20)
                self.assertTrue((target == comm.rank_count).all())
                with self.assertRaisesRegex(TypeError, 'source is of f32; this reduce wants bf16'):
                    reduce.start(numpy.zeros(64, numpy.float32), target)
            half = numpy.full(64, 1.5, numpy.float16)
            mxs.reduce(comm, layout, half, target, dtype='f16')
            self.assertTrue((target == 1.5 * comm.rank_count).all())
        self.run_world(3, body)

    def test_reshard_goes_from_one_layout_to_another(self):
        def body(comm):
            count = comm.rank_count
            source_layout = mxs.Layout.even(4 * 101, 4, count)
            target_layout = mxs.Layout([(count - 1, 0, 4 * 50), (0, 200, 4 * 51)], count)
            whole = numpy.arange(101, dtype=numpy.float32)
            target = numpy.full(target_layout.owned_bytes(comm.rank) // 4, -1, numpy.float32)
            mxs.reshard(comm, source_layout, target_layout, packed(source_layout, comm.rank, whole),
                        target if len(target) else None)
            numpy.testing.assert_array_equal(target, packed(target_layout, comm.rank, whole))
        for count in WORLDS:
            self.run_world(count, body)

    def test_mapped_memory_and_buffers_of_the_standard_library(self):
        def body(comm):
            layout = mxs.Layout.even(4 * 64, 4, comm.rank_count)
            target = comm.allocate(layout.bytes)
            mine = array.array('f', [comm.rank] * (layout.owned_bytes(comm.rank) // 4))
            with mxs.Collective(comm, 'gather', layout, mapped_memory=True) as gather:
                gather.start(mine, target)
                gather.wait()
                self.assertEqual(gather.describe().algorithm, 'fanout')
                self.assertIn('gather', repr(gather))
                self.assertEqual(status(gather.start, mine, bytearray(layout.bytes)), ('INVALID_ARGUMENT', comm.rank))
            found = target.memory().cast('f')
            self.assertEqual([found[0], found[-1]], [0.0, float(comm.rank_count - 1)])
        self.run_world(2, body)

    def test_buffers_live_until_the_end(self):
        def body(comm):
            layout = mxs.Layout.even(4 << 20, 4, comm.rank_count)
            gather = mxs.Collective(comm, 'gather', layout)
            target = numpy.zeros(1 << 20, numpy.float32)
            source = numpy.full(layout.owned_bytes(comm.rank) // 4, comm.rank + 1, numpy.float32)
            gather.start(source, target)
            del source
            gc.collect()
            gather.wait()
            self.assertEqual(float(target[0]), 1)
            self.assertEqual(float(target[-1]), comm.rank_count)
            # Also if nothing is left that could be waited on: it is destroyed once the library lets it go.
            target[:] = 0
            request = gather.start(numpy.full(layout.owned_bytes(comm.rank) // 4, 7, numpy.float32), target)
            owned = gather._owned
            del gather
            gc.collect()
            comm.wait(request)
            self.assertTrue((target == 7).all())
            comm.barrier()
            self.assertIsNone(owned.pointer)
        self.run_world(2, body)

    def test_wrong_use_is_refused(self):
        def body(comm):
            rank = comm.rank
            layout = mxs.Layout.even(4 * 64, 4, comm.rank_count)
            target = numpy.zeros(64, numpy.float32)
            with mxs.Collective(comm, 'gather', layout) as gather:
                with self.assertRaisesRegex(ValueError, 'target is None, but this rank needs 256 bytes'):
                    gather.start(None, None)
                with self.assertRaisesRegex(ValueError, 'target has 252 bytes; 256 are wanted'):
                    gather.start(None, target[1:])
                with self.assertRaisesRegex(ValueError, 'source has 4 bytes; 128 are wanted'):
                    gather.start(numpy.zeros(1, numpy.float32), target)
                with self.assertRaisesRegex(ValueError, 'read-only'):
                    gather.start(None, bytes(256))
                with self.assertRaisesRegex(ValueError, 'not contiguous'):
                    gather.start(None, numpy.zeros((64, 2), numpy.float32)[:, 0])
                with self.assertRaises(TypeError):
                    gather.start(None, 'text')
                gather.start(None, target)
                gather.wait()
                gather.wait()
            self.assertEqual(status(mxs.Collective, comm, 'gather', layout, algorithm='walk'), ('NOT_FOUND', rank))
            self.assertEqual(status(mxs.Collective, comm, 'agree', layout), ('INVALID_ARGUMENT', rank))
            with self.assertRaisesRegex(ValueError, 'collectivekind'):
                mxs.Collective(comm, 'scatter', layout)
            other = mxs.Layout.even(4 * (64 + rank), 4, comm.rank_count)
            self.assertEqual(status(mxs.Collective, comm, 'gather', other), ('MISMATCH', rank))
            comm.barrier()
        self.run_world(2, body)


if __name__ == '__main__':
    unittest.main()
