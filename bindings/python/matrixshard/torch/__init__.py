# SPDX-License-Identifier: Apache-2.0
"""matrixshard for PyTorch: shard(model) makes units of a module's parts, Optimizer steps what each rank owns.

    import matrixshard.torch as mt

    model = mt.shard(GPT(config), rule='muon')            # torchrun's environment, or an initialised process group
    optimizer = mt.Optimizer(model, lr=2e-2)
    loss = model(tokens); loss.backward()
    optimizer.clip_grad_norm_(1.0); optimizer.step(); optimizer.zero_grad()
    mt.save_checkpoint(model, 'checkpoints', keep=3)      # a safetensors model; mt.load_checkpoint in any world

Outside forward and backward a parameter is its shard (at its owner the matrix in master dtype, elsewhere of shape
(0,)), as in FSDP2; inside it is the whole tensor at a fixed address. Works with PyTorch 1.13 and later, on CPU memory.
"""
from __future__ import annotations

from ._checkpoint import Loaded, load_checkpoint, save_checkpoint, start_save
from ._external import external
from ._model import ShardedModel, commit, no_sync, shard, sharded, unshard
from ._optimizer import Optimizer, clip_grad_norm_
from ._rendezvous import init_comm
from ._state import full_state_dict, load_full_state_dict, state_dict

__all__ = ['Loaded', 'Optimizer', 'ShardedModel', 'clip_grad_norm_', 'commit', 'external', 'full_state_dict',
           'init_comm', 'load_checkpoint', 'load_full_state_dict', 'no_sync', 'save_checkpoint', 'shard', 'sharded',
           'start_save', 'state_dict', 'unshard']
