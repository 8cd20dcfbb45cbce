# SPDX-License-Identifier: Apache-2.0
"""matrixshard.torch: each matrix of a block has an owner rank, which steps it where it lies.

The preset keller-jordan is what the other contenders compute. bf16: weights are gathered and multiplied in bf16; sums
and the owners' masters are fp32.
"""
from __future__ import annotations

import torch

import gpt
import muon


def why_not() -> str:
    """Empty if it can run here."""
    try:
        from matrixshard.torch import Optimizer, init_comm, shard  # noqa: F401
    except ImportError as error:
        return str(error)
    return ''


class Ours:
    """A contender: see worker.py."""

    def __init__(self, settings):
        import matrixshard.torch as mt
        self.comm = mt.init_comm()
        self.model = mt.shard(gpt.GPT(settings.config), units=gpt.Block, comm=self.comm,
                              rule=lambda name, parameter: 'muon' if gpt.is_matrix(name, parameter) else 'adamw',
                              dtype=torch.bfloat16 if settings.is_bf16 else None)
        self.optimizer = mt.Optimizer(self.model, lr=settings.rates.muon, weight_decay=0.0, preset='keller-jordan',
                                      others={'lr': settings.rates.adamw, 'betas': muon.ADAMW_BETAS,
                                              'eps': muon.ADAMW_EPSILON, 'weight_decay': 0.0})
        self.sharded = mt.sharded(self.model)

    def barrier(self) -> None:
        self.comm.barrier()

    def gradients(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        loss = gpt.loss_of(self.model(inputs), targets)
        loss.backward()
        return loss.item()

    def step(self) -> None:
        self.optimizer.step()

    def zero_grad(self) -> None:
        """The step has cleared the sums."""

    def bytes_at_rest(self) -> dict[str, int]:
        """Slack: what is lost where owned segments begin at a page's border."""
        units, step = self.sharded.memory(), self.optimizer.memory()
        return {'parameters': units['weights'] + units['masters'], 'gradients': units['gradients'],
                'state': step.state, 'slack': units['slack']}

    def pool_bytes(self) -> int:
        """Others' weights while units are whole, open gradients, and the step's workspace."""
        units, step = self.sharded.memory(), self.optimizer.memory()
        return units['slots'] + units['own_slots'] + units['gradient_slots'] + step.workspace

    def describe(self) -> str:
        return repr(self.optimizer)

    def close(self) -> None:
        self.optimizer.close()
        self.sharded.close()
        self.comm.close()
