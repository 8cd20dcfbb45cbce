# SPDX-License-Identifier: Apache-2.0
"""mxs_call: how one call that moves or touches buffers behaves."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_uint64

from . import _declarations as c
from ._structs import int32


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


def call_of(timeout: float | None, priority: int = 0):
    """mxs_call for a function that waits, or None for all defaults."""
    if timeout is None and not priority:
        return None
    return byref(c.mxs_call(timeout_ns=nanoseconds(timeout), priority=int32(priority, 'priority')))


class Begun:
    """mxs_call for a function that begins an operation, and the number that it receives."""
    __slots__ = ('_call', '_request')

    def __init__(self, timeout: float | None, priority: int):
        self._request = c_uint64()
        self._call = c.mxs_call(request_out=ctypes.pointer(self._request))
        if timeout is not None:
            self._call.timeout_ns = nanoseconds(timeout)
        if priority:
            self._call.priority = int32(priority, 'priority')

    @property
    def call(self):
        return byref(self._call)

    @property
    def request(self) -> int:
        return self._request.value
