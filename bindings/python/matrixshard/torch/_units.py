# SPDX-License-Identifier: Apache-2.0
"""When a unit is gathered, released and reduced: forward and backward of a sharded module.

    forward    enter: gather, wait, whole parameters go into the modules, the next unit's gather begins
               leave: shards come back, release
    backward   the gradient of a unit's output arrives (before_backward): gather, wait, whole parameters go in, the
               gather of the unit before begins. A parameter's gradient is copied into the unit as it comes (receive).
               Passed: reduce, release.

When is a unit's backward over? Autograd runs what is ready in the order of creation, the newest first, and gives
parameters their gradients at once. So when the gradient of some output arrives, all that was computed after that output
is done: each unit whose forward began after it is passed. What nothing passes (the first unit, the root) is finished by
the callback at the end of backward. No inputs are wrapped, so modules may write into them.

What autograd has saved of a whole parameter may be read only while its unit is whole. Parameters' versions say so: they
are odd while the unit is released, and each step begins new ones (ShardedParameter.version). So autograd itself refuses
a graph that goes on where no hook of ours has seen it begin, where it would read another unit's bytes.

Everything here happens on all ranks in the same order, if their programs do the same; a rank whose module was not used,
or got no gradient, takes part with zeros, and the optimizer's agreement tells (mxs_step.missing).
"""
from __future__ import annotations

import dataclasses
import inspect
import itertools
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.autograd import Variable

from ..errors import InvalidArgumentError, MatrixShardError, NotBuiltError, OverBudgetError
from ._memory import tensor_of

try:  # what torch.compile leaves alone, with all that it calls; as torch.compiler.disable, imported at the first call
    from torch._compile import _disable_dynamo as untraced
except ImportError:
    def untraced(function):  # type: ignore[misc]
        return function

set_versions = getattr(torch._C._autograd, '_unsafe_set_version_counter', None)  # PyTorch 2.1
takes_many = set_versions is not None and 'Sequence' in (set_versions.__doc__ or '')
# PyTorch 1.13 keeps hooks in one dict per tensor, also where a tensor that was written in place has another node.
keeps_hooks_of_node = not hasattr(getattr(torch.autograd.graph, 'Node', None), 'register_prehook')

if TYPE_CHECKING:
    from .. import Comm, Unit


class ShardedParameter:
    """A tensor of the plan, as two parameters: `shard` outside forward and backward, `whole` inside.

    shard   what this rank owns, in master dtype: the matrix, rows of it, a flat share, or nothing: shape (0,)
    whole   the tensor at its fixed address in the unit, in dtype; made at the first gather
    """

    def __init__(self, names: list[str], index: int, unit: ShardedUnit, places: list[tuple[nn.Module, str]],
                 shape: torch.Size, trained: bool):
        self.name, self.names = names[0], names  # several where it is tied
        self.index = index
        self.unit = unit
        self.places = places
        self.shape = shape
        self.trained = trained
        self.placements: list[int] = []  # that this rank owns, within the plan
        self.shard: nn.Parameter = None  # type: ignore[assignment]
        self.copied = False              # pieces do not lie side by side: the shard is a copy of them
        self.whole: Any = None  # an nn.Parameter, once the unit was whole
        self._node: Any = None  # autograd holds it weakly
        self._targets: dict[int, torch.Tensor] = {}

    def place(self, parameter: nn.Parameter) -> None:
        for module, key in self.places:
            module._parameters[key] = parameter

    def make_whole(self) -> None:
        """Once the unit is whole for the first time: its address never changes."""
        with torch.inference_mode(False), torch.enable_grad():
            self.whole = nn.Parameter(tensor_of(self.unit.unit.tensor(self.index)), requires_grad=self.trained)
            if self.trained:
                self._node = self.whole.expand_as(self.whole).grad_fn.next_functions[0][0]
                unit, parameter = self.unit, weakref.ref(self)
                self._node.register_hook(lambda *_: unit.receive(parameter()))

    def version(self, number: int) -> None:
        """What autograd compares with the version that it saved."""
        if set_versions is not None and self.whole is not None:
            set_versions((self.whole,), (number,)) if takes_many else set_versions(self.whole, number)

    def outdate(self) -> None:
        """Weights change: a graph that has saved the old ones is not to be run."""
        if set_versions is None and self.whole is not None:
            with torch.no_grad():
                self.whole.detach().view(-1)[:0].zero_()

    def target(self, add: bool) -> torch.Tensor:
        """The open gradient."""
        view = self.unit.unit.gradient(self.index, add=add)
        address = view.address
        if address not in self._targets:
            self._targets[address] = tensor_of(view)
        return self._targets[address]


