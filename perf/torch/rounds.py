# SPDX-License-Identifier: Apache-2.0
"""Runs of contenders: ranks as forks, what they report as figures of a round, rounds as a table."""
from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import statistics
import sys
import tempfile
import time
import traceback

import worker

TIMES = ('gradient_ms', 'step_ms', 'whole_ms', 'cpu_ms')


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]


def begin_rank(rank: int, name: str, settings: worker.Settings, port: int, file: str) -> int:
    """A fork, as of torchrun: what the parent has imported needs no second time. Returns the process's id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(settings.ranks),
                          LOCAL_WORLD_SIZE=str(settings.ranks), MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
        for variable in ('MXS_PORT', 'TORCHELASTIC_USE_AGENT_STORE', 'TORCHELASTIC_RUN_ID'):
            os.environ.pop(variable, None)
        worker.main(name, settings, file)
        status = 0
    except BaseException:  # pylint: disable=broad-except
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def wait_for(processes: list[int], timeout: float) -> int | None:
    """Until all have ended, or one has failed: its rank, and the others are killed. None: all is well."""
    deadline = time.monotonic() + timeout
    left = dict(enumerate(processes))
    failed = None
    while left and failed is None:
        for rank, process in list(left.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                del left[rank]
                if status:
                    failed = rank
        if time.monotonic() > deadline:
            failed = min(left)
        time.sleep(0.01)
    for process in left.values():
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return failed


def run_ranks(name: str, settings: worker.Settings, timeout: float) -> list[dict]:
    """One run of a contender: what each rank reports."""
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, str(rank)) for rank in range(settings.ranks)]
        port = free_port()
        sys.stdout.flush()
        processes = [begin_rank(rank, name, settings, port, file) for rank, file in enumerate(files)]
        failed = wait_for(processes, timeout)
        if failed is not None:
            sys.exit(f'{name}: rank {failed} of {settings.ranks} failed, or took more than {timeout:.0f} s; what it '
                     'said is above')
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
