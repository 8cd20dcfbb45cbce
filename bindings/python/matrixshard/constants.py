# SPDX-License-Identifier: Apache-2.0
"""Named constants of the C interface, between Python and C: enums.py has them, here is what may stand for one.

Wherever a constant is asked for, a member, its name or its number will do, and None where the library may choose:

    Preset.TORCH_MUON    'torch-muon'    'TORCH_MUON'    1

A dtype may also be said as numpy and torch say it: 'float32', numpy.float32, torch.bfloat16. What is on or off takes
True and False. Members of Preset, Dtype, Rule, Role and Backend are called as mxs_preset_name and its like call them.
"""
from __future__ import annotations

import enum
from typing import Any

from ._constant import Constant as Constant, none_of
from .enums import *  # noqa: F401,F403
from .enums import BY_TYPE, CollectiveKind, Gather, GradientsState, Progress, Switch, WeightsState, __all__

# Of struct fields whose C type is a plain int32_t; BY_TYPE has those that the header gives a type of their own.
BY_FIELD = {('mxs_comm_options', 'progress'): Progress, ('mxs_comm_info', 'progress'): Progress,
            ('mxs_collective_options', 'kind'): CollectiveKind, ('mxs_collective_info', 'kind'): CollectiveKind,
            ('mxs_unit_options', 'gather'): Gather, ('mxs_unit_info', 'gather'): Gather,
            ('mxs_step_result', 'skipped'): bool, ('mxs_verdict', 'skipped'): bool,
            ('mxs_link_info', 'same_node'): bool, ('mxs_unit_info', 'weights_state'): WeightsState,
            ('mxs_unit_info', 'gradients_state'): GradientsState, ('mxs_save_info', 'finished'): bool,
            ('mxs_checkpoint_info', 'has_manifest'): bool, ('mxs_checkpoint_info', 'masters'): bool,
            ('mxs_checkpoint_info', 'has_state'): bool}


def kind_of(struct: Any, field: str) -> Any:
    """The enum of a struct's field, bool, or None."""
    found = struct._kinds_.get(field)
    return BY_TYPE[found] if found else BY_FIELD.get((struct.__name__, field))


def number(kind: Any, value: Any) -> int:
    """The C number of a member, a name, a number; 0 for None. A number that has no name is the library's to refuse."""
    if value is None:
        return 0
    if isinstance(value, bool):
        if kind is not Switch:
            raise TypeError(none_of(kind, kind.__name__, value))
        return Switch.ON if value else Switch.OFF
    if isinstance(value, enum.Enum) and not isinstance(value, kind):
        raise TypeError(none_of(kind, kind.__name__, value))
    if isinstance(value, int):
        if not -2**31 <= value < 2**31:
            raise ValueError(none_of(kind, kind.__name__, value))
        return int(value)
    return int(kind(value))


def named(kind: Any, value: int) -> Any:
    """The member of a number; the number itself if this package is older than the library."""
    if kind is bool:
        return bool(value)
    return kind._value2member_map_.get(value, value)