class Call:
    """One forward of a unit that autograd has recorded. The graph holds it, so it goes with the graph."""
    __slots__ = ('begin', 'end', '__weakref__')

    def __init__(self, begin: int):
        self.begin = begin
        self.end = 0


class ShardedUnit:
    """A unit, the module whose forward gathers it, and where it stands in forward and backward."""

    def __init__(self, runtime: Runtime, index: int, name: str, module: nn.Module):
        self.runtime = runtime
        self.index = index
        self.name = name
        self.module = module
        self.unit: Unit = None  # type: ignore[assignment]
        self.parameters: list[ShardedParameter] = []
        self.outer: set[ShardedUnit] = set()  # units whose modules are around this one's
        self.is_shared = True                 # takes a slot in turns with others
        self._users = 0                       # forwards and backwards that want whole parameters in the modules
        self._prefetched = False
        self._held = False                    # gathered for backward
        self._calls: weakref.WeakSet[Call] = weakref.WeakSet()
        self._active: set[Call] = set()       # that backward has begun with
        self._begin = 0                       # of the newest of them
        self._arrived: set[int] = set()       # tensors that have got a gradient in this backward
        self._opened: set[int] = set()        # since the last reduce
        self._due = False                     # backward has been here, and nothing was reduced yet

    # ---- forward ----

    def wrap(self) -> None:
        """From now on the module's forward gathers and releases."""
        original = self.module.forward

        def forward(*arguments, **named):
            call = self.enter()
            try:
                arguments, named = self.runtime.cast(self, arguments, named)
                output = original(*arguments, **named)
            except BaseException:
                self.leave_after_failure()
                raise
            self.leave(call, output)
            return output

        forward.__wrapped__ = original  # type: ignore[attr-defined]
        self.module.forward = forward

    def unwrap(self) -> None:
        del self.module.forward

    @untraced
    def enter(self) -> Call:
        runtime = self.runtime
        runtime.notice_failed_backward()
        self.check_parameters()
        if runtime.in_backward:  # recomputation: whatever has all its gradients is done
            runtime.finish_complete(self)
        call = Call(next(runtime.clock))
        self.take()
        if not runtime.in_backward:
            runtime.forward_enters(self)
        return call

    @untraced
    def leave(self, call: Call, output: Any) -> None:
        call.end = next(self.runtime.clock)
        try:
            self.watch(call, output)
        except BaseException:
            self.leave_after_failure()
            raise
        # Reentrant checkpointing goes on with this very unit: its bytes stay.
        self.give_back('pin' if self.runtime.in_backward else self.runtime.release_mode)
        self.runtime.forward_leaves(self)

    def watch(self, call: Call, output: Any) -> None:
        """Whichever gradient of an output comes first begins this unit's backward."""
        if inspect.isgenerator(output) or inspect.iscoroutine(output):
            raise InvalidArgumentError(f'{self.shown}: forward gave a {type(output).__name__}, which would run after '
                                       'the unit is released: return tensors, or choose the module around it as unit')
        for tensor in tensors_in(output) if torch.is_grad_enabled() else ():
            if tensor.requires_grad:
                if keeps_hooks_of_node and tensor._backward_hooks is not None:
                    tensor._backward_hooks = None  # stay with the node that they are of
                tensor.register_hook(lambda _, unit=self, call=call: unit.before_backward(call))
                self._calls.add(call)

    @property
    def shown(self) -> str:
        return f'rank {self.runtime.comm.rank}, unit {self.index} ({self.name or "the root"})'

    def check_parameters(self) -> None:
        """As shard() and the latest forward have left them."""
        for one in self.parameters:
            if self._users == 0 and any(module._parameters.get(key) is not one.shard for module, key in one.places):
                raise InvalidArgumentError(
                    f'{one.name} was replaced after shard(), by an assignment or functional_call, which would have no '
                    'effect: write into parameters and call commit(model), or unshard() first')
            if one.shard.requires_grad is not one.trained:
                raise InvalidArgumentError(
                    f'{one.name}: requires_grad was set to {one.shard.requires_grad} after shard(), which planned with '
                    f'{one.trained}: set it before shard(), or unshard() and shard() again')

    @untraced
    def leave_after_failure(self) -> None:
        """What happened first is what the caller must see; a comm that has failed says so at the next call."""
        try:
            self.give_back('free')
            self.runtime.forward_leaves(self, failed=True)
        except MatrixShardError:
            pass

    def take(self) -> None:
        """Gathers, waits, and puts the whole parameters into the modules."""
        if not self._prefetched:
            try:
                self.unit.gather()
            except OverBudgetError:  # what was guessed to come next takes a slot that is wanted now
                if not self.runtime.drop_prefetches():
                    raise
                self.unit.gather()
        self._prefetched = False
        try:
            self.unit.wait()
            if self._users == 0:
                for parameter in self.parameters:
                    if parameter.whole is None:
                        parameter.make_whole()
                    parameter.place(parameter.whole)
                    parameter.version(2 * self.runtime.generation)
        except BaseException:
            self.release_quietly()
            raise
        self._users += 1

    def give_back(self, mode: str) -> None:
        self._users -= 1
        if self._users == 0:
            for parameter in self.parameters:
                parameter.place(parameter.shard)
                parameter.version(2 * self.runtime.generation + 1)
        self.unit.release(mode)

    def release_quietly(self) -> None:
        try:
            self.unit.release('free')
        except MatrixShardError:
            pass

    def prefetch(self) -> None:
        """Begins to gather, if a slot is free: that is so on all ranks or on none."""
        if self._prefetched or self._users > 0:
            return
        try:
            self.unit.gather()
            self._prefetched = True
        except OverBudgetError:
            pass

    def drop_prefetch(self) -> bool:
        dropped, self._prefetched = self._prefetched, False
        if dropped:
            self.unit.release('free')
        return dropped

    # ---- backward ----

    @untraced
    def before_backward(self, call: Call) -> None:
        """The gradient of an output of this call is there."""
        runtime = self.runtime
        if torch.is_grad_enabled():
            raise NotBuiltError(f'{self.shown}: create_graph=True: this release cannot run backward through backward '
                                'of a sharded module; inside the forward of one unit it may be')
        runtime.backward_begins()
        runtime.pass_units(call.end, self)
        self._active.add(call)
        self._begin = max(self._begin, call.begin)
        self._due = True
        if not self._held:
            self.take()
            self._held = True
            runtime.prefetch_before(self)

    def passed(self, end: int) -> bool:
        """Backward has come to what was computed before clock `end`. True if that ends this unit's calls."""
        done = {call for call in self._active if call.begin > end}
        self._active -= done
        self._calls -= done
        return bool(done) and not self._active

    @property
    def is_active(self) -> bool:
        return bool(self._active) or self._due

    @property
    def has_all(self) -> bool:
        """All its gradients have come in this backward."""
        return self._due and all(one.index in self._arrived for one in self.parameters if one.trained)

    @property
    def has_other_calls(self) -> bool:
        """Calls that backward has not reached may still bring gradients: of this graph, or of another."""
        return len(self._calls) > len(self._active)

    def end_weights(self) -> None:
        if self._held:
            self._held = False
            self.give_back('free')

    @untraced
    def receive(self, parameter: ShardedParameter | None) -> None:
        """Autograd has left a gradient in parameter.whole.grad."""
        if parameter is None or parameter.whole is None or parameter.whole.grad is None:
            return
        if not self._held and self._users == 0:
            parameter.whole.grad = None
            raise InvalidArgumentError(
                f'{self.shown}: a gradient of {parameter.name} came before one of an output of its forward, so that '
                'weights were not there: return what the loss needs as tensors, in tuples, lists, dicts or dataclasses')
        self._arrived.add(parameter.index)
        self._due = True
        self.runtime.backward_begins()
        self.runtime.received = True
        if self.runtime.accumulates:  # no_sync: it stays there, and grows
            return
        self.copy_gradient(parameter)

    def copy_gradient(self, parameter: ShardedParameter) -> None:
        gradient = parameter.whole.grad
        parameter.whole.grad = None
        first = parameter.index not in self._opened
        try:
            target = parameter.target(add=not first)
        except OverBudgetError:
            # A unit before waits for a gradient that does not come. It would be reduced at the end of backward.
            if not self.runtime.finish_oldest(self):
                raise
            target = parameter.target(add=not first)
        self._opened.add(parameter.index)
        with torch.no_grad():
            if gradient.layout is not torch.strided:
                gradient = gradient.to_dense()
            if first:
                target.copy_(gradient)
            else:
                target.add_(gradient)

    def finish(self) -> None:
        """Backward is through with this unit: its gradients go to their owners, its weights are released."""
        self._calls -= self._active
        self._active.clear()
        self._begin = 0
        if self._due and not self.runtime.accumulates:
            for parameter in self.parameters:
                if parameter.whole is not None and parameter.whole.grad is not None:
                    self.copy_gradient(parameter)
            if self._opened:
                self.unit.reduce()
                self._opened.clear()
            elif self.runtime.received and any(one.trained for one in self.parameters):
                self.unit.skip()
        self._due = False
        self.end_weights()

    def end_backward(self) -> None:
        self._arrived.clear()

    def recover(self) -> None:
        """After a backward that raised: nothing held, nothing open."""
        self._active.clear()
        self._calls.clear()
        self._arrived.clear()
        self._opened.clear()
        self._begin, self._due = 0, False
        for parameter in self.parameters:
            if parameter.whole is not None:
                parameter.whole.grad = None
        self.unit.discard()
        self.drop_prefetch()
        while self._users > 0:
            self.give_back('free')
        self._held = False
        self.release_quietly()  # a pin


