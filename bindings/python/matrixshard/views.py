# SPDX-License-Identifier: Apache-2.0
"""View: a window on memory that the library owns, for numpy, torch and whoever speaks their protocols.

    view = unit.shard(placement)
    view.numpy()[:] = weights          float32, float64, float16, uint8: in place, no copy
    view.words()                       uint16: bf16 has no type in numpy
    torch.from_dlpack(view)            every dtype
    view.memory()                      a memoryview of the bytes, with the standard library alone
    view.to_host(), view.from_host(a)  copies, of CUDA memory and of the host's

CUDA memory is for torch.from_dlpack, cupy.from_dlpack, numba.cuda.as_cuda_array and the like; numpy and memoryview
can't read it. What a stream has to wait for, they are told: a view of what was gathered or opened on a stream
(Unit.wait(stream=...)) is ordered on that stream.

The memory stays mapped as long as a view or anything made from one is alive, also after close() of its unit; what lies
there is another matter. A released unit's addresses stay valid, but the bytes are those of the unit that took its
slot, until the next gather. A step changes weights in place and makes views stale: `generation` is then behind the
unit's, and Unit.commit refuses them.
"""
from __future__ import annotations

import ctypes
import sys
import threading
from ctypes import byref
from typing import TYPE_CHECKING, Any

from . import _declarations as c
from . import _handles, constants
from ._arrays import ArrayLike, aligned_memory, dense, shaped
from ._calls import LEGACY_STREAM
from ._handles import Owned
from ._library import check, lib
from .constants import Dtype, MemoryKind

if TYPE_CHECKING:
    from numpy import ndarray  # the method numpy() hides the module's name from annotations

__all__ = ['View']

_NOTHING = ctypes.create_string_buffer(64)  # numpy before 1.26 takes no array at NULL, also if it is empty
_NOTHING_ADDRESS = ctypes.addressof(_NOTHING)
_TYPE_TEXTS = {c.MXS_F32: '<f4', c.MXS_F64: '<f8', c.MXS_F16: '<f2', c.MXS_U8: '|u1'}


