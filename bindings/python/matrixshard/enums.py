# SPDX-License-Identifier: Apache-2.0
"""The C interface's named constants as enums: MXS_PRESET_TORCH_MUON is Preset.TORCH_MUON. What may be given where one
is wanted: constants.py. Written by generate.py from include/matrixshard; don't edit.
"""
from __future__ import annotations

from ._constant import Constant

__all__ = ['Algorithm', 'ArrayKind', 'Backend', 'CollectiveKind', 'Decay', 'Dtype', 'EpsilonKind', 'EventKind',
    'Gather', 'GradientsState', 'Grafting', 'LogLevel', 'MemoryKind', 'Missing', 'MomentumKind', 'ObjectiveKind',
    'Opening', 'Phase', 'Preset', 'Progress', 'Retain', 'Role', 'Rounding', 'Rule', 'Scale', 'Switch', 'Table',
    'Told', 'Weights', 'WeightsState', 'Which']


class Dtype(Constant):
    """Element types (types.h). Since 0.1."""
    F32 = 1
    BF16 = 2
    F16 = 3
    F64 = 4
    U8 = 5


class MemoryKind(Constant):
    """Where memory lies (types.h). Since 0.1."""
    HOST = 0
    CUDA = 1


class Rule(Constant):
    """Which optimizer treats a tensor (types.h). Since 0.1."""
    AUTO = 0
    MUON = 1
    ADAMW = 2
    EXTERNAL = 3
    FROZEN = 4
    SHAMPOO = 5
    SOAP = 6


class Role(Constant):
    """What a tensor is to the planner (plan.h). Since 0.1."""
    AUTO = 0
    MATRIX = 1
    BLOCKS = 2
    TAIL = 3
    FLAT = 4
    TIED = 5


class ObjectiveKind(Constant):
    """What the planner minimises (plan.h). Since 0.1."""
    BYTES = 0
    STEP = 1
    EGRESS = 2
    NIC = 3


class Which(Constant):
    """Of which buffer of a unit a layout is (plan.h). Since 0.1."""
    WEIGHTS = 0
    GRADIENTS = 1


class Preset(Constant):
    """Whose optimizer (kernels.h). Since 0.1."""
    DEFAULT = 0
    TORCH_MUON = 1
    TORCH_MUON_RMS = 2
    KELLER_JORDAN = 3
    MOONLIGHT = 4
    NVIDIA = 5
    DION = 6
    NORMUON = 7
    SHAMPOO = 8
    SOAP = 9
    TORCH_ADAMW = 10


class Backend(Constant):
    """Who multiplies matrices (kernels.h). Since 0.1."""
    AUTO = 0
    REFERENCE = 1
    ONEDNN = 2
    OPENBLAS = 3
    TILES = 4
    CUBLAS = 5


class Table(Constant):
    """Newton-Schulz coefficients (kernels.h). Since 0.1."""
    PRESET = 0
    JORDAN = 1
    YOU = 2
    POLAR_EXPRESS = 3
    DEEPSEEK_V4 = 4
    POLAR_CUSHION = 5
    CUSTOM = 6


class Algorithm(Constant):
    """How Newton-Schulz's products are arranged (kernels.h). Since 0.1."""
    AUTO = 0
    STANDARD = 1
    GRAM = 2


class EpsilonKind(Constant):
    """What keeps the norm away from zero (kernels.h). Since 0.1."""
    PRESET = 0
    MAX = 1
    ADD = 2


class Switch(Constant):
    """A yes or no that a preset may decide (kernels.h). Since 0.1."""
    PRESET = 0
    ON = 1
    OFF = 2


class Decay(Constant):
    """Kinds of weight decay (kernels.h). Since 0.1."""
    PRESET = 0
    DECOUPLED = 1
    INDEPENDENT = 2
    L2 = 3
    PALM = 4
    CAUTIOUS = 5


class MomentumKind(Constant):
    """Kinds of momentum (kernels.h). Since 0.1."""
    PRESET = 0
    EMA = 1
    SGD = 2


class Scale(Constant):
    """Factors of the update beside lr (kernels.h). Since 0.1."""
    PRESET = 0
    NONE = 1
    SHAPE = 2
    MAX = 3
    RATIO = 4
    RMS = 5


class Rounding(Constant):
    """How weights without a master are rounded (kernels.h). Since 0.1."""
    NEAREST = 0
    STOCHASTIC = 1


class Grafting(Constant):
    """Whose norm Shampoo's update gets (kernels.h). Since 0.1."""
    PRESET = 0
    NONE = 1
    ADAM = 2
    SGD = 3


class Weights(Constant):
    """In what form weights are kept (kernels.h). Since 0.1."""
    DEFAULT = 0
    ALONE = 1
    MASTER = 2
    REMAINDER = 3


class Progress(Constant):
    """Who carries operations on (comm.h). Since 0.1."""
    CHOSEN = 0
    MANUAL = 1
    THREAD = 2


class CollectiveKind(Constant):
    """What a collective does (comm.h). Since 0.1."""
    GATHER = 0
    REDUCE = 1
    RESHARD = 2
    AGREE = 3


class Phase(Constant):
    """Of a training step, in statistics (comm.h). Since 0.1."""
    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    STEP = 3


class EventKind(Constant):
    """What an event of a trace is about (trace.h). Since 0.1."""
    OPERATION = 0
    WAIT = 1
    AGREEMENT = 2
    STEP = 3
    FAILURE = 4
    MARK = 5


class LogLevel(Constant):
    """How much set_log delivers (status.h). Since 0.1."""
    WARNING = 1
    INFO = 2
    DEBUG = 3


class Missing(Constant):
    """What a step makes of a gradient that is missing (optimizer.h). Since 0.1."""
    ZERO = 0
    ERROR = 1


class Gather(Constant):
    """How a unit gathers (unit.h). Since 0.1."""
    AUTO = 0
    BY_COPY = 1
    BY_REFERENCE = 2


class Retain(Constant):
    """What a release does with weights (unit.h). Since 0.1."""
    FREE = 0
    PIN = 1
    AUTO = 2


class Opening(Constant):
    """What an opened gradient holds (unit.h). Since 0.1."""
    WRITE = 0
    ADD = 1


class WeightsState(Constant):
    """Of a unit's weights (unit.h). Since 0.1."""
    SHARDED = 0
    GATHERING = 1
    WHOLE = 2
    PINNED = 3


class GradientsState(Constant):
    """Of a unit's gradients (unit.h). Since 0.1."""
    EMPTY = 0
    OPEN = 1
    REDUCING = 2


class ArrayKind(Constant):
    """What an array of a checkpoint is (checkpoint.h). Since 0.1."""
    WEIGHTS = 1
    MASTER = 2
    STATE = 3
    EXTRA = 4


class Told(Constant):
    """What a load tells of a tensor (checkpoint.h). Since 0.1."""
    MISSING = 1
    EXTRA = 2
    CONVERTED = 3
    NEW_STATE = 4


# By the C type of a struct's field.
BY_TYPE = {'mxs_dtype': Dtype, 'mxs_memory_kind': MemoryKind, 'mxs_rule': Rule, 'mxs_role': Role,
    'mxs_preset': Preset, 'mxs_backend': Backend, 'mxs_table': Table, 'mxs_algorithm': Algorithm,
    'mxs_epsilon_kind': EpsilonKind, 'mxs_switch': Switch, 'mxs_decay': Decay, 'mxs_momentum_kind': MomentumKind,
    'mxs_scale': Scale, 'mxs_rounding': Rounding, 'mxs_grafting': Grafting, 'mxs_weights': Weights,
    'mxs_array_kind': ArrayKind}
