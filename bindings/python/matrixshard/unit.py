# SPDX-License-Identifier: Apache-2.0
"""Unit: tensors that are gathered together, at addresses that never change (unit.h).

    unit = Unit(comm, plan, 0)
    unit.shard(p).numpy()[:] = ...; unit.commit(view)      the owner's own part
    with unit.whole():                                     gather, wait, ..., release
        w = unit.tensor(t).numpy()
    unit.gradient(t).numpy()[:] = ...; unit.reduce()       the sum goes to the owner

In CUDA memory (memory='cuda') calls put work on a stream, and nothing waits on the host:

    unit.gather(stream=side)                               what `side` has so far may still read the slot
    unit.wait(stream=main); torch.from_dlpack(unit.tensor(t)); ...; unit.release(stream=main)
    gradient = torch.from_dlpack(unit.gradient(t)); ...; unit.reduce(stream=main)

All ranks create the units of a plan in the same order with equal options, and call gather and reduce in the same order.
Calls on units of a comm may come from any thread; they take turns.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from ctypes import byref, c_void_p
from typing import Any

from . import _declarations as c
from . import constants
from ._arrays import ArrayLike, dense, device_memory, in_cuda_memory, memory as memory_of, order_of
from ._calls import LEGACY_STREAM, Begun, StreamLike, call_of, stream_of
from ._handles import Handle
from ._library import encoded, lib
from ._structs import int32, uint64
from .comm import Comm
from .constants import Dtype, Gather, MemoryKind, Retain
from .errors import ForkedError, HeldError
from .infos import Memory, UnitInfo
from .plan import Plan
from .views import View

__all__ = ['Unit']


class Unit(Handle):
    """One unit of a plan (mxs_unit_create). Collective: what is refused on one rank is refused on all.

    slots, gradient_slots: units of this plan and comm that may be whole, and whose gradients may be open or on their
    way, at a time; None: 2. gather: 'by-copy' or 'by-reference' (Gather). rank_order: sums in rank order, whatever the
    plan. algorithm: such as 'chain'; None: chosen. buffer: the unit's range in memory of the caller's, page-aligned,
    mxs_layout_bytes of its weights. replicas: the comm of ranks with this rank's place in other shard groups (HSDP);
    from then on calls on both take turns. own_slot: it takes no shared slot, for a unit that is held while others come
    and go. memory: 'cuda': everything that the unit has lies on the comm's device, views of it too, and so must the
    buffer. The plan may be closed afterwards.

    stream of its calls, in CUDA memory alone: torch.cuda.Stream, cupy.cuda.Stream, what has __cuda_stream__, or a
    handle as a number. The call's work is put on it, or begins after what it has so far; the caller doesn't wait. None,
    or a handle of 0: the legacy default stream orders what begins, and wait and release block the caller; 1 is the
    legacy default stream, too, but nothing blocks.

    Closing it is local; HeldError while it is gathered, open or in flight. While an optimizer or views of it are alive,
    it is put off. All ranks make and close the units of a plan in one order: close them, rather than leave them to the
    garbage collector, before others of the same plan are made. Since 0.1.
    """

    _destroy_name = 'mxs_unit_destroy'

    def __init__(self, comm: Comm, plan: Plan, index: int, *, gather: Gather | str | int | None = None,
                 slots: int | None = None, gradient_slots: int | None = None, rank_order: bool = False,
                 algorithm: str | None = None, buffer=None, replicas: Comm | None = None, own_slot: bool = False,
                 memory: MemoryKind | str | int | None = None):
        options = c.mxs_unit_options(gather=constants.number(Gather, gather), algorithm=encoded(algorithm),
                                     flags=c.MXS_RANK_ORDER if rank_order else 0, own_slot=int(own_slot),
                                     memory=constants.number(MemoryKind, memory))
        self._stream: int | None = None  # that waited for the weights last: gradients are opened on it
        if slots is not None:
            options.slots = int32(slots, 'slots')
        if gradient_slots is not None:
            options.gradient_slots = int32(gradient_slots, 'gradient_slots')
        keep: tuple = ()
        if buffer is not None:
            with plan.layout(index, 'weights') as layout:
                if options.memory == c.MXS_CUDA:
                    taken = device_memory(buffer, 'buffer', layout.bytes, True, order_of(buffer=buffer))
                else:
                    taken = memory_of(buffer, 'buffer', layout.bytes)
            options.buffer = taken.address
            keep = (taken,)
        parents: tuple[Handle, ...] = (comm,)
        family: Any = comm._owned.family  # a comm has one alone
        if replicas is not None:
            options.replicas = replicas._pointer
            parents = (comm, replicas)
            family.join(replicas._owned.family)
        pointer = c_void_p()
        with plan._lent() as plan_pointer:
            family.call(lib.mxs_unit_create, byref(pointer), comm._pointer, plan_pointer, int32(index, 'index'),
                        byref(options))
        self._own(pointer, family, parents, keep)
        self._comm = comm
        self._index = index
        self._device = comm.device if options.memory == c.MXS_CUDA else None

    def close(self) -> None:
        """See Handle.close. What is held is refused also where views would put it off: nobody could release it then.

        Since 0.1.
        """
        owned = getattr(self, '_owned', None)
        if owned is not None and owned.uses > 0 and not self.closed:
            with contextlib.suppress(ForkedError):
                info = self.info
                is_held = info.holders > 0 or info.gradients_state == c.MXS_OPEN
                if is_held and lib.mxs_comm_test(owned._parents[0].pointer, 0) == c.MXS_OK:  # what has failed is let go
                    raise HeldError(f'rank {owned.family.rank}, unit {self._index} is {info.weights_state}, with '
                                    f'{info.holders} gathers to release, and its gradients are {info.gradients_state}: '
                                    'release, reduce or discard before close', c.MXS_HELD, owned.family.rank)
        super().close()

    @property
    def comm(self) -> Comm:
        return self._comm

    @property
    def index(self) -> int:
        """Within the plan. Since 0.1."""
        return self._index

    @property
    def memory_kind(self) -> MemoryKind:
        """HOST or CUDA. Since 0.1."""
        return MemoryKind.HOST if self._device is None else MemoryKind.CUDA

    def _begin(self, function, timeout: float | None, priority: int, stream: StreamLike) -> int:
        begun = Begun(timeout, priority, stream)
        self._call(function, begun.call)
        return begun.request

    def _view(self, function, *arguments, readonly: bool = False, stream: int | None = None) -> View:
        struct = c.mxs_view()
        self._call(function, *arguments, byref(struct))
        return View(struct, self._owned, readonly, self._device, None if self._device is None else stream)

    # ---- weights ----

    def gather(self, *, timeout: float | None = None, priority: int = 0, stream: StreamLike = None) -> int:
        """Begin to bring the unit's weights here; pair it with one release. Doesn't wait. It begins when what `stream`
        has so far is over.

        Returns the request, which Comm.test and Comm.wait take; 0 by reference and where the weights are here already.
        Raises OverBudgetError on every rank if all slots are held. Since 0.1.
        """
        return self._begin(lib.mxs_unit_gather, timeout, priority, stream)

    def wait(self, *, timeout: float | None = None, stream: StreamLike = None) -> None:
        """Wait until the weights are whole here. With a stream that one waits, and the weights are for what it gets
        from here on; gradients are opened on it, too. Raises NotGatheredError. Since 0.1."""
        handle = stream_of(stream)
        self._call(lib.mxs_unit_wait, call_of(timeout, stream=handle))
        self._stream = handle

    def tensor(self, tensor: int) -> View:
        """The whole tensor, while the unit is whole; readonly. tensor: index within the plan.

        Raises NotGatheredError, or NotFoundError if it is not in this unit. Since 0.1.
        """
        return self._view(lib.mxs_unit_tensor, int32(tensor, 'tensor'), readonly=True, stream=self._stream)

    def release(self, mode: Retain | str | int | None = None, *, timeout: float | None = None,
                stream: StreamLike = None) -> None:
        """Give one gather back. mode, for the last holder: 'free' (also None), 'pin' or 'auto'. What `stream` has so
        far may read the weights; what comes later must not.

        A pinned unit that nobody holds is let go by 'free'. Raises NotGatheredError: one release too many. Since 0.1.
        """
        self._call(lib.mxs_unit_release, constants.number(Retain, mode), call_of(timeout, stream=stream))

    @contextlib.contextmanager
    def whole(self, mode: Retain | str | int | None = None, *, timeout: float | None = None,
              priority: int = 0, stream: StreamLike = None) -> Iterator[Unit]:
        """gather, wait, and at the end of the with block release(mode), all on one stream. Since 0.1."""
        self.gather(timeout=timeout, priority=priority, stream=stream)
        try:
            self.wait(timeout=timeout, stream=stream)
            yield self
        except BaseException:
            with contextlib.suppress(Exception):  # what happened first is what matters
                self.release(timeout=timeout, stream=stream)
            raise
        self.release(mode, timeout=timeout, stream=stream)

    # ---- gradients ----

    def gradient(self, tensor: int, add: bool = False) -> View:
        """Open the gradient of a tensor, in its gradient dtype.

        add: keep what is there, zero at the first opening since reduce; else contents are unspecified, and all of it is
        to be overwritten. Waits if its memory is still being reduced for another unit; in CUDA memory it is the stream
        of the latest wait() that waits, zeroes, and may write. Raises OverBudgetError if all gradient slots hold open
        gradients of other units, InvalidArgumentError if it is frozen. Since 0.1.
        """
        return self._view(lib.mxs_unit_gradient, int32(tensor, 'tensor'), c.MXS_ADD if add else c.MXS_WRITE,
                          stream=self._stream or LEGACY_STREAM)

    def gradient_set(self, tensor: int, array: ArrayLike, dtype: Dtype | str | int | None = None) -> None:
        """Copy a gradient from the caller's memory: an array, a CPU tensor of torch, a View, a buffer; contiguous.

        In CUDA memory arrays of the device are taken, too. The copy is put on the stream of the latest wait(): an array
        of the device must stay until that has got there, one of the host is free on return.

        dtype: where the array doesn't say it, as words of 16 bits don't ('bf16'). It and the bytes must be the
        tensor's. Since 0.1.
        """
        if in_cuda_memory(array):
            if self._device is None:
                raise TypeError(f'array is a {type(array).__name__} in CUDA memory, but this unit is in host memory: '
                                "make it with memory='cuda'")
            taken = device_memory(array, 'array', 0, False, self._stream)
        else:
            taken = dense(array, 'array', None)
        if dtype is None and taken.kind.upper() not in Dtype.__members__:
            raise TypeError(f'array is of {taken.kind}; say what that is: dtype=\'bf16\', or \'f16\'')
        number = constants.number(Dtype, taken.kind if dtype is None else dtype)
        if taken.kind not in ('words of 16 bits', str(constants.named(Dtype, number))):
            raise TypeError(f'array is of {taken.kind}, but dtype is {dtype!r}')
        view = c.mxs_view(data=taken.address or None, bytes=taken.bytes, dtype=number)
        self._call(lib.mxs_unit_gradient_set, int32(tensor, 'tensor'), byref(view))

    def reduce(self, *, timeout: float | None = None, priority: int = 0, stream: StreamLike = None) -> int:
        """Begin to add all ranks' open gradients to the owners' sums; closes them. Doesn't wait. Returns the request.
        It takes what `stream` has written so far.

        Raises NotOpenError: none is open; nothing was sent. Since 0.1.
        """
        return self._begin(lib.mxs_unit_reduce, timeout, priority, stream)

    def skip(self, *, timeout: float | None = None, priority: int = 0, stream: StreamLike = None) -> int:
        """Take part in a reduce with zeros: for a rank that did not use the unit. Returns the request.

        Raises HeldError: a gradient is open; reduce it. Since 0.1.
        """
        return self._begin(lib.mxs_unit_skip, timeout, priority, stream)

    def discard(self) -> None:
        """Close the open gradients without sending anything, as after an exception in backward. Local.

        Other ranks that have reduced the unit meanwhile wait for this one: give them again, skip, or Comm.abort.
        Since 0.1.
        """
        self._call(lib.mxs_unit_discard)

    def wait_reduce(self, *, timeout: float | None = None, stream: StreamLike = None) -> None:
        """Wait until the latest reduce is complete here; with a stream that one waits. Since 0.1."""
        self._call(lib.mxs_unit_wait_reduce, call_of(timeout, stream=stream))

    # ---- the owner's part ----

    def shard(self, placement: int) -> View:
        """The owner's own piece, in master dtype, writable while nobody holds the unit; empty if another rank owns it.

        placement: index within the plan. commit() what was written. In CUDA memory both wait for what the library has
        put on the device; what the caller's streams write must be over at commit. Raises HeldError: gathered or pinned
        here; NotFoundError: a placement of another unit. Since 0.1.
        """
        return self._view(lib.mxs_unit_shard, uint64(placement, 'placement'))

    def commit(self, view: View) -> None:
        """After writing into a shard: round it into the unit's dtype. Local; peers see it from their next gather.

        By reference a Comm.barrier belongs before it, if a peer may hold the unit. Raises StaleViewError: a step came
        between; HeldError. Since 0.1.
        """
        if not isinstance(view, View):
            raise TypeError(f'view is a {type(view).__name__}, not the View that shard() gave')
        self._call(lib.mxs_unit_commit, byref(view._struct))

    def shard_gradient(self, placement: int) -> View:
        """The owner's summed gradient, fp32, for outside optimizers; waits for the reduce. Empty if not owned here.

        Since 0.1.
        """
        return self._view(lib.mxs_unit_shard_gradient, uint64(placement, 'placement'))

    # ---- what it is ----

    @property
    def info(self) -> UnitInfo:
        """State (mxs_unit_info): weights_state, gradients_state, holders, gather, generation, address, bytes,
        gather_algorithm, reduce_algorithm, pages. Since 0.1."""
        return self._query(lib.mxs_unit_query, c.mxs_unit_info)

    def memory(self) -> Memory:
        """Bytes that this rank has for the unit, and for its pool's slots (mxs_memory). Since 0.1."""
        return self._query(lib.mxs_unit_memory, c.mxs_memory)

    def __repr__(self) -> str:
        if self.closed:
            return f'<Unit {self._index}: closed>'
        info = self.info
        return (f'<Unit {self._index}: {info.bytes} bytes, {info.weights_state}, gradients {info.gradients_state}, '
                f'generation {info.generation}>')
