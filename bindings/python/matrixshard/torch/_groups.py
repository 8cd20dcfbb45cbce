# SPDX-License-Identifier: Apache-2.0
"""What Optimizer is told: parameters and their groups, presets and the values that groups begin with."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Union

import torch
from torch import nn

from .. import kernels
from ..errors import InvalidArgumentError
from ._model import ShardedModel, sharded
from ._units import ShardedParameter

Parameters = Union[nn.Module, Iterable[torch.Tensor], Iterable[Mapping[str, Any]]]

MATRIX_RULES = ('muon', 'shampoo', 'soap')
STEPPED = MATRIX_RULES + ('adamw',)
VALUES = ('lr', 'weight_decay', 'momentum', 'betas', 'eps')


def published(preset: str | int | None) -> dict[str, Any]:
    """A preset's values by torch's names; None: what rules without a preset begin with."""
    values = kernels.group_values(preset)
    return {'lr': values.lr, 'weight_decay': values.weight_decay, 'momentum': values.momentum,
            'betas': (values.beta1, values.beta2), 'eps': values.epsilon}


def rules_of(model: ShardedModel) -> list[str]:
    """By tensor."""
    return [str(tensor.rule) for tensor in model.plan.tensors]


def groups_of(params: Parameters) -> tuple[ShardedModel, list[dict[str, Any]]]:
    """The model, and param groups. A module, or parameters without groups: matrices, and what AdamW steps."""
    if isinstance(params, nn.Module):
        model = sharded(params)
        return model, split(model, [one.shard for one in model.parameters])
    given = list(params)
    if not given:
        raise InvalidArgumentError('an optimizer needs parameters: there are none')
    if not all(isinstance(one, Mapping) for one in given):
        parameters = [one[1] if isinstance(one, tuple) else one for one in given]
        model = model_of(parameters, 'parameter')
        return model, split(model, parameters)
    groups = []
    for number, group in enumerate(given):
        if 'params' not in group:
            raise InvalidArgumentError(f'param_groups[{number}] has no "params"')
        parameters = [group['params']] if isinstance(group['params'], torch.Tensor) else list(group['params'])
        groups.append({**group, 'params': [one[1] if isinstance(one, tuple) else one for one in parameters]})
    model = model_of([one for group in groups for one in group['params']], 'parameter')
    rules = rules_of(model)
    for number, group in enumerate(groups):
        for one in group['params']:
            if rules[one._matrixshard.index] == 'external':
                raise InvalidArgumentError(
                    f'param_groups[{number}] has {one._matrixshard.name}, which its caller steps (rule external): '
                    'leave it out, and step it inside of external(model)')
    return model, groups


def split(model: ShardedModel, parameters: list[torch.Tensor]) -> list[dict[str, Any]]:
    rules = rules_of(model)
    groups = []
    for name, wanted in (('matrices', MATRIX_RULES), ('others', ('adamw',))):
        chosen = [one for one in parameters if rules[one._matrixshard.index] in wanted]
        if chosen:
            groups.append({'params': chosen, 'name': name})
    if not groups:
        raise InvalidArgumentError('the plan has no tensor that is stepped here: all are frozen or external; step '
                                   'these inside of external(model)')
    return groups


def model_of(parameters: list[Any], kind: str) -> ShardedModel:
    """The sharded model that all of them are of."""
    root = None
    for number, one in enumerate(parameters):
        if not isinstance(one, torch.Tensor):
            raise TypeError(f'{kind} {number} is a {type(one).__name__}, not a tensor')
        known = getattr(one, '_matrixshard', None)
        if not isinstance(known, ShardedParameter) or known.shard is not one:
            raise InvalidArgumentError(
                f'{kind} {number}, of shape {tuple(one.shape)}, is not sharded: pass what model.parameters() gives '
                'after shard(model), outside of forward; what is not in the model needs an optimizer of its own')
        if root is not None and known.unit.runtime.root is not root:
            raise InvalidArgumentError(f'{kind} {number} ({known.name}) is of another model than those before: each '
                                       'sharded model has an optimizer of its own')
        root = known.unit.runtime.root
    if root is None:
        raise InvalidArgumentError('an optimizer needs parameters: there are none')
    return sharded(root.module)


def check_cover(model: ShardedModel, groups: list[dict[str, Any]]) -> None:
    """Everything that is stepped is in the groups, once."""
    rules = rules_of(model)
    place: dict[int, int] = {}
    for number, group in enumerate(groups):
        for one in group['params']:
            index = one._matrixshard.index
            if index in place:
                raise InvalidArgumentError(f'{one._matrixshard.name} is in param_groups[{place[index]}] and again in '
                                           f'param_groups[{number}]')
            place[index] = number
    missing = [one.name for one in model.parameters if rules[one.index] in STEPPED and one.index not in place]
    if missing:
        shown = ', '.join(missing[:8]) + (f' and {len(missing) - 8} more' if len(missing) > 8 else '')
        raise InvalidArgumentError(
            f'{shown} {"are" if len(missing) > 1 else "is"} stepped, but in no param group: one optimizer steps all '
            'of a sharded model. Add them, or shard them with requires_grad False or the rule external')


def take_preset(preset: str | int | None, options: dict[str, dict[str, Any]], rules: list[str]) -> None:
    """Into the options of the rule that it belongs to."""
    if preset is None:
        return
    rule = str(kernels.preset_rule(preset))
    if rule == 'auto':  # 'default'
        return
    if rule not in rules:
        raise InvalidArgumentError(f'preset {preset!r} is for the rule {rule}, but the plan steps no tensor by it: '
                                   f'shard(model, rule={rule!r})')
    options[rule].setdefault('preset', preset)


def begin_values(given: Mapping[str, Any], others: Mapping[str, Any] | None, options: dict[str, dict[str, Any]],
                 rules: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What groups of matrices begin with, and those of AdamW alone."""
    for name in others or {}:
        if name not in VALUES:
            raise InvalidArgumentError(f'others has {name!r}; there are {", ".join(VALUES)}')
    said = {name: value for name, value in given.items() if value is not None}
    matrix_rule = next((one for one in MATRIX_RULES if one in rules), None)
    rest = published(options['adamw'].get('preset', 'torch-adamw'))
    if matrix_rule == 'muon' and 'preset' not in options['adamw']:
        beside = published(options['muon'].get('preset'))
        rest.update(betas=beside['betas'], eps=beside['eps'])
    rest['momentum'] = None
    if matrix_rule is None:
        rest.update(said)
        rest.update(others or {})
        return rest, rest
    rest.update(others or {})
    matrices = published(options[matrix_rule].get('preset'))
    if matrix_rule != 'muon':
        matrices['momentum'] = None
    matrices.update(said)
    return matrices, rest
