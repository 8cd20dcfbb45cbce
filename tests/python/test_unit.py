# SPDX-License-Identifier: Apache-2.0
"""Units: the owner's part, gathers, gradients and sums; calls in a wrong order; closing in every order."""
import gc
import itertools
import threading
import unittest

import matrixshard as mxs
import numpy
from comm_case import CommCase, status

WORLDS = (1, 2, 3, 4)
SHAPES = [(48, 32), (32, 48), (16,), (33, 7), ()]


def tensors(unit_count=1):
    return [mxs.Tensor(f'unit{unit}.{index}', shape, unit=unit) for unit in range(unit_count)
            for index, shape in enumerate(SHAPES)]


def filled(tensor, shape, rank=0):
    return (numpy.arange(numpy.prod(shape, dtype=int), dtype=numpy.float32).reshape(shape) % 61 + tensor + 100 * rank)


def load(unit, plan):
    """Owners write their parts."""
    for index, placement in enumerate(plan.placements):
        if placement.unit == unit.index:
            shard = unit.shard(index)
            if shard.bytes:
                whole = filled(placement.tensor, SHAPES[placement.tensor % len(SHAPES)])
                part = whole.reshape(-1)[placement.element_offset:placement.element_offset + placement.element_count]
                shard.numpy()[...] = part.reshape(placement.shape)
                unit.commit(shard)


