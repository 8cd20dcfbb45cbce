# SPDX-License-Identifier: Apache-2.0
"""Plan and Tensor: the same plan as `mxs plan` makes, what it tells, options, saving, moves, and bad input."""
import copy
import json
import os
import pathlib
import pickle
import subprocess
import tempfile
import unittest

import matrixshard as mxs

MODELS = pathlib.Path(__file__).resolve().parents[1] / 'data/models'

TENSORS = [
    mxs.Tensor('embed', (1000, 64), unit=0, rule='adamw', dtype='bf16'),
    mxs.Tensor('wqkv', (192, 64), unit=1, rule='muon', block_rows=(64, 64, 64), dtype='bf16'),
    mxs.Tensor('wo', (64, 64), unit=1, rule='shampoo', transposed=True, block_columns=(32, 32)),
    mxs.Tensor('experts', (3, 48, 64), unit=1),
    mxs.Tensor('norm', (64,), unit=1),
    mxs.Tensor('head', (1000, 64), unit=2, rule='frozen'),
]


class Tensor(unittest.TestCase):
    def test_it_is_a_value(self):
        tensor = mxs.Tensor('w', [4, 8], rule='muon', dtype='bfloat16', fixed_owner=0)
        self.assertEqual(tensor.shape, (4, 8))
        self.assertIs(tensor.rule, mxs.Rule.MUON)
        self.assertIs(tensor.dtype, mxs.Dtype.BF16)
        self.assertEqual(repr(tensor), "Tensor('w', (4, 8), dtype=bf16, rule=muon, fixed_owner=0)")
        self.assertEqual(tensor, mxs.Tensor(**tensor._asdict()))
        self.assertEqual(hash(tensor), hash(copy.deepcopy(tensor)))
        self.assertEqual(pickle.loads(pickle.dumps(tensor)), tensor)
        self.assertEqual(tensor.replace(unit=3).unit, 3)
        self.assertNotEqual(tensor.replace(unit=3), tensor)
        for change in (lambda: setattr(tensor, 'unit', 1), lambda: delattr(tensor, 'unit')):
            with self.assertRaisesRegex(AttributeError, 'immutable'):
                change()

    def test_bad_values_are_refused_with_the_tensors_name(self):
        for arguments, kind, text in (
                (dict(rule='moun'), ValueError, "tensor w: 'moun' is no rule"),
                (dict(shape=3), TypeError, 'tensor w: shape is 3, not a sequence'),
                (dict(shape=(3, 'a')), TypeError, r"tensor w: shape\[1\] is 'a'"),
                (dict(shape=(2**63,)), ValueError, r'tensor w: shape\[0\] is 9223372036854775808'),
                (dict(block_rows=3), TypeError, 'tensor w: block_rows is 3'),
                (dict(rules='muon'), TypeError, 'rules')):
            with self.subTest(arguments=arguments), self.assertRaisesRegex(kind, text):
                mxs.Tensor(**{'name': 'w', **arguments})
        with self.assertRaisesRegex(TypeError, 'not text'):
            mxs.Tensor(3)


