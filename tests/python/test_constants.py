# SPDX-License-Identifier: Apache-2.0
"""Enums are the headers' constants, called as the library calls them, and taken as member, name or number."""
import pickle
import unittest

import matrixshard as mxs
from matrixshard import _declarations as c
from matrixshard import _structs, constants
from matrixshard._library import lib


class Constants(unittest.TestCase):
    def test_members_are_called_as_the_library_calls_them(self):
        self.assertEqual(len(mxs.Preset), 11)
        for preset in mxs.Preset:
            self.assertEqual(str(preset), lib.mxs_preset_name(preset).decode())
        for kind, name in ((mxs.Dtype, lib.mxs_dtype_name), (mxs.Rule, lib.mxs_rule_name),
                           (mxs.Role, lib.mxs_role_name), (mxs.Backend, lib.mxs_backend_name)):
            for member in kind:
                self.assertEqual(str(member), name(member).decode())
        self.assertEqual(lib.mxs_preset_name(len(mxs.Preset)), b'unknown')

    def test_all_are_in_the_package_and_of_fields_that_there_are(self):
        self.assertGreater(len(constants.__all__), 25)
        for name in constants.__all__:
            self.assertIs(getattr(mxs, name), getattr(constants, name))
        for (struct, field) in constants.BY_FIELD:
            self.assertIn(field, getattr(c, struct)._names_)

    def test_names_are_short(self):
        self.assertEqual(list(map(str, mxs.Switch)), ['preset', 'on', 'off'])
        self.assertEqual(list(map(str, mxs.EpsilonKind)), ['preset', 'max', 'add'])
        self.assertEqual(list(map(str, mxs.Gather)), ['auto', 'by-copy', 'by-reference'])
        self.assertEqual(list(map(str, mxs.Phase)), ['other', 'forward', 'backward', 'step'])

    def test_member_name_and_number_are_the_same(self):
        for value in (mxs.Preset.TORCH_MUON, 'torch-muon', 'TORCH_MUON', 'torch_muon', 1):
            self.assertEqual(constants.number(mxs.Preset, value), 1)
        self.assertEqual(constants.number(mxs.Preset, None), 0)
        self.assertIs(mxs.Rule('muon'), mxs.Rule.MUON)
        self.assertIs(pickle.loads(pickle.dumps(mxs.Rule.MUON)), mxs.Rule.MUON)

    def test_dtypes_may_be_called_as_numpy_and_torch_call_them(self):
        class torch_dtype:
            def __str__(self):
                return 'torch.bfloat16'
        self.assertEqual(constants.number(mxs.Dtype, 'float32'), c.MXS_F32)
        self.assertEqual(constants.number(mxs.Dtype, torch_dtype()), c.MXS_BF16)

    def test_false_is_off_and_not_the_presets_choice(self):
        self.assertEqual(constants.number(mxs.Switch, False), c.MXS_OFF)
        self.assertEqual(constants.number(mxs.Switch, True), c.MXS_ON)

    def test_a_wrong_name_is_refused_with_those_that_there_are(self):
        with self.assertRaisesRegex(ValueError, "'moun' is no rule: there are auto, muon, adamw, external, frozen"):
            mxs.Rule('moun')
        with self.assertRaisesRegex(ValueError, 'no rule'):
            constants.number(mxs.Rule, 2**32 + 1)
        with self.assertRaisesRegex(TypeError, 'no rule'):
            constants.number(mxs.Rule, mxs.Preset.SOAP)
        with self.assertRaisesRegex(TypeError, 'no rule'):
            constants.number(mxs.Rule, True)
        with self.assertRaisesRegex(ValueError, 'is no dtype'):
            constants.number(mxs.Dtype, object())

    def test_a_number_of_a_newer_library_stays_a_number(self):
        self.assertEqual(constants.named(mxs.Rule, 99), 99)


class Structs(unittest.TestCase):
    def test_numbers_that_do_not_fit_are_refused_rather_than_cut_off(self):
        for value, text in ((2**31, 'outside of'), (-2**31 - 1, 'outside of')):
            with self.assertRaisesRegex(ValueError, text):
                _structs.int32(value, 'rank')
        with self.assertRaisesRegex(ValueError, 'bytes is -1'):
            _structs.uint64(-1, 'bytes')
        for wrong in ('1', 1.0, None):
            with self.assertRaisesRegex(TypeError, 'not a whole number'):
                _structs.int32(wrong, 'rank')

    def test_unknown_fields_are_refused_with_those_that_there_are(self):
        with self.assertRaisesRegex(TypeError, r"f\(\) got an unknown argument 'slot': there are slots, gradient_sl"):
            _structs.filled(c.mxs_memory_options, {'slot': 1}, 'f()')
        for hidden in ('size', 'reserved'):
            with self.assertRaises(TypeError):
                _structs.filled(c.mxs_comm_options, {hidden: 1}, 'f()')

    def test_text_ends_at_no_zero_byte(self):
        with self.assertRaisesRegex(ValueError, 'zero byte'):
            mxs.Topology('ranks:4\0 nodes:2')


if __name__ == '__main__':
    unittest.main()