class Units(CommCase):
    def test_every_rank_sees_what_owners_wrote(self):
        def body(comm, options):
            plan = mxs.Plan(tensors(2), comm.topology())
            units = [mxs.Unit(comm, plan, index, **options) for index in range(2)]
            for unit in units:
                load(unit, plan)
            comm.barrier()
            for unit in units:
                self.assertEqual(unit.info.weights_state, mxs.WeightsState.SHARDED)
                request = unit.gather(priority=1)
                unit.wait(timeout=20)
                self.assertTrue(comm.test(request))
                self.assertEqual((unit.info.weights_state, unit.info.holders), (mxs.WeightsState.WHOLE, 1))
                for tensor in range(unit.index * len(SHAPES), (unit.index + 1) * len(SHAPES)):
                    found = unit.tensor(tensor).numpy()
                    numpy.testing.assert_array_equal(found, filled(tensor, SHAPES[tensor % len(SHAPES)]))
                unit.release()
            self.assertGreaterEqual(units[0].memory().rest, 0)
            self.assertIn('sharded', repr(units[0]))
            for unit in units:
                unit.close()
            self.assertIn('closed', repr(units[0]))
        for count in WORLDS:
            self.run_world(count, body, {})
        for options in ({'gather': 'by-reference'}, {'algorithm': 'chain', 'slots': 3, 'gradient_slots': 1}):
            self.run_world(3, body, options)

    def test_gradients_of_all_ranks_reach_the_owner(self):
        def body(comm, rank_order):
            plan = mxs.Plan(tensors(), comm.topology())
            unit = mxs.Unit(comm, plan, 0, rank_order=rank_order)
            for _ in range(2):  # two micro-batches
                for tensor, shape in enumerate(SHAPES):
                    given = filled(tensor, shape, comm.rank)
                    if tensor % 2:
                        unit.gradient_set(tensor, given)
                    else:
                        unit.gradient(tensor).numpy()[...] = given - 1
                        unit.gradient(tensor, add=True).numpy()[...] += 1
                self.assertEqual(unit.info.gradients_state, mxs.GradientsState.OPEN)
                comm.wait(unit.reduce(), timeout=20)
                unit.wait_reduce()
            owned = 0
            for index, placement in enumerate(plan.placements):
                found = unit.shard_gradient(index).numpy()
                if placement.owner != comm.rank:
                    self.assertEqual(found.shape, (0,))
                    continue
                owned += 1
                shape = SHAPES[placement.tensor]
                wanted = 2 * sum(filled(placement.tensor, shape, rank) for rank in range(comm.rank_count))
                part = wanted.reshape(-1)[placement.element_offset:placement.element_offset + placement.element_count]
                numpy.testing.assert_array_equal(found.reshape(-1), part)
            return owned
        for count in WORLDS:
            owned = self.run_world(count, body, count == 3)
            self.assertGreaterEqual(sum(owned), len(SHAPES))

    def test_ranks_that_own_nothing_take_part(self):
        def body(comm):
            plan = mxs.Plan([mxs.Tensor('only', (8, 8), fixed_owner=2)], comm.topology())
            unit = mxs.Unit(comm, plan, 0)
            shard = unit.shard(0)
            self.assertEqual(shard.shape, (8, 8) if comm.rank == 2 else (0,))
            shard.numpy()[...] = 5
            unit.commit(shard)  # an empty one is fine
            if comm.rank == 1:
                unit.skip()
            else:
                unit.gradient_set(0, numpy.ones((8, 8), numpy.float32))
                unit.reduce()
            with unit.whole():
                self.assertEqual(unit.tensor(0).numpy().sum(), 320)
            self.assertEqual(unit.shard_gradient(0).numpy().sum(), 192 if comm.rank == 2 else 0)
            self.assertEqual(status(unit.shard, 1)[0], 'INVALID_ARGUMENT')
        self.run_world(4, body)

    def test_calls_in_a_wrong_order_are_typed_exceptions(self):
        def body(comm):
            rank = comm.rank
            plan = mxs.Plan(tensors(4), comm.topology())
            units = [mxs.Unit(comm, plan, index) for index in range(4)]
            unit = units[0]
            self.assertEqual(status(unit.release), ('NOT_GATHERED', rank))
            self.assertEqual(status(unit.wait), ('NOT_GATHERED', rank))
            self.assertEqual(status(unit.tensor, 0), ('NOT_GATHERED', rank))
            self.assertEqual(status(unit.reduce), ('NOT_OPEN', rank))
            self.assertEqual(status(unit.shard, len(plan.placements) - 1), ('NOT_FOUND', rank))
            stale = unit.shard(0)
            unit.gather()
            self.assertEqual(status(unit.shard, 0), ('HELD', rank))
            self.assertEqual(status(unit.commit, stale), None if not stale.bytes else ('HELD', rank))
            self.assertEqual(status(unit.close), ('HELD', rank))
            self.assertFalse(unit.closed)
            units[1].gather()
            self.assertEqual(status(units[2].gather), ('OVER_BUDGET', rank))
            unit.wait()
            self.assertEqual(status(unit.tensor, len(SHAPES)), ('NOT_FOUND', rank))
            unit.release('pin')
            self.assertEqual(unit.info.weights_state, mxs.WeightsState.PINNED)
            unit.release('free')
            units[1].release()
            for index in (0, 1):
                units[index].gradient(index * len(SHAPES))
            self.assertEqual(status(units[2].gradient, 2 * len(SHAPES)), ('OVER_BUDGET', rank))
            self.assertEqual(status(unit.skip), ('HELD', rank))
            self.assertEqual(status(unit.close), ('HELD', rank))
            for index in (0, 1):
                units[index].discard()
            self.assertEqual(status(unit.reduce), ('NOT_OPEN', rank))
            self.assertEqual(status(unit.gradient, 99), ('NOT_FOUND', rank))
            with self.assertRaisesRegex(ValueError, 'tensor is'):
                unit.tensor(1 << 40)
            with self.assertRaisesRegex(ValueError, 'retain'):
                unit.release('later')
            with self.assertRaises(TypeError):
                unit.commit(numpy.zeros(3))
            with self.assertRaises(TypeError):
                unit.gradient_set(0, [1, 2])
            comm.barrier()
        self.run_world(2, body)

    def test_a_unit_with_a_slot_of_its_own_is_held_beside_the_others(self):
        def body(comm):
            plan = mxs.Plan(tensors(4), comm.topology())
            units = [mxs.Unit(comm, plan, index, own_slot=index == 3) for index in range(4)]
            for unit in units:
                load(unit, plan)
            units[3].gather()
            units[0].gather()
            units[1].gather()
            self.assertEqual(status(units[2].gather), ('OVER_BUDGET', comm.rank))
            for index in (3, 0, 1):
                units[index].wait()
                first = index * len(SHAPES)
                numpy.testing.assert_array_equal(units[index].tensor(first).numpy(), filled(first, SHAPES[0]))
                units[index].release()
            self.assertGreater(units[3].memory().own_slots, 0)
            self.assertEqual(units[0].memory().own_slots, 0)
        self.run_world(2, body)

    def test_ranks_that_differ_hear_of_it(self):
        def body(comm):
            plan = mxs.Plan([mxs.Tensor('a', (8, 8 + comm.rank))], comm.topology())
            self.assertEqual(status(mxs.Unit, comm, plan, 0), ('MISMATCH', comm.rank))
            other = mxs.Plan([mxs.Tensor('a', (8, 8))], comm.topology())
            self.assertEqual(status(mxs.Unit, comm, other, 1), ('INVALID_ARGUMENT', comm.rank))
            self.assertEqual(status(mxs.Unit, comm, other, 0, algorithm='walk'), ('NOT_FOUND', comm.rank))
            with mxs.Unit(comm, other, 0) as unit:
                self.assertEqual(unit.comm, comm)
        self.run_world(2, body)

    def test_an_exception_inside_leaves_the_unit_usable(self):
        def body(comm):
            plan = mxs.Plan(tensors(), comm.topology())
            unit = mxs.Unit(comm, plan, 0)
            load(unit, plan)
            with self.assertRaises(ZeroDivisionError):
                with unit.whole('pin'):
                    raise ZeroDivisionError
            self.assertEqual(unit.info.weights_state, mxs.WeightsState.SHARDED)
            with unit.whole('pin'):
                pass
            self.assertEqual(unit.info.weights_state, mxs.WeightsState.PINNED)
            with unit.whole():
                numpy.testing.assert_array_equal(unit.tensor(0).numpy(), filled(0, SHAPES[0]))
        self.run_world(2, body)

    def test_a_range_may_be_the_callers(self):
        def body(comm):
            plan = mxs.Plan(tensors(), comm.topology())
            with plan.layout(0, 'weights') as layout:
                need = layout.bytes
            buffer = mxs.aligned_memory(need, 4096)
            with self.assertRaisesRegex(ValueError, f'{need} are wanted'):
                mxs.Unit(comm, plan, 0, buffer=buffer[:-1])
            unit = mxs.Unit(comm, plan, 0, buffer=buffer)
            del buffer
            gc.collect()
            load(unit, plan)
            with unit.whole():
                numpy.testing.assert_array_equal(unit.tensor(1).numpy(), filled(1, SHAPES[1]))
        self.run_world(2, body)

    def test_replicas_add_up(self):
        def body(comm):
            shard_comm = comm.split(comm.rank // 2, comm.rank)
            replicas = comm.split(comm.rank % 2, comm.rank)
            plan = mxs.Plan(tensors(), shard_comm.topology())
            unit = mxs.Unit(shard_comm, plan, 0, replicas=replicas)
            self.assertIs(shard_comm._owned.family.alone, replicas._owned.family.alone)
            self.assertIsNot(shard_comm._owned.family.alone, comm._owned.family.alone)
            for tensor, shape in enumerate(SHAPES):
                unit.gradient_set(tensor, numpy.full(shape, 1 << comm.rank, numpy.float32))
            unit.reduce()
            optimizer = mxs.Optimizer([unit])
            for index in range(len(plan.placements)):
                found = unit.shard_gradient(index).numpy()
                self.assertTrue((found == 15).all())
            self.assertFalse(optimizer.step(dict(lr=0.1)).skipped)
        self.run_world(4, body)

    def test_closing_comes_in_any_order(self):
        def body(comm):
            for order in list(itertools.permutations(range(4)))[::2]:
                inner = comm.split(0, comm.rank)
                plan = mxs.Plan(tensors(), inner.topology())
                unit = mxs.Unit(inner, plan, 0)
                optimizer = mxs.Optimizer([unit])
                array = next((one.view.numpy() for one in optimizer.state), None)
                handles = [inner, plan, unit, optimizer]
                for place in order:
                    handles[place].close()
                    self.assertTrue(handles[place].closed)
                if array is not None:
                    array[...] = 1  # mapped still
                    self.assertIsNotNone(optimizer._owned.pointer)
                    self.assertIsNotNone(inner._owned.pointer)
                array = None
                gc.collect()
                for handle in handles:
                    self.assertIsNone(handle._owned.pointer, type(handle))
        self.run_world(2, body)

    def test_what_is_forgotten_is_given_back(self):
        def body(comm):
            plan = mxs.Plan(tensors(2), comm.topology())

            def once(close):
                units = [mxs.Unit(comm, plan, index) for index in range(2)]
                optimizer = mxs.Optimizer(units)
                arrays = [one.view.numpy() for one in optimizer.state]
                with units[0].whole():
                    arrays.append(units[0].tensor(0).numpy())
                if close:
                    for handle in (*units, optimizer):
                        handle.close()
                # In a circle: only the garbage collector finds it.
                circle = [units, optimizer, arrays]
                circle.append(circle)

            def mapped():
                gc.collect()
                comm.barrier()  # what a finalizer had to leave goes at a call
                with open('/proc/self/maps') as maps:
                    return len(maps.readlines())
            for _ in range(3):
                once(False)
            before = mapped()
            for turn in range(50):
                once(turn % 2 == 0)
                comm.barrier()
            self.assertLessEqual(mapped(), before + 4)
        self.run_world(2, body, timeout=100)

    def test_finalizers_of_other_threads_wait_their_turn(self):
        def body(comm):
            layout = mxs.Layout.even(64, 4, comm.rank_count)
            stop = threading.Event()

            def collect():
                while not stop.is_set():
                    gc.collect()
            thread = threading.Thread(target=collect)
            thread.start()
            try:
                for _ in range(30):
                    collective = mxs.Collective(comm, 'gather', layout)
                    view = comm.allocate(4096)
                    circle = [collective, view.numpy(), view]
                    circle.append(circle)
                    del collective, view, circle
                    comm.sum([1.0])
            finally:
                stop.set()
                thread.join()
        self.run_world(2, body)


if __name__ == '__main__':
    unittest.main()
