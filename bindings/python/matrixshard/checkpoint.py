# SPDX-License-Identifier: Apache-2.0
"""Checkpoint: a folder that is a model of Hugging Face's and all that training needs to go on (checkpoint.h).

    save('checkpoints', units, optimizer, keep=3)              checkpoints/step-00000500; on all ranks
    saving = start_save('checkpoints', units, optimizer)       copies, and writes beside training
    ...
    saving.wait()

    with Checkpoint('checkpoints') as checkpoint:              the newest; or any safetensors model
        checkpoint.info.step_number, len(checkpoint), [array.name for array in checkpoint]
        checkpoint.array('layers.0.up.weight')                 as numpy's
        checkpoint.load(units, optimizer)                      on all ranks, of any number

A checkpoint may be read by any thread; save, start_save and load are collective on the units' comm and take turns with
other calls on it. Ctrl-C during save, load, verify and reshard cancels them.
"""
from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import byref, c_int32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from . import _declarations as c
from . import _handles, constants
from ._arrays import ArrayLike, Array, dense, memory as memory_of
from ._calls import nanoseconds
from ._handles import Families, Handle
from ._library import check, encoded, lib
from ._structs import Items, filled, info, int32, integers, sequence, uint64
from .constants import Preset, Rule, Told
from .errors import MatrixShardError
from .infos import CheckpointArray, CheckpointInfo, GroupValues, SaveInfo
from .optimizer import Optimizer, _families_of
from .plan import Plan
from .topology import Topology
from .unit import Unit

if TYPE_CHECKING:
    from numpy import ndarray

__all__ = ['Checkpoint', 'Save', 'save', 'start_save']

# As C: (bytes done by this rank, of how many) -> anything true to stop.
ProgressFunction = Callable[[int, int], Any]

# Of safetensors' words; those that numpy lacks come as the words of their bits.
_NUMPY_TYPES = {'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'BF16': '<u2', 'I64': '<i8', 'I32': '<i4', 'I16': '<i2',
                'I8': '|i1', 'U64': '<u8', 'U32': '<u4', 'U16': '<u2', 'U8': '|u1', 'BOOL': '|b1', 'C64': '<c8',
                'F8_E4M3': '|u1', 'F8_E5M2': '|u1', 'F8_E8M0': '|u1'}
_SLICE_NS = 100_000_000
_FIELDS = {struct: dict(field[:2] for field in struct._fields_) for struct in  # type: ignore[misc]
           (c.mxs_verify_options, c.mxs_load_options)}


def save(path: str | os.PathLike, units: Iterable[Unit], optimizer: Optimizer | None = None, *, masters: bool = False,
         weights_only: bool = False, keep: int = 0, name: str | None = None,
         files_from: str | os.PathLike | None = None, user: bytes | None = None,
         extras: Mapping[str, ArrayLike | tuple] | None = None, progress: ProgressFunction | None = None,
         timeout: float | None = None) -> None:
    """Save units, and their optimizer's state, into path/step-N (mxs_checkpoint_save). Collective: when it returns
    the checkpoint is on disk, on all ranks.

    units: all of one plan that have tensors. optimizer: of these units; None: weights and masters alone. masters:
    model files have the fp32 masters. weights_only: no masters and no state beside the model. keep: so many of the
    newest checkpoints stay; 0: all. name: of the folder, instead of step-N. files_from: a folder whose other files
    (config.json, a tokenizer) are copied. user: bytes of this rank, up to 1 MiB. extras: tensors that the plan doesn't
    know, by name, equal on all ranks: arrays, or (safetensors' dtype, shape, memory), such as ('BF16', (4, 8), words).
    progress: called with the bytes that this rank has written, and all; True cancels, on all ranks, and what it raises
    does, too, and is raised here. timeout: seconds; None: an hour.

    Raises SystemCallError (a disk that is full, read-only or not shared), CancelledError, MismatchError, HeldError:
    nothing of it is left on disk then, and older checkpoints are as they were. Since 0.1.
    """
    units = tuple(sequence(units, 'units'))
    with _refused_by_all(units, lib.mxs_checkpoint_save, None):
        call = _Saving(path, units, optimizer, masters=masters, weights_only=weights_only, keep=keep, name=name,
                       files_from=files_from, user=user, extras=extras, timeout=timeout)
    watch = _Watch(progress)
    call.options.progress = watch.progress
    watch.run(call.family.call, lib.mxs_checkpoint_save, *call.arguments)


