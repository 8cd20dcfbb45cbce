# SPDX-License-Identifier: Apache-2.0
"""A small GPT: learned positions, blocks with a norm before each half, causal attention, an MLP of four widths.

    tokens (batch, length) -> embedding + positions -> blocks -> norm -> head -> logits (batch, length, vocabulary)

Plain PyTorch, from 1.13 on. Nothing in it knows that it may be sharded. `Block` is what is wrapped as a unit.
"""
from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Config:
    vocabulary: int = 256
    length: int = 128     # tokens of a row, at most
    layers: int = 4
    width: int = 256
    heads: int = 4
    tied: bool = False    # the head's matrix is the embedding's
    seed: int = 1234

    def __post_init__(self):
        if self.width % self.heads:
            raise ValueError(f'width {self.width} is not a multiple of heads {self.heads}')


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Of (batch, heads, length, head width)."""
    if hasattr(F, 'scaled_dot_product_attention'):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, float('-inf')).softmax(-1) @ v


class Attention(nn.Module):
    """q, k and v are matrices of their own: an optimizer of matrices orthogonalises each by itself."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, config.width, bias=False)
        self.value = nn.Linear(config.width, config.width, bias=False)
        self.output = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape

        def by_head(y):
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        y = causal_attention(by_head(self.query(x)), by_head(self.key(x)), by_head(self.value(x)))
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width, bias=False)
        self.down = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.width)
        self.mlp = Mlp(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """Initialised from config.seed alone: equal on all ranks."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.length, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        """Normal with deviation 0.02; what adds to the residual is smaller by sqrt(2 layers), as in GPT-2."""
        generator = torch.Generator().manual_seed(self.config.seed)
        for name, parameter in self.named_parameters():  # a tied one once
            if parameter.dim() == 2:
                adds_to_residual = name.endswith(('attention.output.weight', 'mlp.down.weight'))
                deviation = 0.02 / math.sqrt(2 * self.config.layers) if adds_to_residual else 0.02
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * deviation)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of a token, in fp32."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def is_matrix(name: str, parameter: torch.Tensor) -> bool:
    """What Muon steps: the matrices of blocks. Embeddings, head, norms go to AdamW."""
    return name.startswith('blocks.') and parameter.dim() == 2


class Stream:
    """Tokens with something to learn: mostly the next one follows from the last, else it is drawn.

    next = (5 last + 7) mod vocabulary, with probability 0.85. Rows are made from (seed, step, rank), so every program
    sees equal data. With 256 tokens a loss of 1.25 is the best that there is.
    """

    def __init__(self, config: Config, batch: int, seed: int = 99):
        self.config, self.batch, self.seed = config, batch, seed

    def rows(self, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets, (batch, length) each."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + step) * 4099 + rank)
        vocabulary, length = self.config.vocabulary, self.config.length
        drawn = torch.randint(vocabulary, (self.batch, length + 1), generator=generator)
        follows = torch.rand(self.batch, length + 1, generator=generator) < 0.85
        tokens = drawn.clone()
        for i in range(1, length + 1):
            rule = (5 * tokens[:, i - 1] + 7) % vocabulary
            tokens[:, i] = torch.where(follows[:, i], rule, drawn[:, i])
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
