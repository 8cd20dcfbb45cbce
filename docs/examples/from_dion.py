# SPDX-License-Identifier: Apache-2.0
"""What a program of dion's Muon looks like here. Start it with: torchrun --nproc-per-node 2 from_dion.py"""
import math

import torch
from torch import nn

import matrixshard.torch as mt

WIDTH, HEADS, WORDS, STEPS, LR = 64, 4, 50, 40, 0.02


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(-2, -3) for part in self.qkv(self.norm(x)).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)).softmax(-1)
        return x + self.out((weights @ v).transpose(-2, -3).flatten(-2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block() for _ in range(4))
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


torch.manual_seed(0)
model = Model()
# was: fully_shard(...), and dict(params=qkv, num_heads=3 * HEADS): rows of one head are a matrix here, of any sizes
mt.shard(model, rule='muon', tensors={'*.qkv.weight': {'block_rows': [WIDTH // HEADS] * (3 * HEADS)}})

# was: dict(params=vectors, algorithm='adamw'), ... Who gets which rule shard() has said; groups are of values alone.
# A shard's shape tells nothing (elsewhere than at its owner it is (0,)), so they are put together by names.
named = dict(model.named_parameters())
matrices = [named[name] for name in named if name.endswith(('qkv.weight', 'out.weight'))]
rest = [named[name] for name in named if not name.endswith(('qkv.weight', 'out.weight', 'lm_head.weight'))]
optimizer = mt.Optimizer([  # was: Muon(groups, distributed_mesh=mesh, lr=LR, cautious_wd=True)
    {'params': matrices},
    {'params': rest, 'weight_decay': 0.0},
    {'params': [named['lm_head.weight']], 'lr': LR / math.sqrt(WIDTH), 'weight_decay': 0.0},
], lr=LR, others={'lr': LR}, preset='dion', muon={'decay': 'cautious'})

comm = mt.sharded(model).comm
torch.manual_seed(1 + comm.rank)
for step in range(STEPS):
    words = torch.randint(WORDS, (8, 16))
    loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flip(1).flatten())
    loss.backward()
    optimizer.step()  # was: an all-to-all to whole matrices, and another one back
    optimizer.zero_grad()
    if comm.rank == 0 and step % 20 in (0, 19):
        print(f'step {step}, loss {loss.item():.3f}')