def start_save(path: str | os.PathLike, units: Iterable[Unit], optimizer: Optimizer | None = None, *,
               masters: bool = False, weights_only: bool = False, keep: int = 0, name: str | None = None,
               files_from: str | os.PathLike | None = None, user: bytes | None = None,
               extras: Mapping[str, ArrayLike | tuple] | None = None, timeout: float | None = None) -> Save:
    """As save(), but it only copies what this rank owns, and returns; a thread writes, and training goes on
    (mxs_save_start). Collective. Extras are to stay as they are until it is over. Several may be under way.

    Raises as save(), as far as it shows before bytes are written; OutOfMemoryError on all ranks: for the copy.
    Since 0.1.
    """
    units, pointer = tuple(sequence(units, 'units')), c_void_p()
    with _refused_by_all(units, lib.mxs_save_start, byref(pointer), None):
        call = _Saving(path, units, optimizer, masters=masters, weights_only=weights_only, keep=keep, name=name,
                       files_from=files_from, user=user, extras=extras, timeout=timeout)
    call.family.call(lib.mxs_save_start, byref(pointer), *call.arguments)
    return Save._from(pointer, call.family, keep=(call,))


class Save(Handle):
    """A save that goes on beside training: what start_save() gives.

    As a context manager it waits at the end of the block; Ctrl-C there cancels it. The interpreter's exit waits, too.
    close() is for when it is over: HeldError before. All its calls may come from any thread, at any time. Since 0.1.
    """

    _destroy_name = 'mxs_save_destroy'

    def _beside(self, function, *arguments) -> int:
        """A call that may come at any time, also while another one waits."""
        pointer, owned = self._pointer, self._owned
        owned.hold()
        try:
            return check(function(pointer, *arguments), owned.family.rank)
        finally:
            owned.release()

    @property
    def info(self) -> SaveInfo:
        """How far it is (mxs_save_info): finished, done_bytes and total_bytes of this rank, snapshot_bytes, path of
        the checkpoint when it is whole. Since 0.1."""
        found = c.mxs_save_info()
        self._beside(lib.mxs_save_query, byref(found))
        return info(found)

    @property
    def finished(self) -> bool:
        """wait() returns at once. Since 0.1."""
        return self.info.finished

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it is over, on all ranks; raises what save() would. May be called again.

        timeout: seconds; None: without end. TimedOutError: it goes on, and the comm is as it was. Since 0.1.
        """
        limit = nanoseconds(timeout)
        self._beside(lambda save: _wait_in_slices(save, limit))

    def cancel(self) -> None:
        """Ask for its end on all ranks: unless it is about to be done wait() then raises CancelledError. Since 0.1."""
        self._beside(lib.mxs_save_cancel)

    def __exit__(self, *exception) -> None:
        kind = exception[0]
        if kind is None:
            try:
                self.wait()
            except MatrixShardError:
                raise
            except BaseException:  # Ctrl-C
                self.cancel()
                with contextlib.suppress(MatrixShardError):
                    self.wait()
                raise
        elif not self.closed:
            with contextlib.suppress(MatrixShardError):  # what happened first is what matters
                if not issubclass(kind, Exception):
                    self.cancel()
                self.wait()
        super().__exit__(*exception)

    def __repr__(self) -> str:
        if self.closed:
            return '<Save: closed>'
        found = self.info
        return f'<Save: {found.done_bytes} of {found.total_bytes} bytes{", finished" if found.finished else ""}>'


class Checkpoint(Handle):
    """An open checkpoint (mxs_checkpoint_open): manifest and headers were read and fit each other.

    path: a checkpoint; a folder of checkpoints, of which that with the highest step number is opened; or any
    safetensors model: a file, an index, or a folder. len() and iteration are over its arrays, in the order of files.
    Any thread may read it. Raises NotFoundError, DamagedError (the sentence names file and tensor), SystemCallError,
    NotBuiltError. Since 0.1.
    """

    _destroy_name = 'mxs_checkpoint_close'

    def __init__(self, path: str | os.PathLike):
        self._create(lib.mxs_checkpoint_open, encoded(path))

    def _read(self, function, *arguments) -> None:
        """A call that other threads needn't wait for."""
        with self._lent() as pointer:
            check(function(pointer, *arguments))

    @property
    def info(self) -> CheckpointInfo:
        """What it is (mxs_checkpoint_info): has_manifest, rank_count of the world that saved it, group_count, masters,
        has_state, step_number, file_count, array_count, bytes, path, version of the library. Since 0.1."""
        return self._query(lib.mxs_checkpoint_query, c.mxs_checkpoint_info)

    # ---- arrays ----

    def find(self, name: str) -> int:
        """Index of the array with that name. Raises NotFoundError. Since 0.1."""
        index = c_uint64()
        self._call(lib.mxs_checkpoint_find, encoded(name), byref(index))
        return index.value

    def array_at(self, which: int | str) -> CheckpointArray:
        """By index or name (mxs_checkpoint_array): kind, dtype (None: none of the library's, see dtype_word), shape,
        bytes, file_offset, name, dtype_word, file, tensor, part, piece_count. Since 0.1."""
        found = c.mxs_checkpoint_array()
        self._call(lib.mxs_checkpoint_array_at, self._index(which), byref(found))
        return info(found) if found.dtype else info(found, dtype=None)

    def _index(self, which: int | str) -> int:
        return self.find(which) if isinstance(which, str) else uint64(which, 'which')

    @property
    def arrays(self) -> Items[CheckpointArray]:
        """array_at() of all. Since 0.1."""
        return Items('Checkpoint.arrays', lambda: self.info.array_count, self.array_at)

    def __len__(self) -> int:
        return self.info.array_count

    def __iter__(self) -> Iterator[CheckpointArray]:
        return iter(self.arrays)

    def read(self, which: int | str, offset: int = 0, bytes: int | None = None, out: ArrayLike = None) -> Any:
        """Bytes of an array, by index or name; their hashes are checked.

        bytes: None: from offset to the end. out: writable memory that takes them, and is returned; None: they come as
        bytes. Raises DamagedError: the sentence names file and array. Since 0.1.
        """
        index, begin = self._index(which), uint64(offset, 'offset')
        count = max(0, self.array_at(index).bytes - begin) if bytes is None else uint64(bytes, 'bytes')
        if out is not None:
            taken = memory_of(out, 'out', count)
            self._read(lib.mxs_checkpoint_read, index, begin, count, taken.address)
            return out
        if begin + count > self.array_at(index).bytes:  # refused by C, with its sentence, before memory is taken
            self._read(lib.mxs_checkpoint_read, index, begin, count, ctypes.create_string_buffer(1))
        block = ctypes.create_string_buffer(count) if count else ctypes.create_string_buffer(1)
        self._read(lib.mxs_checkpoint_read, index, begin, count, block)
        return block.raw[:count]

    def array(self, which: int | str) -> ndarray:
        """An array as numpy's, by index or name; its hashes are checked. What numpy has no type for comes as the words
        of its bits: bf16 as uint16, the kinds of f8 as uint8. TypeError: a dtype that isn't known here. Since 0.1."""
        import numpy
        index = self._index(which)
        found = self.array_at(index)
        if found.dtype_word not in _NUMPY_TYPES:
            raise TypeError(f'{found.name} is of {found.dtype_word}, which numpy has no type for: use read()')
        made = numpy.empty(found.shape, numpy.dtype(_NUMPY_TYPES[found.dtype_word]))
        if made.nbytes != found.bytes:
            raise ValueError(f'{found.name} has {found.bytes} bytes, but {made.nbytes} by its shape and dtype')
        self._read(lib.mxs_checkpoint_read, index, 0, made.nbytes, made.ctypes.data)
        return made

    # ---- what else it has ----

    def plan(self) -> Plan:
        """The plan that it was saved under, for Plan(previous=...) and Plan.moves. Raises NotFoundError: without a
        manifest. Since 0.1."""
        pointer = c_void_p()
        self._call(lib.mxs_checkpoint_plan, byref(pointer))
        return Plan._from(pointer)

    def group(self, group: int) -> GroupValues:
        """The values that a group had at the latest step: lr, weight_decay, momentum, beta1, beta2, epsilon. Raises
        NotFoundError: no such group, or one without tensors. Since 0.1."""
        return self._query(lib.mxs_checkpoint_group, c.mxs_group_values, int32(group, 'group'))

    def rule(self, rule: Rule | str | int) -> Preset:
        """The preset by which tensors of a rule were stepped. Raises NotFoundError: nothing was stepped under that
        rule, or there is no state. Since 0.1."""
        found = c_int32()
        self._call(lib.mxs_checkpoint_rule, constants.number(Rule, rule), byref(found))
        return constants.named(Preset, found.value)

    def user(self, rank: int) -> bytes:
        """What a rank of the saving world gave as `user`; b'' of one that gave nothing. Raises NotFoundError: there was
        no such rank. Since 0.1."""
        data, count = c_void_p(), c_uint64()
        self._call(lib.mxs_checkpoint_user, int32(rank, 'rank'), byref(data), byref(count))
        return ctypes.string_at(data, count.value) if count.value else b''

    def verify(self, fault: Callable[[str], Any] | None = None, progress: ProgressFunction | None = None) -> None:
        """Read all bytes and compare their hashes; without a manifest only that all can be read.

        fault: called with a sentence of each fault; None: the first one ends it. progress: as of save(). Raises
        DamagedError with the first fault's sentence, in either case; CancelledError; SystemCallError. Since 0.1.
        """
        watch = _Watch(progress)
        options = c.mxs_verify_options(progress=watch.progress)
        if fault is not None:
            options.fault = watch.kept(_FIELDS[c.mxs_verify_options]['fault'],
                                       lambda _, sentence: fault(_text(sentence)))
        watch.run(self._read, lib.mxs_checkpoint_verify, byref(options))

    def load(self, units: Iterable[Unit], optimizer: Optimizer | None = None, *, weights_only: bool = False,
             other_dtypes: bool = False, other_optimizer: bool = False, allow_missing: bool = False,
             allow_extra: bool = False, unverified: bool = False, tell: Callable[[Told, str], Any] | None = None,
             progress: ProgressFunction | None = None, timeout: float | None = None) -> None:
        """Load into units, and their optimizer's state and step number (mxs_checkpoint_load). Collective. World, plan,
        units and their order may be others than those that saved.

        optimizer: of these units; None: weights and masters alone. weights_only: the optimizer stays as it is.
        other_dtypes: f32, bf16, f16 and f64 are converted into each other. other_optimizer: state that has the same
        names and shapes is taken, other state begins anew. allow_missing: tensors that it lacks stay as they are.
        allow_extra: what it has beside the plan's is left out. unverified: hashes aren't compared. tell: called before
        bytes are read with what is special ('missing', 'extra', 'converted', 'new-state': Told) and a tensor's name,
        on every rank of all ranks' tensors, also of what then is a failure. progress, timeout: as of save().

        Raises MismatchError (shapes, dtypes, rules or presets differ) and NotFoundError (tensors or state are missing,
        or there are more): nothing has changed, on any rank. DamagedError, SystemCallError, CancelledError: on all
        ranks; weights and state are unspecified if bytes had been read. HeldError. Since 0.1.
        """
        units, watch, flags = tuple(sequence(units, 'units')), _Watch(progress), 0
        for flag, given in ((c.MXS_LOAD_WEIGHTS_ONLY, weights_only), (c.MXS_LOAD_OTHER_DTYPES, other_dtypes),
                            (c.MXS_LOAD_OTHER_OPTIMIZER, other_optimizer), (c.MXS_LOAD_ALLOW_MISSING, allow_missing),
                            (c.MXS_LOAD_ALLOW_EXTRA, allow_extra), (c.MXS_LOAD_UNVERIFIED, unverified)):
            flags |= flag if given else 0
        with contextlib.ExitStack() as lent:
            with _refused_by_all(units, lib.mxs_checkpoint_load, None):
                checkpoint = lent.enter_context(self._lent())
                array, count, pointer, family = _units_of(units, optimizer)
                options = c.mxs_load_options(flags=flags, progress=watch.progress, timeout_ns=nanoseconds(timeout))
            if tell is not None:
                options.tell = watch.kept(_FIELDS[c.mxs_load_options]['tell'],
                                          lambda _, what, name: tell(constants.named(Told, what), _text(name)))
            watch.run(family.call, lib.mxs_checkpoint_load, checkpoint, array, count, pointer, byref(options))

    def reshard(self, path: str | os.PathLike, topology: Topology | str, *, plan: Mapping[str, Any] | None = None,
                weights_only: bool = False, keep: int = 0, name: str | None = None,
                files_from: str | os.PathLike | None = None, progress: ProgressFunction | None = None,
                timeout: float | None = None) -> None:
        """Write it again as another world would have saved it: one process, streaming (mxs_checkpoint_reshard). Loads
        need none: this is for files of another number, or for the model alone (weights_only).

        path: a folder of checkpoints for the result. topology: of the world, or the words of one. plan: fields of
        mxs_plan_options; None: those of the manifest. Other arguments as of save(). Raises as save() and verify();
        NotFoundError: without a manifest. Since 0.1.
        """
        if isinstance(topology, str):
            with Topology(topology) as made:
                self.reshard(path, made, plan=plan, weights_only=weights_only, keep=keep, name=name,
                             files_from=files_from, progress=progress, timeout=timeout)
            return
        if not isinstance(topology, Topology):
            raise TypeError(f'topology is {topology!r}, neither a Topology nor the words of one')
        watch = _Watch(progress)
        options = c.mxs_checkpoint_options(
            weights_only=int(weights_only), keep=int32(keep, 'keep'), name=encoded(name),
            files_from=encoded(files_from), progress=watch.progress, timeout_ns=nanoseconds(timeout))
        with contextlib.ExitStack() as lent:
            planned = None
            if plan is not None:
                given = dict(plan)
                previous = given.pop('previous', None)
                planned = filled(c.mxs_plan_options, given, 'reshard(plan=...)', special=('previous',))
                if previous is not None:
                    planned.previous = lent.enter_context(previous._lent())
            pointer = lent.enter_context(topology._lent())
            watch.run(self._read, lib.mxs_checkpoint_reshard, encoded(path), pointer,
                      None if planned is None else byref(planned), byref(options))

    def __repr__(self) -> str:
        if self.closed:
            return '<Checkpoint: closed>'
        found = self.info
        ranks = f'{found.rank_count} rank' + 's' * (found.rank_count != 1)
        saved = f', step {found.step_number}, saved by {ranks}' if found.has_manifest else ''
        return f'<Checkpoint: {found.path!r}, {found.array_count} arrays, {found.bytes} bytes{saved}>'


