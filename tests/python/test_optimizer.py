# SPDX-License-Identifier: Apache-2.0
"""The optimizer of units against formulas in numpy's fp64, in several worlds; its state, agreement, refusals."""
import os
import signal
import unittest

import matrixshard as mxs
import numpy
import world
from comm_case import CommCase, status
from matrixshard import errors

WORLDS = (1, 2, 3, 4)
SHAPES = {'tall': (40, 24), 'wide': (24, 40), 'bias': (17,), 'embedding': (30, 8)}
RULES = {'embedding': 'adamw'}
YOU = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
       (2.8366, -3.0525, 1.2012)]
MUON = dict(lr=0.02, weight_decay=0.1, momentum=0.9)
ADAMW = dict(lr=0.003, weight_decay=0.01, beta1=0.9, beta2=0.95, epsilon=1e-8)


def begin(name):
    count = int(numpy.prod(SHAPES[name]))
    return (numpy.sin(numpy.arange(count) * 0.7 + len(name)) * 0.3).reshape(SHAPES[name]).astype(numpy.float32)


def gradient(name, rank, step):
    count = int(numpy.prod(SHAPES[name]))
    values = numpy.cos(numpy.arange(count) * (0.3 + 0.1 * rank) + step + len(name))
    return values.reshape(SHAPES[name]).astype(numpy.float32)


def orthogonalized(matrix):
    """Newton-Schulz in fp64 by the YOU table."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / numpy.linalg.norm(x)
    for a, b, c in YOU:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def expected(count, steps, clip):
    """Weights after `steps` in fp64, one process that sums all ranks' gradients; and norms."""
    weights = {name: begin(name).astype(numpy.float64) for name in SHAPES}
    state = {name: [numpy.zeros(SHAPES[name]), numpy.zeros(SHAPES[name])] for name in SHAPES}
    norms = []
    for step in range(1, steps + 1):
        sums = {name: sum(gradient(name, rank, step).astype(numpy.float64) for rank in range(count)) / count
                for name in SHAPES}
        norms.append(numpy.sqrt(sum((one ** 2).sum() for one in sums.values())))
        factor = min(1.0, clip / (norms[-1] + 1e-6)) if clip else 1.0
        for name, w in weights.items():
            g = sums[name] * factor
            first, second = state[name]
            if len(SHAPES[name]) == 2 and name not in RULES:
                first += (g - first) * (1 - MUON['momentum'])
                update = g + (first - g) * MUON['momentum']
                scale = 0.2 * numpy.sqrt(max(SHAPES[name]))
                w *= 1 - MUON['lr'] * MUON['weight_decay']
                w -= MUON['lr'] * scale * orthogonalized(update)
            else:
                first += (g - first) * (1 - ADAMW['beta1'])
                second += (g * g - second) * (1 - ADAMW['beta2'])
                w *= 1 - ADAMW['lr'] * ADAMW['weight_decay']
                w -= ADAMW['lr'] * (first / (1 - ADAMW['beta1'] ** step)) / (
                    numpy.sqrt(second / (1 - ADAMW['beta2'] ** step)) + ADAMW['epsilon'])
    return weights, norms


def make(comm, unit_count=2, previous=(None, None), **options):
    """(plan, units) with begun weights."""
    described = [mxs.Tensor(name, shape, unit=index % unit_count, rule=RULES.get(name, 'auto'),
                            group=0 if len(shape) == 2 and name not in RULES else 1)
                 for index, (name, shape) in enumerate(SHAPES.items())]
    plan = mxs.Plan(described, comm.topology(), previous=previous[0], previous_ranks=previous[1])
    units = [mxs.Unit(comm, plan, index, **options) for index in range(unit_count)]
    names = list(SHAPES)
    for index, placement in enumerate(plan.placements):
        shard = units[placement.unit].shard(index)
        if shard.bytes:
            flat = begin(names[placement.tensor]).reshape(-1)
            shard.numpy().reshape(-1)[:] = flat[placement.element_offset:][:placement.element_count]
            units[placement.unit].commit(shard)
    return plan, units


