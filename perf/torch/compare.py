#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""matrixshard.torch beside FSDP2 with Muon and DDP with Muon: equal model, seeds, data and formulas, one machine.

    python perf/torch/compare.py --ranks 2 --layers 4 --width 256 --steps 10 [--dtype fp32,bf16] [--json FILE]

Contenders take turns, round by round, so that what else the machine does hits all alike. A step's time is that of its
slowest rank, a round's figure the median of its steps, the table's the median of the rounds; ratios are formed within
rounds, the contender's time over ours. Each rank has one thread for PyTorch.

    fwd+bwd, step, whole   forward and backward; the optimizer's step; both, from a barrier on
    cpu                    of the busiest rank, all its threads, in a whole step: what other work disturbs least
    at rest                bytes of a rank (the worst) between steps: weights, gradients, optimizer state
    pools                  what it keeps beside them for what comes and goes
    peak                   growth of a rank's Pss (the worst) since before the model was made, within two more steps

docs/performance.md says how to read it.
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / 'bindings' / 'python')]

from words import count, new_file  # noqa: E402

CONTENDERS = ('fsdp2-muon', 'fsdp2-alltoall', 'ddp-muon', 'matrixshard')


def read_words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--ranks', type=count, default=2)
    parser.add_argument('--layers', type=count, default=4)
    parser.add_argument('--width', type=count, default=256)
    parser.add_argument('--heads', type=count, default=4)
    parser.add_argument('--length', type=count, default=128, help='tokens of a row')
    parser.add_argument('--batch', type=count, default=4, help='rows of a rank in a step')
    parser.add_argument('--vocabulary', type=count, default=256)
    parser.add_argument('--tied', action='store_true', help="the head's matrix is the embedding's")
    parser.add_argument('--steps', type=count, default=10, help='timed ones of a round')
    parser.add_argument('--warmup', type=count, default=2, help='steps before them')
    parser.add_argument('--rounds', type=count, default=3)
    parser.add_argument('--dtype', default='fp32', help='fp32, bf16 or both with a comma: of gathered weights')
    parser.add_argument('--contenders', default=','.join(CONTENDERS))
    parser.add_argument('--timeout', type=count, default=900, help='seconds of a run')
    parser.add_argument('--json', type=new_file, metavar='FILE', help='all figures; - for standard output')
    words = parser.parse_args()
    words.contenders = [name for name in words.contenders.split(',') if name]
    words.dtype = words.dtype.split(',')
    for name in words.contenders:
        if name not in CONTENDERS:
            parser.error(f'"{name}" is none of: {", ".join(CONTENDERS)}')
    for dtype in words.dtype:
        if dtype not in ('fp32', 'bf16'):
            parser.error(f'"{dtype}" is neither fp32 nor bf16')
    if words.width % words.heads:
        parser.error(f'width {words.width} is not a multiple of heads {words.heads}')
    return words


def main() -> None:
    words = read_words()
    os.environ.setdefault('OMP_NUM_THREADS', '1')  # of all ranks, before anything reads it
    try:
        import torch.nn  # torch alone would be this folder
    except ImportError:
        sys.exit(f'{sys.executable} has no PyTorch: run {sys.argv[0]} by a Python that has')
    import gpt  # only now: PyTorch takes seconds, and words should make sense first
    import muon
    import rounds
    import worker
    contenders = []
    for name in words.contenders:
        reason = worker.why_not(name)
        if reason:
            print(f'{name} is left out: {reason}', file=sys.stderr)
        else:
            contenders.append(name)
    config = gpt.Config(vocabulary=words.vocabulary, length=words.length, layers=words.layers, width=words.width,
                        heads=words.heads, tied=words.tied)
    report = {'torch': torch.__version__, 'python': platform.python_version(), 'ranks': words.ranks,
              'config': dataclasses.asdict(config), 'batch': words.batch, 'steps': words.steps,
              'rounds': words.rounds, 'cores': len(os.sched_getaffinity(0)), 'dtypes': {}}
    for dtype in words.dtype:
        settings = worker.Settings(words.ranks, config, muon.Rates(), dtype == 'bf16', words.batch, words.steps,
                                   words.warmup)
        results = {name: [] for name in contenders}
        for round_ in range(words.rounds):
            # Each round begins with another one.
            shift = round_ % max(1, len(contenders))
            for name in contenders[shift:] + contenders[:shift]:
                results[name].append(rounds.summary(rounds.run_ranks(name, settings, words.timeout)))
        reference = results.get('matrixshard')
        rows = {name: rounds.over_rounds(found, reference) for name, found in results.items()}
        report['dtypes'][dtype] = rows
        if str(words.json) != '-':
            rounds.print_table(rows, dtype)
    if str(words.json) == '-':
        json.dump(report, sys.stdout, indent=1)
    elif words.json:
        words.json.write_text(json.dumps(report, indent=1), encoding='utf-8')


if __name__ == '__main__':
    main()
