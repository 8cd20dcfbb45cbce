# SPDX-License-Identifier: Apache-2.0
"""Comms: joining, small sums, splitting, phases, failure, threads and fork, as Python sees them."""
import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest

import matrixshard as mxs
import world
from matrixshard import errors

WORLDS = (1, 2, 3, 4)


def raised(call, *arguments, **keywords):
    """(class name, status name, rank, sentence) of what a call raises; None if it doesn't."""
    try:
        call(*arguments, **keywords)
    except errors.MatrixShardError as error:
        return type(error).__name__, error.status_name, error.rank, str(error)
    return None


class Comms(unittest.TestCase):
    def test_ranks_know_their_place_and_sum_small_things(self):
        def body(rank, count):
            with mxs.Comm(thread_count=1, timeout=30) as comm:
                self.assertEqual((comm.rank, comm.rank_count, comm.local_rank, comm.local_rank_count, comm.node,
                                  comm.node_count), (rank, count, rank, count, 0, 1))
                self.assertEqual((comm.thread_count, comm.timeout, comm.bootstrap), (1, 30.0, 'torchrun'))
                self.assertEqual(comm.transports, 'shm' if count > 1 else 'none')
                self.assertEqual(comm.progress, mxs.Progress.MANUAL)
                self.assertEqual(comm.info.rank_count, count)
                comm.barrier()
                self.assertEqual(comm.sum([rank, 0.5]), [count * (count - 1) / 2, count / 2])
                wrapped = ((count << 62) + (1 << 63)) % (1 << 64) - (1 << 63)
                self.assertEqual(comm.sum_words([1 << 62, -rank]), [wrapped, -(count * (count - 1) // 2)])
                with comm.topology() as topology:
                    self.assertEqual((topology.rank_count, topology.node_count), (count, 1))
                self.assertIn(f'rank {rank} of {count}', repr(comm))
            self.assertTrue(comm.closed)
            self.assertEqual(comm.rank, rank)  # what was learnt stays
            self.assertEqual(raised(comm.barrier)[0], 'InvalidArgumentError')
            comm.close()
        for count in WORLDS:
            with self.subTest(ranks=count):
                world.run_ranks(count, body, count)

    def test_ranks_that_know_the_secret_meet_and_others_hear_why_not(self):
        def body(rank, secrets, timeout):
            try:
                with mxs.Comm(thread_count=1, timeout=timeout, secret=secrets[rank]) as comm:
                    with comm.split(0, -rank) as other:
                        return other.sum([1])
            except mxs.MatrixShardError as error:
                for secret in secrets:
                    self.assertNotIn(secret or 'none', str(error).replace('has none', ''))
                return error.status_name, str(error)

        right, wrong = 'sixteen letters, and more', 'sixteen letters, or more'
        met = world.run_ranks(3, body, [right] * 3, 30)
        if met[0][0] == 'NOT_BUILT':
            self.skipTest('this build has no libsodium')
        self.assertEqual(met, [[3]] * 3)
        host, guest = world.run_ranks(2, body, [right, wrong], 3)
        self.assertEqual((host[0], guest[0]), ('TIMED_OUT', 'MISMATCH'))
        self.assertIn('another secret', host[1])
        self.assertIn('another secret', guest[1])
        self.assertEqual(world.run_ranks(1, body, ['too short'], 3)[0][0], 'INVALID_ARGUMENT')

    def test_a_comm_is_split_by_color_and_key(self):
        def body(rank):
            with mxs.Comm() as comm:
                half = comm.split(rank % 2, -rank)
                self.assertEqual((half.rank, half.rank_count), (1 - rank // 2, 2))
                self.assertEqual(half.sum([rank]), [2 + 2 * (rank % 2)])
                self.assertEqual(raised(comm.split, -3)[:3], ('InvalidArgumentError', 'INVALID_ARGUMENT', rank))
                none = comm.split(None if rank == 1 else 0)
                self.assertEqual(none is None, rank == 1)
                comm.close()  # a split comm outlives its parent
                half.barrier()
                return none.rank_count if none else 0
        self.assertEqual(world.run_ranks(4, body), [3, 0, 3, 3])

    def test_the_living_go_on_without_the_dead(self):
        def body(rank):
            with mxs.Comm(timeout=30) as comm:
                self.assertEqual(comm.origins, [0, 1, 2, 3])
                comm.barrier()
                if rank == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                with self.assertRaises(mxs.PeerFailedError) as caught:
                    while True:
                        comm.barrier()
                self.assertEqual(caught.exception.rank, rank)
                with comm.shrink() as living:
                    self.assertEqual(living.origins, [1, 2, 3])
                    self.assertEqual((living.rank, living.rank_count, living.timeout), (rank - 1, 3, 30.0))
                    self.assertEqual(living.sum([rank]), [6])
                    pair = living.split(None if living.rank == 0 else 0, -rank)
                    if pair:
                        self.assertEqual(pair.origins, [2, 1])
                        pair.barrier()
                    return living.rank
        self.assertEqual(world.run_ranks(4, body, may_die=[0]), [None, 0, 1, 2])

    def test_shrinking_needs_a_failure_and_half_of_the_ranks(self):
        def body(rank):
            with mxs.Comm(timeout=30) as comm:
                self.assertRegex(raised(comm.shrink)[3], 'has not failed')
                comm.barrier()
                comm.abort('on purpose')
                if rank > 0:
                    time.sleep(2)
                    return
                self.assertEqual(raised(comm.shrink, timeout=0.3)[:2], ('TimedOutError', 'TIMED_OUT'))
        world.run_ranks(3, body)

    def test_phases_and_statistics(self):
        def body(rank):
            with mxs.Comm() as comm:
                comm.barrier()
                comm.reset_stats()
                with comm.phase('forward'):
                    comm.barrier()
                    comm.phase(mxs.Phase.BACKWARD)
                    comm.sum([1.0])
                comm.barrier()
                stats = comm.stats()
                calls = [counter.calls for counter in stats.agree]
                self.assertEqual(calls[:3], [1, 1, 1], stats)
                self.assertEqual((stats.gather.forward.bytes_in, stats.slot_remaps), (0, 0))
                with self.assertRaisesRegex(ValueError, 'phase'):
                    comm.phase('sideways')
                comm.barrier()
        world.run_ranks(2, body)

    def test_bad_arguments_are_refused_before_anything_is_sent(self):
        def body(rank):
            for timeout in (0, -1, float('nan'), float('inf'), 'soon'):
                with self.assertRaisesRegex(ValueError, 'timeout is'):
                    mxs.Comm(timeout=timeout)
            with self.assertRaisesRegex(ValueError, 'thread_count'):
                mxs.Comm(thread_count=1 << 31)
            with self.assertRaises(TypeError):
                mxs.Comm(bootstrap=object())
            with mxs.Comm() as comm:
                self.assertEqual(raised(comm.sum, [])[:3], ('InvalidArgumentError', 'INVALID_ARGUMENT', rank))
                self.assertEqual(raised(comm.sum, [1.0] * 65)[0], 'InvalidArgumentError')
                self.assertEqual(raised(comm.wait, 10 ** 6)[0], 'InvalidArgumentError')
                self.assertTrue(comm.test(0))
                with self.assertRaisesRegex(ValueError, 'request is -1'):
                    comm.test(-1)
                with self.assertRaisesRegex(ValueError, 'color'):
                    comm.split(1 << 40)
                with self.assertRaises(TypeError):
                    comm.sum(['x'])
                with self.assertRaisesRegex(TypeError, 'neither pickled nor copied'):
                    pickle.dumps(comm)
                self.assertEqual(raised(comm.allocate, 0)[0], 'InvalidArgumentError')
                comm.barrier()
        world.run_ranks(2, body)

    def test_ranks_that_differ_hear_of_it(self):
        def body(rank):
            with mxs.Comm() as comm:
                failure = raised(comm.allocate, 4096 * (1 + rank))
                self.assertEqual(failure[:3], ('MismatchError', 'MISMATCH', rank))
                comm.barrier()  # stays usable
        world.run_ranks(2, body)

    def test_a_missing_variable_is_named(self):
        def body(_rank):
            with self.assertRaisesRegex(errors.EnvironmentVariableError, 'MASTER_ADDR'):
                mxs.Comm()
        world.run_ranks(2, body, environment={'MASTER_ADDR': None})

    def test_log_lines_go_where_they_are_sent(self):
        def body(rank):
            import logging
            lines = []
            mxs.set_log(lambda level, line: lines.append((level, line)))
            with mxs.Comm() as comm:
                comm.barrier()
            if rank == 0:  # what was chosen is logged once, by rank 0
                self.assertTrue(any('shm' in line for _, line in lines), lines)
            records = []
            handler = logging.Handler()
            handler.emit = records.append
            logger = logging.getLogger('matrixshard.test')
            logger.addHandler(handler)
            logger.setLevel(logging.DEBUG)
            mxs.set_log(logger, 'debug')
            with mxs.Comm() as comm:
                comm.barrier()
            if rank == 0:
                self.assertTrue(any(record.levelno == logging.INFO for record in records))
            ignored = []
            sys.unraisablehook = ignored.append

            def fail(_level, _line):
                raise ZeroDivisionError('in the log')
            mxs.set_log(fail)
            with mxs.Comm() as comm:
                comm.barrier()
            if rank == 0:
                self.assertIs(ignored[0].exc_type, ZeroDivisionError)
            sys.unraisablehook = sys.__unraisablehook__
            mxs.set_log(None)
            count = len(ignored)
            with mxs.Comm() as comm:
                comm.barrier()
            self.assertEqual(len(ignored), count)
            with self.assertRaises(TypeError):
                mxs.set_log(3)
            with self.assertRaises(ValueError):
                mxs.set_log(None, 'loud')
        world.run_ranks(2, body)


class Bootstraps(unittest.TestCase):
    """Ranks that the caller has already: pipes from each rank to each."""

    def setUp(self):
        self.pipes = [[os.pipe() for _ in range(3)] for _ in range(3)]
        self.addCleanup(lambda: [os.close(end) for row in self.pipes for pipe in row for end in pipe])

    def all_gather(self, rank, blob):
        for target in range(3):
            os.write(self.pipes[rank][target][1], blob)
        return [os.read(self.pipes[source][rank][0], len(blob)) for source in range(3)]

    def test_ranks_meet_by_callbacks(self):
        def body(rank):
            bootstrap = mxs.Bootstrap(rank, 3, lambda blob: self.all_gather(rank, blob))
            with mxs.Comm(bootstrap=bootstrap) as comm:
                self.assertEqual((comm.bootstrap, comm.rank_count), ('callbacks', 3))
                self.assertEqual(comm.sum([1.0]), [3.0])
                pair = comm.split(0 if rank < 2 else None)
                if pair:
                    self.assertEqual(pair.sum([rank]), [1.0])
        world.run_ranks(3, body)

    def test_a_gather_may_take_its_time(self):
        from concurrent.futures import ThreadPoolExecutor

        def body(rank):
            with ThreadPoolExecutor(1) as pool:
                bootstrap = mxs.Bootstrap(rank, 3, lambda blob: pool.submit(self.all_gather, rank, blob))
                with mxs.Comm(bootstrap=bootstrap) as comm:
                    return comm.sum([rank])[0]
        self.assertEqual(world.run_ranks(3, body), [3.0] * 3)

    def test_what_a_callback_raises_comes_out(self):
        def body(rank):
            def fail(_blob):
                raise ZeroDivisionError('in the callback')
            with self.assertRaisesRegex(ZeroDivisionError, 'in the callback') as caught:
                mxs.Comm(bootstrap=mxs.Bootstrap(rank, 3, fail))
            self.assertIsInstance(caught.exception.__cause__, errors.MatrixShardError)
            with self.assertRaisesRegex(ValueError, 'gave 2 bytes for 3 ranks'):
                mxs.Comm(bootstrap=mxs.Bootstrap(rank, 3, lambda blob: b'xy'))
        world.run_ranks(1, body)


class Failures(unittest.TestCase):
    def test_a_wait_lets_other_threads_run(self):
        reader, writer = os.pipe()

        def body(rank):
            with mxs.Comm() as comm:
                if rank == 0:
                    waits = threading.Event()

                    def count():
                        waits.wait()
                        time.sleep(0.2)  # by now the main thread is in the barrier
                        total = sum(range(100000))
                        os.write(writer, b'x')  # only this lets rank 1 come
                        return total
                    thread = threading.Thread(target=count)
                    thread.start()
                    waits.set()
                    comm.barrier()
                    thread.join()
                else:
                    os.read(reader, 1)
                    comm.barrier()
        world.run_ranks(2, body, timeout=40)
        os.close(reader)
        os.close(writer)

    def test_another_thread_aborts_what_this_one_waits_for(self):
        reader, writer = os.pipe()

        def body(rank):
            comm = mxs.Comm()
            if rank == 0:
                threading.Timer(0.2, comm.abort, ['enough of it']).start()
            if rank == 1:
                os.read(reader, 1)  # the others have come back without this rank
                os.read(reader, 1)
            found = raised(comm.barrier)
            os.write(writer, b'x')
            self.assertEqual(found[:3], ('AbortedError', 'ABORTED', rank))
            self.assertIn('enough of it', found[3])
            self.assertEqual(raised(comm.barrier)[0], 'AbortedError')  # the first reason stays
            comm.close()
        world.run_ranks(3, body, timeout=40)
        os.close(reader)
        os.close(writer)

    def test_a_deadline_names_who_is_waited_for(self):
        reader, writer = os.pipe()

        def body(rank):
            with mxs.Comm() as comm:
                if rank == 1:
                    os.read(reader, 1)
                    return
                found = raised(comm.barrier, timeout=0.3)
                os.write(writer, b'x')
                self.assertEqual(found[:3], ('TimedOutError', 'TIMED_OUT', 0))
                self.assertIn('rank 1', found[3])
                with self.assertRaises(TimeoutError):
                    comm.barrier()
        world.run_ranks(2, body, timeout=40)
        os.close(reader)
        os.close(writer)

    def test_a_killed_peer_is_noticed(self):
        def body(rank):
            comm = mxs.Comm()
            comm.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            found = raised(comm.barrier)
            comm.close()
            return found
        for count in (2, 4):
            found = world.run_ranks(count, body, may_die=[1], timeout=40)
            for rank in range(count):
                if rank != 1:
                    self.assertEqual(found[rank][:3], ('PeerFailedError', 'PEER_FAILED', rank))
                    self.assertIn('rank 1', found[rank][3])

    def test_an_exception_that_leaves_the_block_is_told_to_the_others(self):
        def body(rank):
            comm = mxs.Comm()
            try:
                with comm:
                    if rank == 1:
                        raise ZeroDivisionError('lost count')
                    comm.barrier()
            except ZeroDivisionError:
                self.assertTrue(comm.closed)
                return 'raised'
            except errors.MatrixShardError as error:
                return str(error)
        found = world.run_ranks(3, body, timeout=40)
        self.assertEqual(found[1], 'raised')
        for rank in (0, 2):
            self.assertIn('rank 1 raised ZeroDivisionError: lost count', found[rank])

    def test_a_forked_child_is_refused_and_the_parent_goes_on(self):
        def body(rank):
            with mxs.Comm() as comm:
                view = comm.allocate(4096)
                process = os.fork()
                if process == 0:
                    status = 1
                    try:
                        found = [raised(comm.barrier), raised(comm.sum, [1.0]), raised(comm.allocate, 4096),
                                 raised(comm.abort)]
                        comm.close()  # nothing to destroy here
                        del view
                        gc.collect()
                        if all(one[:3] == ('ForkedError', 'FORKED', rank) for one in found):
                            status = 0
                        else:
                            print(found, file=sys.stderr, flush=True)
                    finally:
                        os._exit(status)
                self.assertEqual(os.waitpid(process, 0)[1], 0)
                self.assertEqual(comm.sum([1.0]), [2.0])
        world.run_ranks(2, body, timeout=40)

    def test_a_fork_while_another_thread_is_in_a_call_does_not_hang(self):
        def body(rank):
            comm = mxs.Comm()
            if rank == 1:
                comm.barrier()
                return
            entered = threading.Event()

            def wait():
                entered.set()
                comm.barrier(timeout=30)
            thread = threading.Thread(target=wait)
            process = None
            # Rank 1 may be there already; whether the thread is in its call at the fork is left to chance.
            thread.start()
            entered.wait()
            process = os.fork()
            if process == 0:
                os._exit(0 if raised(comm.sum, [1.0])[0] == 'ForkedError' else 1)
            self.assertEqual(os.waitpid(process, 0)[1], 0)
            thread.join()
            comm.close()
        world.run_ranks(2, body, timeout=40)

    def test_forgotten_comms_are_given_back(self):
        def body(_rank):
            def mapped():
                with open('/proc/self/maps') as maps:
                    return len(maps.readlines())
            def once():
                comm = mxs.Comm()
                view = comm.allocate(1 << 16)
                comm.barrier()
                self.assertEqual(len(view), 1 << 16)
            for _ in range(3):
                once()
            gc.collect()
            before, descriptors = mapped(), len(os.listdir('/proc/self/fd'))
            for _ in range(25):
                once()
            gc.collect()
            self.assertLessEqual(mapped(), before + 5)
            self.assertLessEqual(len(os.listdir('/proc/self/fd')), descriptors + 2)
        world.run_ranks(2, body, timeout=60)


class Programs(unittest.TestCase):
    """Whole programs, to their very end."""

    def run_program(self, text, count=2):
        port = world.free_port()
        processes = [subprocess.Popen(
            [sys.executable, '-B', '-c', textwrap.dedent(text)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, **world.rank_environment(rank, count, port)}) for rank in range(count)]
        return [(*process.communicate(timeout=60), process.returncode) for process in processes]

    def test_an_exception_in_one_rank_ends_the_others_by_an_exception(self):
        found = self.run_program('''
            import matrixshard as mxs
            comm = mxs.Comm()
            comm.barrier()
            if comm.rank == 1:
                raise ZeroDivisionError('lost count')
            try:
                comm.barrier()
            except mxs.errors.PeerFailedError as error:
                print(error.status_name, 'rank 1' in str(error))
        ''')
        self.assertEqual(found[0][0], 'PEER_FAILED True\n', found)
        self.assertIn('lost count', found[1][1])
        self.assertEqual([status for _, _, status in found], [0, 1])

    def test_a_program_may_end_with_everything_open(self):
        found = self.run_program('''
            import matrixshard as mxs
            comm = mxs.Comm()
            view = comm.allocate(4096)
            memory = view.memory()
            plan = mxs.Plan([mxs.Tensor('a', (8, 8)), mxs.Tensor('b', (8, 8))], comm.topology())
            unit = mxs.Unit(comm, plan, 0)
            optimizer = mxs.Optimizer([unit])
            state = [one.view for one in optimizer.state]
            unit.gather()
            unit.wait()
            weights = unit.tensor(0)
            capsule = weights.__dlpack__()
            comm.barrier()
            print('done')
        ''')
        self.assertEqual(found, [('done\n', '', 0)] * 2)


if __name__ == '__main__':
    unittest.main()
