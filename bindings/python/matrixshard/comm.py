# SPDX-License-Identifier: Apache-2.0
"""Comm: the ranks of a job, and the transports between them (comm.h).

    with Comm() as comm:                     # torchrun, srun, mpirun, mxs run
        comm.sum([loss])[0] / comm.rank_count

Calls on a comm and on what is made from it (units, collectives, optimizers) may come from any thread; they take turns.
test, wait, abort and stats come in between at any time: another thread may abort what this one waits for. Waiting
releases the interpreter's lock; Ctrl-C is seen when the call returns, at the latest after `timeout`.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from ctypes import byref, c_int32, c_void_p
from typing import Any, NamedTuple

from . import _declarations as c
from . import constants
from ._calls import call_of, nanoseconds
from ._handles import Family, Handle, Owned
from ._library import check, encoded, lib
from ._structs import info, int32, integers, reals, uint64
from .constants import MemoryKind, Phase, Progress
from .errors import InvalidArgumentError
from .infos import CommInfo
from .topology import Topology
from .views import View

__all__ = ['Bootstrap', 'Comm']


class Counter(NamedTuple):
    """mxs_counter: calls that began, bytes, and nanoseconds that were waited. Since 0.1."""
    calls: int
    bytes_out: int
    bytes_in: int
    wait_ns: int


class Phases(NamedTuple):
    """A Counter for each phase of a training step, as Comm.phase() says. Since 0.1."""
    other: Counter
    forward: Counter
    backward: Counter
    step: Counter


class CommStats(NamedTuple):
    """mxs_comm_stats: Phases by kind of collective, and how often a unit was mapped onto another slot. Since 0.1."""
    gather: Phases
    reduce: Phases
    reshard: Phases
    agree: Phases
    slot_remaps: int


class Bootstrap:
    """Ranks of a framework that has them already, by an all-gather of its own.

    all_gather(blob) gives the blobs of all ranks, in rank order: bytes one after the other, a sequence of them, or
    an object with done() and result(), such as a concurrent.futures.Future, by which deadlines are kept while ranks are
    late. It is called inside Comm and other creating calls only; what it raises is raised by these. Since 0.1.
    """

    def __init__(self, rank: int, rank_count: int, all_gather: Callable[[bytes], Any]):
        self.rank = rank
        self.rank_count = rank_count
        self.all_gather = all_gather
        self.failure: BaseException | None = None
        self._pending: dict[int, tuple[Any, int, int]] = {}
        fields: dict[str, Any] = {field[0]: field[1] for field in c.mxs_bootstrap._fields_}
        self._functions = (fields['all_gather'](self._start), fields['test'](self._test),
                           fields['free_request'](self._free))
        self.struct = c.mxs_bootstrap(rank=int32(rank, 'rank'), rank_count=int32(rank_count, 'rank_count'),
                                      all_gather=self._functions[0], test=self._functions[1],
                                      free_request=self._functions[2])

    def _start(self, _context, source, target, size, request) -> int:
        try:
            pending = self.all_gather(ctypes.string_at(source, size))
            number = max(self._pending, default=0) + 1
            self._pending[number] = (pending, target, size)
            request[0] = number
            return 0
        except BaseException as error:  # pylint: disable=broad-except
            return self._failed(error)

    def _test(self, _context, request) -> int:
        try:
            pending, target, size = self._pending[request]
            if hasattr(pending, 'done') and hasattr(pending, 'result'):
                if not pending.done():
                    return 1
                pending = pending.result()
            blobs = bytes(pending) if isinstance(pending, (bytes, bytearray, memoryview)) else \
                b''.join(bytes(blob) for blob in pending)
            if len(blobs) != size * self.rank_count:
                raise ValueError(f'all_gather gave {len(blobs)} bytes for {self.rank_count} ranks of {size}')
            ctypes.memmove(target, blobs, len(blobs))
            return 0
        except BaseException as error:  # pylint: disable=broad-except
            return self._failed(error)

    def _free(self, _context, request) -> int:
        self._pending.pop(request, None)
        return 0

    def _failed(self, error: BaseException) -> int:
        self.failure = error
        return -1


class _BootstrapFamily(Family):
    """Raises what a bootstrap's callback has raised."""

    def __init__(self, bootstrap):
        self._bootstrap = bootstrap
        super().__init__()

    @property
    def failure(self) -> BaseException | None:
        return getattr(self._bootstrap, 'failure', None)

    @failure.setter
    def failure(self, failure: BaseException | None) -> None:
        if hasattr(self._bootstrap, 'failure'):
            self._bootstrap.failure = failure


