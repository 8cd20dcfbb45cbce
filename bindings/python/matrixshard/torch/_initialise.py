# SPDX-License-Identifier: Apache-2.0
"""Parameters on the meta device are drawn by their owners, each from a seed of its own, so that a model's first weights
are the same in every world:

    init(name, tensor)    seeded by (seed, the parameter's name), on the ranks that own a piece of it
    reset_parameters()    of the module that holds it, seeded by (seed, the module's name), likewise

One tensor, or one module's own parameters, is whole at a time.
"""
from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

from ..errors import InvalidArgumentError
from ._memory import tensor_of

if TYPE_CHECKING:
    from ._model import ShardedModel
    from ._parameters import Described
    from ._units import ShardedParameter

Init = Callable[[str, torch.Tensor], None]


@contextlib.contextmanager
def seeded(seed: int, name: str) -> Iterator[None]:
    """Torch's generator, at a place that only the user's seed and the name decide; put back in the end."""
    digest = hashlib.blake2b(f'{seed}:{name}'.encode(), digest_size=8).digest()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(int.from_bytes(digest, 'little') >> 1)
        yield


def materialise(model: ShardedModel, described: list[Described], seed: int, init: Init | None) -> None:
    """Fills what this rank owns of the parameters on the meta device. The caller commits."""
    missing = [(parameter, one) for parameter, one in zip(model.parameters, described)
               if one.parameter.device.type == 'meta']
    if init is not None:
        for parameter, one in missing:
            if parameter.placements:
                drawn = torch.empty(one.parameter.shape, dtype=one.parameter.dtype)
                with seeded(seed, parameter.name):
                    init(parameter.name, drawn)
                keep(model, parameter, drawn)
        draw_buffers(model.module, seed, init)
        return
    by_module: dict[int, tuple[nn.Module, list[ShardedParameter]]] = {}
    for parameter, _ in missing:
        module, _key = parameter.places[0]
        by_module.setdefault(id(module), (module, []))[1].append(parameter)
    names = {id(module): name for name, module in model.module.named_modules()}
    for module, _ in by_module.values():
        reset_of(module, names[id(module)])  # refused on all ranks alike, before anything is drawn
    for module, parameters in by_module.values():
        if any(parameter.placements for parameter in parameters) or has_meta_buffers(module):
            reset(model, module, names[id(module)], parameters, seed)
    for name, module in model.module.named_modules():
        if has_meta_buffers(module):
            reset(model, module, name, [], seed)


def keep(model: ShardedModel, parameter: ShardedParameter, whole: torch.Tensor) -> None:
    """This rank's pieces of a whole tensor."""
    flat = whole.detach().reshape(-1)
    for number in parameter.placements:
        placement = model.plan.placement(number)
        begin = placement.element_offset
        tensor_of(parameter.unit.unit.shard(number)).view(-1).copy_(flat[begin:begin + placement.element_count])


def reset_of(module: nn.Module, name: str) -> Callable[[], None]:
    for method in ('reset_parameters', '_reset_parameters', 'init_weights'):
        if callable(getattr(module, method, None)):
            return getattr(module, method)
    raise InvalidArgumentError(
        f'{name or "the model"} ({type(module).__name__}) has parameters or buffers on the meta device and no '
        'reset_parameters(): pass init=, a function (name, tensor) that fills one')


def has_meta_buffers(module: nn.Module) -> bool:
    return any(buffer is not None and buffer.device.type == 'meta' for buffer in module._buffers.values())


def reset(model: ShardedModel, module: nn.Module, name: str, parameters: list[ShardedParameter], seed: int) -> None:
    """Runs the module's own initialisation on real memory, which goes again; buffers stay."""
    before = dict(module._parameters)
    for key, parameter in before.items():
        if parameter is not None and parameter.device.type == 'meta':
            module._parameters[key] = nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype),
                                                   requires_grad=parameter.requires_grad)
    for key, buffer in module._buffers.items():
        if buffer is not None and buffer.device.type == 'meta':
            module._buffers[key] = torch.zeros(buffer.shape, dtype=buffer.dtype)
    try:
        with seeded(seed, name):
            reset_of(module, name)()
        for parameter in parameters:
            key = next(key for holder, key in parameter.places if holder is module)
            keep(model, parameter, module._parameters[key])
    finally:
        module._parameters.update(before)


def draw_buffers(module: nn.Module, seed: int, init: Init) -> None:
    """Buffers on the meta device, on every rank: nobody owns them."""
    for name, holder in module.named_modules():
        for key, buffer in holder._buffers.items():
            if buffer is not None and buffer.device.type == 'meta':
                whole_name = f'{name}.{key}' if name else key
                holder._buffers[key] = torch.zeros(buffer.shape, dtype=buffer.dtype)
                with seeded(seed, whole_name):
                    init(whole_name, holder._buffers[key])
