# SPDX-License-Identifier: Apache-2.0
"""Collective: gather, reduce and reshard over any layout and memory, without units (collective.h).

    layout = Layout.even(bytes=4 * n, element_bytes=4, rank_count=comm.rank_count)
    with Collective(comm, 'reduce', layout, dtype='f32') as reduce:
        reduce.start(gradients, sums)
        reduce.wait()

               source                             target
      gather   packed, or None: in place          whole buffer
      reduce   whole buffer in dtype              packed, fp32
      reshard  packed by layout                   packed by target_layout

"Packed": this rank's segments, in order, without gaps. Buffers are numpy arrays, CPU tensors of torch, views or
buffers; a rank without bytes may pass None for a packed one. Sizes are looked at.

With memory='cuda' all buffers of a start are in memory of the comm's device: tensors of torch, arrays of cupy and
numba, views, and all else with DLPack or __cuda_array_interface__.
"""
from __future__ import annotations

import contextlib
from ctypes import byref, c_void_p
from typing import Any

from . import _declarations as c
from . import constants
from ._arrays import Array, ArrayLike, device_memory, in_cuda_memory, memory as memory_of, order_of
from ._calls import Begun, StreamLike, call_of, nanoseconds, stream_of
from ._handles import Handle
from ._library import check, encoded, lib
from ._structs import info, int32, uint64
from .comm import Comm
from .constants import CollectiveKind, Dtype, MemoryKind
from .infos import CollectiveInfo, Simulation
from .layout import Layout
from .topology import Topology

__all__ = ['Collective', 'gather', 'reduce', 'reshard', 'simulate']


@contextlib.contextmanager
def _options(kind: CollectiveKind | str | int, layout: Layout, target_layout: Layout | None = None, *,
             dtype: Dtype | str | int | None = None, rank_order: bool = False, accumulate: bool = False,
             mapped_memory: bool = False, algorithm: str | None = None, chunk_bytes: int | None = None,
             window: int | None = None, memory: MemoryKind | str | int | None = None):
    """mxs_collective_options, whose layouts stay until the end of `with`."""
    for name, given in (('layout', layout), ('target_layout', target_layout)):
        if not isinstance(given, Layout) and (name == 'layout' or given is not None):
            raise TypeError(f'{name} is {given!r}, not a Layout')
    options = c.mxs_collective_options(
        kind=constants.number(CollectiveKind, kind), algorithm=encoded(algorithm),
        memory=constants.number(MemoryKind, memory),
        flags=(c.MXS_RANK_ORDER if rank_order else 0) | (c.MXS_ACCUMULATE if accumulate else 0) |
              (c.MXS_MAPPED_MEMORY if mapped_memory else 0))
    if options.kind == c.MXS_REDUCE:
        options.dtype = c.MXS_F32 if dtype is None else constants.number(Dtype, dtype)
    if chunk_bytes is not None:
        options.chunk_bytes = uint64(chunk_bytes, 'chunk_bytes')
    if window is not None:
        options.window = int32(window, 'window')
    with contextlib.ExitStack() as stack:
        options.layout = stack.enter_context(layout._lent())
        if target_layout is not None:
            options.target_layout = stack.enter_context(target_layout._lent())
        yield options


