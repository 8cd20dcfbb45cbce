# SPDX-License-Identifier: Apache-2.0
"""Worlds of ranks: started, waited for, and looked after when they have ended."""
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = os.path.join(HERE, '..', 'cluster')
MARK = 'MXS_SOAK_WORLD'  # in the environment of every process of a world, by which those left behind are found
PATIENCE_SECONDS = 45    # beyond what a world is to take
CLONE_NEWNS, CLONE_NEWIPC, MS_REC, MS_PRIVATE = 0x00020000, 0x08000000, 0x4000, 0x40000


def settle_apart():
    """Takes /dev/shm and System V's memory for ourselves, so that whatever lies there afterwards is ours. False: not
    allowed here; then only names that the library gives are looked at."""
    if os.geteuid() != 0:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return (libc.unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0
            and libc.mount(b'none', b'/', None, MS_REC | MS_PRIVATE, None) == 0
            and libc.mount(b'soak', b'/dev/shm', b'tmpfs', 0, None) == 0)


def no_cluster():
    """Why there are no virtual nodes here, or ''."""
    result = subprocess.run([sys.executable, '-B', CLUSTER, '-N', '2', '--rate', '1gbit', '--least', '0', '--', 'true'],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    return '' if result.returncode == 0 else result.stderr.strip().removeprefix('perf/cluster: ')


def free_port():
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]


class World:
    """What a world did: events of its ranks, their statuses, and what is wrong with its end."""

    def __init__(self):
        self.events = []
        self.statuses = []
        self.noise = []      # lines that are no events
        self.complaints = []
        self.seconds = 0.0
        self.command = ''

    def of(self, event):
        return [each for each in self.events if each['event'] == event]


def environment_of(marker, extra):
    cleaned = {name: value for name, value in os.environ.items()
               if not re.match(r'MXS_|UCX_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_|SLURM_|OMPI_|PMI|TORCHELASTIC_', name)
               or name in ('MXS_LIBRARY', 'UCX_TLS', 'UCX_LOG_LEVEL')}
    return dict(cleaned, **{MARK: marker, 'MXS_SPEEDS': 'none'}, **extra)


def command_of(words, rank_count, cluster):
    if cluster:
        return [sys.executable, '-B', CLUSTER, *cluster, '--', *words]
    return words if rank_count == 0 else ['mxs', 'run', '-n', str(rank_count), '--', *words]


def start(words, rank_count, cluster, marker, output):
    """rank_count 0: one process that has its ranks as threads."""
    if cluster or rank_count == 0:
        command = command_of(words, rank_count, cluster)
        return [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                 env=environment_of(marker, {}))]
    port = str(free_port())
    return [subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                             env=environment_of(marker, {'RANK': str(rank), 'LOCAL_RANK': str(rank),
                                                         'WORLD_SIZE': str(rank_count), 'MASTER_ADDR': '127.0.0.1',
                                                         'MASTER_PORT': port}))
            for rank in range(rank_count)]


def left_behind(marker):
    """Processes of a world that has ended, zombies aside."""
    found = []
    for path in glob.glob('/proc/[0-9]*/environ'):
        try:
            with open(path, 'rb') as file:
                if f'{MARK}={marker}'.encode() not in file.read().split(b'\0'):
                    continue
            with open(os.path.join(os.path.dirname(path), 'stat'), encoding='utf-8', errors='replace') as file:
                if file.read().rpartition(')')[2].split()[0] not in 'ZX':
                    found.append(int(path.split('/')[2]))
        except (OSError, IndexError):
            pass
    return found


def shared_memory(apart):
    """Names of segments that have no right to be there between worlds."""
    names = [name for name in os.listdir('/dev/shm') if apart or name.startswith('mxs')]
    if apart:
        with open('/proc/sysvipc/shm', encoding='ascii') as file:
            names += [f'System V {line.split()[1]}' for line in file.readlines()[1:]]
    return sorted(names)


def stacks(processes):
    """What hanging processes do, if gdb is there."""
    if not shutil.which('gdb'):
        return []
    lines = []
    for process in processes:
        result = subprocess.run(['gdb', '-batch', '-p', str(process), '-ex', 'thread apply all backtrace 12'],
                                capture_output=True, text=True, check=False, timeout=60)
        lines += [line for line in result.stdout.splitlines() if re.match(r'#|Thread', line)]
    return lines


def wait(children, deadline):
    """True: all have ended in time."""
    for child in children:
        try:
            child.wait(timeout=max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
    return True


def end(marker, children):
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM if len(children) == 1 else signal.SIGKILL)
    wait(children, time.monotonic() + 15)
    for process in left_behind(marker):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for child in children:
        child.wait()


def read_lines(file, world):
    file.seek(0)
    for line in file.read().decode(errors='replace').splitlines():
        line = re.sub(r'^\[\d+\] ', '', line)
        try:
            world.events.append(json.loads(line))
        except ValueError:
            world.noise.append(line)


def run(words, rank_count, seconds, cluster=None, apart=False):
    world = World()
    world.command = ' '.join(command_of(words, rank_count, cluster))
    marker = f'{os.getpid()}.{time.monotonic_ns()}'
    began = time.monotonic()
    with tempfile.TemporaryFile('ab+') as output:
        children = start(words, rank_count, cluster, marker, output)
        try:
            if not wait(children, began + seconds + PATIENCE_SECONDS):
                world.complaints.append(f'it hangs after {time.monotonic() - began:.0f} s')
                world.noise += stacks(left_behind(marker))
        finally:
            end_needed = any(child.poll() is None for child in children)
            if end_needed:
                end(marker, children)
        world.statuses = [child.returncode for child in children]
        world.seconds = time.monotonic() - began
        read_lines(output, world)
    rest = left_behind(marker)
    if rest:
        time.sleep(0.2)  # a process that has just been killed may still be on its way out
        rest = left_behind(marker)
    if rest:
        world.complaints.append(f'{len(rest)} processes are left behind')
        end(marker, [])
    segments = shared_memory(apart)
    if segments:
        world.complaints.append(f'shared memory is left behind: {" ".join(segments[:8])}')
        for name in segments:
            if os.path.exists(os.path.join('/dev/shm', name)):
                os.unlink(os.path.join('/dev/shm', name))
    return world
