# SPDX-License-Identifier: Apache-2.0
"""Python has what C has: each exported function is called by a class or function of the package, or a line here says
why not; and whatever is called is exported."""
import ast
import importlib
import pathlib
import re
import types
import unittest

import matrixshard as mxs
from matrixshard import _declarations as c
from matrixshard import _structs, enums

PACKAGE = pathlib.Path(mxs.__file__).parent

# Exported functions that nothing calls, and what does the same.
NOT_CALLED = {
    'mxs_dtype_name': 'str(Dtype.BF16); test_constants.py compares all of them',
    'mxs_preset_name': 'str(Preset.DION); likewise',
    'mxs_rule_name': 'str(Rule.MUON); likewise',
    'mxs_role_name': 'str(Role.BLOCKS); likewise',
    'mxs_backend_name': 'str(Backend.TILES); likewise',
    'mxs_preset_from_name': "Preset('dion')",
    'mxs_status_name': 'MatrixShardError.status_name',
    'mxs_orthogonalize': 'Orthogonalizer calls mxs_orthogonalize_batch, which has the same bits',
}
MODULES = ('checkpoint', 'collective', 'comm', 'constants', 'cuda', 'errors', 'infos', 'kernels', 'layout', 'log',
           'model', 'optimizer', 'plan', 'topology', 'trace', 'unit', 'views')


def sources():
    for path in sorted(PACKAGE.glob('*.py')):
        if path.name != '_declarations.py':
            yield path, ast.parse(path.read_text())


def called():
    """Names of C functions: lib.mxs_x, 'mxs_x_destroy', f'mxs_{rule}_create'."""
    names = set()
    for _, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith('mxs_') and \
                    isinstance(node.value, ast.Name) and node.value.id in ('lib', '_lib', 'library'):
                names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and \
                    re.fullmatch(r'mxs_\w+', node.value):
                names.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                pattern = ''.join(re.escape(part.value) if isinstance(part, ast.Constant) else r'\w+?'
                                  for part in node.values)
                if pattern.startswith('mxs_'):
                    names.update(name for name in c.PROTOTYPES if re.fullmatch(pattern, name))
    return names


class Mirror(unittest.TestCase):
    def test_every_exported_function_is_called_or_said_not_to_be(self):
        self.assertEqual(set(c.PROTOTYPES) - called() - set(NOT_CALLED), set(), 'no method calls these')
        self.assertEqual(set(NOT_CALLED) & called(), set(), 'these are called: take their lines away')
        self.assertLessEqual(set(NOT_CALLED), set(c.PROTOTYPES), 'these are no longer exported')

    def test_type_checkers_see_every_name_of_the_package(self):
        tree = ast.parse((PACKAGE / '__init__.py').read_text())
        block = next(one for one in tree.body if isinstance(one, ast.If))
        seen = set()
        for line in block.body:
            for name in line.names:
                module = importlib.import_module(f'matrixshard.{line.module}')
                seen.update(module.__all__ if name.name == '*' else [name.name])
        self.assertEqual(set(mxs._MODULE_OF), seen)

    def test_whatever_is_called_is_exported(self):
        functions = {name for name in called() if not hasattr(c, name) and name not in enums.BY_TYPE}
        self.assertLessEqual(functions, set(c.PROTOTYPES))

    def test_every_struct_is_used(self):
        text = '\n'.join(path.read_text() for path, _ in sources())
        for name, value in vars(c).items():
            if isinstance(value, type) and issubclass(value, c.Struct) and value is not c.Struct:
                is_part = any(name in str(declared) for other in vars(c).values() if isinstance(other, type) and
                              issubclass(other, c.Struct) and other is not c.Struct for _, declared in other._fields_)
                is_options = re.fullmatch(r'mxs_(muon|shampoo|soap|adamw)_options', name)
                self.assertTrue(f'c.{name}' in text or is_part or is_options, f'{name} is used nowhere')

    def test_every_public_name_is_exported_lazily_and_documented(self):
        for module in MODULES:
            loaded = importlib.import_module(f'matrixshard.{module}')
            for name in getattr(loaded, '__all__', ()):
                with self.subTest(name=name):
                    value = getattr(mxs, name)
                    self.assertIs(value, getattr(loaded, name))
                    self.assertIn(name, dir(mxs))
                    self.assertTrue(value.__doc__ and len(value.__doc__) > 20, 'has no docstring')
                    if module not in ('constants', 'errors'):
                        self.assertIn('Since 0.1', value.__doc__)
        with self.assertRaisesRegex(AttributeError, "no attribute 'nothing'"):
            mxs.nothing

    def test_every_public_method_is_documented(self):
        for module in MODULES:
            loaded = importlib.import_module(f'matrixshard.{module}')
            for name in getattr(loaded, '__all__', ()):
                value = getattr(loaded, name)
                if not isinstance(value, type) or module in ('constants', 'errors'):
                    continue
                for member, function in vars(value).items():
                    function = getattr(function, '__func__', function)  # of a classmethod
                    if not member.startswith('_') and isinstance(function, types.FunctionType):
                        self.assertTrue(function.__doc__, f'{name}.{member} has no docstring')

    def test_infos_have_the_fields_of_their_structs(self):
        plan = mxs.Plan([mxs.Tensor('w', (4, 4))], 'ranks:2')
        for info, struct in ((plan.tensor(0), c.mxs_tensor_info), (plan.placement(0), c.mxs_placement),
                             (plan.matrix(0), c.mxs_matrix), (plan.unit(0), c.mxs_unit_load),
                             (plan.rank(0), c.mxs_rank_load), (plan.memory(0), c.mxs_memory),
                             (plan.objective('step'), c.mxs_objective)):
            wanted = [name for name, _ in struct._fields_ if name not in _structs._LEFT_OUT]
            self.assertEqual(list(info._asdict()), wanted)
            self.assertTrue(repr(info).startswith(type(info).__name__ + '('))
            with self.assertRaises(AttributeError):
                info.owner_of_all = 1


if __name__ == '__main__':
    unittest.main()