class View:
    """What a unit, an optimizer or a comm shows: dtype, shape, strides (in elements), bytes, where and of what.

    An empty view (bytes 0) is ordinary: this rank owns nothing of the tensor; its shape is then (0,). Made by the
    library's calls only. Threads: any; reading and writing the memory itself is as any other. Since 0.1.
    """

    __slots__ = ('_struct', '_owned', '_readonly', '_device', '_stream', '__weakref__')

    def __init__(self, struct: c.mxs_view, owned: Owned, readonly: bool = False, device: int | None = None,
                 stream: int | None = None):
        self._struct = struct
        self._readonly = readonly
        self._device = device
        self._stream = stream  # that orders what lies there, as __cuda_array_interface__ says it; None: none has to
        owned.hold()
        self._owned = owned

    def __del__(self):
        owned = getattr(self, '_owned', None)
        if owned is not None:
            owned.release()

    @property
    def dtype(self) -> Dtype:
        return constants.named(Dtype, self._struct.dtype)

    @property
    def memory_kind(self) -> MemoryKind:
        """HOST or CUDA. Since 0.1."""
        return constants.named(MemoryKind, self._struct.memory)

    @property
    def device(self) -> int | None:
        """Index of the CUDA device; None: host memory. Since 0.1."""
        return self._device if self._struct.memory == c.MXS_CUDA else None

    @property
    def shape(self) -> tuple[int, ...]:
        struct = self._struct
        shape = tuple(struct.shape[:struct.dimension_count])
        return shape if struct.bytes or 0 in shape else (0,)

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements. Since 0.1."""
        struct = self._struct
        return tuple(struct.strides[:struct.dimension_count]) if struct.bytes else (1,) * len(self.shape)

    @property
    def bytes(self) -> int:
        return self._struct.bytes

    @property
    def address(self) -> int:
        """Of the first byte; 0 if the view is empty. Since 0.1."""
        return self._struct.data or 0

    @property
    def generation(self) -> int:
        """Of the unit when the view was made; a step raises the unit's. Since 0.1."""
        return self._struct.generation

    @property
    def unit(self) -> int:
        """Index within the plan. Since 0.1."""
        return self._struct.unit

    @property
    def tensor(self) -> int:
        """Index within the plan. Since 0.1."""
        return self._struct.tensor

    @property
    def readonly(self) -> bool:
        """Gathered weights are: only owners change them, through Unit.shard. Since 0.1."""
        return self._readonly

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError('a view of a scalar has no length')
        return shape[0]

    def __repr__(self) -> str:
        access = ', readonly' if self._readonly else ''
        if self._struct.memory == c.MXS_CUDA:
            access = f', CUDA device {self._device}{access}'
        return (f'<View: unit {self.unit}, tensor {self.tensor}, {self.dtype} {self.shape}, generation '
                f'{self.generation}{access}>')

    def __reduce__(self):
        raise TypeError('a View shows memory of this process: it can be neither pickled nor copied; pickle its numpy()')

    # ---- numpy ----

    def _interface(self, kind: str) -> dict[str, Any]:
        self._check_host('numpy')
        item_bytes = int(kind[2:])
        return {'version': 3, 'typestr': kind, 'shape': self.shape,
                'data': (self.address or _NOTHING_ADDRESS, self._readonly),
                'strides': tuple(item_bytes * stride for stride in self.strides)}

    def _check_host(self, who: str) -> None:
        if self._struct.memory != c.MXS_HOST:
            raise TypeError(f'this view is of CUDA memory, and {who} needs host memory: copy it with to_host(), or use '
                            'DLPack or __cuda_array_interface__ in a library for GPUs')

    @property
    def __array_interface__(self) -> dict[str, Any]:
        self._check_host('numpy')
        kind = _TYPE_TEXTS.get(self._struct.dtype)
        if kind is None:
            raise TypeError(f'numpy has no {self.dtype}: use words(), which gives its bits as uint16, or DLPack '
                            '(torch.from_dlpack)')
        return self._interface(kind)

    def __array__(self, dtype=None, copy=None) -> ndarray:
        import numpy
        array = numpy.asarray(self.numpy(), dtype=dtype)
        return array.copy() if copy else array

    def numpy(self) -> ndarray:
        """The memory as an array of numpy, in place; not writable if the view is readonly. TypeError for bf16.

        Since 0.1.
        """
        import numpy
        return numpy.asarray(_Interface(self, self.__array_interface__))

    def words(self) -> ndarray:
        """The bits of a dtype of 16 bits (bf16, f16) as an array of uint16, in place. Since 0.1."""
        if self._struct.dtype not in (c.MXS_BF16, c.MXS_F16):
            raise TypeError(f'words() is for elements of 16 bits; this view is of {self.dtype}: use numpy()')
        import numpy
        return numpy.asarray(_Interface(self, self._interface('<u2')))

    def memory(self) -> memoryview:
        """The bytes, in place, one dimension, for the standard library. Since 0.1."""
        self._check_host('memoryview')
        if not self.bytes:
            return memoryview(b'' if self._readonly else bytearray())
        array: Any = (ctypes.c_ubyte * self.bytes).from_address(self.address)
        array._view = self  # the memoryview keeps the array, the array this view
        shown = memoryview(array).cast('B')
        return shown.toreadonly() if self._readonly else shown

    # ---- copies ----

    def to_host(self) -> memoryview:
        """A copy in host memory: a memoryview of the view's shape, bf16 and f16 as words of 16 bits. numpy.asarray()
        takes it, bytes() too.

        Complete on return. Of CUDA memory it comes after what the legacy default stream has so far: synchronize other
        streams that write it (stream.synchronize()) before. Since 0.1.
        """
        block = aligned_memory(self.bytes)
        copy_memory(_address_of(block), self.address, self.bytes)
        return shaped(block, self._struct.dtype, self.shape)

    def from_host(self, data: ArrayLike) -> None:
        """Overwrite all of it with an array of host memory, contiguous and of as many bytes: of the view's dtype, words
        of 16 bits, or bytes; a view of u8 takes any. What is written into a shard is to be committed.

        Complete on return, as to_host. ValueError if the view is readonly. Since 0.1.
        """
        if self._readonly:
            raise ValueError('this view is readonly: owners change weights, through Unit.shard')
        kind = str(self.dtype)
        kinds = {'u8': None, 'bf16': (kind, 'u8', 'words of 16 bits'), 'f16': (kind, 'u8', 'words of 16 bits')}
        taken = dense(data, 'data', kinds.get(kind, (kind, 'u8')))
        if taken.bytes != self.bytes:
            raise ValueError(f'data has {taken.bytes} bytes (shape {taken.shape}); this view has {self.bytes} (shape '
                             f'{self.shape})')
        copy_memory(self.address, taken.address, self.bytes)

    # ---- DLPack ----

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA, self._device or 0) if self._struct.memory == c.MXS_CUDA else (_CPU, 0)

    def __dlpack__(self, *, stream=None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None):
        """A capsule for from_dlpack of torch, numpy, ...: versioned, with the readonly flag, where the consumer asks
        for version 1; consumers of version 0 can't be told that a view is readonly: they must not write to it.

        stream, of CUDA memory: the consumer's, as DLPack numbers it. It must be the one that the view is ordered on,
        or -1: no order is wanted. Since 0.1.
        """
        if self._struct.memory == c.MXS_CUDA:
            self._check_stream(stream)
        elif stream is not None and stream != -1:
            raise TypeError(f'stream is {stream!r}; host memory has none')
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f'this view is on device {self.__dlpack_device__()}, not on {tuple(dl_device)}')
        if copy:
            raise BufferError('a view is never copied: copy the array that is made of it')
        return _exports.make(self, max_version is not None and max_version[0] >= 1)

    def _check_stream(self, stream) -> None:
        if stream == 0:
            raise ValueError('stream is 0, which DLPack leaves open for CUDA: 1 is the legacy default stream')
        wanted = LEGACY_STREAM if stream is None else stream
        if self._stream is not None and wanted not in (-1, self._stream):
            raise BufferError(f'this view is ordered on stream {self._stream:#x}, but the consumer reads it on '
                              f'{wanted:#x}: let that stream wait (Unit.wait(stream=...)) and ask for the view again, '
                              'or take it while the stream that waited is current')

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3, with the stream that orders what lies there. Since 0.1."""
        if self._struct.memory != c.MXS_CUDA:
            raise AttributeError(f'this view is of {self.memory_kind} memory: it has no __cuda_array_interface__')
        kind = _TYPE_TEXTS.get(self._struct.dtype)
        if kind is None:
            raise TypeError(f'__cuda_array_interface__ has no {self.dtype}: use DLPack (torch.from_dlpack)')
        item_bytes = int(kind[2:])
        return {'version': 3, 'typestr': kind, 'shape': self.shape, 'data': (self.address, self._readonly),
                'strides': tuple(item_bytes * stride for stride in self.strides), 'stream': self._stream}


def copy_memory(target: int, source: int, bytes: int, stream: int | None = None) -> None:
    """mxs_copy, by addresses and a stream's handle."""
    check(lib.mxs_copy(target, source, bytes, byref(c.mxs_call(stream=stream))))


