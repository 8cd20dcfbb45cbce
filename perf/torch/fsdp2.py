# SPDX-License-Identifier: Apache-2.0
"""FSDP2 (`fully_shard`, PyTorch 2.6 and later) with Muon, in two ways, over gloo on CPUs.

    fsdp2-muon      the common recipe: for each matrix the update's slices are gathered on every rank
                    (`DTensor.full_tensor`), every rank orthogonalises all of it and takes its own rows back
    fsdp2-alltoall  the strong one: each matrix has one rank that orthogonalises it; slices go there and come back by
                    all-to-all in bf16, a batch of blocks at a time: one batch travels while another computes

Momenta are sharded in both, as the weights are. gloo has all that is needed in PyTorch 2.15: reduce_scatter_tensor (AVG
as well), all_gather_into_tensor, all_to_all_single with unequal parts, all of bf16 too. The mesh is made for 'cpu'.
"""
from __future__ import annotations

import torch
import torch.distributed as dist

import gpt
import muon


def shard(model: gpt.GPT, mesh, is_bf16: bool) -> None:
    """Each block and the rest. bf16: weights are gathered and multiplied in bf16; sums and own slices are fp32."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    options = {'mesh': mesh}
    if is_bf16:
        options['mp_policy'] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)


def rows_of(matrix: torch.Tensor, world: int) -> list[torch.Tensor]:
    """The rows of each rank: FSDP2 cuts as torch.chunk does, the last ranks may have none."""
    parts = list(torch.chunk(matrix, world))
    return parts + [matrix[:0]] * (world - len(parts))


class Common:
    """fsdp2-muon's optimizer."""

    def __init__(self, matrices: list, rates: muon.Rates, mesh):
        self.matrices, self.rates = matrices, rates
        self.rank, self.world = mesh.get_local_rank(), mesh.size()
        self.momenta = [torch.zeros_like(matrix.to_local()) for matrix in matrices]

    @torch.no_grad()
    def step(self) -> None:
        from torch.distributed.tensor import DTensor
        for matrix, momentum in zip(self.matrices, self.momenta):
            gradient = matrix.grad
            part = DTensor.from_local(muon.direction(gradient.to_local(), momentum), gradient.device_mesh,
                                      gradient.placements, shape=gradient.shape, stride=gradient.stride())
            update = muon.newton_schulz(part.full_tensor())
            own = rows_of(update, self.world)[self.rank]
            matrix.to_local().add_(own, alpha=-self.rates.muon * muon.scale(matrix.shape))


class Batch:
    """Matrices that travel together. Owner r's parts of all of them lie side by side in what goes to r."""

    def __init__(self, members: list[int], owners: list[int], matrices: list, rank: int, world: int):
        self.by_owner = [[i for i, owner in zip(members, owners) if owner == r] for r in range(world)]
        self.own = self.by_owner[rank]
        rows = {i: [len(part) for part in rows_of(torch.empty(matrices[i].shape[0], 0), world)] for i in members}
        columns = {i: matrices[i].shape[1] for i in members}
        self.send_counts = [sum(rows[i][rank] * columns[i] for i in of) for of in self.by_owner]
        self.receive_counts = [sum(rows[i][r] * columns[i] for i in self.own) for r in range(world)]
        self.rows, self.columns = rows, columns


