# SPDX-License-Identifier: Apache-2.0
"""Topology: words and files, what it tells of ranks, nodes, NICs and links, speeds, and closing."""
import copy
import gc
import os
import pickle
import tempfile
import threading
import unittest

import matrixshard as mxs
from matrixshard import _handles


class Topology(unittest.TestCase):
    def test_it_tells_where_ranks_live(self):
        topology = mxs.Topology('nodes:2 ranks:4 rails:2 nic:25')
        self.assertEqual((topology.rank_count, topology.node_count), (8, 2))
        self.assertEqual(len(topology.ranks), 8)
        self.assertEqual([info.node for info in topology.ranks], [0] * 4 + [1] * 4)
        self.assertEqual(topology.rank(5).local_rank, 1)
        self.assertEqual(topology.nodes[1].rail_count, 2)
        self.assertEqual(topology.rail(1, 0).bytes_per_second, 25 * 10**9)
        self.assertEqual(topology.rail(1, 0).name, '')
        self.assertEqual([topology.link(0, other).same_node for other in (1, 7)], [1, 0])
        self.assertEqual(repr(topology), '<Topology: 8 ranks, 2 nodes>')

    def test_ranks_are_a_sequence(self):
        ranks = mxs.Topology('ranks:3').ranks  # the sequence keeps the topology
        gc.collect()
        self.assertEqual(ranks[-1], ranks[2])
        self.assertEqual(ranks[1:], [ranks[1], ranks[2]])
        self.assertIn(ranks[0], ranks)
        for index in (3, -4, 2**40):
            with self.assertRaisesRegex(IndexError, 'there are 3'):
                ranks[index]
        with self.assertRaises(TypeError):
            ranks['1']

    def test_speeds_are_set_in_a_copy(self):
        topology = mxs.Topology('nodes:2 ranks:2')
        changed = topology.with_speeds(local_latency_ns=77, factors={'ring': 1250})
        self.assertEqual(changed.speeds.local_latency_ns, 77)
        self.assertEqual(changed.speeds.factors, {'ring': 1250})
        self.assertEqual(changed.speeds.network_latency_ns, topology.speeds.network_latency_ns)
        self.assertEqual(topology.speeds.factors, {})
        with self.assertRaisesRegex(TypeError, "unknown argument 'local_latency'.*local_latency_ns.*factors"):
            topology.with_speeds(local_latency=77)
        with self.assertRaises(TypeError):
            topology.with_speeds(factor_count=3)
        with self.assertRaises(mxs.InvalidArgumentError):
            topology.with_speeds(factors={'ring': 0})
        with self.assertRaisesRegex(ValueError, 'the factor of ring is -1'):
            topology.with_speeds(factors={'ring': -1})

    def test_some_ranks_of_it_are_a_topology(self):
        part = mxs.Topology('nodes:2 ranks:4').of_ranks(range(6, 1, -2))
        self.assertEqual([info.node for info in part.ranks], [0, 0, 1])
        with self.assertRaises(mxs.InvalidArgumentError):
            part.of_ranks([0, 0])
        with self.assertRaises(mxs.InvalidArgumentError):
            part.of_ranks([])
        with self.assertRaisesRegex(ValueError, r'ranks\[1\] is 4294967296'):
            part.of_ranks([0, 2**32])
        with self.assertRaisesRegex(TypeError, 'not a sequence'):
            part.of_ranks(1)

    def test_what_is_saved_is_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'two.json')
            topology = mxs.Topology('ranks:3+5').with_speeds(add_bytes_per_second=10**9)
            topology.save(path)
            again = mxs.Topology.load(path)
            self.assertEqual(again.speeds, topology.speeds)
            self.assertEqual(list(again.ranks), list(topology.ranks))
            speeds = os.path.join(folder, 'speeds.json')
            topology.save_speeds(speeds)
            self.assertTrue(os.path.exists(speeds))
            with self.assertRaises(mxs.SystemCallError):
                mxs.Topology.load(os.path.join(folder, 'absent.json'))
            with self.assertRaises(mxs.SystemCallError):
                topology.save(os.path.join(folder, 'absent', 'x.json'))
            with self.assertRaises(mxs.InvalidArgumentError):
                mxs.Topology.load(speeds)

    def test_bad_words_are_refused_and_shown(self):
        with self.assertRaisesRegex(mxs.InvalidArgumentError, 'rnks:4'):
            mxs.Topology('rnks:4')
        with self.assertRaises(ValueError):
            mxs.Topology('')
        for wrong in (None, 3):
            with self.assertRaises((TypeError, mxs.InvalidArgumentError)):
                mxs.Topology(wrong)

    def test_ranks_outside_of_the_world_are_refused(self):
        topology = mxs.Topology('ranks:4')
        for rank in (-1, 4):
            with self.assertRaises(mxs.InvalidArgumentError):
                topology.rank(rank)
        with self.assertRaisesRegex(ValueError, 'rank is 4294967296'):
            topology.rank(2**32)
        with self.assertRaises(mxs.InvalidArgumentError):
            topology.link(1, 1)


