# SPDX-License-Identifier: Apache-2.0
"""Model: tensors of configurations and lists, rules by pattern, and bad files."""
import pathlib
import tempfile
import unittest

import matrixshard as mxs

MODELS = pathlib.Path(__file__).resolve().parents[1] / 'data/models'


class Model(unittest.TestCase):
    def test_a_configuration_has_tensors_and_units(self):
        model = mxs.Model.load(MODELS / 'llama-3-8b.json')
        self.assertEqual(model.title, 'llama, 32 layers, 8.0 billion parameters')
        self.assertEqual((len(model.tensors), model.unit_count), (291, 34))
        self.assertEqual(list(model.unit_names)[:2], ['model.embed_tokens', 'model.layers.0'])
        self.assertTrue(all(note for note in model.notes))
        total = 0
        for tensor in model.tensors:
            elements = 1
            for side in tensor.shape:
                elements *= side
            total += elements
        self.assertEqual(total, 8030261248)
        self.assertIs(model.tensors[1].dtype, mxs.Dtype.BF16)
        self.assertIn('llama', repr(model))

    def test_rules_go_by_the_first_pattern_that_matches(self):
        for rules in ({'*.0.*q_proj*': 'external', '*q_proj*': 'shampoo'},
                      [('*.0.*q_proj*', mxs.Rule.EXTERNAL), ('*q_proj*', mxs.Rule.SHAMPOO, 3)]):
            model = mxs.Model.load(MODELS / 'llama-3-8b.json', rules=rules, matrix_rule='soap', dtype='f32',
                                   gradient_dtype='bf16')
            by_name = {tensor.name: tensor for tensor in model.tensors}
            first, second = (by_name[f'model.layers.{layer}.self_attn.q_proj.weight'] for layer in (0, 1))
            self.assertEqual((first.rule, second.rule), (mxs.Rule.EXTERNAL, mxs.Rule.SHAMPOO))
            self.assertEqual(second.group, 0 if isinstance(rules, dict) else 3)
            self.assertIs(by_name['model.layers.1.mlp.up_proj.weight'].rule, mxs.Rule.SOAP)
            self.assertEqual((first.dtype, first.gradient_dtype), (mxs.Dtype.F32, mxs.Dtype.BF16))

    def test_tensors_can_be_changed_on_their_way_to_a_plan(self):
        with mxs.Model.load(MODELS / 'gpt2-xl.json') as model:
            tensors = [tensor.replace(unit=0) for tensor in model.tensors]
            whole = mxs.Plan(model, 'ranks:2')
        self.assertEqual(mxs.Plan(tensors, 'ranks:2').unit_count, 1)
        self.assertGreater(whole.unit_count, 40)  # a plan outlives its model
        transposed = [tensor for tensor in tensors if tensor.transposed]
        self.assertTrue(transposed and all(tensor.transposed is True for tensor in transposed))

    def test_blocks_of_a_list_come_through(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'list.json'
            path.write_text('{"tensors": [{"name": "w", "shape": [12, 8], "rule": "muon", "block_rows": [4, 8]}, '
                            '{"name": "v", "shape": [3, 4, 8]}]}')
            tensors = mxs.Model.load(path).tensors
            self.assertEqual(tensors[0].block_rows, (4, 8))
            self.assertEqual(tensors[1].shape, (3, 4, 8))

    def test_bad_input_is_refused(self):
        path = MODELS / 'gpt2-xl.json'
        for call, kind, text in (
                (lambda: mxs.Model.load('/nowhere/config.json'), mxs.SystemCallError, 'nowhere'),
                (lambda: mxs.Model.load(path, rules={'nothing*': 'muon'}), mxs.NotFoundError, 'nothing'),
                (lambda: mxs.Model.load(path, rules={'*': 'moun'}), ValueError, r"rules\[0\].rule: 'moun' is no rule"),
                (lambda: mxs.Model.load(path, rules=[('*',)]), TypeError, r'rules\[0\] has 1 values'),
                (lambda: mxs.Model.load(path, rules='*=muon'), TypeError, 'not a sequence'),
                (lambda: mxs.Model.load(path, rules={3: 'muon'}), TypeError, r'rules\[0\].pattern is 3, not text'),
                (lambda: mxs.Model.load(path, dtyp='f32'), TypeError, "unknown argument 'dtyp': there are dtype"),
                (lambda: mxs.Model.load(path, rule_count=1), TypeError, 'rule_count'),
                (lambda: mxs.Model(path), TypeError, 'not made so'),
                (lambda: mxs.Model.load(path).unit_name(99), IndexError, 'unit 99'),
                (lambda: mxs.Model.load(MODELS / 'README.md'), mxs.InvalidArgumentError, 'README')):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                call()
        model = mxs.Model.load(path)
        model.close()
        for use in (lambda: model.title, lambda: mxs.Plan(model, 'ranks:2'), lambda: model.tensors[0]):
            with self.assertRaisesRegex(mxs.InvalidArgumentError, 'this Model is closed'):
                use()

    def test_tensors_that_are_described_already_get_rules_and_units_by_name(self):
        described = [dict(name='layers.0.up.weight', shape=(8, 16), unit=-1),
                     mxs.Tensor('wte.weight', (32, 16), unit=-1),
                     dict(name='layers.1.up.weight', shape=(8, 16), unit=-1, rule='shampoo')]
        with mxs.Model.create(described, matrix_rule='soap', rules={'layers.1*': 'external'}) as model:
            self.assertEqual({tensor.name: str(tensor.rule) for tensor in model.tensors},
                             {'layers.0.up.weight': 'soap', 'wte.weight': 'adamw', 'layers.1.up.weight': 'external'})
            self.assertEqual(model.unit_count, 3)
            with mxs.Plan(model, 'ranks:2') as plan:
                self.assertEqual(len(plan.tensors), 3)
        with self.assertRaisesRegex(mxs.NotFoundError, 'no_such'):
            mxs.Model.create(described, rules={'no_such': 'muon'})
        with self.assertRaisesRegex(TypeError, 'Model.create'):
            mxs.Model.create(described, matrixrule='soap')


if __name__ == '__main__':
    unittest.main()
