# SPDX-License-Identifier: Apache-2.0
"""Small models for tests, on every PyTorch from 1.13 on."""
import math

import torch
from torch import nn

try:
    import torch._dynamo  # noqa: F401, seconds, which each rank would take at its first forward
except ImportError:
    pass


class Block(nn.Module):
    """A transformer's layer: causal attention and an MLP, norms before each."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, 2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, float('-inf')).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    """Layers of Block between an embedding and a head, tied to it or not. Returns logits, or the loss of targets."""

    def __init__(self, layers=4, width=32, heads=4, vocabulary=61, length=16, tied=True, wrap=None,
                 run=None):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight
        self.wrap = wrap or (lambda block, x: block(x))  # such as activation checkpointing
        self.run = run or self.in_order                  # of (blocks, x), where they run in another way

    def in_order(self, blocks, x):
        for block in blocks:
            x = self.wrap(block, x)
        return x

    def forward(self, tokens, targets=None):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        logits = self.lm_head(self.norm_f(self.run(self.blocks, x)))
        if targets is None:
            return logits
        return nn.functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))


def small_gpt(seed=0, **options):
    """A GPT with weights of the seed's, and gains that differ, so that no gradient is zero by symmetry."""
    torch.manual_seed(seed)
    model = GPT(**options)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.02)
    return model


def batch(step, rank=0, size=2, vocabulary=61, length=16):
    """Tokens and targets of one rank's micro-batch: a sequence that a model can learn."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    start = torch.randint(0, vocabulary, (size, 1), generator=generator)
    stride = torch.randint(1, 4, (size, 1), generator=generator)
    tokens = (start + stride * torch.arange(length + 1)) % vocabulary
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