class Comm(Handle):
    """Join the ranks (mxs_comm_create). Collective: returns when all have come.

    thread_count: threads for the library's own work; None: cores / local ranks. transport: 'loopback', 'shm', 'ucx';
    None: MXS_TRANSPORT, else chosen per pair. timeout: seconds of everything that waits; None: MXS_TIMEOUT, else 300.
    progress: 'manual' or 'thread' (Progress); None: MXS_PROGRESS. bootstrap: a Bootstrap, or anything else with an
    mxs_bootstrap as its `struct`; None: the environment. device: index of the GPU of this rank's CUDA memory; None:
    that of the CUDA context that is current when CUDA memory is first used, else by the local rank. nccl_comm: an
    ncclComm_t of the caller's with these ranks in this order, as an address or an object with it as `ptr`, which
    carries CUDA memory and must outlive the comm; None: one of the comm's own. secret: of the job, at least 16
    characters, equal on all ranks, so that nobody else gets in; None: MXS_SECRET or MXS_SECRET_FILE.

    As a context manager it is closed at the end; if an exception leaves the block, it is aborted, so that the other
    ranks don't wait for this one. Raises EnvironmentVariableError, TimedOutError, MismatchError, NotBuiltError, ...
    Since 0.1.
    """

    _destroy_name = 'mxs_comm_destroy'

    def __init__(self, *, thread_count: int | None = None, transport: str | None = None, timeout: float | None = None,
                 progress: Progress | str | int | None = None, bootstrap: Bootstrap | None = None,
                 device: int | None = None, nccl_comm=None, secret: str | None = None):
        options = _options(thread_count, transport, timeout, progress, device, nccl_comm, secret)
        family = Family()
        if bootstrap is not None:
            struct = bootstrap if isinstance(bootstrap, c.mxs_bootstrap) else getattr(bootstrap, 'struct', None)
            if not isinstance(struct, c.mxs_bootstrap):
                raise TypeError(f'bootstrap is {bootstrap!r}, not a Bootstrap')
            options.bootstrap = ctypes.pointer(struct)
            family = _BootstrapFamily(bootstrap)
        pointer = c_void_p()
        family.call(lib.mxs_comm_create, byref(pointer), byref(options))
        self._begin(pointer, family, (bootstrap, nccl_comm))

    def _begin(self, pointer: c_void_p, family: Family, keep: tuple) -> None:
        self._own(pointer, family, (), keep)
        self._info = self._query_info()
        family.rank = self._info.rank
        self._phase = Phase.OTHER

    def _query_info(self) -> CommInfo:
        found = c.mxs_comm_info()
        check(lib.mxs_comm_query(self._pointer, byref(found)))
        return info(found, device=found.device - 1 if found.device else None)

    @property
    def info(self) -> CommInfo:
        """What the comm turned out to be (mxs_comm_info): a named tuple; also after close. Since 0.1."""
        if self._info.device is None and not self.closed:  # all else is known from the beginning
            owned = self._owned
            owned.hold()
            try:
                self._info = self._query_info()
            finally:
                owned.release()
        return self._info

    @property
    def device(self) -> int | None:
        """Index of the GPU of this rank's CUDA memory; None: CUDA memory has not been used yet. Since 0.1."""
        return self.info.device

    @property
    def cuda(self) -> str:
        """How CUDA memory goes: 'nccl 2.30.4', 'staged over shm', ...; '' before it is used. Since 0.1."""
        return self.info.cuda

    @property
    def rank(self) -> int:
        return self._info.rank

    @property
    def rank_count(self) -> int:
        return self._info.rank_count

    @property
    def node(self) -> int:
        return self._info.node

    @property
    def node_count(self) -> int:
        return self._info.node_count

    @property
    def local_rank(self) -> int:
        return self._info.local_rank

    @property
    def local_rank_count(self) -> int:
        return self._info.local_rank_count

    @property
    def thread_count(self) -> int:
        return self._info.thread_count

    @property
    def timeout(self) -> float:
        """Seconds. Since 0.1."""
        return self._info.timeout_ns / 1e9

    @property
    def transports(self) -> str:
        """'shm', 'shm ucx', 'none' for one rank, ... Since 0.1."""
        return self._info.transports

    @property
    def bootstrap(self) -> str:
        """'torchrun', 'slurm', 'openmpi' or 'callbacks'. Since 0.1."""
        return self._info.bootstrap

    @property
    def progress(self) -> Progress:
        return self._info.progress

    def topology(self) -> Topology:
        """Of the comm's ranks, equal on all. Since 0.1."""
        pointer = c_void_p()
        self._call(lib.mxs_comm_topology, byref(pointer))
        return Topology._from(pointer)

    def split(self, color: int | None, key: int = 0, *, thread_count: int | None = None, transport: str | None = None,
              timeout: float | None = None, progress: Progress | str | int | None = None, device: int | None = None,
              nccl_comm=None) -> Comm | None:
        """A comm of the ranks that give the same color, ordered by key, then by rank; None for color None.

        Collective over this comm. The new one is a family of its own and may outlive this one. What is None is as here.
        Since 0.1.
        """
        options = _options(thread_count, transport, timeout, progress, device, nccl_comm)
        if color is not None and color < 0:
            raise InvalidArgumentError(f'color is {color}; colors are at least 0, or None to get no comm',
                                       c.MXS_INVALID_ARGUMENT, self.rank)
        pointer = c_void_p()
        self._owned.family.call(lib.mxs_comm_split, byref(pointer), self._pointer,
                                c.MXS_NO_COLOR if color is None else int32(color, 'color'), int32(key, 'key'),
                                byref(options))
        if not pointer.value:
            return None
        comm = Comm.__new__(Comm)
        comm._begin(pointer, Family(), (nccl_comm,))
        return comm

    def shrink(self, *, thread_count: int | None = None, transport: str | None = None, timeout: float | None = None,
               progress: Progress | str | int | None = None, device: int | None = None, nccl_comm=None) -> Comm:
        """A comm of the living ranks of this one, which has failed (mxs_comm_shrink): collective over them; ranks keep
        their order, and origins tells which each was. What is None is as here, and so is the secret. This one stays
        readable until it is closed. Raises TimedOutError: too few came; PeerFailedError: the others went on without
        this rank. Since 0.1.
        """
        options = _options(thread_count, transport, timeout, progress, device, nccl_comm)
        pointer = c_void_p()
        self._owned.family.call(lib.mxs_comm_shrink, byref(pointer), self._pointer, byref(options))
        comm = Comm.__new__(Comm)
        comm._begin(pointer, Family(), (nccl_comm,))
        return comm

    @property
    def origins(self) -> list[int]:
        """By rank: its number in the comm that this was split or shrunk from (mxs_comm_origin); its own in one that
        was created. Since 0.1."""
        found = []
        for rank in range(self.rank_count):
            origin = c_int32()
            self._call(lib.mxs_comm_origin, rank, byref(origin))
            found.append(origin.value)
        return found

    def barrier(self, *, timeout: float | None = None) -> None:
        """Wait until every rank has called it. Collective. Since 0.1."""
        self._call(lib.mxs_comm_barrier, call_of(timeout))

    def sum(self, values: Iterable[float], *, timeout: float | None = None) -> list[float]:
        """Sums over all ranks, in rank order, of 1 to 64 numbers. Collective. Since 0.1."""
        array = reals(values, 'values')
        self._call(lib.mxs_comm_sum, array, len(array), call_of(timeout))
        return list(array)

    def sum_words(self, words: Iterable[int], *, timeout: float | None = None) -> list[int]:
        """The same for 1 to 64 signed integers of 64 bits; a sum beyond wraps around. Collective. Since 0.1."""
        array = integers(words, 'words')
        self._call(lib.mxs_comm_sum_words, array, len(array), call_of(timeout))
        return list(array)

    def _call_beside(self, function, *arguments) -> int:
        """A call that may come at any time, also while another one waits."""
        owned = self._owned
        owned.hold()
        try:
            return check(function(self._pointer, *arguments), self.rank)
        finally:
            owned.release()

    def test(self, request: int) -> bool:
        """Is an operation complete? Makes progress. Threads: at any time. Since 0.1."""
        return self._call_beside(lib.mxs_comm_test, uint64(request, 'request')) == c.MXS_OK

    def wait(self, request: int, *, timeout: float | None = None) -> None:
        """Wait for an operation: what gather, reduce, skip or Collective.start returned. Threads: at any time.

        Since 0.1.
        """
        self._call_beside(lib.mxs_comm_wait, uint64(request, 'request'), call_of(timeout))

    def abort(self, reason: str | None = None) -> None:
        """Fail the comm now, here and soon on the other ranks: waiting calls raise AbortedError with the reason.

        Threads: at any time. Since 0.1.
        """
        self._call_beside(lib.mxs_comm_abort, encoded(reason))

    def phase(self, phase: Phase | str | int) -> _Phase:
        """Bytes and time from here on are counted as 'forward', 'backward', 'step' or 'other'.

        As a context manager (`with comm.phase('forward'):`) until its end only. Since 0.1.
        """
        before, number = self._phase, constants.number(Phase, phase)
        self._call(lib.mxs_comm_phase, number)
        self._phase = constants.named(Phase, number)
        return _Phase(self, before)

    def stats(self) -> CommStats:
        """What has gone over the comm: stats().gather.forward.bytes_in, ...; slot_remaps. Threads: at any time.

        Since 0.1.
        """
        found = c.mxs_comm_stats()
        self._call_beside(lib.mxs_comm_query_stats, byref(found))
        kinds = [Phases(*(Counter(*(getattr(counter, name) for name in Counter._fields)) for counter in phases))
                 for phases in found.counters]
        gather, reduce, reshard, agree = kinds
        return CommStats(gather, reduce, reshard, agree, found.slot_remaps)

    def reset_stats(self) -> None:
        """Count from zero again. Since 0.1."""
        self._call(lib.mxs_comm_reset_stats)

    def allocate(self, bytes: int, memory: MemoryKind | str | int | None = None) -> View:
        """Memory for collectives, a view of u8, zeros. 'host' (also None): local peers reach it by load and store.
        'cuda': it lies on the comm's device, registered with NCCL where that can be.

        Collective; all ranks pass the same. It is given back when the view and all that was made from it are gone.
        Since 0.1.
        """
        kind = constants.number(MemoryKind, memory)
        pointer = c_void_p()
        self._call(lib.mxs_comm_allocate, uint64(bytes, 'bytes'), kind, byref(pointer))
        comm = self._pointer
        owned = _Allocated(pointer, lambda taken: lib.mxs_comm_free(comm, taken._obj), self._owned.family,
                           (self._owned,))
        struct = c.mxs_view(dtype=c.MXS_U8, memory=kind, dimension_count=1, data=pointer.value, bytes=bytes, unit=-1,
                            tensor=-1)
        struct.shape[0], struct.strides[0] = bytes, 1
        view = View(struct, owned, device=self.device)
        owned.close()  # that is, once the view is gone
        return view

    def free(self, view: View) -> None:
        """Done with allocate()'s memory: the view is empty from here on.

        Local. The memory goes once the view object and arrays made from it are gone, too, and no operation of the comm
        is in flight. Since 0.1.
        """
        if not isinstance(getattr(view, '_owned', None), _Allocated) or self._owned not in view._owned._parents:
            raise InvalidArgumentError(f'rank {self.rank}: the view is not from allocate() of this comm',
                                       c.MXS_INVALID_ARGUMENT, self.rank)
        view._struct.bytes, view._struct.data = 0, None

    def __exit__(self, *exception) -> None:
        kind = exception[0]
        if kind is not None and not (issubclass(kind, SystemExit) and not exception[1].code):
            try:
                self.abort(f'rank {self.rank} raised {kind.__name__}: {exception[1]}')
            except Exception:  # pylint: disable=broad-except
                pass  # closed, or forked
        super().__exit__(*exception)

    def __repr__(self) -> str:
        state = ', closed' if self.closed else ''
        return f'<Comm: rank {self.rank} of {self.rank_count}, {self.transports}{state}>'


class _Allocated(Owned):
    """Memory of Comm.allocate."""


class _Phase:
    """Goes back to the phase before at the end of a with block."""
    __slots__ = ('_comm', '_before')

    def __init__(self, comm: Comm, before: int):
        self._comm = comm
        self._before = before

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception) -> None:
        self._comm.phase(self._before)


def _options(thread_count, transport, timeout, progress, device, nccl_comm, secret=None) -> c.mxs_comm_options:
    options = c.mxs_comm_options(timeout_ns=nanoseconds(timeout), progress=constants.number(Progress, progress),
                                 transport=encoded(transport), secret=encoded(secret))
    if thread_count is not None:
        options.thread_count = int32(thread_count, 'thread_count')
    if device is not None:
        if int32(device, 'device') < 0:
            raise ValueError(f'device is {device}: devices are counted from 0, and None leaves the choice')
        options.device = int32(device + 1, 'device + 1')  # MXS_DEVICE(index)
    if nccl_comm is not None:
        options.nccl_comm = uint64(getattr(nccl_comm, 'ptr', nccl_comm), 'nccl_comm')
    return options
