# SPDX-License-Identifier: Apache-2.0
"""external(): parameters of the rule 'external', stepped by an optimizer of torch's, or by anything else.

    model = mt.shard(GPT(config), rule=lambda name, parameter: 'external')
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loss.backward()
    with mt.external(model, clip_norm=1.0):
        optimizer.step()

Inside, each shard that this rank owns has its gradient in .grad, in fp32. At the end the shards are rounded into the
units, and the sums are cleared. Empty shards, of what other ranks own, have no gradient, so torch leaves them out.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..errors import InvalidArgumentError
from ._groups import STEPPED, rules_of
from ._memory import tensor_of
from ._model import ShardedModel, joined, sharded
from ._optimizer import OwnersStep
from ._units import ShardedParameter


@contextlib.contextmanager
def external(model: nn.Module, *, gradient_scale: float | None = None, clip_norm: float = 0.0,
             missing: str = 'error') -> Iterator[Any]:
    """Gradients of external parameters, summed over the ranks, in .grad of their shards; inside an optimizer may step
    them. Collective: it waits for the reduces and agrees on the norm, as a step does.

    gradient_scale, clip_norm, missing as in Optimizer. Gives the verdict: norm, clip_factor, skipped, found_inf_rank,
    step_number. Where it is skipped no shard gets a gradient, so that torch's optimizers do nothing.

    Whatever happens inside, the shards are rounded into the units and gradients are gone afterwards. Their memory is
    the owners' sums: no copy is made.

    In a model that has an Optimizer, which steps the other parameters, call this first and its step() directly
    afterwards: norm, scale and clipping are the Optimizer's then (clip_grad_norm_() before this, or its clip_norm), its
    step() clears the sums, and the gradients here are copies.

    Raises as Optimizer.step. Since 0.1.
    """
    made = sharded(model)
    parameters = [one for one, rule in zip(made.parameters, rules_of(made)) if rule == 'external']
    if not parameters:
        raise InvalidArgumentError("the model has no external parameters: shard(model, rule='external'), or a rule "
                                   'function that says it of some')
    made.runtime.notice_failed_backward()
    optimizer = made.optimizer
    if optimizer is not None:
        if gradient_scale is not None or clip_norm or missing != 'error':
            raise InvalidArgumentError('the model has an Optimizer: gradient_scale, clip_norm and missing are its own')
        verdict = optimizer.agree()
        owners = None
    else:
        owners = outside(made)
        owners.check_nothing_kept()
        owners.say(gradient_scale, clip_norm, missing)
        verdict = owners.agree()
    scale = (owners or optimizer.owners).scale * verdict.clip_factor
    try:
        if not verdict.skipped:
            for one in parameters:
                give_gradient(one, scale, in_place=owners is not None)
        yield verdict
    finally:
        for one in parameters:
            one.shard.grad = None
        made.commit(parameters)
        if owners is not None:
            owners.step()  # as agreed; clears the sums, and counts


def outside(model: ShardedModel) -> OwnersStep:
    """The C optimizer of a model that has no Optimizer. It is made at the first call, and steps nothing."""
    stepped = [one.name for one, rule in zip(model.parameters, rules_of(model)) if rule in STEPPED]
    if stepped:
        raise InvalidArgumentError(f'the model has parameters that are not external, such as {stepped[0]}: make its '
                                   'matrixshard.torch.Optimizer first, and keep it')
    if model.outside is None:
        model.outside = OwnersStep(model)
    return model.outside


def give_gradient(parameter: ShardedParameter, scale: float, in_place: bool) -> None:
    views = [parameter.unit.unit.shard_gradient(number) for number in parameter.placements]
    if not views:
        return
    with torch.no_grad():
        gradient = tensor_of(views[0]) if len(views) == 1 else joined(views, parameter.shape)
        gradient = gradient.mul_(scale) if in_place else gradient * scale
        parameter.shard.grad = gradient.to(parameter.shard.dtype)
