# SPDX-License-Identifier: Apache-2.0
"""Writes three modules from the C headers:

    matrixshard/_declarations.py    constants, structs with what their INIT sets, prototypes
    matrixshard/enums.py            named constants as enums
    matrixshard/infos.py            named tuples, which Python gives of the structs that C writes

They are text rather than made at import, so that type checkers and editors know all names.

    generate.py HEADERS_FOLDER           prints them
    generate.py HEADERS_FOLDER --write   writes them where they belong

The headers are regular C11 (tests/abi holds them to it), so a few patterns read them whole. What none of them matches
is an error: a declaration can't be lost silently. A test runs this and compares (tests/python/test_declarations.py).
"""
from __future__ import annotations

import pathlib
import re
import sys
import textwrap

# In the order of the front page, so that types stand before their use.
FRONT_PAGE = 'matrixshard.h'

SCALARS = {'int32_t': 'c_int32', 'uint32_t': 'c_uint32', 'int64_t': 'c_int64', 'uint64_t': 'c_uint64',
           'size_t': 'c_size_t', 'float': 'c_float', 'double': 'c_double', 'int': 'c_int', 'uint16_t': 'c_uint16',
           'uint8_t': 'c_uint8'}

# In two pieces: this file has one licence line of its own.
HEAD = '# SPDX' + '''-License-Identifier: Apache-2.0
"""The C interface as ctypes sees it. Written by generate.py from include/matrixshard; don't edit.

A struct is made with what its INIT macro sets. Handles are c_void_p; in calls pointers to scalars are c_void_p too,
which takes byref(x), arrays and addresses.
"""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p, sizeof)


class Struct(Structure):
    """A public struct: made with its INIT values, then those given by name."""
    _initial_: tuple = ()
    _nested_: tuple = ()
    _names_: frozenset = frozenset()
    _kinds_: dict = {}  # of fields that hold a named constant: the C type's name

    def __init__(self, **values):
        super().__init__()
        if self._fields_[0][0] == 'size':
            self.size = sizeof(type(self))
        for name, value in self._initial_:
            setattr(self, name, value)
        for name in self._nested_:
            getattr(self, name).__init__()
        for name, value in values.items():
            if name not in self._names_:
                raise TypeError(f'{type(self).__name__} has no field {name}')
            setattr(self, name, value)

'''


# Structs that are given as named tuples, in the order of the headers.
INFOS = ('rank_info', 'node_info', 'rail_info', 'link_info', 'speeds', 'tensor_info', 'placement', 'matrix',
         'rank_load', 'unit_load', 'objective', 'plan_move', 'memory', 'segment', 'layout_move', 'comm_info',
         'collective_info', 'simulation', 'unit_info', 'group_values', 'state_part', 'step_result', 'stepper_info',
         'verdict', 'state_info', 'kernel_info', 'save_info', 'checkpoint_info', 'checkpoint_array',
         'cuda_info', 'cuda_device', 'recovery', 'trace_event', 'trace_rank')
LEFT_OUT = ('size', 'reserved', 'dimension_count')
# What the headers' types don't tell.
HINTS = {'skipped': 'bool', 'same_node': 'bool', 'finished': 'bool', 'has_manifest': 'bool',
         'has_state': 'bool', 'gradient_offset': 'int | None', 'end_ns': 'int | None', 'factors': 'dict[str, int]',
         'shape': 'tuple[int, ...]', 'view': 'View'}
ENUM_FIELDS = {('comm_info', 'progress'): 'Progress', ('comm_info', 'device'): 'int | None',
               ('collective_info', 'kind'): 'CollectiveKind',
               ('unit_info', 'gather'): 'Gather', ('unit_info', 'weights_state'): 'WeightsState',
               ('unit_info', 'gradients_state'): 'GradientsState',
               ('trace_event', 'kind'): 'EventKind', ('trace_rank', 'alive'): 'bool | None',
               ('checkpoint_info', 'masters'): 'bool', ('checkpoint_array', 'dtype'): 'Dtype | None'}
