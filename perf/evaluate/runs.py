# SPDX-License-Identifier: Apache-2.0
"""One run of a program on a world: started, waited for, and nothing of it left behind, however it ends."""
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'soak'))
import running  # pylint: disable=wrong-import-position

LINES_TOLD = 40  # of the output of a run that failed
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class Failure(Exception):
    """What failed, and what it said."""

    def __init__(self, what, command, output):
        super().__init__(what)
        self.command = command
        self.output = output

    def text(self):
        lines = self.output.splitlines()[-LINES_TOLD:]
        return '\n'.join([f'{self}; the command was', f'  {self.command}'] + [f'  | {line}' for line in lines])


def interrupt_on_sigterm():
    """kill, as a batch system does it, is an interrupt as well, and so is a terminal that goes away: what has been
    started must be ended. nohup has SIGHUP ignored, which stays."""
    def interrupt(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, interrupt)


def end_with_parent():
    """In the child: should this program be killed so that it can end nothing, the job hears of it."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def command_of(program, words, world, rate, mxs, seconds):
    """On one node a job of mxs run; on several, one of perf/cluster, whose links have the rate."""
    if world.nodes == 1:
        return [mxs, 'run', '-n', str(world.ranks_per_node), '--', program, *words]
    return [sys.executable, '-B', os.path.normpath(running.CLUSTER), '-N', str(world.nodes), '-m',
            str(world.ranks_per_node), '--rate', rate, '--timeout', str(seconds), '--', program, *words]


def run(command, speeds, seconds):
    """Returns what was printed. speeds: the file for MXS_SPEEDS, or 'none'."""
    marker = f'{os.getpid()}.{time.monotonic_ns()}'
    shown = f'MXS_SPEEDS={speeds} ' + ' '.join(command)
    with tempfile.TemporaryFile('w+', errors='replace') as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                 preexec_fn=end_with_parent,
                                 env=dict(running.environment_of(marker, {}), MXS_SPEEDS=speeds))
        try:
            in_time = running.wait([child], time.monotonic() + seconds + running.PATIENCE_SECONDS)
        finally:
            if child.poll() is None:
                running.end(marker, [child])
        output.seek(0)
        text = output.read()
    if running.left_behind(marker):
        running.end(marker, [])
    if not in_time:
        raise Failure(f'no end after {seconds + running.PATIENCE_SECONDS} s', shown, text)
    if child.returncode:
        raise Failure(f'status {child.returncode}', shown, text)
    return text
