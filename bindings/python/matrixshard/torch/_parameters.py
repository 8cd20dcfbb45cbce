# SPDX-License-Identifier: Apache-2.0
"""A module's parameters as the library sees them: which unit each is in, and how a plan is told of it.

    unit      a module that `units` chooses; a parameter belongs to the innermost one around it
    root      the last unit: what no chosen module has, such as the embedding, the last norm and the head

A parameter that stands in several places of one unit (a head tied to the embedding) is one tensor. In two units it is
refused: its gradient would be complete only when both have been reduced.
"""
from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

import torch
from torch import nn

from .. import _declarations as c
from ..errors import InvalidArgumentError, NotBuiltError

DTYPES = {torch.float32: 'f32', torch.bfloat16: 'bf16', torch.float16: 'f16', torch.float64: 'f64', torch.uint8: 'u8'}
TRAINED = (torch.float32, torch.bfloat16, torch.float16)

Units = Union[None, type, tuple, Callable[[str, nn.Module], bool], Iterable[nn.Module]]


@dataclasses.dataclass
class Described:
    """One tensor: a parameter, and all places where modules hold it."""
    name: str
    unit: int
    parameter: nn.Parameter
    places: list[tuple[nn.Module, str]]
    names: list[str]
    rule: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def frozen(self) -> bool:
        return not self.parameter.requires_grad or self.rule == 'frozen'


def unit_modules(model: nn.Module, units: Units) -> list[tuple[str, nn.Module]]:
    """The modules that become units, by name, in the order of the model; those that have others inside come last, and
    the root after all: they have slots of their own, and the others take turns by their numbers."""
    named = dict(model.named_modules())
    if units is None:
        chosen = [f'{name}.{child}' if name else child for name, module in named.items()
                  if isinstance(module, nn.ModuleList) for child, _ in module.named_children()]
        # A list within a list (experts of a layer) belongs to the outer one.
        chosen = [name for name in chosen if not any(name.startswith(outer + '.') for outer in chosen)]
    elif isinstance(units, (type, tuple)) and all(isinstance(one, type) for one in _tuple(units)):
        chosen = [name for name, module in named.items() if isinstance(module, _tuple(units))]
        if not chosen:
            kinds = ', '.join(one.__name__ for one in _tuple(units))
            raise InvalidArgumentError(f'units={kinds}: the model has no module of that class')
    elif callable(units) and not isinstance(units, nn.Module):
        chosen = [name for name, module in named.items() if units(name, module)]
    elif isinstance(units, str):
        raise InvalidArgumentError(f'units is the text {units!r}: pass a class of modules, a list of modules, or a '
                                   'function (name, module) -> bool')
    else:
        by_identity = {id(module): name for name, module in named.items()}
        chosen = []
        for module in units:
            if id(module) not in by_identity:
                raise InvalidArgumentError(f'units: {type(module).__name__} is no module of the model')
            chosen.append(by_identity[id(module)])
        if len(set(chosen)) != len(chosen):
            raise InvalidArgumentError('units: a module is given twice')
    order = {name: place for place, name in enumerate(named)}
    around = {name for name in chosen if any(other.startswith(name + '.') for other in chosen)}
    chosen = sorted(filter(None, chosen), key=lambda name: (name in around, order[name]))
    return [(name, named[name]) for name in chosen] + [('', model)]


def _tuple(value) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def describe(model: nn.Module, modules: list[tuple[str, nn.Module]]) -> list[Described]:
    """All parameters, each with the innermost of the unit modules around it. Refuses what can't be sharded."""
    unit_of = {id(module): index for index, (_, module) in enumerate(modules)}
    found: dict[int, Described] = {}

    def visit(module: nn.Module, name: str, unit: int) -> None:
        unit = unit_of.get(id(module), unit)
        if getattr(module, '_matrixshard', None) is not None:
            raise InvalidArgumentError(f'{name or "the model"} is sharded already: call shard() once, on the whole '
                                       'model, with units= for its parts')
        for key, parameter in module._parameters.items():
            if parameter is None:
                continue
            whole_name = f'{name}.{key}' if name else key
            known = found.get(id(parameter))
            if known is None:
                check(whole_name, parameter)
                found[id(parameter)] = Described(whole_name, unit, parameter, [(module, key)], [whole_name])
            elif known.unit != unit:
                raise InvalidArgumentError(
                    f'{whole_name} is tied to {known.name}, but they are in two units ({_unit_name(modules, unit)} and '
                    f'{_unit_name(modules, known.unit)}): put both modules in one unit, such as the root')
            else:
                known.names.append(whole_name)
                if not any(holder is module and place == key for holder, place in known.places):
                    known.places.append((module, key))  # else the module itself stands in two places
        for child_name, child in module._modules.items():
            if child is not None:
                visit(child, f'{name}.{child_name}' if name else child_name, unit)

    visit(model, '', len(modules) - 1)
    return sorted(found.values(), key=lambda one: one.unit)


def _unit_name(modules: list[tuple[str, nn.Module]], unit: int) -> str:
    return modules[unit][0] or 'the root'


def check(name: str, parameter: nn.Parameter) -> None:
    """Refuses devices, layouts and dtypes that the library hasn't got."""
    if parameter.device.type not in ('cpu', 'meta'):
        raise NotBuiltError(f'{name} is on {parameter.device}: matrixshard.torch shards models in CPU memory only, in '
                            'this release; shard it on the cpu or the meta device')
    if parameter.layout is not torch.strided or type(parameter.data) not in (torch.Tensor, nn.Parameter):
        raise InvalidArgumentError(f'{name} is a {type(parameter.data).__name__} of layout {parameter.layout}: only '
                                   'plain dense tensors can be sharded')
    if parameter.dtype not in (TRAINED if parameter.requires_grad else tuple(DTYPES)):
        raise InvalidArgumentError(
            f'{name} is {parameter.dtype}, which no rule steps: cast it to float32, bfloat16 or float16, or freeze it '
            'with requires_grad_(False)')
    if parameter.dim() > c.MXS_DIMENSIONS_MAX:
        raise InvalidArgumentError(f'{name} has {parameter.dim()} dimensions; at most {c.MXS_DIMENSIONS_MAX} can be '
                                   'planned: make one of some of them')


def assign(tensors: list[Described], rule: str | Callable[[str, nn.Parameter], str | None],
           options: Mapping[str, Mapping[str, Any]]) -> None:
    """Rules and other fields of mxs_tensor, where the caller or the module's kind decide; the library does the rest."""
    unused = set(options)
    for tensor in tensors:
        for pattern, fields in options.items():
            if fnmatch.fnmatchcase(tensor.name, pattern):
                unused.discard(pattern)
                tensor.options.update(fields)
        if not tensor.parameter.requires_grad:
            tensor.rule = 'frozen'
        elif 'rule' in tensor.options:
            tensor.rule = tensor.options.pop('rule')
        elif callable(rule):
            tensor.rule = rule(tensor.name, tensor.parameter)
        elif any(isinstance(module, nn.Embedding) for module, _ in tensor.places):
            tensor.rule = 'adamw'
    if unused:
        raise InvalidArgumentError(f'tensors: no parameter matches {", ".join(map(repr, sorted(unused)))}')