def _text(value: bytes) -> str:
    return value.decode(errors='replace')


@contextlib.contextmanager
def _refused_by_all(units: tuple, function: Callable, *first: Any) -> Iterator[None]:
    """What Python refuses on this rank the library is made to refuse, by a path or checkpoint that is NULL: other
    ranks, whose arguments are good, would wait for this one, or take its next call for this one."""
    try:
        yield
    except Exception:
        with contextlib.suppress(Exception):
            array, count, _, family = _units_of(units, None)
            family.call(function, *first, array, count, None, None)
        raise


def _wait_in_slices(save: c_void_p, limit_ns: int = 0) -> int:
    """mxs_save_wait. Python sees signals between the slices, and not in the library."""
    deadline_ns = time.monotonic_ns() + limit_ns
    while True:
        left_ns = deadline_ns - time.monotonic_ns() if limit_ns else _SLICE_NS
        status = lib.mxs_save_wait(save, max(1, min(left_ns, _SLICE_NS)))
        if status != c.MXS_TIMED_OUT or left_ns <= 0:
            return status
        if lib.mxs_save_query(save, byref(found := c.mxs_save_info())) < 0 or found.finished:
            return lib.mxs_save_wait(save, 0)  # a save that has itself timed out


class _Watch:
    """Functions of the caller's that C calls while one call runs. What they raise ends it, and is raised by it. C gets
    a progress function in any case: so Python sees signals meanwhile. What their handlers raise, KeyboardInterrupt
    among it, is caught here: ctypes would print and forget it."""

    def __init__(self, progress: ProgressFunction | None):
        self._failure: BaseException | None = None
        self._functions: list = []
        self._progress = progress
        self.progress = self.kept(c.mxs_progress_function, self._report)

    def kept(self, kind: Any, function: Callable) -> Any:
        """A C function of that type, which lives as long as this."""
        def run(*arguments):
            if self._failure is None:
                try:
                    return function(*arguments)
                except BaseException as error:  # pylint: disable=broad-except
                    self._failure = error
            return 1
        made = kind(run)
        self._functions.append(made)
        return made

    def _report(self, _, done_bytes: int, total_bytes: int) -> int:
        return 1 if self._progress is not None and self._progress(done_bytes, total_bytes) else 0

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Handlers may run at the first line of a function that C calls, before anything there can catch."""
        handlers = {}
        if threading.current_thread() is threading.main_thread():
            handlers = {number: handler for number in signal.valid_signals()
                        if callable(handler := signal.getsignal(number)) and not isinstance(handler, signal.Handlers)}

        def caught(number, frame):
            try:
                handlers[number](number, frame)
            except BaseException as error:  # pylint: disable=broad-except
                self._failure = self._failure or error
        for number in handlers:
            signal.signal(number, caught)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                if signal.getsignal(number) is caught:
                    signal.signal(number, handler)

    def run(self, call: Callable, *arguments) -> None:
        try:
            with self._signals():
                call(*arguments)
        except MatrixShardError as error:
            if self._failure is not None:
                raise self._failure from error
            raise
        if self._failure is not None:
            raise self._failure


def _units_of(units: Iterable[Unit], optimizer: Optimizer | None) -> tuple:
    """(C array of units, how many, optimizer's pointer or None, the family whose turn it is)."""
    units = tuple(sequence(units, 'units'))
    for index, unit in enumerate(units):
        if not isinstance(unit, Unit):
            raise TypeError(f'units[{index}] is a {type(unit).__name__}, not a Unit')
    if not units:
        raise ValueError('there are no units')
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise TypeError(f'optimizer is a {type(optimizer).__name__}, not an Optimizer')
    families = list(dict.fromkeys(family for one in units + ((optimizer,) if optimizer else ())
                                  for family in _families_of(one)))
    array = (c_void_p * len(units))(*(unit._pointer.value for unit in units))
    return (array, len(units), None if optimizer is None else optimizer._pointer,
            families[0] if len(families) == 1 else Families(families))


class _Saving:
    """The arguments of a save, and what they point to."""

    def __init__(self, path, units, optimizer, *, masters, weights_only, keep, name, files_from, user, extras, timeout):
        array, count, pointer, self.family = _units_of(units, optimizer)
        options = c.mxs_checkpoint_options(
            masters=int(bool(masters)), weights_only=int(bool(weights_only)), keep=int32(keep, 'keep'),
            name=encoded(name), files_from=encoded(files_from), timeout_ns=nanoseconds(timeout))
        if user is not None:
            if not isinstance(user, (bytes, bytearray, memoryview)):
                raise TypeError(f'user is a {type(user).__name__}: bytes are wanted')
            self._user = ctypes.create_string_buffer(bytes(user), len(user) or 1)
            options.user, options.user_bytes = ctypes.addressof(self._user), len(user)
        self._extras: list[Array] = []
        if extras:
            options.extras, options.extra_count = self._extra_tensors(extras), len(extras)
        self.options = options
        self.arguments = (encoded(path), array, count, pointer, byref(options))

    def _extra_tensors(self, extras: Mapping):
        if not isinstance(extras, Mapping):
            raise TypeError(f'extras is a {type(extras).__name__}, not a dict of arrays by name')
        tensors: Any = (c.mxs_extra_tensor * len(extras))()
        for tensor, (name, value) in zip(tensors, extras.items()):
            tensor.__init__()
            taken, word, shape = _extra(value, f'extras[{name!r}]')
            self._extras.append(taken)
            tensor.name, tensor.dtype, tensor.data = encoded(name), encoded(word), taken.address or None
            tensor.dimension_count = len(shape)
            tensor.shape[:len(shape)] = shape
        return tensors


def _extra(value, label: str) -> tuple[Array, str, tuple[int, ...]]:
    """(memory, safetensors' dtype, shape) of an array, or of the same in another order."""
    if isinstance(value, tuple):
        if len(value) != 3:
            raise TypeError(f'{label} has {len(value)} values; (dtype, shape, memory) are wanted, or an array')
        word, shape, source = value[0], tuple(integers(value[1], f'{label} shape')), value[2]
        count = math.prod(shape) * int(_NUMPY_TYPES.get(word, '|u0')[2:])
        taken = memory_of(source, label, count, writable=False)
    else:
        taken = dense(value, label, None)
        word, shape = taken.word, taken.shape
    if word is None:
        raise TypeError(f'{label} is of {taken.kind}, not named here: pass (dtype of safetensors, shape, memory)')
    if len(shape) > c.MXS_DIMENSIONS_MAX:
        raise ValueError(f'{label} has {len(shape)} dimensions; {c.MXS_DIMENSIONS_MAX} are the most')
    return taken, word, shape


def _wait_for_saves() -> None:
    """At the interpreter's exit: a thread of the library still writes. Ctrl-C cancels."""
    for owned in list(_handles._alive.values()):
        if owned._destroy is not lib.mxs_save_destroy or owned._process != os.getpid():
            continue
        try:
            _wait_in_slices(owned.pointer)
        except KeyboardInterrupt:
            lib.mxs_save_cancel(owned.pointer)
            lib.mxs_save_wait(owned.pointer, 0)


_handles.before_exit.append(_wait_for_saves)