def _address_of(block: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(block)) if len(block) else 0


_CPU, _CUDA = 1, 2  # of DLPack
_NAMES = {False: b'dltensor', True: b'dltensor_versioned'}


class _Exports:
    """Tensors that were handed on by DLPack, and what keeps their memory.

    A consumer may delete its tensor on any thread, in the middle of an exception or after the interpreter's end. Python
    can't run there, so the library's deleter only counts (mxs_view_dlpack), and this looks at the counts: when a handle
    is closed, and when the next tensor is handed on. Capsules have no destructor for the same reason; one that nobody
    has taken and nobody holds any more is deleted here.
    """

    def __init__(self):
        self._lock = threading.RLock()  # a finalizer may come in between
        self._alive: list[tuple[Any, View, ctypes.c_int64, bool]] = []
        api = ctypes.pythonapi
        self._new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
            ('PyCapsule_New', api))
        self._is = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(('PyCapsule_IsValid', api))
        self._get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ('PyCapsule_GetPointer', api))
        self._set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
            ('PyCapsule_SetName', api))
        self._allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(
            ('PyMem_RawCalloc', api))
        self._free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(('PyMem_RawFree', api))
        self._held_count = self._references([[object()]])  # of an object that only such a list holds

    @staticmethod
    def _references(entries: list) -> int:
        return sys.getrefcount(entries[0][0])

    def make(self, view: View, versioned: bool):
        flags = (c.MXS_DLPACK_VERSIONED if versioned else 0) | \
            (c.MXS_DLPACK_READ_ONLY if versioned and view.readonly else 0)
        # Not memory of Python's own: a tensor may be deleted after the interpreter's end.
        count = ctypes.c_int64.from_address(self._allocate(1, 8))
        managed = ctypes.c_void_p()
        check(lib.mxs_view_dlpack(byref(view._struct), flags, byref(count), byref(managed)))
        capsule = self._new(managed.value, _NAMES[versioned], None)
        with self._lock:
            self.sweep()
            self._alive.append((capsule, view, count, versioned))
        return capsule

    def sweep(self) -> None:
        """Lets go of what consumers are through with."""
        with self._lock:
            entries, self._alive = self._alive, []
            while entries:
                capsule = entries[-1][0]
                if capsule is not None:
                    taken = not self._is(capsule, _NAMES[entries[-1][3]])
                    del capsule
                    if taken:
                        entries[-1] = (None, *entries[-1][1:])
                    elif self._references(entries[-1:]) == self._held_count:
                        self._delete(*entries[-1])
                entry = entries.pop()
                if entry[2].value == 0:
                    self._free(ctypes.addressof(entry[2]))
                else:
                    self._alive.append(entry)
                del entry

    def _delete(self, capsule, _view, _count, versioned: bool) -> None:
        managed = self._get(capsule, _NAMES[versioned])
        self._set_name(capsule, _USED)
        deleter = ctypes.c_size_t.from_address(managed + (16 if versioned else 56)).value
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(managed)


_USED = b'used_dltensor'
_exports = _Exports()
_handles.before_close.append(_exports.sweep)


class _Interface:
    """What numpy takes an array from, and keeps as long as the array lives."""
    __slots__ = ('_view', '__array_interface__')

    def __init__(self, view: View, interface: dict[str, Any]):
        self._view = view
        self.__array_interface__ = interface
