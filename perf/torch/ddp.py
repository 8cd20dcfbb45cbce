# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel with Muon: whole weights and gradients on each rank, one rank orthogonalises each matrix.

Gradients are summed to all by DDP. The owner of a matrix keeps its momentum; updates are gathered in bf16, all at once.
"""
from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist

import gpt
import muon


class Owners:
    """The optimizer of matrices."""

    def __init__(self, matrices: list, rates: muon.Rates, rank: int, world: int):
        self.matrices, self.rates = matrices, rates
        owners = muon.deal([matrix.shape for matrix in matrices], [0] * world)
        self.by_owner = [[matrix for matrix, owner in zip(matrices, owners) if owner == r] for r in range(world)]
        self.own = self.by_owner[rank]
        self.momenta = [torch.zeros_like(matrix) for matrix in self.own]
        self.count = max(sum(matrix.numel() for matrix in of) for of in self.by_owner)

    @torch.no_grad()
    def step(self) -> None:
        source = torch.zeros(self.count, dtype=torch.bfloat16)
        offset = 0
        for matrix, momentum in zip(self.own, self.momenta):
            update = muon.newton_schulz(muon.direction(matrix.grad, momentum))
            source[offset:offset + update.numel()].view(update.shape).copy_(update)
            offset += update.numel()
        targets = [torch.empty_like(source) for _ in self.by_owner]
        # As integers: gloo of PyTorch 1.13 knows no bf16.
        dist.all_gather([target.view(torch.uint8) for target in targets], source.view(torch.uint8))
        for of, updates in zip(self.by_owner, targets):
            offset = 0
            for matrix in of:
                update = updates[offset:offset + matrix.numel()].view(matrix.shape)
                offset += matrix.numel()
                matrix.add_(update, alpha=-self.rates.muon * muon.scale(matrix.shape))


class Ddp(muon.TwoOptimizers):
    """A contender: see worker.py. bf16 is autocast: weights and sums stay fp32."""

    def __init__(self, settings):
        self.model = torch.nn.parallel.DistributedDataParallel(gpt.GPT(settings.config),
                                                               gradient_as_bucket_view=True)
        self.is_bf16 = settings.is_bf16
        matrices, rest = muon.split(self.model)
        self.muon = Owners(matrices, settings.rates, dist.get_rank(), dist.get_world_size())
        self.adamw = muon.adamw(rest, settings.rates)

    def gradients(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        with torch.autocast('cpu', torch.bfloat16) if self.is_bf16 else contextlib.nullcontext():
            logits = self.model(inputs)
        loss = gpt.loss_of(logits, targets)
        loss.backward()
        return loss.item()