class Plan(unittest.TestCase):
    def test_its_fingerprint_is_that_of_the_command(self):
        program = os.environ.get('MXS_PROGRAM')
        if not program:
            self.skipTest('MXS_PROGRAM names no mxs')
        for name, words in (('gpt2-xl', 'nodes:2 ranks:4'), ('qwen2-7b', 'ranks:3+5')):
            path = str(MODELS / f'{name}.json')
            told = json.loads(subprocess.run([program, 'plan', path, '--world', words, '--json'], check=True,
                                             capture_output=True).stdout)
            model = mxs.Model.load(path)
            for tensors in (model, model.tensors, [tensor._asdict() for tensor in model.tensors]):
                self.assertEqual(f'{mxs.Plan(tensors, words).fingerprint:016x}', told['fingerprint'])

    def test_it_tells_what_became_of_tensors(self):
        plan = mxs.Plan(TENSORS, 'ranks:4', alignment=64, flat_bytes=1 << 12)
        self.assertEqual((plan.rank_count, plan.unit_count, plan.tensor_count), (4, 3, 6))
        self.assertEqual([info.name for info in plan.tensors], [tensor.name for tensor in TENSORS])
        self.assertEqual([str(info.role) for info in plan.tensors],
                         ['flat', 'blocks', 'matrix', 'blocks', 'tail', 'flat'])
        self.assertIs(plan.tensor('wo').rule, mxs.Rule.SHAMPOO)
        self.assertEqual(plan.tensor(3).placement_count, 3)
        self.assertEqual(plan.find('norm'), 4)
        self.assertIn('muon', plan.tensor('experts').reason)
        self.assertEqual(len(plan.placements), plan.placement_count)
        for index, tensor in enumerate(TENSORS):
            pieces = [piece for piece in plan.placements if piece.tensor == index]
            size = 1
            for side in tensor.shape:
                size *= side
            self.assertEqual(sum(piece.element_count for piece in pieces), size)
        self.assertEqual(plan.placements[-1].gradient_offset, None)  # frozen
        self.assertEqual(sorted({matrix.tensor for matrix in plan.matrices}), [1, 2, 3])
        columns = [matrix for matrix in plan.matrices if matrix.tensor == 2]
        self.assertEqual([(m.rows, m.columns, m.row_stride) for m in columns], [(64, 32, 64)] * 2)
        self.assertEqual([(m.scale_rows, m.scale_columns) for m in columns], [(32, 64)] * 2)
        self.assertIn('experts', plan.report())
        self.assertIn('0x', repr(plan))

    def test_loads_are_sums_of_placements(self):
        plan = mxs.Plan(TENSORS, 'ranks:3', alignment=64)
        for unit in range(plan.unit_count):
            layout = plan.layout(unit)
            self.assertEqual(sum(layout.owned_bytes(rank) for rank in range(3)), plan.unit(unit).weight_bytes)
            self.assertEqual(plan.layout(unit, 'gradients').rank_count, 3)
        self.assertEqual(sum(load.matrix_count for load in plan.ranks), plan.matrix_count)
        worst = plan.objective('bytes')
        self.assertEqual(worst.worst, max(load.owned_bytes for load in plan.ranks))
        self.assertGreaterEqual(worst.worst, worst.bound)
        memory = plan.memory(0, slots=3, by_reference=False)
        self.assertEqual(memory.rest, memory.weights + memory.masters + memory.gradients + memory.state + memory.slack)
        self.assertGreater(plan.memory(0, slots=4).slots, memory.slots)
        self.assertLess(plan.memory(0, slots=3, by_reference=True).slots, memory.slots)

    def test_worlds_of_any_size_have_plans(self):
        prints = set()
        for rank_count in (1, 2, 3, 4, 7, 8, 64):
            plan = mxs.Plan(TENSORS, mxs.Topology(f'ranks:{rank_count}'))
            self.assertEqual(plan.fingerprint, mxs.Plan(TENSORS, f'ranks:{rank_count}').fingerprint)
            prints.add(plan.fingerprint)
        self.assertEqual(len(prints), 7)
        empty = mxs.Plan([], 'ranks:2')
        self.assertEqual((empty.tensor_count, empty.unit_count, list(empty.placements)), (0, 0, []))

    def test_owners_are_fixed_by_rank(self):
        for rank in range(3):
            plan = mxs.Plan([TENSORS[2].replace(fixed_owner=rank)], 'ranks:3')
            self.assertEqual(plan.placements[0].owner, rank)
        with self.assertRaisesRegex(ValueError, 'fixed_owner is -1'):
            mxs.Plan([TENSORS[2].replace(fixed_owner=-1)], 'ranks:3')
        with self.assertRaises(mxs.InvalidArgumentError):
            mxs.Plan([TENSORS[2].replace(fixed_owner=3)], 'ranks:3')

    def test_tied_tensors_have_no_bytes_of_their_own(self):
        tied = mxs.Plan([TENSORS[0], mxs.Tensor('head', (1000, 64), dtype='bf16', tied_to='embed')], 'ranks:2')
        self.assertEqual(tied.tensor('head').tied_to, 0)
        self.assertEqual(tied.tensor('embed').tied_to, -1)
        self.assertIs(tied.tensor('head').role, mxs.Role.TIED)

    def test_what_is_saved_is_loaded(self):
        plan = mxs.Plan(TENSORS, 'nodes:2 ranks:2')
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'plan.json'
            plan.save(path)
            self.assertEqual(mxs.Plan.load(path).fingerprint, plan.fingerprint)
            path.write_text('{}')
            with self.assertRaises(mxs.InvalidArgumentError):
                mxs.Plan.load(path)
        with self.assertRaises(mxs.SystemCallError):
            mxs.Plan.load('/nowhere/plan.json')

    def test_a_previous_plan_keeps_what_it_can(self):
        model = mxs.Model.load(MODELS / 'gpt2-xl.json')
        before = mxs.Plan(model, 'ranks:8')
        anew, after = mxs.Plan(model, 'ranks:7'), mxs.Plan(model, 'ranks:7', previous=before)
        moved, moved_anew = (sum(move.bytes for move in before.moves(plan)) for plan in (after, anew))
        self.assertLess(moved, moved_anew)
        self.assertEqual(before.moves(before), [])
        other = mxs.Plan(TENSORS, 'ranks:7')
        with self.assertRaises(mxs.MismatchError):
            before.moves(other)

    def test_ranks_may_have_other_numbers_and_some_be_lost(self):
        model = mxs.Model.load(MODELS / 'gpt2-xl.json')
        before, living = mxs.Plan(model, 'ranks:8'), [0, 1, 2, 4, 5, 6, 7]
        untold = mxs.Plan(model, 'ranks:7', previous=before)
        told = mxs.Plan(model, 'ranks:7', previous=before, previous_ranks=living)
        moved, moved_untold = (sum(move.bytes for move in before.moves(plan, living)) for plan in (told, untold))
        self.assertLess(2 * moved, moved_untold)
        self.assertNotEqual(told.fingerprint, untold.fingerprint)
        lost = sum(move.element_count for move in before.moves(told, living) if move.source_rank == -1)
        self.assertEqual(lost, sum(piece.element_count for piece in before.placements if piece.owner == 3))
        self.assertEqual(before.moves(before, range(8)), [])
        turned = mxs.Plan(model, 'ranks:8', previous=before, previous_ranks=[7, 6, 5, 4, 3, 2, 1, 0])
        self.assertEqual(before.moves(turned, [7, 6, 5, 4, 3, 2, 1, 0]), [])
        for ranks, kind, text in (([0, 1], ValueError, '2 numbers'), ([0] * 7, mxs.InvalidArgumentError, 'both 0'),
                                  ([8] * 7, mxs.InvalidArgumentError, r'\[0\] is 8')):
            with self.subTest(text=text):
                with self.assertRaisesRegex(kind, text):
                    before.moves(told, ranks)
                with self.assertRaisesRegex(kind, text):
                    mxs.Plan(model, 'ranks:7', previous=before, previous_ranks=ranks)
        with self.assertRaisesRegex(mxs.InvalidArgumentError, 'previous is NULL'):
            mxs.Plan(model, 'ranks:7', previous_ranks=living)

    def test_warnings_are_sentences(self):
        plan = mxs.Plan([mxs.Tensor('w', (256, 256), rule='adamw')], 'ranks:2')
        self.assertTrue(any('"w"' in warning for warning in plan.warnings))

    def test_bad_input_is_refused_with_its_place(self):
        w = mxs.Tensor('w', (8, 8))
        for call, kind, text in (
                (lambda: mxs.Plan([w, w], 'ranks:2'), mxs.InvalidArgumentError, 'w'),
                (lambda: mxs.Plan([w.replace(shape=(-8, 8))], 'ranks:2'), mxs.InvalidArgumentError, 'shape'),
                (lambda: mxs.Plan([w.replace(shape=(1,) * 9)], 'ranks:2'), ValueError, 'tensor w: it has 9 dimensions'),
                (lambda: mxs.Plan([w.replace(unit='a')], 'ranks:2'), TypeError, "tensor w: unit is 'a'"),
                (lambda: mxs.Plan([w.replace(unit=2**31)], 'ranks:2'), ValueError, 'tensor w: unit is 2147483648'),
                (lambda: mxs.Plan([w.replace(rule=99)], 'ranks:2'), mxs.InvalidArgumentError, 'rule'),
                (lambda: mxs.Plan([w.replace(block_rows=(4, 3))], 'ranks:2'), mxs.InvalidArgumentError, 'block_rows'),
                (lambda: mxs.Plan([w.replace(name='')], 'ranks:2'), mxs.InvalidArgumentError, 'name'),
                (lambda: mxs.Plan([w.replace(name='a\0b')], 'ranks:2'), ValueError, 'zero byte'),
                (lambda: mxs.Plan([w.replace(tied_to='v')], 'ranks:2'), mxs.InvalidArgumentError, 'v'),
                (lambda: mxs.Plan([w], 'rnks:2'), mxs.InvalidArgumentError, 'rnks:2'),
                (lambda: mxs.Plan([w], 2), TypeError, 'topology is 2'),
                (lambda: mxs.Plan([w], None), TypeError, 'topology is None'),
                (lambda: mxs.Plan(w, 'ranks:2'), TypeError, 'not a sequence'),
                (lambda: mxs.Plan([3], 'ranks:2'), TypeError, r'tensors\[0\] is 3'),
                (lambda: mxs.Plan([dict(shape=(1,))], 'ranks:2'), TypeError, r'tensors\[0\] has no name'),
                (lambda: mxs.Plan([dict(name='w', size=3)], 'ranks:2'), TypeError, "unknown argument 'size'.*rule"),
                (lambda: mxs.Plan([w], 'ranks:2', alignmnt=64), TypeError, "'alignmnt'.*alignment.*previous"),
                (lambda: mxs.Plan([w], 'ranks:2', alignment=-1), ValueError, 'alignment is -1'),
                (lambda: mxs.Plan([w], 'ranks:2', alignment=65), mxs.InvalidArgumentError, 'alignment'),
                (lambda: mxs.Plan([w], 'ranks:2', rank_bytes_max=1), mxs.OverBudgetError, 'smallest that works is 768'),
                (lambda: mxs.Plan([w], 'ranks:2', previous=3), TypeError, 'previous is 3')):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                call()

    def test_bad_questions_are_refused(self):
        plan = mxs.Plan(TENSORS, 'ranks:2')
        for call, kind in ((lambda: plan.find('x'), mxs.NotFoundError), (lambda: plan.tensor('x'), LookupError),
                           (lambda: plan.tensor(6), mxs.InvalidArgumentError),
                           (lambda: plan.placement(10**6), mxs.InvalidArgumentError),
                           (lambda: plan.matrix(10**6), mxs.InvalidArgumentError),
                           (lambda: plan.placement(-1), ValueError), (lambda: plan.placements[10**6], IndexError),
                           (lambda: plan.unit(3), mxs.InvalidArgumentError), (lambda: plan.rank(2), ValueError),
                           (lambda: plan.rank(2**32), ValueError), (lambda: plan.layout(3), mxs.InvalidArgumentError),
                           (lambda: plan.layout(0, 'master'), ValueError), (lambda: plan.objective('x'), ValueError),
                           (lambda: plan.objective(9), mxs.InvalidArgumentError),
                           (lambda: plan.memory(0, slot=1), TypeError), (lambda: plan.moves(None), TypeError),
                           (lambda: plan.memory(0, slots=-1), mxs.InvalidArgumentError),
                           (lambda: plan.warnings[99], IndexError)):
            with self.assertRaises(kind):
                call()

    def test_a_closed_one_is_refused_in_all_places(self):
        plan, other = mxs.Plan(TENSORS, 'ranks:2'), mxs.Plan(TENSORS, 'ranks:2')
        plan.close()
        topology = mxs.Topology('ranks:2')
        topology.close()
        for call in (lambda: plan.fingerprint, plan.report, lambda: plan.moves(other), lambda: other.moves(plan),
                     lambda: mxs.Plan(TENSORS, 'ranks:2', previous=plan), lambda: mxs.Plan(TENSORS, topology),
                     lambda: list(plan.tensors)):
            with self.assertRaisesRegex(mxs.InvalidArgumentError, 'is closed'):
                call()
        self.assertEqual(repr(plan), '<Plan: closed>')
        for use in (pickle.dumps, copy.deepcopy):
            with self.assertRaisesRegex(TypeError, 'a Plan belongs to this process'):
                use(other)

if __name__ == '__main__':
    unittest.main()
