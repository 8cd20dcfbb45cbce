# SPDX-License-Identifier: Apache-2.0
"""A small GPT learns this very file, letter by letter: torchrun --nproc-per-node 4 train_gpt.py [CHECKPOINTS]"""
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

import matrixshard.torch as mt

WIDTH, HEADS, LAYERS, LENGTH, STEPS = 64, 4, 4, 64, 60


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        y = self.norm_1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128, bias=False)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.lm_head(self.norm(x)).view(-1, 128), targets.reshape(-1))


text = torch.tensor(list(pathlib.Path(__file__).read_bytes())) % 128
torch.set_num_threads(1)
torch.manual_seed(0)  # all ranks begin with the same weights: each owner keeps its part
model = mt.shard(GPT(), rule='muon')  # each block is a unit; matrices get Muon, the rest AdamW
optimizer = mt.Optimizer(model, lr=0.02, weight_decay=0.01, others={'lr': 1e-2})
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 10, (STEPS - step) / 20))
comm = mt.sharded(model).comm
torch.manual_seed(comm.rank)  # each rank draws letters of its own
first, folder = 0, sys.argv[1] if len(sys.argv) > 1 else None
if folder and any(pathlib.Path(folder).glob('step-*')):  # go on where the newest one ends, on any number of ranks
    loaded = mt.load_checkpoint(model, folder)
    first = loaded.step_number
    schedule.load_state_dict(loaded.user)
for step in range(first, STEPS):
    at = torch.randint(len(text) - LENGTH - 1, (4, 1)) + torch.arange(LENGTH + 1)
    loss = model(text[at[:, :-1]], text[at[:, 1:]])
    loss.backward()  # gradients are summed straight into the owners
    norm = optimizer.clip_grad_norm_(1.0)
    optimizer.step()  # local: no matrix bytes move
    optimizer.zero_grad()
    schedule.step()
    if folder and step % 20 == 19:  # a safetensors model, and all that training needs to go on
        mt.save_checkpoint(model, folder, keep=2, user=schedule.state_dict())
    mean = comm.sum([loss.item()])[0] / comm.rank_count
    if comm.rank == 0 and (step % 10 == 0 or step == STEPS - 1):
        print(f'step {step:3d}  loss {mean:.3f}  norm {float(norm):.2f}')
