# SPDX-License-Identifier: Apache-2.0
"""One rank of one contender, with torchrun's variables: what compare.py runs in each of its forks.

A contender has

    gradients(inputs, targets)   forward and backward of this rank's rows; the loss
    step()                       the optimizer's step: gradients are averaged over ranks by then, or in it
    zero_grad()
    bytes_at_rest()              bytes by kind between steps, when gradients are there

and may have

    pool_bytes()                 bytes that it keeps for what comes and goes
    barrier(), close()           where it doesn't stand on torch.distributed
    describe()                   a line about what it chose

Steps are timed from a barrier on. Memory is looked at in steps of their own, since looking costs time.
"""
from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import threading
import time

import torch
import torch.distributed as dist

import gpt
import muon

MEMORY_STEPS = 2
SAMPLE_SECONDS = 0.005


@dataclasses.dataclass
class Settings:
    ranks: int
    config: gpt.Config
    rates: muon.Rates
    is_bf16: bool
    batch: int
    steps: int
    warmup: int


def why_not(name: str) -> str:
    """Empty if the contender can run here."""
    if name.startswith('fsdp2'):
        import fsdp2
        return fsdp2.Fsdp2.why_not()
    if name == 'matrixshard':
        import ours
        return ours.why_not()
    return ''


def make(name: str, settings: Settings):
    if name == 'matrixshard':
        import ours
        return ours.Ours(settings)
    if not dist.is_initialized():
        dist.init_process_group('gloo')
    if name == 'ddp-muon':
        import ddp
        return ddp.Ddp(settings)
    import fsdp2
    return fsdp2.Fsdp2(settings, fsdp2.AllToAll if name == 'fsdp2-alltoall' else fsdp2.Common)


def pss_bytes() -> int:
    """This process's memory; of a page that several have mapped, its share."""
    with open('/proc/self/smaps_rollup', encoding='ascii') as file:
        for line in file:
            if line.startswith('Pss:'):
                return int(line.split()[1]) * 1024
    raise OSError('/proc/self/smaps_rollup has no Pss')


class Peak:
    """The largest Pss while it is open."""

    def __init__(self):
        self.bytes = pss_bytes()
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.is_over.wait(SAMPLE_SECONDS):
            self.bytes = max(self.bytes, pss_bytes())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.is_over.set()
        self.thread.join()


def run(contender, settings: Settings, rank: int, log) -> dict:
    barrier = getattr(contender, 'barrier', None) or dist.barrier
    stream = gpt.Stream(settings.config, settings.batch)
    count = settings.warmup + settings.steps + MEMORY_STEPS
    rows = [stream.rows(step, rank) for step in range(count)]
    losses, gradient_ms, step_ms, cpu_ms, at_rest = [], [], [], [], {}

    def train(step):
        barrier()
        cpu_begin, begin = time.process_time(), time.perf_counter()
        losses.append(contender.gradients(*rows[step]))
        middle = time.perf_counter()
        contender.step()
        end = time.perf_counter()
        gradient_ms.append((middle - begin) * 1e3)
        step_ms.append((end - middle) * 1e3)
        cpu_ms.append((time.process_time() - cpu_begin) * 1e3)
        at_rest.update(contender.bytes_at_rest() if step == settings.warmup else {})
        contender.zero_grad()

    for step in range(settings.warmup + settings.steps):
        train(step)
        log(f'step {step}: loss {losses[-1]:.4f}, {gradient_ms[-1]:.1f} + {step_ms[-1]:.1f} ms')
    with Peak() as peak:
        for step in range(settings.warmup + settings.steps, count):
            train(step)
    timed = slice(settings.warmup, settings.warmup + settings.steps)
    return {'losses': losses[:settings.warmup + settings.steps], 'gradient_ms': gradient_ms[timed],
            'step_ms': step_ms[timed], 'cpu_ms': cpu_ms[timed], 'bytes_at_rest': at_rest,
            'pool_bytes': contender.pool_bytes() if hasattr(contender, 'pool_bytes') else 0,
            'peak_pss_bytes': peak.bytes,
            'peak_rss_bytes': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main(name: str, settings: Settings, path: str) -> None:
    """Writes what it has measured as JSON."""
    rank = int(os.environ['RANK'])
    torch.set_num_threads(1)

    def log(text):
        if rank == 0 and os.environ.get('COMPARE_VERBOSE'):
            print(f'{name}: {text}', file=sys.stderr, flush=True)

    # What is imported and compiled at first use belongs to nobody's memory: a small model takes a step before.
    small = dataclasses.replace(settings, config=dataclasses.replace(settings.config, layers=1, width=32, heads=1),
                                steps=1, warmup=0)
    contender = make(name, small)
    run(contender, small, rank, lambda text: None)
    close(contender)
    del contender
    base = pss_bytes()
    contender = make(name, settings)
    result = run(contender, settings, rank, log)
    result['base_pss_bytes'] = base
    if hasattr(contender, 'describe'):
        result['description'] = contender.describe()
    close(contender)
    if dist.is_initialized():
        dist.destroy_process_group()
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(result, file)


def close(contender) -> None:
    if hasattr(contender, 'close'):
        contender.close()
