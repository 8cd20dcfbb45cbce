# SPDX-License-Identifier: Apache-2.0
"""State dicts of a sharded model.

    state_dict(model)               what this rank owns, in place, in master dtype; no communication
    full_state_dict(model)          everything on one rank, unit by unit; empty on the others
    load_full_state_dict(model, d)  from one rank to the owners, unit by unit

Bytes go from owners to that rank alone (a reshard), never through all ranks. The model's own state_dict() and
load_state_dict(), of torch, work on shards: as they are on this rank, empty ones among them.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from .. import Collective, Layout
from ..errors import InvalidArgumentError
from ._memory import tensor_of
from ._model import ShardedModel, sharded

if TYPE_CHECKING:
    from ._units import ShardedParameter, ShardedUnit


def state_dict(model: nn.Module) -> dict[str, torch.Tensor]:
    """This rank's shards that are not empty, by name, in master dtype, and the buffers. Local.

    A matrix is there whole on its owner and nowhere else, so the dicts of all ranks together have each matrix once;
    tensors that the plan cuts (flat ones, stacks) are there in parts. The tensors are views of the units: clone what
    must outlive the next step. A tied parameter is there under each of its names. Since 0.1.
    """
    made = sharded(model)
    result = {name: one.shard.detach() for one in made.parameters for name in one.names if one.placements}
    result.update(_buffers(model))
    return result


def full_state_dict(model: nn.Module, *, rank: int = 0, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """All parameters whole, in master dtype or `dtype`, and the buffers: on `rank`, in torch's order; an empty dict on
    the other ranks. Collective; outside forward and backward. One unit at a time is in flight beside the result.
    Since 0.1.
    """
    made = sharded(model)
    _check_rank(made, rank)
    found: dict[str, torch.Tensor] = {}
    for unit in made.runtime.units:
        stream = UnitStream(made, unit, rank)
        for parameter, whole in stream.to_one():
            for name in parameter.names:
                found[name] = whole if dtype is None or not whole.is_floating_point() else whole.to(dtype)
    if made.comm.rank != rank:
        return {}
    found.update(_buffers(model))
    return {name: found[name] for name in model.state_dict() if name in found}


def load_full_state_dict(model: nn.Module, state: Mapping[str, torch.Tensor] | None, *, rank: int = 0,
                         strict: bool = True) -> None:
    """The opposite: `state` is read on `rank` alone and may be None elsewhere. Collective.

    InvalidArgumentError on all ranks, before anything is changed: a parameter that is missing or has another shape, and
    if strict a name that the model doesn't have. Buffers are taken on `rank` only: they are not sharded. Since 0.1.
    """
    made = sharded(model)
    _check_rank(made, rank)
    fault = _fault(made, model, state, strict) if made.comm.rank == rank else None
    if made.comm.sum([0.0 if fault is None else 1.0])[0]:
        raise InvalidArgumentError(fault or f'rank {rank} refused the state dict, as its own error says; nothing '
                                   'changed', rank=made.comm.rank)
    for unit in made.runtime.units:
        UnitStream(made, unit, rank).from_one(state)
    made.commit()
    if made.comm.rank == rank and state is not None:
        for name, buffer in _buffers(model).items():
            if name in state:
                buffer.copy_(state[name])


class UnitStream:
    """A unit's masters as bytes, tensor after tensor in element order: at their owners, and on one rank."""

    def __init__(self, model: ShardedModel, unit: ShardedUnit, rank: int):
        self.model = model
        self.rank = rank
        self.parameters = unit.parameters
        self.unit = unit
        self.segments: list[tuple[int, int]] = []
        self.own: list[tuple[ShardedParameter, int]] = []
        by_tensor: dict[int, list] = {one.index: [] for one in unit.parameters}
        for number, placement in enumerate(model.plan.placements):
            if placement.tensor in by_tensor:
                by_tensor[placement.tensor].append((placement.element_offset, number, placement))
        for parameter in unit.parameters:
            size = torch.empty(0, dtype=parameter.shard.dtype).element_size()
            for _, number, placement in sorted(by_tensor[parameter.index]):
                self.segments.append((placement.owner, placement.element_count * size))
                if placement.owner == model.comm.rank:
                    self.own.append((parameter, number))
        self.bytes = sum(count for _, count in self.segments)

    def _packed(self) -> torch.Tensor:
        return torch.empty(sum(count for owner, count in self.segments if owner == self.model.comm.rank),
                           dtype=torch.uint8)

    def _collective(self, to_one: bool) -> Collective:
        offset, segments = 0, []
        for owner, count in self.segments:
            segments.append((owner, offset, count))
            offset += count
        ranks = self.model.comm.rank_count
        owners = Layout(segments, ranks)
        one = Layout([(self.rank, 0, self.bytes)], ranks)
        return Collective(self.model.comm, 'reshard', owners if to_one else one, one if to_one else owners)

    def _own_pieces(self, packed: torch.Tensor):
        at = 0
        for parameter, number in self.own:
            memory = tensor_of(parameter.unit.unit.shard(number)).view(-1).view(torch.uint8)
            yield memory, packed[at:at + memory.numel()]
            at += memory.numel()

    def to_one(self) -> list[tuple[ShardedParameter, torch.Tensor]]:
        """The whole tensors, on the one rank; nothing on the others."""
        packed = self._packed()
        for memory, part in self._own_pieces(packed):
            part.copy_(memory)
        is_one = self.model.comm.rank == self.rank
        whole = torch.empty(self.bytes if is_one else 0, dtype=torch.uint8)
        self._run(True, packed, whole)
        return list(self._tensors(whole)) if is_one else []

    def from_one(self, state: Mapping[str, torch.Tensor] | None) -> None:
        """Writes this rank's masters. The caller commits."""
        is_one = self.model.comm.rank == self.rank
        whole = torch.empty(self.bytes if is_one else 0, dtype=torch.uint8)
        if is_one and state is not None:  # _fault has refused None
            for parameter, memory in self._tensors(whole):
                memory.copy_(next(state[name] for name in parameter.names if name in state))
        packed = self._packed()
        self._run(False, whole, packed)
        for memory, part in self._own_pieces(packed):
            memory.copy_(part)

    def _run(self, to_one: bool, source: torch.Tensor, target: torch.Tensor) -> None:
        if self.bytes == 0:
            return
        with self._collective(to_one) as collective:
            collective.start(source, target)
            collective.wait()

    def _tensors(self, whole: torch.Tensor):
        at = 0
        for parameter in self.parameters:
            empty = torch.empty(0, dtype=parameter.shard.dtype)
            count = parameter.shape.numel() * empty.element_size()
            # A copy where the tensor's bytes begin off its border.
            part = whole[at:at + count]
            yield parameter, (part if at % 8 == 0 else part.clone()).view(empty.dtype).view(parameter.shape)
            at += count


def _buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Those that torch's state_dict has, too, under all their names: modules may share one."""
    mine = {id(buffer) for buffer in model.buffers()}
    return {name: value for name, value in model.state_dict(keep_vars=True).items() if id(value) in mine}


def _check_rank(model: ShardedModel, rank: int) -> None:
    if not 0 <= rank < model.comm.rank_count:
        raise InvalidArgumentError(f'rank={rank} is not one of {model.comm.rank_count} ranks')


def _fault(made: ShardedModel, model: nn.Module, state, strict: bool) -> str | None:
    if state is None:
        return 'load_full_state_dict: the state dict is None on the rank that reads it'
    for parameter in made.parameters:
        given = next((state[name] for name in parameter.names if name in state), None)
        if given is None:
            return f'load_full_state_dict: {parameter.name} is missing'
        if tuple(given.shape) != tuple(parameter.shape):
            return f'load_full_state_dict: {parameter.name} is {tuple(given.shape)}, but the model has ' \
                   f'{tuple(parameter.shape)}'
    unknown = set(state) - {name for one in made.parameters for name in one.names} - set(_buffers(model))
    if strict and unknown:
        return f'load_full_state_dict: the model has no {", ".join(sorted(unknown)[:5])}'
    return None
