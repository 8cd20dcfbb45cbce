# SPDX-License-Identifier: Apache-2.0
"""What the other tests stand on: worlds of processes (world.py) and TAP (tap.py)."""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import world

HERE = os.path.dirname(os.path.abspath(__file__))


class Worlds(unittest.TestCase):
    def test_each_rank_has_its_variables_and_returns_its_value(self):
        os.environ['MXS_PORT'] = '1'
        self.addCleanup(os.environ.pop, 'MXS_PORT')

        def body(rank, word):
            names = ['RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT', 'MXS_PORT']
            return rank, word, [os.environ.get(name) for name in names]

        for count in [1, 2, 3, 8]:
            values = world.run_ranks(count, body, 'word')
            port = values[0][2][4]
            self.assertEqual(values, [(rank, 'word', [str(rank), str(rank), str(count), '127.0.0.1', port, None])
                                      for rank in range(count)])

    def test_more_variables_are_given_by_rank(self):
        values = world.run_ranks(2, lambda rank: [os.environ.get('MXS_NODE'), os.environ.get('MXS_LIBRARY')],
                                 environment=lambda rank: {'MXS_NODE': f'node {rank}', 'MXS_LIBRARY': None})
        self.assertEqual(values, [['node 0', None], ['node 1', None]])

    def test_large_values_come_back(self):
        values = world.run_ranks(2, lambda rank: bytes([rank]) * 3_000_000)
        self.assertEqual([len(value) for value in values], [3_000_000] * 2)

    def test_a_rank_that_raises_is_named_with_its_traceback(self):
        def body(rank):
            if rank == 1:
                raise ValueError('no such tensor')

        with self.assertRaises(world.RankFailed) as caught:
            world.run_ranks(3, body)
        text = str(caught.exception)
        self.assertIn('rank 1 of 3: Traceback', text)
        self.assertIn('ValueError: no such tensor', text)
        self.assertIn("in body\n    raise ValueError('no such tensor')", text)
        self.assertEqual(list(caught.exception.complaints), [1])

    def test_an_echo_is_not_the_cause(self):
        def body(rank):
            if rank == 0:
                raise RuntimeError('aborted by rank 1')
            raise RuntimeError('the cause')

        with self.assertRaisesRegex(world.RankFailed, 'rank 1 of 2: (?s:.)*the cause\nrank 0: RuntimeError: aborted'):
            world.run_ranks(2, body)

    def test_a_dead_rank_is_reported(self):
        def body(rank):
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return rank

        with self.assertRaisesRegex(world.RankFailed, 'rank 1 of 3: killed by signal SIGKILL'):
            world.run_ranks(3, body)
        self.assertEqual(world.run_ranks(3, body, may_die=[1]), [0, None, 2])

    def test_a_rank_that_ends_by_itself_is_reported(self):
        with self.assertRaisesRegex(world.RankFailed, 'rank 0 of 1: ended with status 3 before body returned'):
            world.run_ranks(1, lambda rank: os._exit(3))

    def test_a_value_that_cannot_be_pickled_is_said_to_be_so(self):
        with self.assertRaisesRegex(world.RankFailed, 'rank 0 of 1: (?s:.)*pickle'):
            world.run_ranks(1, lambda rank: lambda: rank)

    def test_a_rank_that_hangs_is_killed(self):
        begin = time.monotonic()
        processes = []
        with self.assertRaisesRegex(world.RankFailed, 'rank 1 of 2: still ran after 0.3 s; killed'):
            world.run_ranks(2, lambda rank: rank and signal.pause(), timeout=0.3, meanwhile=processes.extend)
        self.assertLess(time.monotonic() - begin, 30)
        for process in processes:
            with self.assertRaises(ProcessLookupError):
                os.kill(process, 0)

    def test_the_parent_can_act_meanwhile(self):
        def body(rank):
            if rank == 0:
                signal.pause()

        world.run_ranks(2, body, may_die=[0], meanwhile=lambda processes: os.kill(processes[0], signal.SIGKILL))

    def test_a_body_can_skip_its_case(self):
        def body(rank):
            raise unittest.SkipTest('no network')

        with self.assertRaisesRegex(unittest.SkipTest, 'no network'):
            world.run_ranks(2, body)


