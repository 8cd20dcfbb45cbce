# SPDX-License-Identifier: Apache-2.0
"""The ctypes declarations are those of the headers: written anew they are the same, and sizes and offsets are C's."""
import ctypes
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'bindings' / 'python'))

import generate  # noqa: E402
from matrixshard import _declarations as c, enums  # noqa: E402


class Declarations(unittest.TestCase):
    def test_generated_file_is_what_the_headers_say(self):
        written = (ROOT / 'bindings/python/matrixshard/_declarations.py').read_text()
        fresh = generate.declarations(generate.Headers(ROOT / 'include/matrixshard'))
        self.assertEqual(fresh, written, 'run bindings/python/generate.py include/matrixshard --write')

    def test_enums_are_what_the_headers_say(self):
        written = (ROOT / 'bindings/python/matrixshard/enums.py').read_text()
        fresh = generate.enums(generate.Headers(ROOT / 'include/matrixshard'))
        self.assertEqual(fresh, written, 'run bindings/python/generate.py include/matrixshard --write')

    def test_every_type_of_constants_is_an_enum(self):
        headers = generate.Headers(ROOT / 'include/matrixshard')
        self.assertEqual(set(enums.BY_TYPE), set(headers.enums) - {'mxs_status'})
        for name, kind in enums.BY_TYPE.items():
            self.assertEqual([int(member) for member in kind],
                             [headers.constants[member] for member in headers.enums[name]])

    def test_infos_are_what_the_headers_say(self):
        written = (ROOT / 'bindings/python/matrixshard/infos.py').read_text()
        fresh = generate.infos(generate.Headers(ROOT / 'include/matrixshard'))
        self.assertEqual(fresh, written, 'run bindings/python/generate.py include/matrixshard --write')

    def test_sizes_and_offsets_are_those_that_c_was_compiled_with(self):
        sizes = (ROOT / 'tests/abi/sizes.c').read_text()
        structs = re.findall(r'^SIZE\((mxs_\w+), (\d+)\);', sizes, re.M)
        fields = re.findall(r'^AT\((mxs_\w+), (\w+), (\d+)\);', sizes, re.M)
        self.assertGreater(len(structs), 40)
        for name, size in structs:
            self.assertEqual(ctypes.sizeof(getattr(c, name)), int(size), name)
        for name, field, offset in fields:
            self.assertEqual(getattr(getattr(c, name), field).offset, int(offset), f'{name}.{field}')
        known = {name for name, _ in structs}
        for name, value in vars(c).items():
            if isinstance(value, type) and issubclass(value, c.Struct) and value is not c.Struct:
                self.assertIn(name, known)

    def test_every_exported_name_has_a_prototype(self):
        exported = set((ROOT / 'tests/abi/symbols.txt').read_text().split())
        self.assertEqual({name for name in exported if name.startswith('mxs_')}, set(c.PROTOTYPES))

    def test_structs_begin_as_init_sets_them(self):
        self.assertEqual(c.mxs_view().size, ctypes.sizeof(c.mxs_view))
        self.assertAlmostEqual(c.mxs_group_values().momentum, 0.95, places=6)
        self.assertEqual(c.mxs_algorithm_factor().per_mille, 1000)
        self.assertEqual(c.mxs_matrices().weight_strides.size, ctypes.sizeof(c.mxs_strides))
        self.assertEqual(c.mxs_call(priority=3).priority, 3)

    def test_a_field_that_is_not_there_is_refused(self):
        with self.assertRaisesRegex(TypeError, 'mxs_call has no field prority'):
            c.mxs_call(prority=3)

    def test_a_header_that_is_not_understood_is_refused(self):
        headers = generate.Headers(ROOT / 'include/matrixshard')
        with self.assertRaisesRegex(ValueError, 'no type'):
            headers.type_of('unsigned', False)
        with self.assertRaisesRegex(ValueError, 'INIT of mxs_call'):
            headers.initial('mxs_call', ['size', 'priority'])


if __name__ == '__main__':
    unittest.main()