# Where Python has another value than C.
REMARKS = {('mxs_comm_info', 'device'): 'index of the GPU; None: CUDA memory has not been used yet'}
INFOS_HEAD = '# SPDX' + '''-License-Identifier: Apache-2.0
"""What the library tells, as immutable named tuples: a class for each struct that it writes, fields as there.
Remarks are the headers'; where they say UINT64_MAX, here it is None. Written by generate.py from include/matrixshard;
don't edit.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .enums import %s
    from .views import View

__all__ = %s
'''

# Class, its constants (the C type, a prefix, or all of them), what it is.
ENUMS = (
    ('Dtype', 'mxs_dtype', 'Element types (types.h).'),
    ('MemoryKind', 'mxs_memory_kind', 'Where memory lies (types.h).'),
    ('Rule', 'mxs_rule', 'Which optimizer treats a tensor (types.h).'),
    ('Role', 'mxs_role', 'What a tensor is to the planner (plan.h).'),
    ('ObjectiveKind', 'MXS_OBJECTIVE_', 'What the planner minimises (plan.h).'),
    ('Which', ('MXS_WEIGHTS', 'MXS_GRADIENTS'), 'Of which buffer of a unit a layout is (plan.h).'),
    ('Preset', 'mxs_preset', 'Whose optimizer (kernels.h).'),
    ('Backend', 'mxs_backend', 'Who multiplies matrices (kernels.h).'),
    ('Table', 'mxs_table', 'Newton-Schulz coefficients (kernels.h).'),
    ('Algorithm', 'mxs_algorithm', "How Newton-Schulz's products are arranged (kernels.h)."),
    ('EpsilonKind', 'mxs_epsilon_kind', 'What keeps the norm away from zero (kernels.h).'),
    ('Switch', 'mxs_switch', 'A yes or no that a preset may decide (kernels.h).'),
    ('Decay', 'mxs_decay', 'Kinds of weight decay (kernels.h).'),
    ('MomentumKind', 'mxs_momentum_kind', 'Kinds of momentum (kernels.h).'),
    ('Scale', 'mxs_scale', 'Factors of the update beside lr (kernels.h).'),
    ('Rounding', 'mxs_rounding', 'How weights without a master are rounded (kernels.h).'),
    ('Grafting', 'mxs_grafting', "Whose norm Shampoo's update gets (kernels.h)."),
    ('Weights', 'mxs_weights', 'In what form weights are kept (kernels.h).'),
    ('Progress', 'MXS_PROGRESS_', 'Who carries operations on (comm.h).'),
    ('CollectiveKind', ('MXS_GATHER', 'MXS_REDUCE', 'MXS_RESHARD', 'MXS_AGREE'), 'What a collective does (comm.h).'),
    ('Phase', 'MXS_PHASE_', 'Of a training step, in statistics (comm.h).'),
    ('EventKind', 'MXS_EVENT_', 'What an event of a trace is about (trace.h).'),
    ('LogLevel', 'MXS_LOG_', 'How much set_log delivers (status.h).'),
    ('Missing', 'MXS_MISSING_', 'What a step makes of a gradient that is missing (optimizer.h).'),
    ('Gather', 'MXS_GATHER_', 'How a unit gathers (unit.h).'),
    ('Retain', ('MXS_FREE', 'MXS_PIN', 'MXS_AUTO'), 'What a release does with weights (unit.h).'),
    ('Opening', ('MXS_WRITE', 'MXS_ADD'), 'What an opened gradient holds (unit.h).'),
    ('WeightsState', ('MXS_SHARDED', 'MXS_GATHERING', 'MXS_WHOLE', 'MXS_PINNED'), "Of a unit's weights (unit.h)."),
    ('GradientsState', ('MXS_EMPTY', 'MXS_OPEN', 'MXS_REDUCING'), "Of a unit's gradients (unit.h)."),
    ('ArrayKind', 'mxs_array_kind', "What an array of a checkpoint is (checkpoint.h)."),
    ('Told', 'MXS_LOAD_TOLD_', 'What a load tells of a tensor (checkpoint.h).'))
