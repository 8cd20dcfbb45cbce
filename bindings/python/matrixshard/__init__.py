# SPDX-License-Identifier: Apache-2.0
"""matrixshard: ZeRO-3 memory and whole matrices, from Python.

Each matrix has one owner rank, the others hold an empty shard; forward and backward gather a unit's matrices, gradients
are summed into the owners, and the optimizer's step is local. This package is a thin layer over the C library: names
mirror the C ones, failures are exceptions (matrixshard.errors), and memory comes as views that numpy and torch read in
place.

    import matrixshard                 standard library only
    import matrixshard.torch           shard(model), Optimizer; needs torch
    python -m matrixshard.plot         pictures of measurements and plans; needs matplotlib
"""
from __future__ import annotations

import importlib

from . import errors
from ._library import lib as _lib
from ._library import loaded_library
from .errors import *  # noqa: F401,F403

# What is read when it is first asked for, so that `import matrixshard` stays quick.
_MODULES = {
    'collective': ('Collective', 'gather', 'reduce', 'reshard', 'simulate'),
    'checkpoint': ('Checkpoint', 'Save', 'save', 'start_save'),
    'comm': ('Bootstrap', 'Comm'),
    'constants': ('Algorithm', 'ArrayKind', 'Backend', 'CollectiveKind', 'Decay', 'Dtype', 'EpsilonKind', 'EventKind',
                  'Gather', 'GradientsState', 'Grafting', 'LogLevel', 'MemoryKind', 'Missing', 'MomentumKind',
                  'ObjectiveKind', 'Opening', 'Phase', 'Preset', 'Progress', 'Retain', 'Role', 'Rounding', 'Rule',
                  'Scale', 'Switch', 'Table', 'Told', 'Weights', 'WeightsState', 'Which'),
    'cuda': ('copy_memory', 'cuda_device', 'cuda_info'),
    'infos': ('CheckpointArray', 'CheckpointInfo', 'CollectiveInfo', 'CommInfo', 'CudaDevice', 'CudaInfo',
              'GroupValues', 'KernelInfo', 'LayoutMove', 'LinkInfo', 'Matrix', 'Memory', 'NodeInfo', 'Objective',
              'Placement', 'PlanMove', 'RailInfo', 'RankInfo', 'RankLoad', 'Recovery', 'SaveInfo', 'Segment',
              'Simulation', 'Speeds', 'StateInfo', 'StatePart', 'StepResult', 'StepperInfo', 'TensorInfo', 'TraceEvent',
              'TraceRank', 'UnitInfo', 'UnitLoad', 'Verdict'),
    'kernels': ('AdamW', 'Muon', 'Norm', 'Orthogonalizer', 'Shampoo', 'Soap', 'Stepper', 'adamw', 'aligned_memory',
                'clip_factor', 'dtype_bytes', 'group_values', 'muon_apply', 'muon_momentum', 'muon_scale',
                'preset_rule', 'preset_values', 'scale_heads'),
    'layout': ('Layout',),
    'log': ('set_log',),
    'model': ('Model',),
    'optimizer': ('Optimizer',),
    'plan': ('Plan', 'Tensor'),
    'topology': ('Topology',),
    'trace': ('Trace',),
    'unit': ('Unit',),
    'views': ('View',),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

TYPE_CHECKING = False
if TYPE_CHECKING:  # for type checkers, which don't see __getattr__
    from .checkpoint import Checkpoint, Save, save, start_save
    from .collective import Collective, gather, reduce, reshard, simulate
    from .comm import Bootstrap, Comm
    from .cuda import *  # noqa: F401,F403
    from .enums import *  # noqa: F401,F403
    from .infos import *  # noqa: F401,F403
    from .kernels import *  # noqa: F401,F403
    from .layout import Layout
    from .log import set_log
    from .model import Model
    from .optimizer import Optimizer
    from .plan import Plan, Tensor
    from .topology import Topology
    from .trace import Trace
    from .unit import Unit
    from .views import View


def __getattr__(name: str):
    if name not in _MODULE_OF:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    value = getattr(importlib.import_module('.' + _MODULE_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_MODULE_OF))


__version__ = _lib.mxs_version_text().decode()