class AllToAll:
    """fsdp2-alltoall's optimizer."""

    def __init__(self, matrices: list, rates: muon.Rates, mesh):
        self.matrices, self.rates, self.group = matrices, rates, mesh.get_group()
        self.rank, self.world = mesh.get_local_rank(), mesh.size()
        self.momenta = [torch.zeros_like(matrix.to_local()) for matrix in matrices]
        # A block has four small matrices and two large ones: dealt evenly to two ranks, so world / 2 blocks at a time.
        size = 6 * max(1, self.world // 2)
        loads = [0] * self.world
        self.batches = []
        for begin in range(0, len(matrices), size):
            members = list(range(begin, min(begin + size, len(matrices))))
            owners = muon.deal([matrices[i].shape for i in members], loads)
            self.batches.append(Batch(members, owners, matrices, self.rank, self.world))

    def send_parts(self, batch: Batch):
        """To the owners. Returns (work, what arrives)."""
        parts = [muon.direction(self.matrices[i].grad.to_local(), self.momenta[i]).bfloat16().flatten()
                 for of in batch.by_owner for i in of]
        source = torch.cat(parts) if parts else torch.empty(0, dtype=torch.bfloat16)
        target = torch.empty(sum(batch.receive_counts), dtype=torch.bfloat16)
        return dist.all_to_all_single(target, source, batch.receive_counts, batch.send_counts, group=self.group,
                                      async_op=True), target, source

    def orthogonalise(self, batch: Batch, parts: torch.Tensor):
        """What the owner does. Returns (work, what arrives of the updates)."""
        from_rank = parts.split(batch.receive_counts)
        offset, to_rank = [0] * self.world, [[] for _ in range(self.world)]
        for i in batch.own:
            pieces = []
            for r, count in enumerate(batch.rows[i]):
                end = offset[r] + count * batch.columns[i]
                pieces.append(from_rank[r][offset[r]:end].view(count, batch.columns[i]))
                offset[r] = end
            update = muon.newton_schulz(torch.cat(pieces))
            for r, rows in enumerate(update.split(batch.rows[i])):
                to_rank[r].append(rows.flatten())
        out = [piece for pieces in to_rank for piece in pieces]
        source = torch.cat(out) if out else torch.empty(0, dtype=torch.bfloat16)
        target = torch.empty(sum(batch.send_counts), dtype=torch.bfloat16)
        return dist.all_to_all_single(target, source, batch.send_counts, batch.receive_counts, group=self.group,
                                      async_op=True), target, source

    def apply(self, batch: Batch, updates: torch.Tensor) -> None:
        offset = 0
        for of in batch.by_owner:
            for i in of:
                local = self.matrices[i].to_local()
                part = updates[offset:offset + local.numel()].view(local.shape)
                offset += local.numel()
                local.add_(part, alpha=-self.rates.muon * muon.scale(self.matrices[i].shape))

    @torch.no_grad()
    def step(self) -> None:
        """Batch k + 1 travels while batch k is orthogonalised and k - 1 comes back."""
        coming = self.send_parts(self.batches[0]) if self.batches else None
        returning = None
        for k, batch in enumerate(self.batches):
            work, parts, _ = coming
            if k + 1 < len(self.batches):
                coming = self.send_parts(self.batches[k + 1])
            work.wait()
            back = self.orthogonalise(batch, parts)
            if returning:
                returning[0].wait()
                self.apply(self.batches[k - 1], returning[1])
            returning = back
        if returning:
            returning[0].wait()
            self.apply(self.batches[-1], returning[1])


class Fsdp2(muon.TwoOptimizers):
    """A contender: see worker.py."""

    def __init__(self, settings, optimizer_class):
        from torch.distributed.device_mesh import init_device_mesh
        self.mesh = init_device_mesh('cpu', (settings.ranks,))
        self.model = gpt.GPT(settings.config)
        shard(self.model, self.mesh, settings.is_bf16)
        matrices, rest = muon.split(self.model)
        self.muon = optimizer_class(matrices, settings.rates, self.mesh)
        self.adamw = muon.adamw(rest, settings.rates)

    def gradients(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        loss = gpt.loss_of(self.model(inputs), targets)
        loss.backward()
        return loss.item()

    @staticmethod
    def why_not() -> str:
        """Empty if this PyTorch has it."""
        try:
            from torch.distributed.fsdp import fully_shard  # noqa: F401
        except (ImportError, ValueError):  # ValueError: PyTorch 1.13's own folder on Python 3.11
            return f'PyTorch {torch.__version__} has no torch.distributed.fsdp.fully_shard (2.6 and later have)'
        return ''
