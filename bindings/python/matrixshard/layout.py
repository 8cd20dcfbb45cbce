# SPDX-License-Identifier: Apache-2.0
"""Layout: who owns which bytes of a buffer (layout.h).

    layout = Layout([(0, 0, 8), (2, 8, 2), (1, 16, 4)], rank_count=3, alignment=8)     # owner, offset, bytes
    layout.bytes, layout.owned_bytes(2)                                                # 20, 2
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import _declarations as c
from ._handles import Handle
from ._library import lib
from ._structs import Items, int32, sequence, set_field, uint64, unknown
from .infos import LayoutMove, Segment

__all__ = ['Layout']

_FIELDS = ('owner', 'offset', 'bytes')


class Layout(Handle):
    """A layout from its segments in the order of their offsets (mxs_layout_create).

    segments: of (owner, offset, bytes), dicts with those keys, or what another layout's `segments` gives; owners are
    ranks, the rest bytes. alignment: a power of two; 0: no gaps. Immutable; any thread may ask it. Raises
    InvalidArgumentError with the segment that is wrong. Since 0.1.
    """

    _destroy_name = 'mxs_layout_destroy'

    def __init__(self, segments: Iterable, rank_count: int, alignment: int = 0):
        segments = list(sequence(segments, 'segments'))
        array = (c.mxs_segment * len(segments))()
        for index, segment in enumerate(segments):
            _fill(array[index], segment, f'segments[{index}]')
        self._create(lib.mxs_layout_create, array, len(array), int32(rank_count, 'rank_count'),
                     uint64(alignment, 'alignment'))

    @classmethod
    def even(cls, bytes: int, element_bytes: int, rank_count: int) -> Layout:
        """`bytes` cut into one segment a rank, as evenly as whole elements allow. Since 0.1."""
        return cls._made(lib.mxs_layout_create_even, uint64(bytes, 'bytes'), uint64(element_bytes, 'element_bytes'),
                         int32(rank_count, 'rank_count'))

    @property
    def bytes(self) -> int:
        """From the start of the buffer to the end of the last segment, gaps included. Since 0.1."""
        return self._ask(lib.mxs_layout_bytes)

    def owned_bytes(self, rank: int) -> int:
        """Of one rank's segments; 0 outside the world. Since 0.1."""
        return self._ask(lib.mxs_layout_owned_bytes, int32(rank, 'rank'))

    @property
    def rank_count(self) -> int:
        return self._ask(lib.mxs_layout_rank_count)

    @property
    def segment_count(self) -> int:
        return self._ask(lib.mxs_layout_segment_count)

    def segment(self, index: int) -> Segment:
        """One segment: owner, offset, bytes. Since 0.1."""
        return self._query(lib.mxs_layout_segment, c.mxs_segment, uint64(index, 'index'))

    @property
    def segments(self) -> Items[Segment]:
        """segment() of all. Since 0.1."""
        return Items('Layout.segments', lambda: self.segment_count, self.segment)

    def moves(self, target: Layout) -> list[LayoutMove]:
        """From this layout of a buffer to another, every byte once: source_rank, target_rank, source_offset,
        target_offset, bytes. Since 0.1."""
        if not isinstance(target, Layout):
            raise TypeError(f'target is {target!r}, not a Layout')
        with target._lent() as pointer:
            return self._listed(lib.mxs_layout_moves, c.mxs_layout_move, pointer)

    def __repr__(self) -> str:
        if self.closed:
            return '<Layout: closed>'
        return f'<Layout: {self.bytes} bytes, {self.segment_count} segments, {self.rank_count} ranks>'


def _fill(target, segment, label: str) -> None:
    if not isinstance(segment, Mapping):
        values = tuple(sequence(segment, label))
        if len(values) != 3:
            raise TypeError(f'{label} has {len(values)} values: owner, offset, bytes are wanted')
        segment = dict(zip(_FIELDS, values))
    for name in segment:
        if name not in _FIELDS:
            raise unknown(label, name, _FIELDS)
    target.__init__()
    for name in _FIELDS:
        if name not in segment:
            raise TypeError(f'{label} has no {name}')
        set_field(target, name, segment[name], f'{label}.{name}')