def give(units, rank, step, left_out=()):
    for unit in units:
        given = False
        for index, name in enumerate(SHAPES):
            if index % len(units) == unit.index and name not in left_out:
                unit.gradient(index).numpy()[...] = gradient(name, rank, step)
                given = True
        if given:
            unit.reduce()
        else:
            unit.skip()


def read(units):
    found = {}
    for unit in units:
        with unit.whole():
            for index, name in enumerate(SHAPES):
                if index % len(units) == unit.index:
                    found[name] = unit.tensor(index).numpy().copy()
    return found


def summed(comm, words):
    """A comm sums at most 64 at a time."""
    return [one for begin in range(0, len(words), 64) for one in comm.sum_words(words[begin:begin + 64])]


class Optimizers(CommCase):
    def test_it_steps_as_the_formulas_say(self):
        def body(comm, clip):
            _, units = make(comm)
            optimizer = mxs.Optimizer(units, backend='reference')
            norms = []
            for step in range(1, 6):
                give(units, comm.rank, step)
                if step == 2:  # agreed before: the step uses it
                    verdict = optimizer.agree([MUON, ADAMW], gradient_scale=1 / comm.rank_count, clip_norm=clip)
                    self.assertEqual(verdict.skipped, False)
                verdict = optimizer.step([MUON, ADAMW], gradient_scale=1 / comm.rank_count, clip_norm=clip)
                self.assertEqual((verdict.skipped, verdict.step_number, verdict.found_inf_rank), (False, step, -1))
                norms.append(verdict.norm)
            self.assertEqual(optimizer.step_number, 5)
            return read(units), norms
        for count, clip in zip(WORLDS, (0.0, 5.0, 0.0, 5.0)):
            for found, norms in self.run_world(count, body, clip):
                weights, wanted_norms = expected(count, 5, clip)
                numpy.testing.assert_allclose(norms, wanted_norms, rtol=1e-6)
                for name in SHAPES:
                    numpy.testing.assert_allclose(found[name], weights[name], rtol=0, atol=2e-6, err_msg=name)

    def test_state_is_seen_in_place_and_resumes(self):
        def body(comm):
            plan, units = make(comm)
            optimizer = mxs.Optimizer(units, muon=dict(preset='keller-jordan', newton_schulz=dict(step_count=3)),
                                      adamw=dict(preset='torch-adamw'), rounding='nearest', thread_count=1)
            give(units, comm.rank, 1)
            optimizer.step([MUON, ADAMW])
            owned = [index for index, one in enumerate(plan.placements) if one.owner == comm.rank]
            names = {}
            for part in optimizer.state:
                self.assertIn(part.placement, owned)
                self.assertEqual(part.view.tensor, part.tensor)
                self.assertGreater(float(numpy.abs(part.view.numpy()).max()), 0)
                names.setdefault(part.placement, set()).add(part.name)
            self.assertEqual(sorted(names), owned)
            for index in owned:
                rule = optimizer.kernel(index).rule
                self.assertIn({'muon': 'momentum', 'adamw': 'exp_avg'}[str(rule)], names[index])
            if not owned or len(owned) < len(plan.placements):
                other = next(index for index in range(len(plan.placements)) if index not in owned)
                self.assertEqual(status(optimizer.kernel, other), ('NOT_FOUND', comm.rank))
            if owned:
                self.assertGreater(optimizer.memory().state, 0)
                state = optimizer.state[0].view
                state.numpy()[...] = 0.25
                self.assertTrue((optimizer.state[0].view.numpy() == 0.25).all())
            with self.assertRaises(IndexError):
                optimizer.state[len(optimizer.state)]
            optimizer.step_number = 41
            give(units, comm.rank, 2)
            self.assertEqual(optimizer.step([MUON, ADAMW]).step_number, 42)
            with self.assertRaisesRegex(ValueError, 'step_number'):
                optimizer.step_number = -1
            self.assertIn('step 42', repr(optimizer))
        self.run_world(2, body)

    def test_a_rank_that_dies_is_restored_from_its_backup(self):
        # The first rank alone gives gradients, so that sums don't depend on who is there.
        def steps(units, optimizer, until):
            while optimizer.step_number < until:
                give(units, 0, optimizer.step_number, () if units[0].comm.rank == 0 else SHAPES)
                optimizer.step([MUON, ADAMW])

        def undisturbed(comm):
            _, units = make(comm, rank_order=True)
            with mxs.Optimizer(units) as optimizer:
                steps(units, optimizer, 6)
                weights = read(units)
            return weights
        expected_weights = self.run_world(1, undisturbed)[0]

        def body(rank):
            with mxs.Comm(thread_count=1, timeout=30) as comm:
                plan, units = make(comm, rank_order=True)
                optimizer = mxs.Optimizer(units, backup=True)
                bytes_ = optimizer.memory().backup
                self.assertEqual(bytes_, plan.memory(rank, backup=True).backup)
                steps(units, optimizer, 3)
                if rank == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                with self.assertRaises(mxs.PeerFailedError):
                    steps(units, optimizer, 6)
                with comm.shrink() as living:
                    _, units_now = make(living, previous=(plan, living.origins), rank_order=True)
                    next_optimizer = mxs.Optimizer(units_now, backup=True)
                    self.assertRaises(TypeError, next_optimizer.recover, None)
                    recovery = next_optimizer.recover(optimizer)
                    self.assertIn(recovery.step_number, (2, 3))
                    self.assertEqual((recovery.lost_count, next_optimizer.step_number), (1, recovery.step_number))
                    steps(units_now, next_optimizer, 6)
                    weights = read(units_now)
                    for closed in (next_optimizer, *units_now, optimizer, *units):
                        closed.close()
                return weights
        for rank, weights in enumerate(world.run_ranks(4, body, may_die=[2])):
            for name in SHAPES if rank != 2 else ():
                numpy.testing.assert_array_equal(weights[name], expected_weights[name], f'{name}, rank {rank}')

    def test_a_gradient_that_is_not_finite_skips_the_step_everywhere(self):
        def body(comm):
            _, units = make(comm)
            optimizer = mxs.Optimizer(units)
            before = read(units)
            give(units, comm.rank, 1)
            units[0].gradient(0).numpy()[...] = numpy.nan if comm.rank == 1 else 0
            units[0].reduce()
            verdict = optimizer.step([MUON, ADAMW])
            self.assertEqual((verdict.skipped, verdict.step_number), (True, 0))
            self.assertGreaterEqual(verdict.found_inf_rank, 0)
            for name, value in read(units).items():
                numpy.testing.assert_array_equal(value, before[name])
            give(units, comm.rank, 1)
            optimizer.clear()
            verdict = optimizer.step([MUON, ADAMW])
            self.assertEqual((verdict.skipped, verdict.norm), (False, 0.0))
        self.run_world(2, body)

    def test_a_missing_gradient_is_an_error_on_all_ranks_if_asked(self):
        def body(comm):
            _, units = make(comm)
            optimizer = mxs.Optimizer(units)
            give(units, comm.rank, 1, left_out=['wide'] if comm.rank == 1 else [])
            self.assertEqual(status(optimizer.step, [MUON, ADAMW], missing='error'), ('NOT_OPEN', comm.rank))
            with self.assertRaisesRegex(errors.NotOpenError, 'wide.*'):
                optimizer.agree([MUON, ADAMW], missing=mxs.Missing.ERROR)
            self.assertFalse(optimizer.step([MUON, ADAMW], missing='zero').skipped)
        self.run_world(2, body)

    def test_wrong_use_is_typed_and_changes_nothing(self):
        def body(comm):
            rank = comm.rank
            _, units = make(comm)
            with self.assertRaisesRegex(ValueError, 'there are none'):
                mxs.Optimizer([])
            with self.assertRaises(TypeError):
                mxs.Optimizer([comm])
            with self.assertRaisesRegex(TypeError, "unknown argument 'nesterof'"):
                mxs.Optimizer(units, muon=dict(nesterof=True))
            with self.assertRaisesRegex(ValueError, 'preset'):
                mxs.Optimizer(units, preset='adamuon')
            self.assertEqual(status(mxs.Optimizer, units, preset='soap'), ('INVALID_ARGUMENT', rank))
            self.assertEqual(status(mxs.Optimizer, units, seed=rank, rounding='stochastic'), ('MISMATCH', rank))
            optimizer = mxs.Optimizer(units)
            self.assertEqual(status(mxs.Optimizer, units), ('HELD', rank))
            self.assertEqual(status(optimizer.step, [MUON]), ('INVALID_ARGUMENT', rank))
            self.assertEqual(status(optimizer.step, [dict(MUON, lr=0.1 * rank), ADAMW]), ('MISMATCH', rank))
            with self.assertRaisesRegex(TypeError, "unknown argument 'learning_rate'"):
                optimizer.step(dict(learning_rate=1))
            with self.assertRaises(TypeError):
                optimizer.step(0.1)
            units[1].gather()
            self.assertEqual(status(optimizer.step, [MUON, ADAMW]), ('HELD', rank))
            units[1].release()
            units[0].gradient(0)
            self.assertEqual(status(optimizer.step, [MUON, ADAMW]), ('HELD', rank))
            units[0].discard()
            stale = next((unit.shard(index) for unit in units for index in range(4)
                          if status(unit.shard, index) is None and unit.shard(index).bytes), None)
            give(units, rank, 1)
            self.assertEqual(optimizer.step([MUON, ADAMW]).step_number, 1)
            if stale is not None:
                self.assertEqual(status(units[stale.unit].commit, stale), ('STALE_VIEW', rank))
        self.run_world(2, body)

    def test_units_of_several_comms_agree_by_a_function(self):
        def body(comm):
            pair = comm.split(comm.rank // 2, comm.rank)
            _, dense_units = make(comm, 1)
            _, expert_units = make(pair, 1)
            asked = []

            def agree(words):
                asked.append(len(words))
                return summed(comm, words)
            with self.assertRaisesRegex(errors.InvalidArgumentError, 'set options.agree'):
                mxs.Optimizer(dense_units + expert_units)
            optimizer = mxs.Optimizer(dense_units + expert_units, agree=agree)
            for unit in dense_units + expert_units:
                give([unit], comm.rank, 1)
            verdict = optimizer.step([MUON, ADAMW])
            self.assertEqual((verdict.skipped, verdict.step_number), (False, 1))
            self.assertGreaterEqual(len(asked), 1)
            optimizer.close()
            self.assertTrue(optimizer.closed)
            return verdict.norm
        norms = self.run_world(4, body)
        self.assertEqual(len(set(norms)), 1)

    def test_what_agree_raises_comes_out_of_the_step(self):
        def body(comm):
            _, units = make(comm)
            fail = []

            def agree(words):
                if fail:
                    raise fail[0]
                return summed(comm, words)
            optimizer = mxs.Optimizer(units, agree=agree)
            give(units, comm.rank, 1)
            for error in (ZeroDivisionError('in agree'), KeyboardInterrupt('in agree')):
                fail[:] = [error]
                with self.assertRaisesRegex(type(error), 'in agree') as caught:
                    optimizer.step([MUON, ADAMW])
                self.assertIsInstance(caught.exception.__cause__, errors.TransportFailedError)
            fail.clear()
            self.assertEqual(optimizer.step([MUON, ADAMW]).step_number, 1)
        self.run_world(2, body)


if __name__ == '__main__':
    unittest.main()