ENUMS_HEAD = '# SPDX' + '''-License-Identifier: Apache-2.0
"""The C interface's named constants as enums: MXS_PRESET_TORCH_MUON is Preset.TORCH_MUON. What may be given where one
is wanted: constants.py. Written by generate.py from include/matrixshard; don't edit.
"""
from __future__ import annotations

from ._constant import Constant

__all__ = %s
'''


class Headers:
    """What the headers declare, in their order."""

    def __init__(self, folder: pathlib.Path):
        front = (folder / FRONT_PAGE).read_text()
        names = re.findall(r'#include "matrixshard/(\w+\.h)"', front)
        self.remarks = dict(remarks('\n'.join((folder / name).read_text() for name in names)))
        self.text = '\n'.join(without_comments((folder / name).read_text()) for name in names)
        self.constants = dict(constants(self.text))
        self.aliases = dict((name, kind) for kind, name in
                            re.findall(r'typedef (\w+) (mxs_\w+);', self.text) if kind in SCALARS)
        self.enums = {name: re.findall(r'#define (MXS_\w+)', body) for name, body in re.findall(
            r'typedef int32_t (mxs_\w+);\s*((?:#define MXS_\w+ +\(?-?\d+\)?\s*\n)+)', self.text)}
        self.handles = set(re.findall(r'typedef struct (mxs_\w+) \1;', self.text))
        self.callbacks = re.findall(r'typedef (\w[\w ]*?)\(\*(mxs_\w+)\)\(([^)]*)\);', self.text)
        self.structs = re.findall(r'typedef struct (mxs_\w+) \{(.*?)\} \1;', self.text, re.S)
        self.struct_names = {name for name, _ in self.structs}
        self.inits = dict(re.findall(r'#define MXS_(\w+)_INIT[\s\\]+(\{.*?\})\n', self.text, re.S))
        self.functions = re.findall(r'MXS_API ([\w ]+?[ *]+)(mxs_\w+)\((.*?)\);', self.text, re.S)
        if len(self.functions) != len(re.findall(r'^MXS_API ', self.text, re.M)):
            raise ValueError('a function of the headers was not understood')

    def scalar(self, kind: str) -> str | None:
        return SCALARS.get(self.aliases.get(kind, kind))

    def type_of(self, declared: str, in_struct: bool) -> str:
        """The ctypes type of "const mxs_view *" and the like."""
        words = re.sub(r'\b(const|struct)\b', ' ', declared).replace('*', ' * ').split()
        kind, stars = words[0], len(words) - 1
        if words[1:] != ['*'] * stars:
            raise ValueError(f'no type: {declared}')
        if stars == 0:
            if kind == 'void':
                return 'None'
            if kind in self.struct_names or any(name == kind for _, name, _ in self.callbacks):
                return kind
            scalar = self.scalar(kind)
            if not scalar:
                raise ValueError(f'no type: {declared}')
            return scalar
        if stars == 2:
            return f'POINTER(POINTER({kind}))' if kind in self.struct_names else 'POINTER(c_void_p)'
        if kind == 'char':
            return 'c_char_p' if 'const' in declared else 'c_void_p'
        if kind in self.struct_names:
            return f'POINTER({kind})'
        if kind in self.handles or kind == 'void' or not in_struct or kind == 'float':
            return 'c_void_p'
        return f'POINTER({self.scalar(kind)})'

    def parameters(self, text: str) -> list[str]:
        """Types of "const mxs_plan *plan, int32_t rank, ..."."""
        text = ' '.join(text.split())
        if text in ('', 'void'):
            return []
        return [self.type_of(re.sub(r'\w+$', '', one.strip()), False) for one in text.split(',')]

    def fields(self, body: str):
        """(name, ctypes type) of a struct's fields."""
        for declaration in body.split(';'):
            declaration = ' '.join(declaration.split())
            if not declaration:
                continue
            callback = re.fullmatch(r'([\w ]+?) ?\(\*(\w+)\)\((.*)\)', declaration)
            if callback:
                result, name, parameters = callback.groups()
                types = ', '.join([self.type_of(result, False)] + self.parameters(parameters))
                yield name, f'CFUNCTYPE({types})'
                continue
            first, *others = declaration.split(',')
            kind, name = re.fullmatch(r'(.*?[ *])(\w+(?:\[\w+\])*)', first).groups()
            if others and '*' in kind:
                raise ValueError(f'several pointers in one declaration: {declaration}')
            for one in [name] + [other.strip() for other in others]:
                name, *lengths = one.replace(']', '').split('[')
                declared = self.type_of(kind, True)
                for length in reversed(lengths):
                    declared = f'{declared} * {self.constants[length]}' if '*' not in declared else \
                        f'({declared}) * {self.constants[length]}'
                yield name, declared

    def kinds(self, body: str) -> dict[str, str]:
        """Of a struct's fields that hold a named constant: the constants' type."""
        found = re.findall(r'\b(mxs_\w+) +(\w+);', body)
        return {name: kind for kind, name in found if kind in self.enums}

    def initial(self, struct: str, names: list[str]):
        """What the INIT macro sets beside size and zeros: ((field, value), ...), (nested fields, ...)."""
        init = self.inits.get(struct.removeprefix('mxs_').upper())
        if init is None:
            if names[0] == 'size':
                raise ValueError(f'{struct} has no INIT')
            return [], []
        flat = ' '.join(init.replace('\\', ' ').split())[1:-1]
        while '{' in flat:
            flat = re.sub(r'\{[0, ]*\}', '0', flat)
        values = [value.strip() for value in flat.split(',')]
        if len(values) != len(names) or values[0] != f'sizeof({struct})':
            raise ValueError(f'INIT of {struct} has {len(values)} values for {len(names)} fields')
        pairs, nested = [], []
        for name, value in list(zip(names, values))[1:]:
            if value.endswith('_INIT'):
                nested.append(name)
            elif re.fullmatch(r'-?\d+', value):
                if int(value):
                    pairs.append((name, int(value)))
            elif float(value.rstrip('f')):
                pairs.append((name, float(value.rstrip('f'))))
        return pairs, nested


