# SPDX-License-Identifier: Apache-2.0
"""The C interface's named constants as enums. Members are made from the headers: MXS_PRESET_TORCH_MUON is
Preset.TORCH_MUON.

Wherever a constant is asked for, a member, its name or its number will do, and None where the library may choose:

    Preset.TORCH_MUON    'torch-muon'    'TORCH_MUON'    1

A dtype may also be said as numpy and torch say it: 'float32', numpy.float32, torch.bfloat16. What is on or off takes
True and False. Members of Preset, Dtype, Rule, Role and Backend are called as mxs_preset_name and its like call them.
"""
from __future__ import annotations

import enum

from . import _declarations as c


def _none(kind: type, value) -> str:
    return f'{value!r} is no {kind.__name__.lower()}: there are {", ".join(map(str, kind))}'


class Constant(enum.IntEnum):
    """A number of the C interface with a name: str() gives it as users write it, 'torch-muon'. Since 0.1."""

    def __str__(self) -> str:
        return self.name.lower().replace('_', '-')

    @classmethod
    def _missing_(cls, value):
        text = value if isinstance(value, str) else getattr(value, 'name', None) or getattr(value, '__name__', '')
        text = str(text or value).rpartition('.')[2].upper().replace('-', '_')
        text = _OTHER_NAMES.get((cls.__name__, text), text)
        if text in cls.__members__:
            return cls.__members__[text]
        raise ValueError(_none(cls, value))


_OTHER_NAMES = {('Dtype', other): name for other, name in
                (('FLOAT32', 'F32'), ('BFLOAT16', 'BF16'), ('FLOAT16', 'F16'), ('FLOAT64', 'F64'), ('UINT8', 'U8'),
                 ('FLOAT', 'F32'), ('DOUBLE', 'F64'), ('HALF', 'F16'))}


def _enum(name: str, constants, doc: str):
    """Members are called by what is left of MXS_RULE_MUON without what all have in common and the type's name."""
    short = [constant[len('MXS_'):] for constant in constants]
    common = short[0][:short[0].find('_') + 1]
    if all(one.startswith(common) for one in short):
        short = [one[len(common):] for one in short]
    own = name.upper() + '_'
    short = [one[len(own):] if one.startswith(own) else one for one in short]
    made = Constant(name, [(one, getattr(c, constant)) for one, constant in zip(short, constants)], module=__name__)
    made.__doc__ = doc + ' Since 0.1.'
    return made


def _prefixed(prefix: str):
    return [name for name in vars(c) if name.startswith(prefix) and not name.endswith('_COUNT')]


Dtype = _enum('Dtype', c.ENUMS['mxs_dtype'], 'Element types (types.h).')
MemoryKind = _enum('MemoryKind', c.ENUMS['mxs_memory_kind'], 'Where memory lies (types.h).')
Rule = _enum('Rule', c.ENUMS['mxs_rule'], 'Which optimizer treats a tensor (types.h).')
Role = _enum('Role', c.ENUMS['mxs_role'], 'What a tensor is to the planner (plan.h).')
ObjectiveKind = _enum('ObjectiveKind', _prefixed('MXS_OBJECTIVE_'), 'What the planner minimises (plan.h).')
Which = _enum('Which', ('MXS_WEIGHTS', 'MXS_GRADIENTS'), 'Of which buffer of a unit a layout is (plan.h).')
Preset = _enum('Preset', c.ENUMS['mxs_preset'], 'Whose optimizer (kernels.h).')
Backend = _enum('Backend', c.ENUMS['mxs_backend'], 'Who multiplies matrices (kernels.h).')
Table = _enum('Table', c.ENUMS['mxs_table'], 'Newton-Schulz coefficients (kernels.h).')
Algorithm = _enum('Algorithm', c.ENUMS['mxs_algorithm'], "How Newton-Schulz's products are arranged (kernels.h).")
EpsilonKind = _enum('EpsilonKind', c.ENUMS['mxs_epsilon_kind'], 'What keeps the norm away from zero (kernels.h).')
Switch = _enum('Switch', c.ENUMS['mxs_switch'], 'A yes or no that a preset may decide (kernels.h).')
Decay = _enum('Decay', c.ENUMS['mxs_decay'], 'Kinds of weight decay (kernels.h).')
MomentumKind = _enum('MomentumKind', c.ENUMS['mxs_momentum_kind'], 'Kinds of momentum (kernels.h).')
Scale = _enum('Scale', c.ENUMS['mxs_scale'], 'Factors of the update beside lr (kernels.h).')
Rounding = _enum('Rounding', c.ENUMS['mxs_rounding'], 'How weights without a master are rounded (kernels.h).')
Grafting = _enum('Grafting', c.ENUMS['mxs_grafting'], "Whose norm Shampoo's update gets (kernels.h).")
Weights = _enum('Weights', c.ENUMS['mxs_weights'], 'In what form weights are kept (kernels.h).')
Progress = _enum('Progress', _prefixed('MXS_PROGRESS_'), 'Who carries operations on (comm.h).')
CollectiveKind = _enum('CollectiveKind', ('MXS_GATHER', 'MXS_REDUCE', 'MXS_RESHARD', 'MXS_AGREE'),
                       'What a collective does (comm.h).')
