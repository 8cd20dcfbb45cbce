# SPDX-License-Identifier: Apache-2.0
"""Optimizer: the local step of each owner (optimizer.h).

    optimizer = Optimizer(units, preset='moonlight', muon=dict(nesterov=True), adamw=dict(preset='torch-adamw'))
    verdict = optimizer.step([dict(lr=0.02, weight_decay=0.1), dict(lr=3e-4)], gradient_scale=1 / comm.rank_count)
    verdict.skipped, verdict.norm

A step is a transaction: gradients are checked and one norm is agreed on in one small all-reduce; only then state
changes, on the owners. A skipped step changes nothing on any rank. No matrix bytes move.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref, c_int64, c_void_p, pointer
from typing import Any, Literal, overload

from . import _declarations as c
from . import constants
from ._calls import LEGACY_STREAM, StreamLike, stream_of
from ._handles import Families, Handle, before_close
from ._library import lib
from ._options import group_array, rule_options
from ._structs import Items, info, int32, real, sequence, uint64
from .constants import Backend, Missing, Preset, Rounding
from .infos import KernelInfo, Memory, Recovery, StateInfo, Verdict
from .unit import Unit
from .views import View

__all__ = ['Optimizer']


class Optimizer(Handle):
    """The optimizer of some units (mxs_optimizer_create). Collective; takes its state's memory, which is zero.

    preset: of the rule muon, where `muon` is None. backend: of all rules that name none. thread_count: of this rank's
    kernels; None: the comm's. muon, shampoo, soap, adamw: options of the rules, as dicts with the names of
    mxs_muon_options and so on; muon's newton_schulz is a dict again. rounding, seed: of weights without an fp32
    master. backup: what each rank owns is kept on another rank, too, after each step, and recover() has it when a rank
    has died. All equal on all ranks.

    agree: sums 64-bit words over all ranks that step together, for units of several comms: it gets a list of some 200
    int and returns their sums, such as by Comm.sum_words of a comm of all ranks, 64 at a time. What it raises is raised
    by the call it came from. None: the units' comm.

    The units stay in it until it is closed. Raises MismatchError where ranks differ, NotBuiltError. Since 0.1.
    """

    _destroy_name = 'mxs_optimizer_destroy'

    def __init__(self, units: Iterable[Unit], *, preset: Preset | str | int | None = None,
                 backend: Backend | str | int | None = None, thread_count: int | None = None,
                 agree: Callable[[list[int]], Sequence[int]] | None = None, muon: Mapping | None = None,
                 shampoo: Mapping | None = None, soap: Mapping | None = None, adamw: Mapping | None = None,
                 rounding: Rounding | str | int | None = None, seed: int = 0, backup: bool = False):
        units = tuple(sequence(units, 'units'))
        for index, unit in enumerate(units):
            if not isinstance(unit, Unit):
                raise TypeError(f'units[{index}] is a {type(unit).__name__}, not a Unit')
        if not units:
            raise ValueError('an optimizer needs units: there are none')
        options = c.mxs_optimizer_options(preset=constants.number(Preset, preset),
                                          backend=constants.number(Backend, backend),
                                          rounding=constants.number(Rounding, rounding), seed=uint64(seed, 'seed'),
                                          backup=bool(backup))
        if thread_count is not None:
            options.thread_count = int32(thread_count, 'thread_count')
        for rule, given in (('muon', muon), ('shampoo', shampoo), ('soap', soap), ('adamw', adamw)):
            if given is not None:
                setattr(options, f'{rule}_options', pointer(rule_options(rule, given, f'Optimizer({rule}=...)')))
        families = list(dict.fromkeys(family for unit in units for family in _families_of(unit)))
        family = families[0] if len(families) == 1 else Families(families)
        function = None
        if agree is not None:
            kinds: dict[str, Any] = {field[0]: field[1] for field in c.mxs_optimizer_options._fields_}
            function = kinds['agree'](_agreement(agree, family))
            options.agree = function
        array = (c_void_p * len(units))(*(unit._pointer.value for unit in units))
        made = c_void_p()
        for look in before_close:  # one that is closed, whose arrays nobody holds any more, lets the units go
            look()
        family.call(lib.mxs_optimizer_create, byref(made), array, len(units), byref(options))
        self._own(made, family, units, (function,))
        self._units = units
        self._stream: int | None = None  # of a step that nobody has waited for: it orders what lies in state

    @property
    def units(self) -> tuple[Unit, ...]:
        return self._units

    def agree(self, groups: Iterable[Mapping] | Mapping, *, gradient_scale: float = 0.0, clip_norm: float = 0.0,
              missing: Missing | str | int | None = None, stream: StreamLike = None) -> Verdict:
        """Agree on norm, clip factor and found_inf before the step, which then uses it. Collective; see step().

        Since 0.1.
        """
        verdict = c.mxs_verdict()
        self._call(lib.mxs_optimizer_agree, byref(_step(groups, gradient_scale, clip_norm, missing, stream)),
                   byref(verdict))
        return info(verdict)

    @overload
    def step(self, groups: Iterable[Mapping] | Mapping, *, gradient_scale: float = 0.0, clip_norm: float = 0.0,
             missing: Missing | str | int | None = None, stream: StreamLike = None,
             verdict: Literal[True] = True) -> Verdict: ...

    @overload
    def step(self, groups: Iterable[Mapping] | Mapping, *, gradient_scale: float = 0.0, clip_norm: float = 0.0,
             missing: Missing | str | int | None = None, stream: StreamLike = None,
             verdict: bool) -> Verdict | None: ...

    def step(self, groups: Iterable[Mapping] | Mapping, *, gradient_scale: float = 0.0, clip_norm: float = 0.0,
             missing: Missing | str | int | None = None, stream: StreamLike = None,
             verdict: bool = True) -> Verdict | None:
        """Step what this rank owns and clear the gradient sums; agrees first if nobody did.

        groups: values by group number, equal on all ranks: dicts with lr, weight_decay, momentum, beta1, beta2,
        epsilon, or what group_values() gives; what is left out is as MXS_GROUP_VALUES_INIT has it (torch's). One alone
        will do. gradient_scale: such as 1 / rank_count; 0: 1. clip_norm: largest global norm; 0: don't clip. missing:
        'error' raises NotOpenError on all ranks if some rank has not given a gradient; 'zero' (also None) counts it as
        zero.

        stream: of units in CUDA memory (see Unit): it waits for the reduces, and weights change in its order. With a
        verdict the caller waits for the step. verdict=False: it returns None and, where NCCL joins all ranks of one
        comm without replicas, nothing waits for the device; verdict() asks later, and tells what it was refused for. A
        step that is captured in a CUDA graph is to be such a one; set_values() before each launch gives it its values.

        Returns the verdict (mxs_verdict): skipped, step_number, norm, clip_factor, found_inf_rank. Raises HeldError: a
        unit is gathered or a gradient is open; MismatchError: ranks give different values. Since 0.1.
        """
        given = _step(groups, gradient_scale, clip_norm, missing, stream)
        if not verdict:
            self._call(lib.mxs_optimizer_step, byref(given), None)
            self._stream = given.stream or LEGACY_STREAM
            return None
        found = c.mxs_verdict()
        self._call(lib.mxs_optimizer_step, byref(given), byref(found))
        self._stream = None
        return info(found)

    def set_values(self, groups: Iterable[Mapping] | Mapping, *, gradient_scale: float = 0.0, clip_norm: float = 0.0,
                   stream: StreamLike = None) -> None:
        """Values for steps that were captured in a CUDA graph, put on the stream; units in CUDA memory only. Since 0.1.
        """
        self._call(lib.mxs_optimizer_set_values, byref(_step(groups, gradient_scale, clip_norm, None, stream)))

    def verdict(self) -> Verdict:
        """The verdict of the latest step; in CUDA memory it waits for that step. Since 0.1."""
        found = self._query(lib.mxs_optimizer_verdict, c.mxs_verdict)
        self._stream = None
        return found

    def recover(self, failed: Optimizer) -> Recovery:
        """Take weights, masters, state and step number of an optimizer whose comm has failed, from the ranks that are
        alive and from the backups of those that are not (mxs_optimizer_recover). Collective over this one's comm, which
        is shrunk from the other's. Raises NotFoundError: a rank and its keeper are both gone. Since 0.1."""
        if not isinstance(failed, Optimizer):
            raise TypeError(f'failed is {failed!r}, not an Optimizer')
        found = c.mxs_recovery()
        with failed._lent() as other:
            self._call(lib.mxs_optimizer_recover, other, byref(found))
        return info(found)

    def clear(self) -> None:
        """Clear the gradient sums without a step. Local. Since 0.1."""
        self._call(lib.mxs_optimizer_clear)

    @property
    def step_number(self) -> int:
        """Steps done so far; set it to resume. Since 0.1."""
        return self._ask(lib.mxs_optimizer_step_number)

    @step_number.setter
    def step_number(self, step_number: int) -> None:
        self._call(lib.mxs_optimizer_set_step_number, uint64(step_number, 'step_number'))

    @property
    def state(self) -> Items[StateInfo]:
        """Pieces of state on this rank: tensor, placement, name ('momentum', 'exp_avg', ...), view. Writable between
        steps. Since 0.1."""
        return Items('Optimizer.state', lambda: self._ask(lib.mxs_optimizer_state_count), self._state)

    def _state(self, index: int) -> StateInfo:
        found = c.mxs_state_info()
        self._call(lib.mxs_optimizer_state, uint64(index, 'index'), byref(found))
        struct = c.mxs_view()
        ctypes.memmove(byref(struct), byref(found.view), ctypes.sizeof(struct))
        device = self._units[0]._device
        return info(found, view=View(struct, self._owned, False, device, None if device is None else self._stream))

    def kernel(self, placement: int) -> KernelInfo:
        """The kernels that a placement gets here: rule, backend, flops, product_dtype, failed_count. Since 0.1."""
        return self._query(lib.mxs_optimizer_kernel, c.mxs_kernel_info, uint64(placement, 'placement'))

    def memory(self) -> Memory:
        """State and workspace bytes of this rank; the other fields are 0. Since 0.1."""
        return self._query(lib.mxs_optimizer_memory, c.mxs_memory)

    def __repr__(self) -> str:
        if self.closed:
            return '<Optimizer: closed>'
        return f'<Optimizer: {len(self._units)} units, step {self.step_number}>'


def _step(groups, gradient_scale, clip_norm, missing, stream) -> c.mxs_step:
    values = group_array(groups)
    return c.mxs_step(groups=values, group_count=len(values), stream=stream_of(stream),
                      gradient_scale=real(gradient_scale, 'gradient_scale'), clip_norm=real(clip_norm, 'clip_norm'),
                      missing=constants.number(Missing, missing))


def _families_of(unit: Unit):
    family = unit._owned.family
    return family._families if isinstance(family, Families) else [family]


def _agreement(agree: Callable[[list[int]], Sequence[int]], family):
    """mxs_optimizer_options.agree. Exceptions don't cross C: the family keeps them for the call that they came from."""
    def run(_context, words, count) -> int:
        try:
            array = (c_int64 * count).from_address(words)
            sums = list(agree(list(array)))
            if len(sums) != count:
                raise ValueError(f'agree returned {len(sums)} sums of {count} words')
            array[:] = sums
            return 0
        except BaseException as error:  # pylint: disable=broad-except
            family.failure = error
            return -1
    return run
