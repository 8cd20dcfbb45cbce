# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch contenders have in common: Muon's formulas, who does which matrix, AdamW for the rest.

    m = beta m + (1 - beta) g,  u = beta m + (1 - beta) g,  w = w - lr sqrt(max(1, rows / columns)) NS(u)

as in the preset keller-jordan: beta 0.95, five steps of Newton-Schulz in bf16 with one table. AdamW has betas 0.9 and
0.95 and no weight decay.
"""
from __future__ import annotations

import dataclasses

import torch

import gpt

TABLE = (3.4445, -4.7750, 2.0315)
STEPS = 5
BETA = 0.95
ADAMW_BETAS = (0.9, 0.95)
ADAMW_EPSILON = 1e-8


@dataclasses.dataclass
class Rates:
    muon: float = 0.02
    adamw: float = 1e-3


def newton_schulz(u: torch.Tensor) -> torch.Tensor:
    """Of a whole matrix of any float type; bf16."""
    x = u.bfloat16()
    is_tall = x.shape[0] > x.shape[1]
    if is_tall:
        x = x.T
    x = x / (x.norm() + 1e-7)
    a, b, c = TABLE
    for _ in range(STEPS):
        gram = x @ x.T
        factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.addmm(x, factor, x, beta=a)
    return x.T if is_tall else x


def scale(shape: torch.Size) -> float:
    return max(1.0, shape[0] / shape[1]) ** 0.5


def direction(gradient: torch.Tensor, momentum: torch.Tensor) -> torch.Tensor:
    """Updates the momentum, leaves the gradient. Element by element: a slice will do."""
    momentum.lerp_(gradient, 1 - BETA)
    return torch.lerp(gradient, momentum, BETA)


def cost(shape: torch.Size) -> int:
    """Multiplications of a step of Newton-Schulz."""
    n, m = min(shape), max(shape)
    return n * n * (2 * m + n)


def deal(shapes: list[torch.Size], loads: list[int]) -> list[int]:
    """An owner for each, the dearest first and always to whom has least; adds to loads."""
    owners = [0] * len(shapes)
    for i in sorted(range(len(shapes)), key=lambda i: -cost(shapes[i])):
        owners[i] = loads.index(min(loads))
        loads[owners[i]] += cost(shapes[i])
    return owners


def split(model: torch.nn.Module) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """What Muon steps, and the rest."""
    matrices, rest = [], []
    for name, parameter in model.named_parameters():
        (matrices if gpt.is_matrix(name.removeprefix('module.'), parameter) else rest).append(parameter)
    return matrices, rest


def adamw(parameters: list[torch.nn.Parameter], rates: Rates) -> torch.optim.AdamW:
    """The fused form if this PyTorch has it for CPUs: it is the fastest."""
    options = {'lr': rates.adamw, 'betas': ADAMW_BETAS, 'eps': ADAMW_EPSILON, 'weight_decay': 0.0}
    try:
        return torch.optim.AdamW(parameters, fused=True, **options)
    except (RuntimeError, TypeError):
        return torch.optim.AdamW(parameters, **options)


def storage_bytes(tensors) -> int:
    """Of all their storages, each once."""
    found = {}
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, 'to_local') else tensor
        storage = local.untyped_storage() if hasattr(local, 'untyped_storage') else local.storage()
        found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def optimizer_tensors(optimizer: torch.optim.Optimizer):
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


class TwoOptimizers:
    """A contender with `model`, `muon` for the matrices of blocks and `adamw` for the rest."""

    def step(self) -> None:
        self.muon.step()
        self.adamw.step()

    def bytes_at_rest(self) -> dict[str, int]:
        parameters = list(self.model.parameters())
        return {'parameters': storage_bytes(parameters),
                'gradients': storage_bytes(p.grad for p in parameters if p.grad is not None),
                'state': storage_bytes([*self.muon.momenta, *optimizer_tensors(self.adamw)])}

    def zero_grad(self) -> None:
        self.model.zero_grad(set_to_none=True)
