# SPDX-License-Identifier: Apache-2.0
"""A small GPT trained on 1, 2 and 4 ranks, beside one process with the same formulas written in torch; and in rank
order with equal bits, whatever the world."""
import hashlib
import unittest

import torch
import torch_models
import world

import matrixshard.torch as mt

STEPS, MICRO_BATCHES = 30, 4
LR, DECAY, MOMENTUM = 0.01, 0.1, 0.95
OTHERS = {'lr': 3e-3, 'weight_decay': 0.01, 'betas': (0.9, 0.95), 'eps': 1e-8}


def newton_schulz(x):
    """Five steps of Jordan's table, as torch.optim.Muon, in fp32."""
    tall = x.shape[0] > x.shape[1]
    x = x.t() if tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.t()
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.t() if tall else x


class MuonInTorch:
    """The formulas of torch.optim.Muon, which PyTorch 1.13 hasn't got."""

    def __init__(self, parameters):
        self.state = {parameter: torch.zeros_like(parameter) for parameter in parameters}

    @torch.no_grad()
    def step(self):
        for parameter, momentum in self.state.items():
            momentum.lerp_(parameter.grad, 1 - MOMENTUM)
            update = newton_schulz(parameter.grad.lerp(momentum, MOMENTUM))
            parameter.mul_(1 - LR * DECAY)
            parameter.sub_(update, alpha=LR * max(1, parameter.shape[0] / parameter.shape[1]) ** 0.5)


def single_process(clip):
    """Losses of all micro-batches, step by step."""
    model = torch_models.small_gpt()
    matrices = [one for name, one in model.named_parameters() if one.dim() == 2 and name.startswith('blocks.')]
    others = [one for one in model.parameters() if not any(one is matrix for matrix in matrices)]
    muon, adamw = MuonInTorch(matrices), torch.optim.AdamW(others, **OTHERS)
    losses = []
    for step in range(STEPS):
        for micro in range(MICRO_BATCHES):
            loss = model(*torch_models.batch(step, micro))
            (loss / MICRO_BATCHES).backward()
            losses.append(loss.item())
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        muon.step()
        adamw.step()
        model.zero_grad(set_to_none=True)
    return losses


def train(rank, ranks, clip=0.0, **options):
    """{(step, micro-batch): loss} of this rank, and a hash of all weights. Micro-batch j is rank j mod p's."""
    torch.set_num_threads(1)
    model = mt.shard(torch_models.small_gpt(), **options)
    optimizer = mt.Optimizer(model, lr=LR, weight_decay=DECAY, momentum=MOMENTUM, preset='torch-muon',
                             backend='reference', others=OTHERS, gradient_scale=1 / MICRO_BATCHES)
    losses = {}
    for step in range(STEPS):
        for micro in range(rank, MICRO_BATCHES, ranks):
            loss = model(*torch_models.batch(step, micro))
            loss.backward()
            losses[step, micro] = loss.item()
        if clip:
            optimizer.clip_grad_norm_(clip)
        optimizer.step()
        optimizer.zero_grad()
    whole = mt.full_state_dict(model)
    digest = hashlib.sha256(b''.join(one.numpy().tobytes() for one in whole.values())).hexdigest()
    return losses, digest if rank == 0 else None


def together(results):
    losses = {}
    for one, _ in results:
        losses.update(one)
    return [losses[step, micro] for step in range(STEPS) for micro in range(MICRO_BATCHES)]


class TrainedGpt(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def test_losses_are_those_of_one_process_with_the_formulas_in_torch(self):
        for clip in (0.0, 0.5):
            expected = single_process(clip)
            self.assertLess(sum(expected[-4:]), 0.7 * sum(expected[:4]))  # it learns
            for ranks in (1, 2, 4):
                with self.subTest(ranks=ranks, clip=clip):
                    losses = together(world.run_ranks(ranks, train, ranks, clip, timeout=120))
                    worst = max(abs(ours - theirs) for ours, theirs in zip(losses, expected))
                    print(f'# {ranks} ranks, clip {clip}: largest difference of a loss {worst:.1e}')
                    self.assertLess(worst, 1e-5)

    def test_in_rank_order_every_world_has_the_bits_of_one_rank(self):
        results = {ranks: world.run_ranks(ranks, lambda rank, ranks=ranks: train(rank, ranks, rank_order=True),
                                          timeout=120) for ranks in (1, 2, 4)}
        for ranks in (2, 4):
            self.assertEqual(together(results[ranks]), together(results[1]))
            self.assertEqual(results[ranks][0][1], results[1][0][1])


if __name__ == '__main__':
    unittest.main()
