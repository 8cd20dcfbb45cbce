# SPDX-License-Identifier: Apache-2.0
"""How ranks find each other: by torchrun's variables, or by the process group that there is already.

    no process group        Comm() reads the environment: torchrun, srun, mpirun, mxs run
    a process group         its all_gather of CPU tensors brings the ranks together; bytes of units never go over it

Only creating calls (a comm, units, an optimizer, ...) use the group, each of them on all of its ranks.
"""
from __future__ import annotations

import ctypes
from typing import Any

import torch
import torch.distributed as dist

from ..comm import Bootstrap, Comm
from ..errors import InvalidArgumentError

# Backends that have one name for all devices and gather in CPU memory.
_CPU_BACKENDS = ('gloo', 'mpi', 'ucc')


class _Gather:
    """One all_gather in flight: what Bootstrap asks until it is done."""

    def __init__(self, group: Any, rank_count: int, blob: bytes):
        self._source = torch.frombuffer(bytearray(blob), dtype=torch.uint8)
        self._targets = [torch.empty(len(blob), dtype=torch.uint8) for _ in range(rank_count)]
        self._work = dist.all_gather(self._targets, self._source, group=group, async_op=True)

    def done(self) -> bool:
        return self._work.is_completed()

    def result(self) -> list[bytes]:
        """Raises what the group has failed by."""
        self._work.wait()
        return [ctypes.string_at(target.data_ptr(), target.numel()) for target in self._targets]


def _gathers_on_cpu(backends: str) -> bool:
    """Of a group's backends as torch names them: 'gloo', 'nccl', or by device, 'cpu:gloo,cuda:nccl'."""
    names = backends.lower().split(',')
    if any(':' in name for name in names):
        return any(name.partition(':')[0] == 'cpu' for name in names)
    return backends.lower() in _CPU_BACKENDS


def _backends(group: Any) -> str:
    if hasattr(dist, 'get_backend_config'):  # since PyTorch 2.1
        return dist.get_backend_config(group)
    return dist.get_backend(group)


def _bootstrap_of(group: Any) -> Bootstrap:
    rank = dist.get_rank(group)
    if rank < 0:
        raise InvalidArgumentError(f'rank {dist.get_rank()} of the default group is not in this process group: call '
                                   'init_comm on the ranks of the group only')
    backends = _backends(group)
    if not _gathers_on_cpu(backends):
        raise InvalidArgumentError(
            f'the process group has the backend "{backends}", which gathers no CPU tensors: pass a group beside it, '
            'init_comm(torch.distributed.new_group(backend="gloo")), or begin with '
            'init_process_group("cpu:gloo,cuda:nccl")')
    rank_count = dist.get_world_size(group)
    return Bootstrap(rank, rank_count, lambda blob: _Gather(group, rank_count, blob))


def init_comm(process_group: Any = None, **options: Any) -> Comm:
    """A comm of the ranks of a process group, in its order. Collective over them.

    process_group: of torch.distributed, with a backend for CPU tensors such as gloo; None: the default group if it is
    initialised, else the launcher's environment. options: of Comm, such as timeout=30 or progress='thread'.

    The group must stay until the comm is closed, if units or an optimizer are made from it. A rank that has died ends
    the call with the exception of torch.distributed; one that is late, with TimedOutError after options' timeout.
    InvalidArgumentError: the group has no backend for CPU tensors, or this rank isn't in it. Since 0.1.
    """
    if 'bootstrap' in options:
        raise TypeError('init_comm has no argument bootstrap: Comm(bootstrap=...) is for ranks by other means')
    if process_group is None:
        if not dist.is_available() or not dist.is_initialized():
            return Comm(**options)
        process_group = dist.group.WORLD
    elif not dist.is_initialized():
        raise InvalidArgumentError('a process group was given, but torch.distributed is not initialised')
    return Comm(bootstrap=_bootstrap_of(process_group), **options)