class Simulate(unittest.TestCase):
    def test_collectives_are_simulated_without_ranks(self):
        topology = mxs.Topology('nodes:2 ranks:4 nic:25')
        layout = mxs.Layout.even(1 << 24, 4, 8)
        chosen = mxs.simulate(topology, 'gather', layout)
        self.assertEqual(chosen, mxs.simulate(topology, mxs.CollectiveKind.GATHER, layout))
        self.assertGreaterEqual(chosen.time_ns, chosen.bound_ns)
        flat = mxs.simulate(topology, 'gather', layout, algorithm='flat')
        self.assertEqual(flat.algorithm, 'flat')
        self.assertGreaterEqual(flat.time_ns, flat.bound_ns)
        slower = topology.with_speeds(network_bytes_per_second=10**9)
        self.assertGreater(mxs.simulate(slower, 'gather', layout).time_ns, chosen.time_ns)
        self.assertGreater(mxs.simulate(topology, 'reduce', layout, dtype='bf16').time_ns, 0)
        target = mxs.Layout([(7, 0, 1 << 24)], 8)
        self.assertEqual(mxs.simulate(topology, 'reshard', layout, target).message_count, 7)

    def test_bad_collectives_are_refused(self):
        topology, layout = mxs.Topology('ranks:4'), mxs.Layout.even(1 << 20, 4, 4)
        for call, kind, text in (
                (lambda: mxs.simulate(topology, 'gather', layout, algorithm='ring'), mxs.NotFoundError, 'flat'),
                (lambda: mxs.simulate(topology, 'gathr', layout), ValueError, 'gather, reduce, reshard'),
                (lambda: mxs.simulate(topology, 'gather', mxs.Layout.even(8, 4, 3)), mxs.InvalidArgumentError, '3'),
                (lambda: mxs.simulate(topology, 'gather', None), TypeError, 'layout is None'),
                (lambda: mxs.simulate('ranks:4', 'gather', layout), TypeError, "topology is 'ranks:4'"),
                (lambda: mxs.simulate(topology, 'gather', layout, windw=1), TypeError, 'windw'),
                (lambda: mxs.simulate(topology, 'reshard', layout), mxs.InvalidArgumentError, 'target')):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                call()


class Handles(unittest.TestCase):
    def test_a_closed_one_says_so(self):
        with mxs.Topology('ranks:4') as topology:
            self.assertFalse(topology.closed)
        self.assertTrue(topology.closed)
        self.assertEqual(repr(topology), '<Topology: closed>')
        for use in (lambda: topology.rank_count, lambda: topology.rank(0), lambda: topology.save('x'),
                    lambda: topology.of_ranks([0]), lambda: topology.__enter__(), lambda: topology.ranks[0]):
            with self.assertRaisesRegex(mxs.InvalidArgumentError, 'this Topology is closed'):
                use()
        topology.close()

    def test_it_is_neither_pickled_nor_copied(self):
        topology = mxs.Topology('ranks:4')
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with self.assertRaisesRegex(TypeError, 'belongs to this process'):
                use(topology)
        info = topology.rank(1)
        for again in (pickle.loads(pickle.dumps(info)), copy.deepcopy(info)):
            self.assertEqual(again, info)
            self.assertEqual(again.local_rank, 1)

    def test_what_nobody_holds_is_destroyed(self):
        before = len(_handles._alive)
        topologies = [mxs.Topology('ranks:2') for _ in range(50)]
        self.assertEqual(len(_handles._alive), before + 50)
        topologies.clear()
        gc.collect()
        self.assertEqual(len(_handles._alive), before)

    def test_a_create_that_failed_leaves_nothing(self):
        before = len(_handles._alive)
        for _ in range(10):
            with self.assertRaises(mxs.InvalidArgumentError):
                mxs.Topology('ranks:0')
        gc.collect()
        self.assertEqual(len(_handles._alive), before)

    def test_closing_while_others_ask_is_no_fault(self):
        wrong = []

        def ask(topology):
            try:
                while True:
                    if len(list(topology.ranks)) != 64:
                        wrong.append('a rank less')
            except mxs.InvalidArgumentError as error:
                if 'closed' not in str(error):
                    wrong.append(error)

        for _ in range(10):
            topology = mxs.Topology('ranks:64')
            threads = [threading.Thread(target=ask, args=(topology,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            topology.close()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])


if __name__ == '__main__':
    unittest.main()
