# SPDX-License-Identifier: Apache-2.0
"""Trace: rings of ranks that ended well, read from Python."""
import json
import os
import tempfile
import unittest

import matrixshard
import world


def trace_some_barriers(rank, folder):
    os.environ['MXS_TRACE'] = folder
    with matrixshard.Comm() as comm:
        for _ in range(5):
            comm.barrier()
    return rank


class TraceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_rings_are_read_as_they_were_written(self):
        world.run_ranks(3, trace_some_barriers, self.folder)
        with matrixshard.Trace(self.folder) as trace:
            self.assertEqual(trace.rank_count, 3)
            self.assertTrue(trace.report().startswith('Nothing is stuck: all 3 ranks have destroyed the comm.'))
            for rank in range(3):
                ring = trace.rank(rank)
                self.assertEqual((ring.rank, ring.finished, ring.failure, ring.lost_count), (rank, 1, '', 0))
                self.assertIs(ring.alive, False)
            events = list(trace.events())
            barriers = [event for event in events if event.name == 'barrier']
            self.assertEqual(len(barriers), 15)
            self.assertEqual({event.sequence for event in barriers}, set(range(1, 6)))
            self.assertTrue(all(event.algorithm == 'memory' and event.end_ns >= event.begin_ns for event in barriers))
            self.assertEqual([event.begin_ns for event in events], sorted(event.begin_ns for event in events))
            path = os.path.join(self.folder, 'all.json')
            trace.write(path)
            with self.assertRaises(matrixshard.InvalidArgumentError):
                trace.rank(3)
        with open(path, encoding='utf-8') as file:
            self.assertEqual({event['pid'] for event in json.load(file)['traceEvents']}, {0, 1, 2})

    def test_a_missing_ring_is_not_found_and_another_file_is_damaged(self):
        with self.assertRaises(matrixshard.NotFoundError):
            matrixshard.Trace(self.folder)
        path = os.path.join(self.folder, 'a.ring')
        with open(path, 'wb') as file:
            file.write(bytes(5000))
        with self.assertRaises(matrixshard.DamagedError) as caught:
            matrixshard.Trace(path)
        self.assertIn('a.ring', str(caught.exception))
        with self.assertRaises(matrixshard.InvalidArgumentError):
            matrixshard.Trace()

    def test_some_files_are_taken_alone(self):
        world.run_ranks(2, trace_some_barriers, self.folder)
        names = sorted(name for name in os.listdir(self.folder) if name.endswith('.ring'))
        with matrixshard.Trace(os.path.join(self.folder, names[0])) as trace:
            self.assertEqual(trace.rank(0).rank, 0)
            with self.assertRaises(matrixshard.NotFoundError):
                trace.rank(1)
            self.assertIn('Rank 1 has no ring here', trace.report())