class Collective(Handle):
    """A collective, started any number of times (mxs_collective_create). Creating it is collective itself.

    kind: 'gather', 'reduce' or 'reshard' (CollectiveKind). layout: of the whole buffer; reshard: of the source, and
    target_layout of the target. dtype: reduce: of the source, f32, bf16 or f16; None: f32. rank_order, accumulate,
    mapped_memory: MXS_RANK_ORDER, MXS_ACCUMULATE, MXS_MAPPED_MEMORY. algorithm, chunk_bytes, window: None: chosen.
    memory: 'cuda': all buffers are in memory of the comm's device; None: the host's.

    What start() was given is kept alive until it is complete. Raises MismatchError where ranks differ, NotFoundError.
    Since 0.1.
    """

    _destroy_name = 'mxs_collective_destroy'

    def __init__(self, comm: Comm, kind: CollectiveKind | str | int, layout: Layout,
                 target_layout: Layout | None = None, *, dtype: Dtype | str | int | None = None,
                 rank_order: bool = False, accumulate: bool = False, mapped_memory: bool = False,
                 algorithm: str | None = None, chunk_bytes: int | None = None, window: int | None = None,
                 memory: MemoryKind | str | int | None = None):
        family = comm._owned.family
        pointer = c_void_p()
        with _options(kind, layout, target_layout, dtype=dtype, rank_order=rank_order, accumulate=accumulate,
                      mapped_memory=mapped_memory, algorithm=algorithm, chunk_bytes=chunk_bytes,
                      window=window, memory=memory) as options:
            self._kind = constants.named(CollectiveKind, options.kind)
            family.call(lib.mxs_collective_create, byref(pointer), comm._pointer, byref(options))
            self._own(pointer, family, (comm,))
            self._sizes(comm.rank, layout, target_layout, options.dtype)
        self._dtype = options.dtype
        self._on_device = options.memory == c.MXS_CUDA
        self._comm = comm
        self._buffers: list[tuple[int, Array | None, Array | None]] = []  # of starts that may be in flight

    def _sizes(self, rank: int, layout: Layout, target_layout: Layout | None, dtype: int) -> None:
        """Bytes of source and target of a start on this rank."""
        owned = layout.owned_bytes(rank)
        if self._kind == c.MXS_GATHER:
            self._source_bytes, self._target_bytes = owned, layout.bytes
        elif self._kind == c.MXS_REDUCE:
            self._source_bytes = layout.bytes
            self._target_bytes = owned // lib.mxs_dtype_bytes(dtype) * 4
        else:
            assert target_layout is not None  # the library has refused a reshard without
            self._source_bytes, self._target_bytes = owned, target_layout.owned_bytes(rank)

    def start(self, source: ArrayLike, target: ArrayLike, *, timeout: float | None = None, priority: int = 0,
              stream: StreamLike = None) -> int:
        """Start it; doesn't wait. Returns the request, which Comm.test and Comm.wait take.

        Memory of Comm.allocate is reached by peers directly, any other goes in messages; all ranks pass the same kind.
        stream, of CUDA memory (see Unit): it begins after what that one has so far. None: the stream that the arrays
        say they are ordered on, if they say one, else the legacy default stream. Raises InvalidArgumentError: nothing
        was sent; HeldError: it is still in flight. Since 0.1.
        """
        handle = stream_of(stream)
        if self._on_device and stream is None:
            handle = order_of(source=source, target=target)
        in_place = source is None and self._kind == c.MXS_GATHER
        sources = self._memory(source, 'source', 0 if in_place else self._source_bytes, False, handle)
        targets = self._memory(target, 'target', self._target_bytes, self._target_bytes > 0, handle)
        if self._kind == c.MXS_REDUCE:
            self._check(sources, 'source', self._dtype)
            self._check(targets, 'target', c.MXS_F32)
        begun = Begun(timeout, priority, handle)
        self._call(lib.mxs_collective_start, sources and (sources.address or None),
                   targets and (targets.address or None), begun.call)
        # In CUDA memory earlier starts may be in flight. Also if this handle goes meanwhile.
        self._buffers = [one for one in self._buffers if not self._comm.test(one[0])] if self._on_device else []
        self._buffers.append((begun.request, sources, targets))
        self._owned._keep = (self._buffers,)
        return begun.request

    def _memory(self, given, name: str, least_bytes: int, writable: bool, stream: int | None) -> Array | None:
        if given is not None:
            if self._on_device:
                return device_memory(given, name, least_bytes, writable, stream)
            if in_cuda_memory(given):
                raise TypeError(f'{name} is a {type(given).__name__} in CUDA memory, but this collective is of host '
                                "memory: make it with memory='cuda'")
            return memory_of(given, name, least_bytes, writable)
        if least_bytes:
            raise ValueError(f'{name} is None, but this rank needs {least_bytes} bytes there')
        return None

    def _check(self, array: Array | None, name: str, dtype: int) -> None:
        """Bytes say nothing of what they are; everything else must be what is added."""
        wanted = str(constants.named(Dtype, dtype))
        if array is not None and array.kind not in ('u8', wanted) and not \
                (array.kind == 'words of 16 bits' and dtype in (c.MXS_BF16, c.MXS_F16)):
            raise TypeError(f'{name} is of {array.kind}; this reduce wants {wanted} there')

    def wait(self, *, timeout: float | None = None, stream: StreamLike = None) -> None:
        """Wait until its latest start is complete here. With a stream that one waits, for what it gets from here on;
        failures then show in later calls on the comm. Since 0.1."""
        handle = stream_of(stream)
        self._call(lib.mxs_collective_wait, call_of(timeout, stream=handle))
        if handle is None:
            self._buffers = []
            self._owned._keep = ()

    def describe(self) -> CollectiveInfo:
        """What was chosen, and what this rank will move (mxs_collective_info): algorithm, transports, bytes_out,
        bytes_in, message_count, chunk_bytes, scratch_bytes, bytes_in_least, predicted_ns, bound_ns, routes, reason,
        window. Since 0.1."""
        return self._query(lib.mxs_collective_describe, c.mxs_collective_info)

    def __repr__(self) -> str:
        return f'<Collective: {self._kind}{", closed" if self.closed else ", " + self.describe().algorithm}>'