class Tap(unittest.TestCase):
    def tap_of(self, text, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'test_sample.py')
            with open(path, 'w', encoding='utf-8') as file:
                file.write('import unittest\n' + text)
            run = subprocess.run([sys.executable, os.path.join(HERE, 'tap.py'), path, *arguments], check=False,
                                 capture_output=True, text=True)
        return run.returncode, run.stdout.splitlines(), run.stderr

    def test_cases_are_lines_and_only_lines_go_to_standard_output(self):
        status, lines, errors = self.tap_of('''
class Case(unittest.TestCase):
    def test_a_plain_name(self):
        print('printed')
    def test_b(self):
        """A sentence about rank #2.

        More."""
    @unittest.skip('no  device')
    def test_c(self):
        pass
''')
        self.assertEqual((status, lines), (0, ['1..3', 'ok 1 - a plain name', 'ok 2 - A sentence about rank number 2.',
                                               'ok 3 - c # SKIP no device']))
        self.assertIn('printed', errors)

    def test_what_fails_says_why(self):
        status, lines, _ = self.tap_of('''
class Case(unittest.TestCase):
    def test_a(self):
        self.assertEqual(1, 2)
    def test_b(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertEqual(i, 0)
    @unittest.expectedFailure
    def test_c(self):
        pass
''')
        self.assertEqual(status, 1)
        self.assertEqual([line for line in lines if line[0] != '#'], ['1..3', 'not ok 1 - a', 'not ok 2 - b',
                                                                      'not ok 3 - c'])
        text = '\n'.join(lines)
        for part in ['# AssertionError: 1 != 2', '# in (i=1)', '# in (i=2)', '# passed, but is said to fail']:
            self.assertIn(part, text)

    def test_cases_that_set_up_does_not_reach_are_counted(self):
        status, lines, _ = self.tap_of('''
class Broken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise ValueError('no set-up')
    def test_a(self): pass
    def test_b(self): pass
class Skipped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest('no world')
    def test_c(self): pass
''')
        self.assertEqual(status, 1)
        self.assertEqual([line for line in lines if line[0] != '#'],
                         ['1..3', 'not ok 1 - a', 'not ok 2 - b', 'ok 3 - c # SKIP no world'])
        self.assertIn('# ValueError: no set-up', lines)

    def test_a_whole_file_is_skipped_with_its_reason(self):
        status, lines, _ = self.tap_of("raise unittest.SkipTest('this Python has no torch')\n")
        self.assertEqual((status, lines), (0, ['1..0 # SKIP this Python has no torch']))

    def test_a_file_that_cannot_be_imported_fails(self):
        status, lines, _ = self.tap_of('import no_such_module\n')
        self.assertEqual((status, lines[:2]), (1, ['1..1', 'not ok 1 - test_sample.py can be imported']))
        self.assertIn("# ModuleNotFoundError: No module named 'no_such_module'", lines)

    def test_a_case_that_ends_the_process_leaves_the_plan_open(self):
        status, lines, errors = self.tap_of('''
import os, signal
class Case(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): os.kill(os.getpid(), signal.SIGSEGV)
''')
        self.assertEqual((status, lines), (-signal.SIGSEGV, ['1..2', 'ok 1 - a']))
        self.assertIn('in test_b', errors)

    def test_cases_are_chosen_by_words_of_their_names(self):
        text = '''
class Case(unittest.TestCase):
    def test_one_rank(self): pass
    def test_two_ranks(self): pass
'''
        self.assertEqual(self.tap_of(text, '-k', 'two')[1], ['1..1', 'ok 1 - two ranks'])
        self.assertEqual(self.tap_of(text, '-k', 'three')[1], ["1..0 # SKIP no case has 'three' in its name"])
