# SPDX-License-Identifier: Apache-2.0
"""mxs_call: how one call that moves or touches buffers behaves."""
from __future__ import annotations

import ctypes
import operator
from ctypes import byref, c_uint64
from typing import Any

from . import _declarations as c
from ._structs import int32, uint64

LEGACY_STREAM = 1  # the legacy default stream as DLPack and __cuda_array_interface__ call it, and the driver too
# What stands for a stream: its handle as a number, torch.cuda.Stream, cupy.cuda.Stream, what has __cuda_stream__.
StreamLike = Any


def stream_of(stream: StreamLike, name: str = 'stream') -> int | None:
    """The handle of a CUDA stream; None: the legacy default one, whose handle is 0."""
    if stream is None:
        return None
    handle = getattr(stream, '__cuda_stream__', None)
    if handle is not None:  # (version, handle), or a method that gives it
        handle = (handle() if callable(handle) else handle)[1]
    else:
        handle = next((getattr(stream, word) for word in ('cuda_stream', 'ptr') if hasattr(stream, word)), stream)
    try:
        if isinstance(handle, bool):
            raise TypeError
        handle = operator.index(handle)
    except TypeError:
        raise TypeError(f'{name} is {stream!r}, not a CUDA stream: a handle as a number, or an object with '
                        'cuda_stream, ptr or __cuda_stream__ is wanted') from None
    return uint64(handle, name) or None


def nanoseconds(seconds: float | None, name: str = 'timeout') -> int:
    """Of a timeout in seconds; None: 0, which is the library's choice."""
    if seconds is None:
        return 0
    try:
        result = int(seconds * 1e9)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f'{name} is {seconds!r}; give seconds, or None for the default') from None
    if not 0 < result < 1 << 63:
        raise ValueError(f'{name} is {seconds!r}; give seconds above 0, or None for the default')
    return result


def call_of(timeout: float | None, priority: int = 0, stream: StreamLike = None):
    """mxs_call for a function that waits, or None for all defaults."""
    handle = stream_of(stream)
    if timeout is None and not priority and handle is None:
        return None
    return byref(c.mxs_call(timeout_ns=nanoseconds(timeout), priority=int32(priority, 'priority'), stream=handle))


class Begun:
    """mxs_call for a function that begins an operation, and the number that it receives."""
    __slots__ = ('_call', '_request')

    def __init__(self, timeout: float | None, priority: int, stream: StreamLike = None):
        self._request = c_uint64()
        self._call = c.mxs_call(request_out=ctypes.pointer(self._request))
        if timeout is not None:
            self._call.timeout_ns = nanoseconds(timeout)
        if priority:
            self._call.priority = int32(priority, 'priority')
        if stream is not None:
            self._call.stream = stream_of(stream)

    @property
    def call(self):
        return byref(self._call)

    @property
    def request(self) -> int:
        return self._request.value
