# SPDX-License-Identifier: Apache-2.0
"""init_comm: by the launcher's variables, by process groups of torch.distributed, and what goes wrong there."""
import datetime
import os
import signal
import time
import unittest

import torch.distributed as dist
import world

import matrixshard
from matrixshard.torch import _rendezvous
from matrixshard.torch._rendezvous import init_comm


def begin(rank, count, store):
    """A default group over gloo, by a file: the launcher's port stays free for comms by the environment."""
    dist.init_process_group('gloo', init_method='file://' + store, rank=rank, world_size=count,
                            timeout=datetime.timedelta(seconds=30))


class Rendezvous(unittest.TestCase):
    def setUp(self):
        self.store = f'/tmp/matrixshard-test-{os.getpid()}-{self._testMethodName[:40]}'
        self.addCleanup(lambda: os.path.exists(self.store) and os.remove(self.store))

    def test_without_a_group_the_environment_counts(self):
        def body(rank):
            with init_comm(timeout=30) as comm:
                return comm.bootstrap, comm.rank, comm.sum([1.0, rank])

        self.assertEqual(world.run_ranks(3, body), [('torchrun', rank, [3.0, 3.0]) for rank in range(3)])

    def test_the_default_group_brings_ranks_together(self):
        for count in (1, 2, 3):
            def body(rank, count=count):
                begin(rank, count, self.store + str(count))
                with init_comm(timeout=30) as comm:
                    info = comm.bootstrap, comm.rank, comm.rank_count, comm.sum([1.0, rank])
                    # Another creating call, once the comm is there.
                    with comm.split(0, key=-rank) as other:
                        return (*info, other.rank, other.sum([rank])[0])

            total = count * (count - 1) / 2
            self.assertEqual(world.run_ranks(count, body, environment={'MASTER_ADDR': None, 'RANK': None}),
                             [('callbacks', rank, count, [count, total], count - 1 - rank, total)
                              for rank in range(count)])
            os.path.exists(self.store + str(count)) and os.remove(self.store + str(count))

    def test_a_group_of_some_ranks_has_its_own_order(self):
        def body(rank):
            begin(rank, 3, self.store)
            group = dist.new_group([0, 2])
            if rank == 1:
                with self.assertRaisesRegex(matrixshard.InvalidArgumentError, 'rank 1 .* is not in this process group'):
                    init_comm(group)
                return None
            with init_comm(group) as comm:
                return comm.rank, comm.rank_count, comm.sum([rank])[0]

        self.assertEqual(world.run_ranks(3, body), [(0, 2, 2.0), None, (1, 2, 2.0)])

    def test_a_dead_rank_ends_the_call_on_the_others(self):
        def body(rank):
            begin(rank, 3, self.store)
            dist.barrier()
            if rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            start = time.monotonic()
            with self.assertRaises((RuntimeError, matrixshard.MatrixShardError)) as caught:
                init_comm(timeout=10)
            return time.monotonic() - start < 20, str(caught.exception) != ''

        self.assertEqual(world.run_ranks(3, body, may_die=[2]), [(True, True), (True, True), None])

    def test_a_rank_that_does_not_come_is_waited_for_until_the_timeout(self):
        over = self.store + '.over'

        def body(rank):
            begin(rank, 2, self.store)
            if rank == 0:
                with self.assertRaisesRegex(matrixshard.TimedOutError, 'a rank has not called'):
                    init_comm(timeout=0.5)
                os.mkdir(over)
            while not os.path.exists(over):
                time.sleep(0.02)

        self.addCleanup(lambda: os.path.exists(over) and os.rmdir(over))
        world.run_ranks(2, body)

    def test_what_a_callback_raises_comes_out_of_the_creating_call(self):
        def body(rank):
            begin(rank, 2, self.store)
            original = _rendezvous.dist.all_gather

            def broken(targets, source, **options):
                if source.numel() > 64:
                    raise ZeroDivisionError('no bytes today')
                return original(targets, source, **options)

            _rendezvous.dist.all_gather = broken
            with self.assertRaisesRegex(ZeroDivisionError, 'no bytes today'):
                init_comm(timeout=10)
            _rendezvous.dist.all_gather = original
            with init_comm(timeout=10) as comm:  # the group is as good as before
                return comm.sum([1])[0]

        self.assertEqual(world.run_ranks(2, body), [2.0, 2.0])

    def test_backends_without_cpu_tensors_are_known(self):
        for backends in ('gloo', 'GLOO', 'mpi', 'cpu:gloo,cuda:nccl', 'cuda:nccl,cpu:gloo', 'cpu:gloo'):
            self.assertTrue(_rendezvous._gathers_on_cpu(backends), backends)
        for backends in ('nccl', 'cuda:nccl', 'undefined', 'cuda:gloo', ''):
            self.assertFalse(_rendezvous._gathers_on_cpu(backends), backends)

    def test_a_group_without_cpu_tensors_is_refused_with_what_to_do(self):
        def body(rank):
            begin(rank, 1, self.store)
            _rendezvous._backends = lambda group: 'cuda:nccl'
            with self.assertRaisesRegex(matrixshard.InvalidArgumentError, 'cuda:nccl.*new_group.backend="gloo"'):
                init_comm()

        world.run_ranks(1, body)

    def test_arguments_that_make_no_sense_are_refused(self):
        with self.assertRaisesRegex(TypeError, 'bootstrap'):
            init_comm(bootstrap=None)
        with self.assertRaisesRegex(matrixshard.InvalidArgumentError, 'not initialised'):
            init_comm(object())


if __name__ == '__main__':
    unittest.main()