def without_comments(text: str) -> str:
    return re.sub(r'/\*.*?\*/', '', text, flags=re.S)


def remarks(text: str):
    """((struct, field), what the header says beside it)."""
    for body, struct in re.findall(r'^typedef struct mxs_\w+ \{(.*?)^\} (mxs_\w+);', text, re.M | re.S):
        for field, remark in re.findall(r'(\w+)(?:\[\w+\])*; */\*\*< *(.*?) *\*/', body, re.S):
            yield (struct, field), ' '.join(remark.split())


def constants(text: str):
    for name, value in re.findall(r'^#define (MXS_\w+)[ ]+\(?(-?\d+)\)?\s*$', text, re.M):
        yield name, int(value)


def wrapped(begin: str, parts: list[str], end: str) -> str:
    """begin + parts + end in lines of at most 120 columns."""
    lines, line = [], begin
    for index, part in enumerate(parts):
        piece = part + (', ' if index + 1 < len(parts) else end)
        if len(line) + len(piece.rstrip()) > 118 and line.strip():
            lines.append(line.rstrip())
            line = ' ' * (8 if begin.startswith('    ') else 4)
        line += piece
    return '\n'.join(lines + [line if parts else begin + end])


def declarations(headers: Headers) -> str:
    out = [HEAD]
    out += [f'{name} = {value}' for name, value in headers.constants.items()]
    out.append('')
    for result, name, parameters in headers.callbacks:
        types = ', '.join([headers.type_of(result, False)] + headers.parameters(parameters))
        out.append(f'{name} = CFUNCTYPE({types})')
    for name, body in headers.structs:
        fields = list(headers.fields(body))
        names = [field for field, _ in fields]
        pairs, nested = headers.initial(name, names)
        out.append(f'\n\nclass {name}(Struct):')
        out.append(wrapped('    _fields_ = [', [f"('{field}', {declared})" for field, declared in fields], ']'))
        out.append('    _names_ = frozenset(field[0] for field in _fields_)')
        if pairs:
            out.append(wrapped('    _initial_ = (', [repr(pair) for pair in pairs], ',)'))
        kinds = headers.kinds(body)
        if kinds:
            out.append(wrapped('    _kinds_ = {', [f'{field!r}: {kind!r}' for field, kind in kinds.items()], '}'))
        if nested:
            out.append(f'    _nested_ = {tuple(nested)!r}')
    out.append('\n\n# name: (result, parameters...)\nPROTOTYPES = {')
    for result, name, parameters in headers.functions:
        types = [headers.type_of(result, False)] + headers.parameters(parameters)
        out.append(wrapped(f"    '{name}': (", types, '),' if len(types) > 1 else ',),'))
    out.append('}\n')
    return '\n'.join(out)


