# SPDX-License-Identifier: Apache-2.0
"""shard(): from a plain module to units, in place.

    describe   parameters, the unit of each, ties                        _parameters.py
    route      rules by name and shape, as for models from files         mxs_model_create
    plan       owners                                                    mxs_plan_create
    units      memory, addresses; forward is wrapped                     _units.py
    fill       owners copy their part, or draw it (meta device)          _initialise.py
"""
from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .. import Comm, Model, Plan, Unit
from .. import _declarations as c
from .. import constants
from ..errors import HeldError, InvalidArgumentError
from ._initialise import materialise
from ._memory import tensor_of, tensor_over
from ._parameters import DTYPES, TRAINED, Described, Units, assign, describe, unit_modules
from ._rendezvous import init_comm
from ._units import Runtime, ShardedParameter, ShardedUnit


class ShardedModel:
    """What shard() made of a module: comm, plan, units, and the parameters by name. `sharded(model)` gives it."""

    def __init__(self, module: nn.Module, comm: Comm, plan: Plan, runtime: Runtime,
                 parameters: list[ShardedParameter]):
        self.module = module
        self.comm = comm
        self.plan = plan
        self.runtime = runtime
        self.parameters = parameters
        self.outside: Any = None  # the C optimizer of external(), where there is no Optimizer
        self._optimizer: Any = None
        self.remove_hook: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return (f'<ShardedModel: {type(self.module).__name__}, {len(self.parameters)} parameters in '
                f'{len(self.runtime.units)} units, rank {self.comm.rank} of {self.comm.rank_count}>')

    @property
    def units(self) -> list[Unit]:
        """Of the library, by number."""
        return [unit.unit for unit in self.runtime.units]

    @property
    def optimizer(self) -> Any:
        """The Optimizer that steps it, or None. It holds the model, not the other way round."""
        found = self._optimizer() if self._optimizer is not None else None
        return None if found is None or found.closed else found

    def take_optimizer(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)

    def close_outside(self) -> None:
        outside, self.outside = self.outside, None
        if outside is not None:
            outside.core.close()

    def pieces(self) -> Iterator[tuple[ShardedParameter, Any, torch.Tensor]]:
        """(parameter, placement, its memory in master dtype) of all that this rank owns. Write, then commit()."""
        for parameter in self.parameters:
            for number in parameter.placements:
                yield parameter, self.plan.placement(number), tensor_of(parameter.unit.unit.shard(number))

    def commit(self, parameters: list[ShardedParameter] | None = None) -> None:
        """After writing into shards, all or some: round the masters into the units. Peers see it from their next
        gather."""
        for parameter in self.parameters if parameters is None else parameters:
            for piece, part in self._copied_parts(parameter):
                piece.copy_(part)
            for number in parameter.placements:
                unit = parameter.unit.unit
                unit.commit(unit.shard(number))
        self.runtime.outdate()

    def after_step(self) -> None:
        """Shards that are copies become as the owner's pieces are."""
        self.runtime.outdate()
        for parameter in self.parameters:
            for piece, part in self._copied_parts(parameter):
                part.copy_(piece)

    def _copied_parts(self, parameter: ShardedParameter) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(piece of the unit, its part of the shard), where the shard is a copy."""
        if not parameter.copied:
            return []
        pieces = [tensor_of(parameter.unit.unit.shard(number)).reshape(-1) for number in parameter.placements]
        return list(zip(pieces, parameter.shard.detach().view(-1).split([piece.numel() for piece in pieces])))

    def memory(self) -> dict[str, int]:
        """Bytes of this rank's units, by name as in mxs_memory; pools are counted once. Since 0.1."""
        total: dict[str, int] = {}
        for unit in self.units:
            for name, count in unit.memory()._asdict().items():
                # Each unit tells the whole pool. It grows while units are made: the most is what there is.
                pooled = name in ('slots', 'gradient_slots')
                total[name] = max(total.get(name, 0), count) if pooled else total.get(name, 0) + count
        total['peak'] = sum(total[name] for name in ('rest', 'slots', 'gradient_slots', 'own_slots', 'workspace'))
        return total

    def close(self) -> None:
        """Give the units' memory back; the module is not usable then: see unshard(). HeldError: an Optimizer lives."""
        if self.optimizer is not None:
            raise HeldError('the model has an Optimizer: close() that first', c.MXS_HELD, self.comm.rank)
        self.close_outside()
        for unit in self.runtime.units:
            unit.unit.close()

    def __reduce__(self):
        raise TypeError('a sharded model belongs to this process: save its state dict instead')

    def __deepcopy__(self, memo):
        raise TypeError('a sharded model cannot be copied: copy the module before shard()')


