# SPDX-License-Identifier: Apache-2.0
"""Layout: from segments and even, what it tells, moves from one to another, and bad input."""
import gc
import unittest

import matrixshard as mxs


class Layout(unittest.TestCase):
    def test_it_is_made_of_segments(self):
        layout = mxs.Layout([(0, 0, 8), (2, 8, 2), dict(owner=1, offset=16, bytes=4)], 3, 8)
        self.assertEqual((layout.bytes, layout.rank_count, layout.segment_count), (20, 3, 3))
        self.assertEqual([layout.owned_bytes(rank) for rank in range(-1, 4)], [0, 8, 4, 2, 0])
        self.assertEqual([tuple(segment) for segment in layout.segments], [(0, 0, 8), (2, 8, 2), (1, 16, 4)])
        self.assertEqual(layout.segment(1).owner, 2)
        again = mxs.Layout(layout.segments, 3, alignment=8)
        self.assertEqual(list(again.segments), list(layout.segments))
        self.assertEqual(repr(layout), '<Layout: 20 bytes, 3 segments, 3 ranks>')

    def test_an_empty_one_is_ordinary(self):
        layout = mxs.Layout([], 2)
        self.assertEqual((layout.bytes, len(layout.segments), list(layout.segments)), (0, 0, []))
        self.assertEqual(layout.moves(mxs.Layout([], 5)), [])

    def test_even_ones_differ_by_an_element(self):
        for rank_count in (1, 2, 3, 4, 7, 8):
            layout = mxs.Layout.even(40, 4, rank_count)
            owned = [layout.owned_bytes(rank) for rank in range(rank_count)]
            self.assertEqual(sum(owned), 40)
            self.assertLessEqual(max(owned) - min(owned), 4)

    def test_moves_bring_every_byte_once(self):
        buffer = bytes(range(120))
        for source_count, target_count in ((1, 4), (4, 1), (3, 7), (8, 2)):
            source, target = (mxs.Layout.even(120, 4, count) for count in (source_count, target_count))
            held = [b''.join(buffer[s.offset:s.offset + s.bytes] for s in source.segments if s.owner == rank)
                    for rank in range(source_count)]
            got = [bytearray(b'\xee' * target.owned_bytes(rank)) for rank in range(target_count)]
            moves = source.moves(target)
            for move in moves:
                got[move.target_rank][move.target_offset:move.target_offset + move.bytes] = \
                    held[move.source_rank][move.source_offset:move.source_offset + move.bytes]
            self.assertEqual(sum(move.bytes for move in moves), 120)
            self.assertEqual(b''.join(map(bytes, got)), buffer)

    def test_bad_segments_are_refused_and_named(self):
        for segments, kind, text in (
                ([(0, 0, 8), (1, 4, 8)], mxs.InvalidArgumentError, 'segment'),
                ([(7, 0, 8)], mxs.InvalidArgumentError, 'rank'),
                ([(0, 0)], TypeError, r'segments\[0\] has 2 values'),
                ([(0, -1, 8)], ValueError, r'segments\[0\].offset is -1'),
                ([(0, 0, 8), (2**32, 8, 8)], ValueError, r'segments\[1\].owner is 4294967296'),
                ([dict(owner=0, offset=0)], TypeError, r'segments\[0\] has no bytes'),
                ([dict(owner=0, offset=0, bytes=8, byte=3)], TypeError, "unknown argument 'byte'"),
                ([3], TypeError, r'segments\[0\] is 3, not a sequence'),
                ('abc', TypeError, 'not a sequence')):
            with self.subTest(segments=segments), self.assertRaisesRegex(kind, text):
                mxs.Layout(segments, 2)

    def test_bad_numbers_are_refused(self):
        with self.assertRaises(mxs.InvalidArgumentError):
            mxs.Layout([], 0)
        with self.assertRaises(mxs.InvalidArgumentError):
            mxs.Layout([(0, 0, 8)], 1, 3)
        with self.assertRaises(mxs.InvalidArgumentError):
            mxs.Layout.even(10, 4, 2)
        layout = mxs.Layout.even(8, 4, 2)
        with self.assertRaises(mxs.InvalidArgumentError):
            layout.segment(2)
        with self.assertRaises(ValueError):
            layout.segment(-1)
        with self.assertRaises(mxs.InvalidArgumentError):
            layout.moves(mxs.Layout.even(12, 4, 2))
        with self.assertRaisesRegex(TypeError, 'not a Layout'):
            layout.moves(None)

    def test_it_closes_in_any_order(self):
        plan = mxs.Plan([mxs.Tensor('w', (8, 8))], 'ranks:2')
        layout = plan.layout(0)
        plan.close()
        self.assertEqual(layout.bytes, 256)
        other = mxs.Layout.even(256, 4, 2)
        other.close()
        with self.assertRaisesRegex(mxs.InvalidArgumentError, 'this Layout is closed'):
            layout.moves(other)
        del plan, layout, other
        gc.collect()


if __name__ == '__main__':
    unittest.main()
