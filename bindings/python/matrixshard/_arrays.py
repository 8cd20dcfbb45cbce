# SPDX-License-Identifier: Apache-2.0
"""Memory of the caller's as kernels take it: address, shape, strides, dtype; and memory of our own for results.

    a View                              unit.shard(0), optimizer.state[0].view
    what has the buffer protocol        numpy, array.array, bytearray, memoryview, ctypes
    what has __array_interface__        numpy's arrays of bf16 (ml_dtypes)
    what speaks DLPack on the CPU       torch, jax

and in CUDA memory (DeviceArray) a View, what speaks DLPack (torch, cupy), what has __cuda_array_interface__ (numba).

Nothing is copied and nothing imported. bf16 may also come as words of 16 bits, which is what numpy has for it.
"""
from __future__ import annotations

import contextlib
import ctypes
import sys
from ctypes import POINTER, byref, c_int, c_int32, c_int64, c_ssize_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from . import _declarations as c
from ._calls import LEGACY_STREAM
from ._structs import int64

_BYTES = {'f32': 4, 'f64': 8, 'f16': 2, 'bf16': 2, 'u8': 1, 'words of 16 bits': 2}
# What may stand where a dtype is wanted.
_TAKEN = {c.MXS_F32: ('f32',), c.MXS_F64: ('f64',), c.MXS_F16: ('f16',), c.MXS_U8: ('u8',),
          c.MXS_BF16: ('bf16', 'words of 16 bits')}
_FORMATS = {'f': 'f32', 'd': 'f64', 'e': 'f16', 'B': 'u8', 'b': 'u8', 'c': 'u8', 'H': 'words of 16 bits',
            'h': 'words of 16 bits'}
_TYPE_TEXTS = {'f4': 'f32', 'f8': 'f64', 'f2': 'f16', 'u1': 'u8', 'u2': 'words of 16 bits', 'i2': 'words of 16 bits'}
# safetensors' words, by the type's letter and bytes as numpy writes them.
_WORDS = {'f8': 'F64', 'f4': 'F32', 'f2': 'F16', 'i8': 'I64', 'i4': 'I32', 'i2': 'I16', 'i1': 'I8', 'u8': 'U64',
          'u4': 'U32', 'u2': 'U16', 'u1': 'U8', 'b1': 'BOOL', 'c8': 'C64'}
_CODES = {(2, 32): 'f32', (2, 64): 'f64', (2, 16): 'f16', (4, 16): 'bf16', (1, 8): 'u8', (0, 16): 'words of 16 bits',
          (1, 16): 'words of 16 bits'}


# What calls take as an array: no type says "has the buffer protocol, __array_interface__ or DLPack, or is a View".
ArrayLike = Any


