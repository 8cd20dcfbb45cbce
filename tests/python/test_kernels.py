# SPDX-License-Identifier: Apache-2.0
"""Kernels with the standard library alone: arrays of ctypes, states, halves of a step, values, norm, bad input."""
import array
import copy
import ctypes
import gc
import math
import os
import pickle
import random
import struct
import threading
import unittest
import unittest.mock

import matrixshard as mxs
from matrixshard import _handles

POISON = -7.5e30


def drawn(seed, *shape):
    """A ctypes array of fp32, drawn from a normal distribution."""
    kind = ctypes.c_float
    for length in reversed(shape):
        kind = kind * length
    made = kind()
    count = ctypes.sizeof(made) // 4
    numbers = random.Random(seed)
    (ctypes.c_float * count).from_buffer(made)[:] = [numbers.gauss(0, 1) for _ in range(count)]
    return made


def flat(block):
    return memoryview(block).cast('B').cast('f').tolist()


def rows_of(block):
    return [list(row) for row in block]


def product(a, b):
    return [[math.fsum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(column) for column in zip(*a)]


def newton_schulz(source, table):
    """X <- aX + (bA + cA^2) X in fp64."""
    norm = math.sqrt(math.fsum(x * x for row in source for x in row))
    x = [[value / norm for value in row] for row in source]
    for a, b, c in table:
        gram = product(x, transposed(x))
        square = product(gram, gram)
        factor = [[b * p + c * q for p, q in zip(*rows)] for rows in zip(gram, square)]
        x = [[a * p + q for p, q in zip(*rows)] for rows in zip(x, product(factor, x))]
    return x


JORDAN = [(3.4445, -4.7750, 2.0315)] * 5


class Orthogonalizer(unittest.TestCase):
    def test_it_computes_the_tables_polynomials(self):
        source = drawn(1, 5, 8)
        orthogonalizer = mxs.Orthogonalizer(5, 8, table='jordan', backend='reference')
        exact = newton_schulz(rows_of(source), JORDAN)
        for got in (orthogonalizer(source), mxs.Orthogonalizer(
                5, 8, table='custom', coefficients=JORDAN, backend='reference')(source)):
            worst = max(abs(x - y) for a, b in zip(got.tolist(), exact) for x, y in zip(a, b))
            self.assertLess(worst, 2e-6)
        self.assertIn('reference', orthogonalizer.backend)
        self.assertEqual((orthogonalizer.rows, orthogonalizer.columns), (5, 8))
        self.assertEqual(orthogonalizer.flops, 5 * (4 * 8 * 5**2 + 2 * 5**3))
        self.assertGreater(orthogonalizer.workspace_bytes, 0)

    def test_a_batch_has_the_bits_of_single_calls(self):
        orthogonalizer = mxs.Orthogonalizer(3, 4)
        batch = drawn(2, 5, 3, 4)
        out = orthogonalizer(batch)
        self.assertEqual(out.shape, (5, 3, 4))
        for index in range(5):
            self.assertEqual(out.tolist()[index], orthogonalizer(batch[index]).tolist())
        self.assertEqual(orthogonalizer(Strided(batch, (0, 3, 4), (12, 4, 1))).nbytes, 0)

    def test_it_works_in_place_and_into_what_is_given(self):
        orthogonalizer = mxs.Orthogonalizer(3, 4)
        source, out = drawn(3, 3, 4), drawn(4, 3, 4)
        self.assertIs(orthogonalizer(source, out), out)
        wanted = flat(out)
        self.assertIs(orthogonalizer(source, source), source)
        self.assertEqual(flat(source), wanted)

    def test_bad_arrays_are_refused(self):
        orthogonalizer = mxs.Orthogonalizer(3, 4)
        good = drawn(5, 3, 4)
        frozen = memoryview(bytes(48)).cast('f', (3, 4))
        for source, out, kind, text in (
                (drawn(1, 4, 3), None, ValueError, r'source has shape \(4, 3\); \(3, 4\) is wanted'),
                (drawn(1, 12), None, ValueError, r'source has shape \(12,\)'),
                (drawn(1, 1, 1, 3, 4), None, ValueError, 'source has shape'),
                ((ctypes.c_double * 4 * 3)(), None, TypeError, 'source is of f64; f32 is wanted'),
                ((ctypes.c_int * 4 * 3)(), None, TypeError, "source is of format 'i'; f32 is wanted"),
                ([[0.0] * 4] * 3, None, TypeError, 'source is a list: an array is wanted'),
                (None, None, TypeError, 'source is a NoneType'),
                (good, frozen, ValueError, 'out is read-only'),
                (good, drawn(1, 2, 3, 4), ValueError, r'out has shape \(2, 3, 4\), source \(3, 4\)'),
                (good, 'text', TypeError, 'out is a str')):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                orthogonalizer(source, out)
        good[1][2] = math.nan
        out = drawn(6, 3, 4)
        before = flat(out)
        with self.assertRaisesRegex(mxs.InvalidArgumentError, 'not finite'):
            orthogonalizer(good, out)
        self.assertEqual(flat(out), before)
        self.assertEqual(len(flat(orthogonalizer(frozen))), 12)  # a source may be read-only

    def test_bad_options_are_refused(self):
        for arguments, options, kind, text in (
                ((0, 4), {}, mxs.InvalidArgumentError, '0 x 4'), ((4, -1), {}, mxs.InvalidArgumentError, '4 x -1'),
                ((2**40, 2**40), {}, mxs.InvalidArgumentError, '2.40'), ((2**64, 4), {}, ValueError, 'rows is'),
                ((4, '4'), {}, TypeError, "columns is '4'"), ((4, 4), dict(tables='you'), TypeError, "'tables'.*table"),
                ((4, 4), dict(table='me'), ValueError, "'me' is no table: there are preset, jordan"),
                ((4, 4), dict(preset='soap'), mxs.InvalidArgumentError, 'soap'),
                ((4, 4), dict(coefficients=(1, 2)), ValueError, '2 coefficients'),
                ((4, 4), dict(coefficients=3), TypeError, 'not a sequence'),
                ((4, 4), dict(coefficients=[(3, 0, 0)] * 9, table='custom'), mxs.InvalidArgumentError, ''),
                ((4, 4), dict(step_count=99), mxs.InvalidArgumentError, '99'),
                ((4, 4), dict(epsilon='a'), TypeError, "epsilon is 'a'")):
            with self.subTest(options=options), self.assertRaisesRegex(kind, text):
                mxs.Orthogonalizer(*arguments, **options)

    def test_a_closed_one_says_so(self):
        with mxs.Orthogonalizer(3, 4) as orthogonalizer:
            pass
        for use in (lambda: orthogonalizer(drawn(1, 3, 4)), lambda: orthogonalizer.backend,
                    lambda: orthogonalizer.flops):
            with self.assertRaisesRegex(mxs.InvalidArgumentError, 'this Orthogonalizer is closed'):
                use()
        self.assertEqual(repr(orthogonalizer), '<Orthogonalizer: closed>')


class Stepper(unittest.TestCase):
    def test_adamw_computes_torchs_formula(self):
        values = mxs.group_values('torch-adamw', lr=0.25, weight_decay=0.125)
        weights, gradient = drawn(1, 3, 5), drawn(2, 3, 5)
        stepper = mxs.AdamW(3, 5)
        stepper.init()
        w, m, v = flat(weights), [0.0] * 15, [0.0] * 15
        for step in range(1, 6):
            result = stepper.step(values, gradient, weights, gradient_scale=0.5, clip_factor=0.5)
            self.assertEqual((result.step_number, result.skipped), (step, False))
            for i, g in enumerate(flat(gradient)):
                g *= 0.25
                m[i] = 0.9 * m[i] + 0.1 * g
                v[i] = 0.999 * v[i] + 0.001 * g * g
                w[i] -= 0.25 * (0.125 * w[i] + m[i] / (1 - 0.9**step) / (math.sqrt(v[i] / (1 - 0.999**step)) + 1e-8))
        for got, wanted in zip(flat(weights), w):
            self.assertAlmostEqual(got, wanted, delta=4e-6 * max(1, abs(wanted)))
        parts = stepper.parts()
        self.assertEqual(list(parts), ['exp_avg', 'exp_avg_sq'])
        self.assertEqual(parts['exp_avg'].shape, (3, 5))
        for got, wanted in zip(flat(parts['exp_avg']), m):
            self.assertAlmostEqual(got, wanted, delta=1e-6)

    def test_muon_computes_its_formula(self):
        values = mxs.preset_values('torch-muon')
        weights, gradient = drawn(1, 4, 6), drawn(2, 4, 6)
        before, g = rows_of(weights), rows_of(gradient)
        stepper = mxs.Muon(4, 6, preset='torch-muon', backend='reference')
        stepper.init()
        result = stepper.step(values, gradient, weights)
        update = newton_schulz(g, JORDAN)
        for row in range(4):
            for column in range(6):
                wanted = before[row][column] * (1 - 1e-3 * 0.1) - 1e-3 * update[row][column]
                self.assertAlmostEqual(weights[row][column], wanted, delta=1e-6)
        self.assertAlmostEqual(result.gradient_norm, math.sqrt(math.fsum(x * x for row in g for x in row)), places=5)
        self.assertEqual(stepper.describe().preset, mxs.Preset.TORCH_MUON)
        self.assertEqual(stepper.describe().rule, mxs.Rule.MUON)

    def test_halves_have_the_bits_of_a_step(self):
        for kind in (mxs.Muon, mxs.Shampoo, mxs.Soap, mxs.AdamW):
            values = mxs.group_values(lr=0.5)
            whole, halves = kind(4, 3), kind(4, 3)
            first, second = drawn(1, 4, 3), drawn(1, 4, 3)
            whole.init()
            halves.init()
            for step in range(3):
                gradient = drawn(10 + step, 4, 3)
                wanted = whole.step(values, gradient, first)
                update, result = halves.update(values, gradient)
                self.assertEqual(update.shape, (4, 3))
                self.assertEqual(result, wanted)
                halves.apply(values, update, second)
            self.assertEqual(flat(first), flat(second), kind)
            self.assertEqual(bytes(whole.state), bytes(halves.state))

    def test_a_state_of_ones_own_and_a_workspace_do(self):
        stepper = mxs.Soap(4, 4, interval=2)
        own = mxs.aligned_memory(stepper.state_bytes)
        own[:] = b'\xff' * len(own)
        work = mxs.aligned_memory(stepper.workspace_bytes)
        self.assertIs(stepper.init(own), own)
        self.assertIsNone(stepper.state)
        weights = drawn(1, 4, 4)
        stepper.step(dict(lr=0.1), drawn(2, 4, 4), weights, state=own, workspace=work)
        stepper.check_state(own)
        self.assertEqual([part.name for part in stepper.state_parts], list(stepper.parts(own)))
        saved = bytes(own)
        again = mxs.Soap(4, 4, interval=2)
        again.init()[:] = saved  # as from a file
        again.check_state()
        twin = (ctypes.c_float * 4 * 4).from_buffer_copy(weights)
        stepper.step(dict(lr=0.1), drawn(3, 4, 4), weights, state=own, workspace=work)
        again.step(dict(lr=0.1), drawn(3, 4, 4), twin)
        self.assertEqual(flat(weights), flat(twin))

    def test_another_steppers_state_is_refused(self):
        stepper, other = mxs.Muon(4, 4), mxs.Muon(4, 4, preset='moonlight')
        state = other.init()
        with self.assertRaisesRegex(mxs.MismatchError, 'preset'):
            stepper.check_state(state)
        with self.assertRaises(mxs.MismatchError):
            stepper.step({}, drawn(1, 4, 4), drawn(2, 4, 4), state=state)
        stepper.init()
        stepper.parts()['momentum'][1, 2] = math.inf
        with self.assertRaisesRegex(mxs.MismatchError, 'element 6 of its "momentum" is inf'):
            stepper.check_state()
        with self.assertRaisesRegex(mxs.MismatchError, ''):
            stepper.check_state(b'\0' * stepper.state_bytes)

    def test_a_gradient_that_is_not_finite_skips(self):
        stepper = mxs.Muon(4, 4)
        stepper.init()
        weights, gradient = drawn(1, 4, 4), drawn(2, 4, 4)
        gradient[3][3] = math.inf
        before, state = flat(weights), bytes(stepper.parts()['momentum'])
        result = stepper.step(dict(lr=1), gradient, weights)
        self.assertIs(result.skipped, True)
        self.assertEqual((result.step_number, result.skipped_count, result.gradient_norm), (0, 1, math.inf))
        self.assertEqual((flat(weights), bytes(stepper.parts()['momentum'])), (before, state))
        out = drawn(3, 4, 4)
        update, result = stepper.update(dict(lr=1), gradient, out=out)
        self.assertTrue(result.skipped)
        self.assertEqual(flat(update), flat(drawn(3, 4, 4)))

    def test_strided_matrices_are_stepped_where_they_lie(self):
        fused, alone = drawn(1, 4, 9), drawn(1, 4, 9)
        gradient = drawn(2, 4, 9)
        values = mxs.group_values(lr=0.1)
        stepper = mxs.Muon(4, 3, count=3, weight_strides=(9, 3), gradient_strides=(9, 3))
        stepper.init()
        self.assertEqual(stepper.parts()['momentum'].shape, (3, 4, 3))
        # (count, rows, columns) of the same memory: a record with strides, as numpy would make by moveaxis.
        stepper.step(values, Strided(gradient, (3, 4, 3), (3, 9, 1)), Strided(fused, (3, 4, 3), (3, 9, 1)))
        for block in range(3):
            part, g = ((ctypes.c_float * 3 * 4)(*[(ctypes.c_float * 3)(*row[3 * block:3 * block + 3]) for row in whole])
                       for whole in (alone, gradient))
            single = mxs.Muon(4, 3)
            single.init()
            single.step(values, g, part)
            self.assertEqual([row[3 * block:3 * block + 3] for row in fused], rows_of(part))
        with self.assertRaisesRegex(ValueError, r'weights has strides \(12, 3, 1\) in elements; this stepper was made '
                                                r'for \(3, 9, 1\).*weight_strides=\(3, 12\)'):
            stepper.step(values, Strided(gradient, (3, 4, 3), (3, 9, 1)), drawn(1, 3, 4, 3))

    def test_views_of_a_unit_are_stepped_where_they_lie(self):
        with unittest.mock.patch.dict(os.environ, RANK='0', WORLD_SIZE='1'):
            comm = mxs.Comm()
        with comm, mxs.Unit(comm, mxs.Plan([mxs.Tensor('w', (4, 6))], comm.topology()), 0) as unit:
            weights, gradient = drawn(1, 4, 6), drawn(2, 4, 6)
            shard = unit.shard(0)
            ctypes.memmove(shard.address, weights, 96)
            stepper = mxs.Muon(4, 6)
            stepper.init()
            twin = mxs.Muon(4, 6)
            twin.init()
            stepper.step(dict(lr=0.1), gradient, shard)
            twin.step(dict(lr=0.1), gradient, weights)
            self.assertEqual(bytes(shard.memory()), bytes(weights))

    def test_bad_arrays_are_refused_and_nothing_changes(self):
        stepper = mxs.Muon(4, 3, dtype='bf16')
        stepper.init()
        gradient, weights, master = drawn(1, 4, 3), (ctypes.c_uint16 * 3 * 4)(), drawn(2, 4, 3)
        frozen = memoryview(bytes(24)).cast('H', (4, 3))
        state = bytes(stepper.state)
        for arguments, more, kind, text in (
                ((gradient, drawn(2, 4, 3), master), {}, TypeError, 'weights is of f32; bf16 or words of 16'),
                ((gradient, frozen, master), {}, ValueError, 'weights is read-only'),
                ((gradient, weights), {}, mxs.InvalidArgumentError, 'master'),
                ((gradient, weights, weights), {}, TypeError, 'master is of words of 16 bits; f32 is wanted'),
                ((drawn(1, 3, 4), weights, master), {}, ValueError, r'gradient has shape \(3, 4\); \(4, 3\) is wanted'),
                ((drawn(1, 2, 4, 3), weights, master), {}, ValueError, 'gradient has shape'),
                ((gradient, None, master), {}, mxs.InvalidArgumentError, 'weights'),
                ((None, weights, master), {}, mxs.InvalidArgumentError, 'gradient'),
                ((gradient, weights, master), dict(state=bytes(len(state))), ValueError, 'state is read-only'),
                ((gradient, weights, master), dict(state=bytearray(8)), ValueError, 'state has 8 bytes; '),
                ((gradient, weights, master), dict(workspace=bytearray(8)), mxs.InvalidArgumentError, 'workspace'),
                ((gradient, weights, master), dict(gradient_scale='x'), TypeError, "gradient_scale is 'x'"),
                ((gradient, weights, gradient), {}, mxs.InvalidArgumentError, 'overlap')):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                stepper.step(dict(lr=0.1), *arguments, **more)
        off = mxs.aligned_memory(len(state) + 4)[4:]
        with self.assertRaisesRegex(mxs.InvalidArgumentError, 'border|aligned|64'):
            stepper.step(dict(lr=0.1), gradient, weights, master, state=off)
        for values, kind in ((dict(lr=-1), mxs.InvalidArgumentError), (dict(lrs=1), TypeError), (3, TypeError),
                             (dict(lr='a'), TypeError), (None, TypeError),
                             (dict(lr=math.nan), mxs.InvalidArgumentError)):
            with self.assertRaises(kind):
                stepper.step(values, gradient, weights, master)
        self.assertEqual(bytes(stepper.state), state)
        with self.assertRaisesRegex(ValueError, 'this AdamW has no state yet: call init'):
            mxs.AdamW(4, 3).step({}, gradient, drawn(1, 4, 3))
        with self.assertRaisesRegex(mxs.InvalidArgumentError, 'no step'):
            stepper.apply({}, drawn(1, 4, 3), weights, master)
        with self.assertRaisesRegex(ValueError, 'update has 4 elements'):
            stepper.apply({}, drawn(1, 4), weights, master)

    def test_bad_options_are_refused(self):
        for make, kind, text in (
                (lambda: mxs.Muon(0, 3), mxs.InvalidArgumentError, ''),
                (lambda: mxs.Muon(4, 3, presets='x'), TypeError, r"Muon\(\) got an unknown argument 'presets'.*newt"),
                (lambda: mxs.Muon(4, 3, preset='soap'), mxs.InvalidArgumentError, ''),
                (lambda: mxs.Muon(4, 3, preset='moun'), ValueError, "preset: 'moun' is no preset: there are default"),
                (lambda: mxs.Muon(4, 3, block_rows=(2, 1)), mxs.InvalidArgumentError, 'block'),
                (lambda: mxs.Muon(4, 3, block_rows=3), TypeError, 'block_rows is 3'),
                (lambda: mxs.Muon(4, 3, block_count=3), TypeError, 'block_count'),
                (lambda: mxs.Muon(4, 3, weight_strides=(1, 2, 3)), ValueError, 'weight_strides has 3 values'),
                (lambda: mxs.Muon(4, 3, newton_schulz='you'), TypeError, "newton_schulz is 'you', not a dict"),
                (lambda: mxs.Muon(4, 3, newton_schulz=dict(tabel='you')), TypeError, 'newton_schulz got an unknown'),
                (lambda: mxs.AdamW(4, 3, interval=3), TypeError, "'interval': there are preset, decay, epsilon_before"),
                (lambda: mxs.Soap(4, 3, dtype='f64'), (mxs.InvalidArgumentError, mxs.NotBuiltError), ''),
                (lambda: mxs.Stepper(4, 3), TypeError, 'made as Muon')):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                make()

    def test_switches_take_true_and_false(self):
        weights = {}
        for nesterov in (True, False, None, 'on', 'off'):
            stepper = mxs.Muon(4, 4, nesterov=nesterov, newton_schulz=dict(table='jordan', step_count=3))
            stepper.init()
            weights[nesterov] = drawn(1, 4, 4)
            for seed in (2, 3):
                stepper.step(dict(lr=0.1), drawn(seed, 4, 4), weights[nesterov])
        self.assertEqual(flat(weights[True]), flat(weights['on']))
        self.assertEqual(flat(weights[True]), flat(weights[None]))
        self.assertEqual(flat(weights[False]), flat(weights['off']))
        self.assertNotEqual(flat(weights[True]), flat(weights[False]))

    def test_handles_close_in_any_order_and_are_collected(self):
        before = len(_handles._alive)
        steppers = [kind(4, 4) for kind in (mxs.Muon, mxs.Shampoo, mxs.Soap, mxs.AdamW)]
        parts = [stepper.state_parts for stepper in steppers]
        memory = steppers[0].init()
        steppers[0].close()
        memory[:] = b'\1' * len(memory)  # the state outlives its stepper
        for use in (lambda: len(parts[0]), steppers[0].init, steppers[0].describe,
                    lambda: steppers[0].step({}, drawn(1, 4, 4), drawn(2, 4, 4))):
            with self.assertRaisesRegex(mxs.InvalidArgumentError, 'this Muon is closed'):
                use()
        for use in (pickle.dumps, copy.deepcopy):
            with self.assertRaisesRegex(TypeError, 'belongs to this process'):
                use(steppers[1])
        del steppers, parts, use
        gc.collect()
        self.assertEqual(len(_handles._alive), before)

    def test_calls_of_several_threads_come_one_at_a_time(self):
        stepper = mxs.Muon(24, 24)
        stepper.init()
        weights, wrong = drawn(1, 24, 24), []

        def steps():
            try:
                for seed in range(10):
                    stepper.step(dict(lr=0.01), drawn(seed, 24, 24), weights)
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=steps) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(stepper.step(dict(lr=0.01), drawn(1, 24, 24), weights).step_number, 31)


