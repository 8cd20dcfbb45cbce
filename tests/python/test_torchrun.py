# SPDX-License-Identifier: Apache-2.0
"""Ranks started by torchrun itself find each other by its variables, whatever its store is and where.

Each case runs the real one (`python -m torch.distributed.run`, which is what the script torchrun calls) on a program
that needs no torch. What a rank has seen it writes to a file of its own: standard output of ranks runs together.
"""
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import unittest

import world
from torch.distributed.elastic.multiprocessing import Std

PROGRAM = '''
import os, pathlib, sys, time
import matrixshard

folder, manner = pathlib.Path(sys.argv[1]), sys.argv[2]
rank, attempt = int(os.environ['RANK']), int(os.environ['TORCHELASTIC_RESTART_COUNT'])

def write(what, text):
    path = folder / f'{what}-{rank}-{attempt}'
    path.with_suffix('.part').write_text(text)
    path.with_suffix('.part').rename(path)

def meet(what):
    comm = matrixshard.Comm()
    count, total = comm.sum([1, rank])
    write(what, f'{count:.0f} ranks, sum {total:.0f}, {comm.bootstrap}')
    return comm

try:
    with meet('first') as comm:
        if manner == 'dies once' and attempt == 0:
            if rank == 1: os._exit(7)
            comm.barrier()
        if manner == 'waits':
            end = time.monotonic() + 90
            while not (folder / 'go on').exists() and time.monotonic() < end: time.sleep(0.02)
    meet('second').close()
except matrixshard.MatrixShardError as error:
    write('failed', f'{error.status_name}: {error}')
    sys.exit(1)
'''

# Debian 12's own pair, PyTorch 1.13 and Python 3.11, doesn't understand its default of these two options.
DEBIAN = ['--redirects', '9:1', '--tee', '9:1'] if Std.from_str('0') is None else []


class Job:
    """One torchrun."""

    def __init__(self, folder, *options, manner=''):
        os.mkdir(folder)
        self.folder = folder
        program = os.path.join(folder, 'program.py')
        with open(program, 'w', encoding='utf-8') as file:
            file.write(PROGRAM)
        with open(os.path.join(folder, 'log'), 'wb') as log:
            words = [sys.executable, '-m', 'torch.distributed.run', *DEBIAN, '--monitor_interval=0.2', *options]
            self.process = subprocess.Popen([*words, program, folder, manner], stdout=log, stderr=log)

    def wait(self, seconds=90):
        """Returns the exit status."""
        return self.process.wait(timeout=seconds)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        """An agent that is told to end ends its ranks."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=30)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def said(self, what, attempt=0):
        """What the ranks have written, by rank."""
        found = {}
        for name in os.listdir(self.folder):
            words = name.split('-')
            if words[0] == what and words[-1] == str(attempt):
                with open(os.path.join(self.folder, name), encoding='utf-8') as file:
                    found[int(words[1])] = file.read()
        return found

    def log(self):
        with open(os.path.join(self.folder, 'log'), encoding='utf-8') as file:
            return file.read()


class Torchrun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def job(self, name, *options, manner=''):
        return Job(os.path.join(self.folder, name), *options, manner=manner)

    def expect(self, job, rank_count, ranks=None, attempt=0):
        """It ended well, and each rank has made two comms of all."""
        self.assertEqual(job.wait(), 0, job.log() + str(job.said('failed')))
        text = f'{rank_count} ranks, sum {rank_count * (rank_count - 1) // 2}, torchrun'
        for what in ('first', 'second'):
            self.assertEqual(job.said(what, attempt), {rank: text for rank in ranks or range(rank_count)})

    def test_four_ranks_whose_agent_holds_the_port(self):
        with self.job('a', '--nproc_per_node=4', f'--master_port={world.free_port()}') as job:
            self.expect(job, 4)

    def test_a_secret_in_a_file_is_inherited_by_all_ranks(self):
        path = os.path.join(self.folder, 'secret')
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), 'w', encoding='utf-8') as file:
            file.write('a secret of torchrun\n')
        os.environ['MXS_SECRET_FILE'] = path
        self.addCleanup(os.environ.pop, 'MXS_SECRET_FILE', None)
        with self.job('a', '--nproc_per_node=2', f'--master_port={world.free_port()}') as job:
            status = job.wait()
            if any('NOT_BUILT' in text for text in job.said('failed').values()):
                self.skipTest('this build has no libsodium')
            self.assertEqual(status, 0)
            self.expect(job, 2)
        os.chmod(path, 0o644)
        with self.job('b', '--nproc_per_node=2', f'--master_port={world.free_port()}') as job:
            self.assertNotEqual(job.wait(), 0)
            said = job.said('failed')
            self.assertTrue(said and all('ENVIRONMENT' in text and 'chmod 600' in text for text in said.values()), said)
            self.assertNotIn('a secret of torchrun', job.log() + str(said))

    def test_a_job_that_stands_alone(self):
        with self.job('a', '--standalone', '--nproc_per_node=3') as job:
            self.expect(job, 3)

    def test_two_agents_that_meet_at_an_endpoint(self):
        options = ['--nnodes=2', '--nproc_per_node=2', '--rdzv_backend=c10d', '--rdzv_id=both',
                   f'--rdzv_endpoint=127.0.0.1:{world.free_port()}']
        with self.job('a', *options) as a, self.job('b', *options) as b:
            for job in (a, b):
                self.assertEqual(job.wait(), 0, job.log())
            self.assertEqual(sorted([sorted(a.said('second')), sorted(b.said('second'))]), [[0, 1], [2, 3]])
            self.assertEqual({**a.said('second'), **b.said('second')},
                             dict.fromkeys(range(4), '4 ranks, sum 6, torchrun'))

    def test_ranks_that_are_started_again_find_each_other_again(self):
        for name, options in {'alone': ['--standalone'], 'static': [f'--master_port={world.free_port()}']}.items():
            with self.job(name, '--nproc_per_node=3', '--max_restarts=1', *options, manner='dies once') as job:
                self.expect(job, 3, attempt=1)
                self.assertEqual(job.said('first', 0), dict.fromkeys(range(3), '3 ranks, sum 3, torchrun'))
                self.assertEqual(job.said('second', 0), {})

    def test_two_jobs_on_one_machine_whose_ports_are_neighbours(self):
        port = world.free_port()
        with self.job('later', '--nproc_per_node=2', f'--master_port={port + 1}', manner='waits') as later:
            deadline = time.monotonic() + 60
            while len(later.said('first')) < 2:
                self.assertIsNone(later.process.poll(), later.log())
                self.assertLess(time.monotonic(), deadline, later.log())
                time.sleep(0.05)
            with self.job('earlier', '--nproc_per_node=2', f'--master_port={port}') as earlier:
                self.expect(earlier, 2)
            with open(os.path.join(later.folder, 'go on'), 'wb'):
                pass
            self.expect(later, 2)


if __name__ == '__main__':
    unittest.main()
