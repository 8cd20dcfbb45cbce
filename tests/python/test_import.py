# SPDX-License-Identifier: Apache-2.0
"""`import matrixshard` needs the standard library alone, and is quick."""
import os
import statistics
import subprocess
import sys
import sysconfig
import unittest

if not os.environ.get('MXS_LIBRARY'):
    raise unittest.SkipTest('MXS_LIBRARY names no library')

MODULES = '''
import sys
before = set(sys.modules)
import matrixshard
for name in sorted(set(sys.modules) - before):
    module = sys.modules[name]
    print(name, getattr(module, '__file__', None) or 'built in')
'''
# In one process, so that starting Python isn't counted. CPU seconds are the same beside other work.
SECONDS = '''
import time
begin, begin_cpu = time.perf_counter(), time.process_time()
import matrixshard
print(time.perf_counter() - begin, time.process_time() - begin_cpu)
'''
RUNS = 10


def output_of(program, *options):
    return subprocess.run([sys.executable, *options, '-c', program], capture_output=True, text=True,
                          check=True).stdout


class Import(unittest.TestCase):
    def test_it_needs_the_standard_library_alone(self):
        standard = sysconfig.get_path('stdlib')
        for line in output_of(MODULES, '-S').splitlines():  # -S: without installed packages
            name, place = line.split(' ', 1)
            if name.split('.')[0] != 'matrixshard' and place != 'built in':
                self.assertTrue(place.startswith(standard), f'{name} comes from {place}')

    def test_it_does_not_load_numpy_or_torch(self):
        names = {line.split()[0] for line in output_of(MODULES).splitlines()}
        self.assertIn('matrixshard', names)
        self.assertEqual(names & {'numpy', 'torch', 'matplotlib'}, set())
        self.assertFalse({name for name in names if name.startswith('matrixshard.') and 'torch' in name})

    def test_how_long_it_takes_is_told(self):
        runs = [tuple(map(float, output_of(SECONDS).split())) for _ in range(RUNS)]
        wall, cpu = (statistics.median(column) * 1e3 for column in zip(*runs))
        print(f'import matrixshard: {wall:.1f} ms, {cpu:.1f} ms of CPU; medians of {RUNS}')


if __name__ == '__main__':
    unittest.main()
