# SPDX-License-Identifier: Apache-2.0
"""Topology: which ranks share a node, which NICs a node has, and how fast messages are (topology.h).

    topology = Topology('nodes:2 ranks:4 nic:25')
    topology.rank(5).node                                    # 1
    topology.with_speeds(local_latency_ns=300).save('two_nodes.json')
"""
from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from . import _declarations as c
from ._handles import Handle
from ._library import encoded, lib, text
from ._structs import Items, filled, info, int32, integers, set_field
from .infos import LinkInfo, NodeInfo, RailInfo, RankInfo, Speeds

__all__ = ['Topology']


class Topology(Handle):
    """A topology made from words: 'ranks:4', 'nodes:2 ranks:4 rails:2 nic:25', ... (mxs_topology_create).

    Immutable; any thread may ask it. Raises InvalidArgumentError with the word that wasn't understood. Since 0.1.
    """

    _destroy_name = 'mxs_topology_destroy'

    def __init__(self, text: str):
        self._create(lib.mxs_topology_create, encoded(text))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Topology:
        """What save() wrote, or a machine that hwloc saved as XML. Since 0.1."""
        return cls._made(lib.mxs_topology_load, encoded(path))

    def save(self, path: str | os.PathLike) -> None:
        """Everything, speeds too, as JSON. The file is complete or not there. Since 0.1."""
        self._call(lib.mxs_topology_save, encoded(path))

    @property
    def rank_count(self) -> int:
        return self._ask(lib.mxs_topology_rank_count)

    @property
    def node_count(self) -> int:
        return self._ask(lib.mxs_topology_node_count)

    def rank(self, rank: int) -> RankInfo:
        """Where a rank lives: node, local_rank, local_rank_count, numa, rail. Since 0.1."""
        return self._query(lib.mxs_topology_rank, c.mxs_rank_info, int32(rank, 'rank'))

    def node(self, node: int) -> NodeInfo:
        """What a node has: rank_count, rail_count, numa_count. Since 0.1."""
        return self._query(lib.mxs_topology_node, c.mxs_node_info, int32(node, 'node'))

    def rail(self, node: int, rail: int) -> RailInfo:
        """A NIC: numa, name, bytes_per_second. Since 0.1."""
        return self._query(lib.mxs_topology_rail, c.mxs_rail_info, int32(node, 'node'), int32(rail, 'rail'))

    def link(self, a: int, b: int) -> LinkInfo:
        """What joins two ranks: same_node, latency_ns, overhead_ns, bytes_per_second. Since 0.1."""
        return self._query(lib.mxs_topology_link, c.mxs_link_info, int32(a, 'a'), int32(b, 'b'))

    @property
    def ranks(self) -> Items[RankInfo]:
        """rank() of all. Since 0.1."""
        return Items('Topology.ranks', lambda: self.rank_count, self.rank)

    @property
    def nodes(self) -> Items[NodeInfo]:
        """node() of all. Since 0.1."""
        return Items('Topology.nodes', lambda: self.node_count, self.node)

    @property
    def speeds(self) -> Speeds:
        """The speeds that stand in it, guesses too; factors is a dict: algorithm -> per mille. Since 0.1."""
        speeds = c.mxs_speeds()
        self._call(lib.mxs_topology_speeds, ctypes.byref(speeds))
        return info(speeds, factors={text(factor.algorithm): factor.per_mille
                                     for factor in speeds.factors[:speeds.factor_count]})

    def with_speeds(self, **speeds) -> Topology:
        """A copy with other speeds: fields of mxs_speeds; factors={'ring': 1250} are per mille. Since 0.1."""
        factors = speeds.pop('factors', None) or {}
        given = filled(c.mxs_speeds, speeds, 'Topology.with_speeds()', special=('factors',))
        array = (c.mxs_algorithm_factor * len(factors))()
        for factor, (algorithm, per_mille) in zip(array, dict(factors).items()):
            factor.__init__()
            set_field(factor, 'algorithm', algorithm)
            set_field(factor, 'per_mille', per_mille, f'the factor of {algorithm}')
        given.factors, given.factor_count = array, len(factors)
        with self._lent() as whole:
            return self._made(lib.mxs_topology_with_speeds, whole, ctypes.byref(given))

    def of_ranks(self, ranks: Iterable[int]) -> Topology:
        """The topology of some of its ranks, numbered anew in this order. Since 0.1."""
        array = integers(ranks, 'ranks', ctypes.c_int32)
        with self._lent() as whole:
            return self._made(lib.mxs_topology_of_ranks, whole, array, len(array))

    def save_speeds(self, path: str | os.PathLike | None = None) -> None:
        """The speeds alone, where later comms find them; None: where comms look. Since 0.1."""
        self._call(lib.mxs_topology_save_speeds, encoded(path))

    def __repr__(self) -> str:
        if self.closed:
            return '<Topology: closed>'
        return f'<Topology: {self.rank_count} ranks, {self.node_count} nodes>'
