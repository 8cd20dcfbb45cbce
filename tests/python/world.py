# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes, for tests:

    def body(rank, factor):
        with matrixshard.Comm() as comm:
            return rank * factor

    self.assertEqual(world.run_ranks(3, body, 10), [0, 10, 20])

Each rank is a fork of the caller with torchrun's variables for one machine, so body may be a closure and modules are
imported already; nothing that holds threads (a comm, a pool of OpenMP that has run) may be alive in the caller.
What a rank returns is pickled. A rank that raises, dies or hangs fails the caller with RankFailed, which shows the
traceback; the ranks that still run are given a few seconds to notice, then killed, by their process ids.
"""
import ctypes
import gc
import os
import pickle
import random
import select
import signal
import socket
import sys
import time
import traceback
import unittest

GRACE_SECONDS = 15
CLEARED = ['MXS_PORT', 'MXS_TRANSPORT', 'MXS_NODE', 'MXS_TIMEOUT', 'MXS_SECRET', 'MXS_SECRET_FILE', 'MXS_INTERFACE',
           'TORCHELASTIC_USE_AGENT_STORE', 'TORCHELASTIC_RUN_ID']
PR_SET_PDEATHSIG = 1


class RankFailed(AssertionError):
    """What went wrong first, with the traceback of its rank; `complaints` has that of each rank that failed."""

    def __init__(self, text, complaints):
        super().__init__(text)
        self.complaints = complaints


class _Rank:
    def __init__(self, number, process, pipe):
        self.number, self.process, self.pipe = number, process, pipe
        self.data = b''
        self.is_silent = False   # its pipe is at its end
        self.has_spoken = False  # its message is here
        self.result = None       # status of waitpid
        self.complaint = None
        self.value = None
        self.skip_reason = None

    @property
    def runs(self):
        return self.result is None


def free_port():
    """A port of this machine on which nobody listens. Drawn, below those that systems give to outgoing connections, so
    that tests that run at the same time rarely meet."""
    draw = random.SystemRandom()
    for _ in range(1000):
        port = draw.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(('127.0.0.1', port))
                return port
            except OSError:
                continue
    raise RuntimeError('no port between 20000 and 32000 is free')


def rank_environment(rank, count, port):
    """torchrun's variables for one machine."""
    return {'RANK': str(rank), 'LOCAL_RANK': str(rank), 'WORLD_SIZE': str(count), 'LOCAL_WORLD_SIZE': str(count),
            'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}


def run_ranks(count, body, *args, timeout=60, environment=None, may_die=(), meanwhile=None):
    """Runs body(rank, *args) in `count` processes and returns what each returned, by rank.

    timeout: seconds for all of it. environment: more variables; a dict, or a function from a rank to one; the value
    None removes a variable. may_die: ranks whose death by a signal is no failure; their value is None.
    meanwhile: called in the parent with the process ids by rank once all are started.
    """
    deadline = time.monotonic() + timeout
    port = free_port()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    ranks = []
    try:
        for number in range(count):
            reader, writer = os.pipe()
            process = os.fork()
            if process == 0:
                os.close(reader)
                for other in ranks:
                    os.close(other.pipe)
                more = environment(number) if callable(environment) else environment or {}
                _be_child(number, rank_environment(number, count, port), more, parent, writer, body, args)
            os.close(writer)
            ranks.append(_Rank(number, process, reader))
        if meanwhile:
            meanwhile([rank.process for rank in ranks])
        _collect(ranks, deadline, timeout, set(may_die))
    finally:
        for rank in ranks:
            if rank.runs:
                os.kill(rank.process, signal.SIGKILL)
                os.waitpid(rank.process, 0)
            os.close(rank.pipe)
    return _judge(ranks)


def _be_child(number, variables, more, parent, pipe, body, args):
    """Never returns. os._exit: what the parent has buffered and registered is the parent's."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for name in CLEARED:
            os.environ.pop(name, None)
        os.environ.update(variables)
        for name, value in more.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = str(value)
        try:
            _send(pipe, 'value', body(number, *args))
            status = 0
        except unittest.SkipTest as reason:
            _send(pipe, 'skip_reason', str(reason))
            status = 0
        except BaseException:
            _send(pipe, 'complaint', traceback.format_exc())  # before what the frames hold is closed, which may wait
        gc.collect()
        handles = sys.modules.get('matrixshard._handles')
        if handles:
            handles._destroy_all()  # what is open ends as at the end of a program
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _send(pipe, kind, what):
    message = pickle.dumps((kind, what))
    message = len(message).to_bytes(8, 'little') + message
    while message:
        message = message[os.write(pipe, message):]


def _collect(ranks, deadline, timeout, may_die):
    """Until all have ended. After the first failure the others have GRACE_SECONDS."""
    why = f'still ran after {timeout} s; killed'
    first_failed = None
    while any(rank.runs for rank in ranks):
        left = deadline - time.monotonic()
        if left <= 0:
            for rank in ranks:
                if rank.runs:
                    _end(rank, why)
            return
        poller = select.poll()
        by_pipe = {rank.pipe: rank for rank in ranks if rank.runs and not rank.is_silent}
        for pipe in by_pipe:
            poller.register(pipe, select.POLLIN)
        # A rank whose pipe is at its end is about to end; a pipe may also stay open in a process that its rank started.
        wait_seconds = 0.05 if len(by_pipe) == sum(rank.runs for rank in ranks) else 0.001
        for pipe, _ in poller.poll(min(left, wait_seconds) * 1000):
            _read(by_pipe[pipe])
        for rank in ranks:
            if rank.runs:
                _reap(rank, may_die)
            if rank.complaint and first_failed is None:
                first_failed = rank.number
                if time.monotonic() + GRACE_SECONDS < deadline:
                    deadline = time.monotonic() + GRACE_SECONDS
                    why = f'still ran {GRACE_SECONDS} s after rank {first_failed} had failed; killed'


def _read(rank):
    data = os.read(rank.pipe, 1 << 16)
    rank.is_silent = not data
    rank.data += data
    if len(rank.data) >= 8 and len(rank.data) == 8 + int.from_bytes(rank.data[:8], 'little'):
        rank.has_spoken = True
        try:
            kind, what = pickle.loads(rank.data[8:])
            setattr(rank, kind, what)
        except Exception as error:
            rank.complaint = f'returned a value that cannot be read: {error}'


def _reap(rank, may_die):
    process, result = os.waitpid(rank.process, os.WNOHANG)
    if process == 0:
        return
    rank.result = result
    os.set_blocking(rank.pipe, False)
    try:
        while not rank.is_silent:
            _read(rank)
    except BlockingIOError:
        pass
    if os.WIFSIGNALED(result):
        if rank.number not in may_die:
            rank.complaint = f'{rank.complaint or ""}killed by signal {signal.Signals(os.WTERMSIG(result)).name}'
    elif not rank.has_spoken:
        rank.complaint = f'ended with status {os.WEXITSTATUS(result)} before body returned'


def _end(rank, why):
    """SIGTERM first: under tap.py, which registers faulthandler for it, it shows where the rank hangs."""
    rank.complaint = rank.complaint or why
    os.kill(rank.process, signal.SIGTERM)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        process, result = os.waitpid(rank.process, os.WNOHANG)
        if process:
            rank.result = result
            return
        time.sleep(0.01)
    os.kill(rank.process, signal.SIGKILL)
    rank.result = os.waitpid(rank.process, 0)[1]


def _judge(ranks):
    complaints = {rank.number: rank.complaint for rank in ranks if rank.complaint}
    if complaints:
        last_lines = {number: text.strip().splitlines()[-1] for number, text in complaints.items()}
        # A comm that another rank has aborted says so on all of them: that is an echo, not the cause.
        cause = min(complaints, key=lambda number: ('aborted' in last_lines[number].lower(),
                                                    'killed' in last_lines[number], number))
        others = ''.join(f'\nrank {number}: {line}' for number, line in last_lines.items() if number != cause)
        raise RankFailed(f'rank {cause} of {len(ranks)}: {complaints[cause].rstrip()}{others}', complaints)
    for rank in ranks:
        if rank.skip_reason is not None:
            raise unittest.SkipTest(rank.skip_reason)
    return [rank.value for rank in ranks]