class Array:
    """What an object's memory looks like. As long as this lives, the object can't let go of it."""

    __slots__ = ('address', 'shape', 'strides', 'kind', 'word', 'readonly', '_held')

    def __init__(self, source, name: str):
        self._held: list = [source]
        if in_cuda_memory(source):
            raise TypeError(f'{name} is a {type(source).__name__} in CUDA memory; host memory is wanted')
        if _is_view(source):
            self._of_view(source)
        elif not (self._is_buffer(source) or self._is_interface(source) or self._is_dlpack(source, name)):
            raise TypeError(f'{name} is a {type(source).__name__}: an array is wanted, of numpy, torch (on the CPU), '
                            'ctypes, or anything with the buffer protocol or DLPack')

    def _of_view(self, view) -> None:
        self.address, self.shape, self.strides = view.address, view.shape, view.strides
        self.kind, self.readonly = str(view.dtype), view.readonly
        self.word = self.kind.upper()

    def _is_buffer(self, source) -> bool:
        try:
            buffer = _Buffer(source)
        except (TypeError, ValueError, BufferError):
            return False
        self._held.append(buffer)
        raw = buffer.raw
        text = (raw.format or b'B').decode().lstrip('@=<' if sys.byteorder == 'little' else '@=>')
        self.kind = _FORMATS.get(text, f'format {text!r}')
        self.word = _WORDS.get(_type_letter(text) + str(raw.itemsize))
        shape = tuple(raw.shape[:raw.ndim]) if raw.ndim else ()
        strides = raw.strides[:raw.ndim] if raw.ndim and raw.strides else _dense(shape, raw.itemsize)
        self._place(raw.buf, shape, strides, raw.itemsize, bool(raw.readonly))
        return True

    def _is_interface(self, source) -> bool:
        interface = getattr(source, '__array_interface__', None)
        if not isinstance(interface, dict):
            return False
        self._of_interface(source, interface)
        return True

    def _of_interface(self, source, interface: dict[str, Any]) -> None:
        text = interface['typestr']
        native = text[0] in ('|', '<' if sys.byteorder == 'little' else '>')
        self.kind = _TYPE_TEXTS.get(text[1:], f'type {text!r}') if native else f'type {text!r}'
        if text[1:] == 'V2' and str(getattr(source, 'dtype', '')) == 'bfloat16':
            self.kind = 'bf16'
        self.word = 'BF16' if self.kind == 'bf16' else _WORDS.get(text[1:]) if native else None
        item_bytes = int(text[2:])
        shape = interface['shape']
        strides = interface.get('strides') or _dense(shape, item_bytes)
        self._place(interface['data'][0], shape, strides, item_bytes, bool(interface['data'][1]))

    def _is_dlpack(self, source, name: str) -> bool:
        if not hasattr(source, '__dlpack__'):
            return False
        if getattr(source, 'requires_grad', False):
            source = source.detach()
        try:
            if source.__dlpack_device__()[0] not in (1, 3):  # kDLCPU, kDLCUDAHost
                raise ValueError('it is not in host memory')
            try:
                capsule = source.__dlpack__(max_version=(1, 0))
            except TypeError:  # older than DLPack 1.0
                capsule = source.__dlpack__()
        except (AttributeError, BufferError, RuntimeError, ValueError) as error:
            where = f' on {source.device}' if hasattr(source, 'device') else ''
            raise TypeError(f'{name} is a {type(source).__name__}{where} whose memory kernels can\'t take: '
                            f'{error}') from None
        self._of_capsule(capsule)
        return True

    def _of_capsule(self, capsule) -> None:
        self._held.append(capsule)  # its end gives the memory back
        tensor, self.readonly = _tensor_of(capsule)
        kind = (tensor.code, tensor.bits)
        self.kind = _CODES.get(kind, f'DLPack code {kind[0]} of {kind[1]} bits') if tensor.lanes == 1 else 'vectors'
        letter = {0: 'i', 1: 'u', 2: 'f', 5: 'c', 6: 'b'}.get(tensor.code, '')
        self.word = 'BF16' if self.kind == 'bf16' else _WORDS.get(f'{letter}{tensor.bits // 8}')
        self.shape = tuple(tensor.shape[:tensor.ndim])
        self.strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else _dense(self.shape, 1)
        self.address = (tensor.data or 0) + tensor.byte_offset

    def _place(self, address, shape, strides, item_bytes: int, readonly: bool) -> None:
        self.address, self.readonly, self.shape = address or 0, readonly, tuple(shape)
        if any(stride % item_bytes for stride in strides):
            self.kind += ' within records'
        self.strides = tuple(stride // item_bytes for stride in strides)

    @property
    def count(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def bytes(self) -> int:
        return self.count * _BYTES.get(self.kind, 0)

    def block(self) -> memoryview:
        """Its bytes, if it is dense, which keep it alive."""
        block: Any = (c_uint8 * self.bytes).from_address(self.address) if self.bytes else (c_uint8 * 0)()
        block._array = self
        shown = memoryview(block).cast('B')
        return shown.toreadonly() if self.readonly else shown

    @property
    def is_dense(self) -> bool:
        return self.count == 0 or all(length == 1 or stride == wanted for length, stride, wanted in
                                      zip(self.shape, self.strides, _dense(self.shape, 1)))


class DeviceArray(Array):
    """The same of CUDA memory, readable by what is put on a stream: a View, what speaks DLPack on a CUDA device, or
    what has __cuda_array_interface__. stream: a handle; None: the legacy default stream."""

    __slots__ = ()

    def __init__(self, source, name: str, stream: int | None):
        self._held = [source]
        if not in_cuda_memory(source):
            is_host = _is_view(source) or hasattr(source, '__dlpack__') or self._is_buffer(source)
            where = ' in host memory' if is_host else ''
            raise TypeError(f'{name} is a {type(source).__name__}{where}: CUDA memory is wanted, of a View, or of an '
                            'array with DLPack or __cuda_array_interface__')
        if _is_view(source):
            self._of_view(source)
        elif hasattr(source, '__dlpack__'):
            given = source.detach() if getattr(source, 'requires_grad', False) else source
            number = LEGACY_STREAM if stream is None else stream
            try:
                capsule = given.__dlpack__(stream=number, max_version=(1, 0))
            except TypeError:  # older than DLPack 1.0
                capsule = given.__dlpack__(stream=number)
            self._of_capsule(capsule)
        else:
            self._of_interface(source, source.__cuda_array_interface__)


def _is_view(source) -> bool:
    return isinstance(getattr(source, '_struct', None), c.mxs_view)


def in_cuda_memory(source) -> bool:
    """Is it an array on a CUDA device?"""
    if _is_view(source):
        return source._struct.memory == c.MXS_CUDA
    if hasattr(source, '__dlpack_device__'):
        with contextlib.suppress(Exception):  # what it can't say, the host's paths refuse
            return source.__dlpack_device__()[0] in (2, 13)  # kDLCUDA, kDLCUDAManaged
    try:
        return isinstance(getattr(source, '__cuda_array_interface__', None), dict)
    except RuntimeError:  # an old torch's tensors that are neither on the host nor on a GPU
        return False


def order_of(**arrays) -> int | None:
    """The one stream on which arrays say that their contents are ordered. DLPack needs none: it orders itself."""
    found: dict[int, str] = {}
    for name, source in arrays.items():
        if _is_view(source):
            stream = source._stream
        elif hasattr(source, '__dlpack__') or not in_cuda_memory(source):
            stream = None
        else:
            stream = source.__cuda_array_interface__.get('stream')
        if stream is not None:
            found.setdefault(stream, name)
    if len(found) > 1:
        said = ', '.join(f'{name} on {stream:#x}' for stream, name in found.items())
        raise ValueError(f'{said}: these are ordered on different streams; say which one is to be taken, stream=...')
    return next(iter(found), None)


def array(source, name: str, dtype: int | tuple | None, writable: bool = False) -> Array:
    """An Array of that dtype; TypeError and ValueError name the argument. dtype: a number of mxs_dtype; None: any."""
    found = Array(source, name)
    if dtype is not None:
        taken = _TAKEN.get(dtype, ()) if isinstance(dtype, int) else dtype
        if found.kind not in taken:
            raise TypeError(f'{name} is of {found.kind}; {" or ".join(taken)} is wanted')
    if writable and found.readonly:
        raise ValueError(f'{name} is read-only, but it is written to')
    return found


def dense(source, name: str, dtype: int | tuple | None, count: int | None = None, writable: bool = False) -> Array:
    """An Array without gaps, of `count` elements if that is given."""
    found = array(source, name, dtype, writable)
    if not found.is_dense:
        raise ValueError(f'{name} is not contiguous: shape {found.shape}, strides {found.strides} in elements')
    if count is not None and found.count != count:
        raise ValueError(f'{name} has {found.count} elements (shape {found.shape}); {count} are wanted')
    return found


def memory(source, name: str, least_bytes: int, writable: bool = True) -> Array:
    """Bytes of any dtype without gaps, at least so many."""
    return _bytes_of(dense(source, name, None, writable=writable), name, least_bytes)


def device_memory(source, name: str, least_bytes: int, writable: bool, stream: int | None) -> DeviceArray:
    """The same of CUDA memory."""
    found = DeviceArray(source, name, stream)
    if writable and found.readonly:
        raise ValueError(f'{name} is read-only, but it is written to')
    if not found.is_dense:
        raise ValueError(f'{name} is not contiguous: shape {found.shape}, strides {found.strides} in elements')
    return _bytes_of(found, name, least_bytes)


def _bytes_of(found, name: str, least_bytes: int):
    if found.kind not in _BYTES:
        raise TypeError(f'{name} is of {found.kind}; bytes are wanted')
    if found.bytes < least_bytes:
        raise ValueError(f'{name} has {found.bytes} bytes; {least_bytes} are wanted')
    return found


def aligned_memory(bytes: int, alignment: int = 64) -> memoryview:
    """Zeroed memory at a border of `alignment` bytes, a power of two, as a writable memoryview. It lives as long as
    that, or anything made from it, does. Since 0.1."""
    bytes = int64(bytes, 'bytes')
    alignment = int64(alignment, 'alignment')
    if bytes < 0 or not 1 <= alignment <= 1 << 30 or alignment & alignment - 1:
        raise ValueError(f'{bytes} bytes at a border of {alignment}: 0 or more, and a power of two are wanted')
    block = (c_uint8 * (bytes + alignment))()
    begin = -ctypes.addressof(block) % alignment
    return memoryview(block).cast('B')[begin:begin + bytes]


def shaped(block: memoryview, dtype: int, shape: tuple[int, ...]) -> memoryview:
    """Bytes as an array of that dtype; bf16 and f16 as words of 16 bits, which is what a memoryview has."""
    letter: Any = {c.MXS_F32: 'f', c.MXS_F64: 'd', c.MXS_U8: 'B'}.get(dtype, 'H')
    return block.cast(letter) if 0 in shape or not shape else block.cast(letter, shape)


def empty_like(source, shape: tuple[int, ...]):
    """A new dense float32 array of the library that the source is of; a memoryview if that is none."""
    if hasattr(source, 'new_empty'):  # torch
        return source.detach().new_empty(shape)
    numpy = sys.modules.get('numpy')
    if numpy is not None and isinstance(source, numpy.ndarray):
        return numpy.empty(shape, numpy.float32)
    bytes = 4
    for length in shape:
        bytes *= length
    if bytes == 0:  # which a memoryview can't be cast to
        kind: Any = ctypes.c_float
        for length in reversed(shape):
            kind = kind * length
        return memoryview(kind())
    return shaped(aligned_memory(bytes), c.MXS_F32, shape)


def _type_letter(text: str) -> str:
    """Of a buffer's format: the letter that numpy's typestr has for it."""
    if text == '?' or text == 'Zf':
        return 'b' if text == '?' else 'c'
    return next((letter for letter, formats in (('i', 'bhilqn'), ('u', 'BHILQNc'), ('f', 'efd')) if text in formats),
                '')


def _dense(shape, item: int) -> tuple[int, ...]:
    strides = []
    for length in reversed(tuple(shape)):
        strides.append(item)
        item *= max(length, 1)
    return tuple(reversed(strides))


class _RawBuffer(ctypes.Structure):
    """Py_buffer."""
    _fields_ = [('buf', c_void_p), ('obj', c_void_p), ('len', c_ssize_t), ('itemsize', c_ssize_t), ('readonly', c_int),
                ('ndim', c_int), ('format', ctypes.c_char_p), ('shape', POINTER(c_ssize_t)),
                ('strides', POINTER(c_ssize_t)), ('suboffsets', POINTER(c_ssize_t)), ('internal', c_void_p)]


class _Buffer:
    """A buffer that is held: what has given it can't resize or free it until this is gone."""

    __slots__ = ('raw',)

    def __init__(self, source):
        raw = _RawBuffer()
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(source), byref(raw), 0x1c)  # PyBUF_RECORDS_RO
        self.raw = raw

    def __del__(self):
        raw = getattr(self, 'raw', None)
        if raw is not None:
            ctypes.pythonapi.PyBuffer_Release(byref(raw))


class _DlTensor(ctypes.Structure):
    _fields_ = [('data', c_void_p), ('device', c_int32), ('device_id', c_int32), ('ndim', c_int32), ('code', c_uint8),
                ('bits', c_uint8), ('lanes', c_uint16), ('shape', POINTER(c_int64)), ('strides', POINTER(c_int64)),
                ('byte_offset', c_uint64)]


class _DlVersioned(ctypes.Structure):
    _fields_ = [('major', c_uint32), ('minor', c_uint32), ('context', c_void_p), ('deleter', c_void_p),
                ('flags', c_uint64), ('tensor', _DlTensor)]


def _tensor_of(capsule) -> tuple[_DlTensor, bool]:
    """(tensor, is it read-only) of DLPack's capsule of either kind."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]
    if 'dltensor_versioned' in repr(capsule):
        versioned = _DlVersioned.from_address(get(capsule, b'dltensor_versioned'))
        return versioned.tensor, bool(versioned.flags & 1)
    return _DlTensor.from_address(get(capsule, b'dltensor')), False