class Runtime:
    """What the units of one model share."""

    def __init__(self, comm: Comm, release_mode: str, dtype: torch.dtype | None):
        self.comm = comm
        self.units: list[ShardedUnit] = []
        self.release_mode = release_mode
        self.clock: Iterator[int] = itertools.count(1)
        self.in_backward = False
        self.accumulates = False       # no_sync
        self.received = False          # some gradient, in this backward
        self.generation = 0            # of weights
        self._dtype = dtype            # floating-point inputs of the root are cast to it
        self._order: list[ShardedUnit] = []     # of the latest whole forward
        self._entered: list[ShardedUnit] = []   # in this one
        self._root_calls = 0

    @property
    def root(self) -> ShardedUnit:
        return self.units[-1]

    def outdate(self) -> None:
        """Owners have changed weights."""
        self.generation += 1
        for unit in self.units:
            for parameter in unit.parameters:
                parameter.outdate()

    def cast(self, unit: ShardedUnit, arguments: tuple, named: dict) -> tuple[tuple, dict]:
        if self._dtype is None or unit is not self.root:
            return arguments, named

        def one(value):
            return value.to(self._dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

        return tuple(map(one, arguments)), {name: one(value) for name, value in named.items()}

    # ---- forward ----

    def forward_enters(self, unit: ShardedUnit) -> None:
        if unit is self.root:
            self._root_calls += 1
            if self._root_calls == 1:
                self.comm.phase('forward')
                self._entered = []
            return
        place = len(self._entered)
        self._entered.append(unit)
        if place + 1 < len(self._order) and self._order[place] is unit:
            self._order[place + 1].prefetch()

    def forward_leaves(self, unit: ShardedUnit, failed: bool = False) -> None:
        if unit is not self.root or self.in_backward:
            return
        self._root_calls -= 1
        if self._root_calls > 0:
            return
        if not failed:
            self._order = self._entered
        self._entered = []
        self.drop_prefetches()
        self.comm.phase('other')

    def drop_prefetches(self) -> bool:
        """Lets go of units that were gathered for what has not come. True if there were some."""
        return any([unit.drop_prefetch() for unit in self.units])

    # ---- backward ----

    def backward_begins(self) -> None:
        if self.in_backward:
            return
        Variable._execution_engine.queue_callback(self.backward_ends)
        self.in_backward = True
        self.comm.phase('backward')

    def pass_units(self, end: int, around: ShardedUnit) -> None:
        """Units whose calls all began after `end` are through. The latest first, on all ranks alike."""
        for unit in self._latest_first():
            if unit is around and unit._held:
                continue
            if not unit.passed(end):
                continue
            if unit.has_all or not unit.has_other_calls:
                unit.finish()
            else:
                unit.end_weights()

    def finish_complete(self, entering: ShardedUnit) -> None:
        for unit in self._latest_first():
            if unit is not entering and unit not in entering.outer and unit.has_all:
                unit.finish()

    def finish_oldest(self, wanting: ShardedUnit) -> bool:
        """Ends the unit that began its backward first, of those that have gradients open. False: there is none."""
        for unit in self._latest_first():
            if unit is not wanting and unit not in wanting.outer and unit._opened:
                unit.finish()
                return True
        return False

    def _latest_first(self) -> list[ShardedUnit]:
        return sorted((unit for unit in self.units if unit.is_active), key=lambda unit: -unit._begin)

    def prefetch_before(self, unit: ShardedUnit) -> None:
        place = self._order.index(unit) if unit in self._order else len(self._order) if unit is self.root else 0
        if place > 0:
            self._order[place - 1].prefetch()

    def backward_ends(self) -> None:
        """Autograd's callback: all gradients have come."""
        for unit in self._latest_first():
            unit.finish()
        for unit in self.units:
            unit.end_backward()
        self.drop_prefetches()
        self.in_backward = False
        self.received = False
        self.comm.phase('other')

    def notice_failed_backward(self) -> None:
        """A backward that raised leaves no callback: whoever comes next from outside of one cleans up."""
        if not self.in_backward or inside_backward():
            return
        self.in_backward = False
        self.received = False
        self._root_calls = 0
        for unit in self.units:
            unit.recover()
        self.comm.phase('other')


def inside_backward() -> bool:
    """Is autograd running on this thread? It takes callbacks only then; no version has another way to ask."""
    try:
        Variable._execution_engine.queue_callback(lambda: None)
        return True
    except RuntimeError:
        return False


def tensors_in(value: Any, depth: int = 3) -> Iterator[torch.Tensor]:
    """All tensors of a module's output; also in attributes of plain objects, some levels deep."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name, None))
    elif isinstance(value, (set, frozenset)):
        yield from tensors_in(list(value))
    elif depth > 0 and hasattr(value, '__dict__') and not isinstance(value, (type, nn.Module)) and not callable(value):
        for one in list(vars(value).values()):
            yield from tensors_in(one, depth - 1)