class Values(unittest.TestCase):
    def test_values_begin_as_init_or_a_preset_has_them(self):
        self.assertEqual(mxs.group_values(), (0.001, 0.01, 0.95, 0.9, 0.999, 1e-8))
        self.assertEqual(mxs.preset_values('soap')[:2], (0.003, 0.01))
        self.assertEqual(mxs.group_values('soap', lr=1, weight_decay=0)[:2], (1, 0))
        self.assertEqual(mxs.preset_values('default'), mxs.group_values())
        self.assertEqual(mxs.preset_values('soap')._replace(lr=0.5).lr, 0.5)
        for wrong, kind in ((lambda: mxs.preset_values('x'), ValueError), (lambda: mxs.group_values(lrs=1), TypeError),
                            (lambda: mxs.preset_values(99), mxs.InvalidArgumentError),
                            (lambda: mxs.group_values(lr='x'), TypeError)):
            with self.assertRaises(kind):
                wrong()

    def test_presets_have_rules_and_scales(self):
        self.assertEqual([str(mxs.preset_rule(preset)) for preset in ('default', 'dion', 'shampoo', 'torch-adamw')],
                         ['auto', 'muon', 'shampoo', 'adamw'])
        self.assertAlmostEqual(mxs.muon_scale('moonlight', 64, 16), 0.2 * 8)
        self.assertEqual(mxs.muon_scale('soap', 64, 16), 0)
        self.assertEqual([mxs.dtype_bytes(dtype) for dtype in mxs.Dtype], [4, 2, 2, 8, 1])

    def test_the_norm_is_the_same_in_any_order(self):
        parts = [array.array('f', [random.Random(seed).gauss(0, 10.0 ** (seed - 3)) for _ in range(4096)])
                 for seed in range(6)]
        one, other, halves = mxs.Norm(), mxs.Norm(), [mxs.Norm(), mxs.Norm()]
        for index, part in enumerate(parts):
            one.add(part)
            halves[index % 2].add(part)
        for part in reversed(parts):
            other.add(part)
        self.assertEqual(one.value, other.value)
        summed = mxs.Norm(a + b for a, b in zip(halves[0].words, halves[1].words))
        self.assertEqual(summed.value, one.value)
        exact = math.sqrt(math.fsum(x * x for part in parts for x in part))
        self.assertAlmostEqual(one.value / exact, 1, places=12)
        self.assertFalse(one.not_finite)
        one.add(array.array('f', [math.nan]))
        self.assertTrue(one.not_finite)
        self.assertAlmostEqual(mxs.clip_factor(10, 1), 0.1, places=6)
        self.assertEqual(mxs.clip_factor(10, 0), 1)
        mxs.Norm().add(array.array('f'))
        for wrong, kind in ((lambda: mxs.Norm([1]), ValueError), (lambda: one.add([1.0]), TypeError),
                            (lambda: one.add(array.array('d', [1])), TypeError)):
            with self.assertRaises(kind):
                wrong()

    def test_heads_are_scaled(self):
        weights = drawn(1, 6, 2)
        before = rows_of(weights)
        mxs.scale_heads(weights, [1, 0.5, 2], 6, 2)
        for row in range(6):
            self.assertEqual(list(weights[row]), [x * (1, 0.5, 2)[row // 2] for x in before[row]])
        words, master = (ctypes.c_uint16 * 2 * 6)(), drawn(1, 6, 2)
        mxs.scale_heads(words, [0.5], 6, 2, master=master, dtype='bf16')
        self.assertEqual(master[0][0], 0.5 * before[0][0])
        self.assertLess(abs(struct.unpack('f', struct.pack('I', words[0][0] << 16))[0] / master[0][0] - 1), 2**-8)
        for factors, more, kind in (([1] * 4, {}, mxs.InvalidArgumentError), ([-1], {}, mxs.InvalidArgumentError),
                                    (3, {}, TypeError), ([1], dict(dtype='bf16'), TypeError),
                                    ([1], dict(count=2), ValueError)):
            with self.assertRaises(kind):
                mxs.scale_heads(weights, factors, 6, 2, **more)

    def test_passes_are_a_step(self):
        values = mxs.group_values(lr=0.25, weight_decay=0.5)
        gradient, weights = drawn(1, 12), drawn(2, 12)
        momentum, update = (ctypes.c_float * 12)(), (ctypes.c_float * 12)()
        mxs.muon_momentum(values, gradient, momentum, update, gradient_scale=2)
        for m, u, g in zip(momentum, update, gradient):
            self.assertAlmostEqual(m, 0.1 * g, places=5)
            self.assertAlmostEqual(u, 2 * g + 0.95 * (m - 2 * g), places=5)
        before = list(weights)
        mxs.muon_apply(values, update, weights, update_scale=0.5)
        for w, b, u in zip(weights, before, update):
            self.assertAlmostEqual(w, b * (1 - 0.25 * 0.5) - 0.25 * 0.5 * u, places=5)
        words = (ctypes.c_uint16 * 12)()
        mxs.muon_apply(values, update, words, weights, dtype='bf16')
        self.assertAlmostEqual(struct.unpack('f', struct.pack('I', words[3] << 16))[0] / weights[3], 1, delta=2**-8)
        one, stepped = (ctypes.c_float * 12)(*before), drawn(2, 1, 12)
        averages = [(ctypes.c_float * 12)(), (ctypes.c_float * 12)()]
        stepper = mxs.AdamW(1, 12)
        stepper.init()
        for step in (1, 2):
            mxs.adamw(values, gradient, *averages, one, step_number=step)
            stepper.step(values, (ctypes.c_float * 12 * 1).from_buffer(gradient), stepped)
        self.assertEqual(list(one), flat(stepped))
        for wrong, kind, text in (
                (lambda: mxs.muon_momentum(values, gradient, momentum, drawn(1, 11)), ValueError, 'update has 11 elem'),
                (lambda: mxs.muon_apply(values, update, words, dtype='bf16'), mxs.InvalidArgumentError, 'master'),
                (lambda: mxs.muon_apply(values, update, words), TypeError, 'weights is of words of 16 bits; f32'),
                (lambda: mxs.adamw(values, gradient, *averages, one, step_number=0), mxs.InvalidArgumentError, 'step'),
                (lambda: mxs.adamw(values, gradient, *averages, one, step_number=-1), ValueError, 'step_number is -1')):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                wrong()

    def test_memory_is_at_its_border(self):
        for bytes, border in ((0, 64), (1, 64), (1000, 4096), (10, 1)):
            block = mxs.aligned_memory(bytes, border)
            self.assertEqual((len(block), block.readonly, sum(block)), (bytes, False, 0))
            if bytes:
                self.assertEqual(ctypes.addressof(ctypes.c_char.from_buffer(block)) % border, 0)
        for bytes, border in ((-1, 64), (8, 0), (8, 3), (8, 2**40)):
            with self.assertRaises(ValueError):
                mxs.aligned_memory(bytes, border)


class Strided:
    """Memory in strides (of elements), as numpy shows it."""

    def __init__(self, block, shape, strides, kind='<f4'):
        self.block = block
        bytes = int(kind[2:])
        self.__array_interface__ = {'version': 3, 'typestr': kind, 'shape': shape,
                                    'strides': tuple(bytes * stride for stride in strides),
                                    'data': (ctypes.addressof(block), False)}


if __name__ == '__main__':
    unittest.main()