Phase = _enum('Phase', _prefixed('MXS_PHASE_'), 'Of a training step, in statistics (comm.h).')
LogLevel = _enum('LogLevel', _prefixed('MXS_LOG_'), 'How much set_log delivers (status.h).')
Missing = _enum('Missing', _prefixed('MXS_MISSING_'), 'What a step makes of a gradient that is missing (optimizer.h).')
Gather = _enum('Gather', _prefixed('MXS_GATHER_'), 'How a unit gathers (unit.h).')
Retain = _enum('Retain', ('MXS_FREE', 'MXS_PIN', 'MXS_AUTO'), 'What a release does with weights (unit.h).')
Opening = _enum('Opening', ('MXS_WRITE', 'MXS_ADD'), 'What an opened gradient holds (unit.h).')
WeightsState = _enum('WeightsState', ('MXS_SHARDED', 'MXS_GATHERING', 'MXS_WHOLE', 'MXS_PINNED'),
                     "Of a unit's weights (unit.h).")
GradientsState = _enum('GradientsState', ('MXS_EMPTY', 'MXS_OPEN', 'MXS_REDUCING'), "Of a unit's gradients (unit.h).")

__all__ = [name for name, value in list(globals().items()) if isinstance(value, type) and
           issubclass(value, Constant) and value is not Constant]

# Of struct fields: by the C type that the header gives them, and where that is a plain int32_t.
BY_TYPE = {'mxs_dtype': Dtype, 'mxs_memory_kind': MemoryKind, 'mxs_rule': Rule, 'mxs_role': Role,
           'mxs_preset': Preset, 'mxs_backend': Backend, 'mxs_table': Table, 'mxs_algorithm': Algorithm,
           'mxs_epsilon_kind': EpsilonKind, 'mxs_switch': Switch, 'mxs_decay': Decay,
           'mxs_momentum_kind': MomentumKind, 'mxs_scale': Scale, 'mxs_rounding': Rounding,
           'mxs_grafting': Grafting, 'mxs_weights': Weights}
BY_FIELD = {('mxs_comm_options', 'progress'): Progress, ('mxs_comm_info', 'progress'): Progress,
            ('mxs_collective_options', 'kind'): CollectiveKind, ('mxs_collective_info', 'kind'): CollectiveKind,
            ('mxs_unit_options', 'gather'): Gather, ('mxs_unit_info', 'gather'): Gather,
            ('mxs_step_result', 'skipped'): bool, ('mxs_verdict', 'skipped'): bool,
            ('mxs_link_info', 'same_node'): bool, ('mxs_unit_info', 'weights_state'): WeightsState,
            ('mxs_unit_info', 'gradients_state'): GradientsState}


def kind_of(struct: type, field: str) -> type | None:
    """The enum of a struct's field, bool, or None."""
    found = struct._kinds_.get(field)
    return BY_TYPE[found] if found else BY_FIELD.get((struct.__name__, field))


def number(kind: type, value) -> int:
    """The C number of a member, a name, a number; 0 for None. A number that has no name is the library's to refuse."""
    if value is None:
        return 0
    if isinstance(value, bool):
        if kind is not Switch:
            raise TypeError(_none(kind, value))
        return Switch.ON if value else Switch.OFF
    if isinstance(value, enum.Enum) and not isinstance(value, kind):
        raise TypeError(_none(kind, value))
    if isinstance(value, int):
        if not -2**31 <= value < 2**31:
            raise ValueError(_none(kind, value))
        return int(value)
    return int(kind(value))


def named(kind: type, value: int):
    """The member of a number; the number itself if this package is older than the library."""
    if kind is bool:
        return bool(value)
    return kind._value2member_map_.get(value, value)