def _once(comm: Comm, kind: str, layout: Layout, target_layout: Layout | None, source, target, timeout, stream,
          options):
    nanoseconds(timeout)
    stream_of(stream)
    with Collective(comm, kind, layout, target_layout, **options) as collective:
        collective.start(source, target, timeout=timeout, stream=stream)
        collective.wait(timeout=timeout)
    return target


def gather(comm: Comm, layout: Layout, source: ArrayLike, target: ArrayLike, *, timeout: float | None = None,
           stream: StreamLike = None, **options: Any) -> ArrayLike:
    """Owners' segments to all ranks, once: makes a Collective, starts it and waits until it is complete, also with a
    stream, which orders its beginning. options: as Collective's. Returns target. Since 0.1."""
    return _once(comm, 'gather', layout, None, source, target, timeout, stream, options)


def reduce(comm: Comm, layout: Layout, source: ArrayLike, target: ArrayLike, *, timeout: float | None = None,
           stream: StreamLike = None, **options: Any) -> ArrayLike:
    """Sums of all ranks' buffers to the owners, once. Returns target. Since 0.1."""
    return _once(comm, 'reduce', layout, None, source, target, timeout, stream, options)


def reshard(comm: Comm, layout: Layout, target_layout: Layout, source: ArrayLike, target: ArrayLike, *,
            timeout: float | None = None, stream: StreamLike = None, **options: Any) -> ArrayLike:
    """From one layout to another, once. Returns target. Since 0.1."""
    return _once(comm, 'reshard', layout, target_layout, source, target, timeout, stream, options)


def simulate(topology: Topology, kind: CollectiveKind | str | int, layout: Layout,
             target_layout: Layout | None = None, **options: Any) -> Simulation:
    """Run a collective in messages on a topology, without any network or other rank: the schedules of all ranks, event
    by event, with the topology's speeds. Equal arguments give equal results.

    topology: of as many ranks as the layout. options: as Collective's. Raises NotFoundError (no such algorithm),
    OverBudgetError (more than 20 million messages). Threads: any. Since 0.1.
    """
    if not isinstance(topology, Topology):
        raise TypeError(f'topology is {topology!r}, not a Topology')
    simulation = c.mxs_simulation()
    with topology._lent() as pointer, _options(kind, layout, target_layout, **options) as given:
        check(lib.mxs_simulate(pointer, byref(given), byref(simulation)))
    return info(simulation)
