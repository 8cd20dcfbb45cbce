# SPDX-License-Identifier: Apache-2.0
"""A module of PyTorch, sharded in place. Start it with: torchrun --nproc-per-node 2 shard_module.py"""
import torch
from torch import nn

import matrixshard.torch as mt

torch.manual_seed(0)  # all ranks make the same module, and each keeps what it owns
model = mt.shard(nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))), units=nn.Linear, rule='muon')
optimizer = mt.Optimizer(model, lr=0.02)  # Muon for matrices, AdamW for the rest
for step in range(20):
    loss = model(torch.randn(32, 64)).square().mean()
    loss.backward()  # gradients are summed at the owners
    optimizer.step()  # local: no matrix bytes move
    optimizer.zero_grad()
print(f'loss {loss.item():.3f}, {sum(p.numel() for p in model.parameters())} numbers here')
