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
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / 'bindings' / 'python')]

try:
    import torch.nn  # torch alone would be this folder
except ImportError:
    sys.exit(f'{sys.executable} has no PyTorch: run {sys.argv[0]} by a Python that has')

import gpt  # noqa: E402
import muon  # noqa: E402
import worker  # noqa: E402
from words import count, new_file  # noqa: E402


TIMES = ('gradient_ms', 'step_ms', 'whole_ms', 'cpu_ms')


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]


def run_ranks(name: str, settings: worker.Settings, timeout: float) -> list[dict]:
    """One run of a contender: what each rank reports."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, WORLD_SIZE=str(settings.ranks), LOCAL_WORLD_SIZE=str(settings.ranks),
                           MASTER_ADDR='127.0.0.1', MASTER_PORT=str(free_port()), OMP_NUM_THREADS='1',
                           PYTHONPATH=os.pathsep.join(filter(None, [sys.path[1], os.environ.get('PYTHONPATH')])))
        words = [sys.executable, str(HERE / 'worker.py'), name, json.dumps(dataclasses.asdict(settings))]
        files = [os.path.join(folder, str(rank)) for rank in range(settings.ranks)]
        children = []
        try:
            for rank, file in enumerate(files):
                children.append(subprocess.Popen([*words, file],
                                                 env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank))))
            failed = [rank for rank, child in enumerate(children) if child.wait(timeout=timeout) != 0]
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        if failed:
            sys.exit(f'{name}: rank {failed[0]} of {settings.ranks} failed; what it said is above')
        return [json.loads(pathlib.Path(file).read_text(encoding='utf-8')) for file in files]


def summary(ranks: list[dict]) -> dict:
    """A round's figures."""
    slowest = [max(values) for values in zip(*(rank['gradient_ms'] for rank in ranks))]
    steps = [max(values) for values in zip(*(rank['step_ms'] for rank in ranks))]
    whole = [max(values) for values in zip(*([a + b for a, b in zip(rank['gradient_ms'], rank['step_ms'])]
                                             for rank in ranks))]
    cpu = [max(values) for values in zip(*(rank['cpu_ms'] for rank in ranks))]
    losses = [statistics.fmean(values) for values in zip(*(rank['losses'] for rank in ranks))]
    worst = max(ranks, key=lambda rank: sum(rank['bytes_at_rest'].values()))
    return {'losses': losses, 'gradient_ms': statistics.median(slowest), 'step_ms': statistics.median(steps),
            'whole_ms': statistics.median(whole), 'cpu_ms': statistics.median(cpu),
            'bytes_at_rest': worst['bytes_at_rest'],
            'at_rest_bytes': sum(worst['bytes_at_rest'].values()),
            'pool_bytes': max(rank['pool_bytes'] for rank in ranks),
            'peak_bytes': max(rank['peak_pss_bytes'] - rank['base_pss_bytes'] for rank in ranks),
            'peak_rss_bytes': max(rank['peak_rss_bytes'] for rank in ranks),
            'description': ranks[0].get('description', '')}


def over_rounds(rounds: list[dict], reference: list[dict]) -> dict:
    """The table's figures of a contender."""
    bytes_keys = ('at_rest_bytes', 'pool_bytes', 'peak_bytes', 'peak_rss_bytes')
    row = {key: statistics.median(one[key] for one in rounds) for key in TIMES + bytes_keys}
    for key in TIMES:
        row[key.replace('ms', 'ratio')] = statistics.median(
            one[key] / other[key] for one, other in zip(rounds, reference)) if reference else None
    return dict(row, losses=rounds[0]['losses'], bytes_at_rest=rounds[0]['bytes_at_rest'],
                description=rounds[0]['description'], rounds=rounds)


def print_table(rows: dict, dtype: str) -> None:
    print(f'\n{dtype}')
    print(f'  {"":16} {"loss first":>10} {"last":>8} {"fwd+bwd ms":>11} {"step ms":>9} {"whole ms":>9} {"cpu ms":>8} '
          f'{"at rest MiB":>12} {"pools":>6} {"peak":>6}   over ours: fwd+bwd, step, whole, cpu')
    for name, row in rows.items():
        ratios = [row[key] for key in ('gradient_ratio', 'step_ratio', 'whole_ratio', 'cpu_ratio')]
        text = '  '.join(f'{ratio:5.2f}' for ratio in ratios) if ratios[0] is not None else '-'
        print(f'  {name:16} {row["losses"][0]:10.4f} {row["losses"][-1]:8.4f} {row["gradient_ms"]:11.1f} '
              f'{row["step_ms"]:9.1f} {row["whole_ms"]:9.1f} {row["cpu_ms"]:8.1f} {row["at_rest_bytes"] / 2**20:12.1f} '
              f'{row["pool_bytes"] / 2**20:6.1f} {row["peak_bytes"] / 2**20:6.1f}   {text}')


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
    parser.add_argument('--contenders', default=','.join(worker.CONTENDERS))
    parser.add_argument('--timeout', type=count, default=900, help='seconds of a run')
    parser.add_argument('--json', type=new_file, metavar='FILE', help='all figures; - for standard output')
    words = parser.parse_args()
    words.contenders = [name for name in words.contenders.split(',') if name]
    words.dtype = words.dtype.split(',')
    for name in words.contenders:
        if name not in worker.CONTENDERS:
            parser.error(f'"{name}" is none of: {", ".join(worker.CONTENDERS)}')
    for dtype in words.dtype:
        if dtype not in ('fp32', 'bf16'):
            parser.error(f'"{dtype}" is neither fp32 nor bf16')
    if words.width % words.heads:
        parser.error(f'width {words.width} is not a multiple of heads {words.heads}')
    return words


def main() -> None:
    words = read_words()
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
                results[name].append(summary(run_ranks(name, settings, words.timeout)))
        reference = results.get('matrixshard')
        rows = {name: over_rounds(rounds, reference) for name, rounds in results.items()}
        report['dtypes'][dtype] = rows
        if str(words.json) != '-':
            print_table(rows, dtype)
    if str(words.json) == '-':
        json.dump(report, sys.stdout, indent=1)
    elif words.json:
        words.json.write_text(json.dumps(report, indent=1), encoding='utf-8')


if __name__ == '__main__':
    main()
