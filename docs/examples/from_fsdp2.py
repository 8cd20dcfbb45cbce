# SPDX-License-Identifier: Apache-2.0
"""What a program of FSDP2 with Muon looks like here. Start it with: torchrun --nproc-per-node 2 from_fsdp2.py"""
import torch
from torch import nn

import matrixshard.torch as mt

WIDTH, STEPS, MICRO_BATCHES = 64, 20, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Block() for _ in range(4)), nn.Linear(WIDTH, WIDTH))

# was: policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
#      for block in blocks: fully_shard(block, mesh=mesh, mp_policy=policy)
#      fully_shard(model, mesh=mesh, mp_policy=policy)
mt.shard(model, units=Block, rule='muon', dtype=torch.bfloat16)

# was: a Muon that puts DTensors together for the matrices, torch.optim.AdamW for the rest, a scheduler for each
optimizer = mt.Optimizer(model, lr=0.02, preset='keller-jordan', others={'lr': 3e-3})
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=STEPS)

comm = mt.sharded(model).comm
torch.manual_seed(1 + comm.rank)  # each rank draws batches of its own
for step in range(STEPS):
    for _ in range(MICRO_BATCHES):  # was: model.set_requires_gradient_sync(...). Here sums grow at their owners
        x = torch.randn(64, WIDTH)
        loss = (model(x).float() - x.flip(1)).square().mean() / MICRO_BATCHES
        loss.backward()
    norm = optimizer.clip_grad_norm_(1.0)  # was: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    if comm.rank == 0 and step % 10 in (0, 9):
        print(f'step {step}, loss {MICRO_BATCHES * loss.item():.3f}, norm {float(norm):.2f}')

# was: get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
state = mt.full_state_dict(model)  # of all on rank 0, of nothing elsewhere
if comm.rank == 0:
    print(f'{len(state)} tensors, {sum(value.numel() for value in state.values())} numbers')
