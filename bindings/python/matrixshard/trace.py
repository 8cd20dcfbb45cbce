# SPDX-License-Identifier: Apache-2.0
"""Trace: what ranks did, and who kept whom waiting (trace.h).

    with matrixshard.Trace('folder-of-MXS_TRACE') as trace:
        print(trace.report())
        trace.write('timeline.json')         # for ui.perfetto.dev
"""
from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_void_p

from . import _declarations as c
from ._handles import Handle
from ._library import check, lib
from ._structs import info, int32, text
from .infos import TraceEvent, TraceRank

__all__ = ['Trace']


class Trace(Handle):
    """Rings of the ranks of one comm, copied when they are opened (mxs_trace_open): files, or folders of them. Of ranks
    that run, have ended or were killed. Raises NotFoundError: no ring there; DamagedError. Since 0.1."""

    _destroy_name = 'mxs_trace_close'

    def __init__(self, *paths: str | os.PathLike):
        array = (c_char_p * len(paths))(*(os.fsencode(path) for path in paths))
        made = c_void_p()
        check(lib.mxs_trace_open(byref(made), ctypes.cast(array, ctypes.POINTER(c_void_p)), len(paths)))
        self._own(made)

    @property
    def rank_count(self) -> int:
        """Ranks of the comm, with or without a ring. Since 0.1."""
        return self._ask(lib.mxs_trace_rank_count)

    def rank(self, rank: int) -> TraceRank:
        """One rank's ring. Raises NotFoundError: it is missing. Since 0.1."""
        found = c.mxs_trace_rank()
        self._call(lib.mxs_trace_rank_at, int32(rank, 'rank'), byref(found))
        return info(found, alive=None if found.alive < 0 else bool(found.alive))

    def events(self) -> Iterator[TraceEvent]:
        """All events, by begin. Since 0.1."""
        for index in range(self._ask(lib.mxs_trace_event_count)):
            found = c.mxs_trace_event()
            self._call(lib.mxs_trace_event_at, index, byref(found))
            yield info(found)

    def report(self) -> str:
        """In plain words: who is stuck, who lags, in which collective, who died. Since 0.1."""
        size = ctypes.c_size_t()
        self._call(lib.mxs_trace_report, None, 0, byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(lib.mxs_trace_report, buffer, size.value, byref(size))
        return text(buffer.value)

    def write(self, path: str | os.PathLike) -> None:
        """All rings as one timeline in JSON, for ui.perfetto.dev. Since 0.1."""
        self._call(lib.mxs_trace_write, os.fsencode(path))