def title(name: str) -> str:
    """TensorInfo of mxs_tensor_info."""
    return ''.join(word.capitalize() for word in name.removeprefix('mxs_').split('_'))


def infos(headers: Headers) -> str:
    structs, used, out = dict(headers.structs), set(), []
    for name in INFOS:
        body = structs['mxs_' + name]
        kinds = headers.kinds(body)
        out.append(f'\n\nclass {title(name)}(NamedTuple):\n    """mxs_{name}. Since 0.1."""')
        for field, declared in headers.fields(body):
            if field in LEFT_OUT or field == 'factor_count':
                continue
            hint = HINTS.get(field) or ENUM_FIELDS.get((name, field))
            if hint is None and field in kinds:
                hint = title(kinds[field])
            if hint is None:
                hint = {'c_char_p': 'str', 'c_float': 'float', 'c_double': 'float', 'c_void_p': 'int | None'}.get(
                    declared, 'int')
            if hint[0].isupper() and hint != 'View':
                used.add(hint.removesuffix(' | None'))
            remark = REMARKS.get(('mxs_' + name, field)) or headers.remarks.get(('mxs_' + name, field), '')
            out += textwrap.wrap(remark, 118, initial_indent='    # ', subsequent_indent='    # ')
            out.append(f'    {field}: {hint}')
    names = wrapped('    from .enums import (', sorted(used), ')')
    exported = wrapped('__all__ = [', [repr(title(name)) for name in sorted(INFOS)], ']')
    head = INFOS_HEAD.replace('    from .enums import %s', names).replace('__all__ = %s', exported)
    return head + '\n'.join(out) + '\n'


def members(headers: Headers, name: str, which: str | tuple[str, ...]):
    """(member, number): called by what is left of MXS_RULE_MUON without what all have in common and the enum's name."""
    if isinstance(which, str):
        which = headers.enums[which] if which in headers.enums else \
            [one for one in headers.constants if one.startswith(which) and not one.endswith('_COUNT')]
    short = [one[len('MXS_'):] for one in which]
    common = short[0][:short[0].find('_') + 1]
    if all(one.startswith(common) for one in short):
        short = [one[len(common):] for one in short]
    short = [one.removeprefix(name.upper() + '_') for one in short]
    return [(one, headers.constants[constant]) for one, constant in zip(short, which)]


def enums(headers: Headers) -> str:
    out = []
    for name, which, doc in ENUMS:
        out.append(f'\n\nclass {name}(Constant):\n    """{doc} Since 0.1."""')
        out += [f'    {member} = {value}' for member, value in members(headers, name, which)]
    by_type = [f'{which!r}: {name}' for name, which, _ in ENUMS if which in headers.enums]
    out += ['\n\n# By the C type of a struct\'s field.', wrapped('BY_TYPE = {', by_type, '}')]
    exported = wrapped('__all__ = [', [repr(name) for name, *_ in sorted(ENUMS, key=lambda one: one[0])], ']')
    return ENUMS_HEAD.replace('__all__ = %s', exported) + '\n'.join(out) + '\n'


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2) or arguments[1:] not in ([], ['--write']):
        print(__doc__, file=sys.stderr)
        return 2
    headers = Headers(pathlib.Path(arguments[0]))
    for name, text in (('_declarations.py', declarations(headers)), ('enums.py', enums(headers)),
                       ('infos.py', infos(headers))):
        if len(arguments) == 1:
            print(text, end='')
        else:
            (pathlib.Path(__file__).parent / 'matrixshard' / name).write_text(text)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