def sharded(model: nn.Module) -> ShardedModel:
    """The ShardedModel of a module that shard() was called on. InvalidArgumentError: it was not. Since 0.1."""
    found = getattr(model, '_matrixshard', None)
    if not isinstance(found, ShardedModel):
        raise InvalidArgumentError(f'this {type(model).__name__} is not sharded: pass the module that shard() was '
                                   'called on')
    return found


def shard(model: nn.Module, units: Units = None, *, comm: Comm | None = None,
          rule: str | Callable[[str, nn.Parameter], str | None] = 'muon',
          tensors: Mapping[str, Mapping[str, Any]] | None = None,
          dtype: torch.dtype | None = None, master_dtype: torch.dtype | None = None,
          gradient_dtype: torch.dtype | None = None, rank_order: bool = False, release: str = 'free', slots: int = 2,
          gradient_slots: int = 3, algorithm: str | None = None, seed: int = 0,
          init: Callable[[str, torch.Tensor], None] | None = None, plan: Mapping[str, Any] | None = None) -> nn.Module:
    """Shards a module in place, and returns it. Collective: all ranks call it with the same model and arguments.

    units           modules that are gathered one by one: their class, a list of them, or a function
                    (name, module) -> bool; None: the members of each nn.ModuleList. What is in none of them is the
                    root, which stays whole through forward and through backward.
    rule            of matrices: 'muon', 'shampoo', 'soap', 'adamw', 'external'; or a function (name, parameter) ->
                    rule, where None leaves the choice to the library. Embeddings, heads, vectors and routers get AdamW
                    (by name and shape, see docs/planning.md), parameters without requires_grad are frozen.
    tensors         {pattern: fields of mxs_tensor}, such as {'*.qkv.weight': {'block_rows': [64, 64, 64]}}; patterns of
                    names with * and ?. A rule given here counts before the argument `rule`.
    dtype           of the whole parameters and of gathers. None: the parameter's own. Given, floating-point inputs of
                    the root's forward are cast to it.
    master_dtype    at the owner. None: float32.
    gradient_dtype  of open gradients. None: dtype.
    rank_order      sums are added in rank order, whatever the plan: see docs/algorithms.md.
    release         after forward: 'free' (gathered again for backward), 'pin' (kept; wants slots for all units), or
                    'auto' (the last units are kept, as far as slots go).
    slots, gradient_slots   units that are whole, or have gradients in flight, at a time. The root has a slot of its
                    own.
    seed, init      of parameters on the meta device: each owner draws its own, see docs/python.md. init(name, tensor)
                    fills one tensor; None: the modules' reset_parameters().
    plan            options of mxs_plan_create.

    Raises InvalidArgumentError with a sentence for a model that is sharded already, dtypes that can't be stepped, and
    parameters tied across units; NotBuiltError for CUDA. Since 0.1.
    """
    for argument, given in (('dtype', dtype), ('master_dtype', master_dtype), ('gradient_dtype', gradient_dtype)):
        if given is not None and given not in TRAINED:
            raise InvalidArgumentError(f'{argument} is {given}: float32, bfloat16 and float16 can be trained')
    modules = unit_modules(model, units)
    described = describe(model, modules)
    check_slots(modules, described, release, slots, gradient_slots)
    check_hooks(modules)
    if not described:
        raise InvalidArgumentError(f'this {type(model).__name__} has no parameters')
    given = None if callable(rule) else rule
    constants.number(constants.Rule, given)  # a rule that isn't there is refused by this argument's name
    assign(described, rule, tensors or {})
    comm = comm if comm is not None else init_comm()
    fields = [tensor_fields(index, one, dtype, master_dtype, gradient_dtype) for index, one in enumerate(described)]
    routed = Model.create(fields + tied_fields(described, fields), matrix_rule=given or 'muon')
    made = Plan(routed, comm.topology(), unit_count=len(modules), **(plan or {}))
    runtime = Runtime(comm, release, dtype)
    make_units(runtime, made, modules, slots=slots, gradient_slots=gradient_slots, rank_order=rank_order,
               algorithm=algorithm)
    parameters = [ShardedParameter(one.names, index, runtime.units[one.unit], one.places, one.parameter.shape,
                                   str(made.tensor(index).rule) != 'frozen')
                  for index, one in enumerate(described)]
    result = ShardedModel(model, comm, made, runtime, parameters)
    for number, placement in enumerate(made.placements):
        if placement.owner == comm.rank:
            parameters[placement.tensor].placements.append(number)
    fill(result, described, seed, init)
    for parameter, one in zip(parameters, described):
        parameter.unit.parameters.append(parameter)
        make_shard(result, parameter, master_of(one, dtype, master_dtype))
        parameter.place(parameter.shard)
    for unit in runtime.units:
        unit.wrap()
        object.__setattr__(unit.module, '_matrixshard', result if unit is runtime.root else unit)
        guard_casts(unit.module)
        object.__setattr__(unit.module, '__reduce_ex__', refuse_copies)
    hook = model.register_load_state_dict_post_hook(lambda module, _: after_load(module))
    result.remove_hook = hook.remove
    return model


def tensor_fields(index: int, one: Described, dtype, master_dtype, gradient_dtype) -> dict[str, Any]:
    """What the plan is told of a parameter. Each has a group of its own: Optimizer gives each its values."""
    if 'group' in one.options:
        raise InvalidArgumentError(f'tensors: {one.name} has a group; values of a step come from the param groups of '
                                   'Optimizer')
    own = one.parameter.dtype
    fields = {'name': one.name, 'shape': tuple(one.parameter.shape), 'unit': one.unit, 'group': index}
    if one.rule is not None:
        fields['rule'] = one.rule
    if one.frozen:
        fields['dtype'] = DTYPES[master_of(one, dtype, master_dtype)]
    else:
        fields['dtype'] = DTYPES[dtype or own]
        fields['master_dtype'] = DTYPES[master_of(one, dtype, master_dtype)]
        fields['gradient_dtype'] = DTYPES[gradient_dtype or dtype or own]
    fields.update(one.options)
    return fields


def tied_fields(described: list[Described], fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Other names of the same parameters, behind all: checkpoints may have a tied tensor under any of them."""
    shared = ('shape', 'unit', 'dtype', 'master_dtype', 'gradient_dtype')
    return [{'name': name, 'tied_to': one.name, **{field: own[field] for field in shared if field in own}}
            for one, own in zip(described, fields) for name in one.names[1:]]


def master_of(one: Described, dtype, master_dtype) -> torch.dtype:
    """At the owner. Frozen tensors have one copy, in dtype."""
    if not one.frozen:
        return master_dtype or torch.float32
    return dtype if dtype is not None and one.parameter.dtype.is_floating_point else one.parameter.dtype


def check_hooks(modules: list[tuple[str, nn.Module]]) -> None:
    """Torch's own that compute a weight before forward, which is before a unit is gathered, crash on empty shards."""
    for name, module in modules:
        for hook in module._forward_pre_hooks.values():
            if type(hook).__module__.startswith('torch.nn.utils.'):
                raise InvalidArgumentError(
                    f'{name or "the root"} ({type(module).__name__}) has {type(hook).__name__} of torch.nn.utils, '
                    'which reads weights before the unit is gathered: choose the module around it as unit, or use '
                    'torch.nn.utils.parametrize')


def check_slots(modules: list[tuple[str, nn.Module]], described: list[Described], release: str, slots: int,
                gradient_slots: int) -> None:
    """What could not run through a whole step is refused before anything is made."""
    if release not in ('free', 'pin', 'auto'):
        raise InvalidArgumentError(f'release is {release!r}; it is "free", "pin" or "auto"')
    trained = {one.unit for one in described if not one.frozen}
    outer = around(modules)
    depth = max((1 + len(trained & outer[index]) for index in trained), default=0)
    if gradient_slots < depth:
        raise InvalidArgumentError(f'gradient_slots={gradient_slots}, but {depth} units have gradients open at a time, '
                                   f'the root among them: pass at least {depth}')
    shared = {one.unit for one in described}.difference(*outer)
    if release == 'pin' and slots < len(shared):
        raise InvalidArgumentError(f'release=\'pin\' keeps all {len(shared)} units from forward to backward, but '
                                   f'slots={slots}: pass slots={len(shared)}, or release=\'auto\'')


def make_units(runtime: Runtime, plan: Plan, modules: list[tuple[str, nn.Module]], **options: Any) -> None:
    """The library's units, in the order of the plan. Those whose modules have others inside are held meanwhile, so they
    take no shared slot."""
    for index, (name, module) in enumerate(modules):
        runtime.units.append(ShardedUnit(runtime, index, name, module))
    outer = around(modules)
    for unit in runtime.units:
        unit.outer = {runtime.units[other] for other in outer[unit.index]}
        holds_others = unit is runtime.root or any(unit.index in others for others in outer)
        unit.unit = Unit(runtime.comm, plan, unit.index, own_slot=holds_others, **options)


def around(modules: list[tuple[str, nn.Module]]) -> list[set[int]]:
    """Of each unit the others whose modules are around its own: parts of names tell."""
    return [{other for other, (outer, _) in enumerate(modules)
             if other != index and (not outer or name.startswith(outer + '.'))}
            for index, (name, _) in enumerate(modules)]


def fill(model: ShardedModel, described: list[Described], seed: int, init) -> None:
    """The owners' parts from the module's own parameters; those on the meta device are drawn."""
    with torch.no_grad():
        for parameter, placement, memory in model.pieces():
            source = described[parameter.index].parameter
            if source.device.type != 'meta':
                begin = placement.element_offset
                memory.view(-1).copy_(source.detach().reshape(-1)[begin:begin + placement.element_count])
        materialise(model, described, seed, init)
    model.commit()


def make_shard(model: ShardedModel, parameter: ShardedParameter, master: torch.dtype) -> None:
    """What this rank owns of a tensor as one parameter, in place where its pieces lie side by side."""
    views = [parameter.unit.unit.shard(number) for number in parameter.placements]
    if not views:
        data = torch.empty(0, dtype=master)
    elif len(views) == 1:
        data = tensor_of(views[0])
    else:
        data = joined(views, parameter.shape)
        parameter.copied = data.data_ptr() != views[0].address
    parameter.shard = nn.Parameter(data, requires_grad=parameter.trained)
    parameter.shard._matrixshard = parameter
    if parameter.trained:
        parameter.shard.register_hook(refuse_gradient(parameter.name, model.comm.rank))


def refuse_gradient(name: str, rank: int) -> Callable[[torch.Tensor], None]:
    def refuse(_gradient: torch.Tensor) -> None:
        raise InvalidArgumentError(
            f'rank {rank}: the loss has a gradient for the shard of {name}, which was used outside of the forward of '
            'its unit: use parameters inside of forward, where they are whole', rank=rank)

    return refuse


def joined(views: list[Any], shape: torch.Size) -> torch.Tensor:
    """Several pieces as one tensor, of whole rows if they are: a view where no gaps part them, else a copy."""
    pieces = [tensor_of(view) for view in views]
    count, row = sum(one.numel() for one in pieces), shape[1:].numel()
    joined_shape = (count // row, *shape[1:]) if row and all(one.numel() % row == 0 for one in pieces) else (count,)
    if all(one.address + one.bytes == after.address for one, after in zip(views, views[1:])):
        return tensor_over(views, pieces[0].dtype).view(joined_shape)
    return torch.cat([one.reshape(-1) for one in pieces]).view(joined_shape)


def refuse_copies(_protocol: int) -> None:
    """Of copy.deepcopy and pickle, which find it at the instance."""
    raise TypeError('a sharded module belongs to this process and can be neither pickled nor copied: save '
                    'state_dict(model) or full_state_dict(model), copy the module before shard()')


def guard_casts(module: nn.Module) -> None:
    """module.half() and module.to(...) would part parameters from their units. What changes nothing may pass."""
    def apply(function, *arguments, **named):
        for parameter in module.parameters():
            probe = torch.empty(0, dtype=parameter.dtype)
            after = function(probe)
            if after.dtype != probe.dtype or after.device != probe.device:
                raise InvalidArgumentError(
                    f'a sharded module cannot be cast or moved (to {after.dtype} on {after.device}): pass dtype= and '
                    'master_dtype= to shard(), or call unshard() first')
        for holder in module.modules():
            for key, buffer in holder._buffers.items():
                if buffer is not None:
                    holder._buffers[key] = function(buffer)
        return module

    module._apply = apply  # type: ignore[method-assign]


def after_load(model: nn.Module) -> None:
    """torch's load_state_dict has written into shards, or (assign=True) put other parameters in their places."""
    made = sharded(model)
    with torch.no_grad():
        for parameter in made.parameters:
            for module, key in parameter.places:
                given = module._parameters[key]
                if given is not parameter.shard:
                    if given.shape != parameter.shard.shape:
                        parameter.place(parameter.shard)
                        raise InvalidArgumentError(f'{parameter.name} is {tuple(given.shape)}, but this rank has '
                                                   f'{tuple(parameter.shard.shape)} of it: see load_full_state_dict')
                    parameter.shard.copy_(given)
            parameter.place(parameter.shard)
    made.commit()


def commit(model: nn.Module) -> None:
    """After writing into parameters outside forward and backward: round this rank's masters into the units.

    Local; peers see it from their next gather. Since 0.1.
    """
    sharded(model).commit()


@contextlib.contextmanager
def no_sync(model: nn.Module) -> Iterator[None]:
    """Backwards inside add up in the parameters' own gradients, whole on each rank, and send nothing; the first
    backward outside sends the sum. Without it each backward adds to the owners' sums, which takes no memory.
    Since 0.1."""
    runtime = sharded(model).runtime
    before, runtime.accumulates = runtime.accumulates, True
    try:
        yield
    finally:
        runtime.accumulates = before


def unshard(model: nn.Module) -> nn.Module:
    """The plain module again, with whole parameters of its own, in dtype, on every rank. Collective. Since 0.1."""
    made = sharded(model)
    if made.optimizer is not None:
        raise InvalidArgumentError('the model has an optimizer: close it before unshard()')
    for unit in made.runtime.units:
        unit.take()
        copies = [nn.Parameter(one.whole.detach().clone(), requires_grad=one.trained) for one in unit.parameters]
        unit.give_back('free')
        for parameter, copy in zip(unit.parameters, copies):
            parameter.place(copy)
        unit.unwrap()
        del unit.module._apply
        object.__delattr__(unit.module, '__reduce_ex__')
        object.__delattr__(unit.module, '_matrixshard')
    made.remove_hook()
    made.close()
    return model
