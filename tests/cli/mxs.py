# SPDX-License-Identifier: Apache-2.0
"""The program mxs, from outside: mxs.py PATH. Speaks TAP. A case is a function; its name is a sentence."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../support'))
from tap_cases import case, run_cases  # noqa: E402

MXS = sys.argv[1]
PYTHON = sys.executable
os.environ.pop('PYTHONUNBUFFERED', None)  # else print writes a line in two pieces, which ranks would mix


def call(*words, **options):
    options.setdefault('timeout', 60)
    options.setdefault('stdin', subprocess.DEVNULL)
    return subprocess.run([MXS, *words], capture_output=True, text=True, check=False, **options)


def run(ranks, program, *words, **options):
    return call('run', '-n', str(ranks), *words, '--', PYTHON, '-c', program, **options)


def start(ranks, program, *words):
    return subprocess.Popen([MXS, 'run', '-n', str(ranks), *words, '--', PYTHON, '-c', program], text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def alive(process):
    try:
        with open(f'/proc/{process}/stat', encoding='ascii') as file:
            return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return False


def gone(processes):
    """Within ten seconds, however busy the machine is."""
    for _ in range(1000):
        if not any(alive(process) for process in processes):
            return True
        time.sleep(0.01)
    return False


# Says its process number, then does what follows.
SAY = 'import os, sys, signal, time, subprocess\nprint(os.getpid(), flush=True)\nrank = int(os.environ["RANK"])\n'


def numbers_of(process, count):
    return [int(process.stdout.readline()) for _ in range(count)]


@case
def every_rank_gets_torchruns_variables():
    names = ['RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT']
    result = run(3, f'import os; print(*[os.environ[name] for name in {names}])')
    lines = sorted(line.split() for line in result.stdout.splitlines())
    port = lines[0][5]
    assert [line[:5] for line in lines] == [[str(r), str(r), '3', '3', '127.0.0.1'] for r in range(3)], lines
    assert all(line[5] == port for line in lines) and 20000 <= int(port) < 32000, lines
    assert result.returncode == 0 and result.stderr == '', result.stderr


@case
def a_port_that_is_given_is_taken():
    assert run(1, 'import os; print(os.environ["MASTER_PORT"])', '--port', '12345').stdout == '12345\n'


@case
def an_agents_variable_is_not_passed_on():
    environment = dict(os.environ, TORCHELASTIC_USE_AGENT_STORE='True')
    result = run(1, 'import os; print("TORCHELASTIC_USE_AGENT_STORE" in os.environ)', env=environment)
    assert result.stdout == 'False\n', result.stdout


SECRET = ("import os; print(*[os.environ.get(name, \"none\") for name in"
          " (\"MXS_SECRET\", \"MXS_SECRET_FILE\", \"MXS_INTERFACE\")])")


def without_secrets():
    return {name: value for name, value in os.environ.items() if not name.startswith('MXS_SECRET')}


@case
def ranks_get_one_secret_that_is_new_in_each_run():
    runs = [run(3, SECRET, env=dict(without_secrets(), MXS_INTERFACE='eth0')) for _ in range(2)]
    lines = [result.stdout.splitlines() for result in runs]
    assert all(len(set(each)) == 1 and len(each) == 3 for each in lines), lines
    if lines[0][0] == 'none none none':
        return  # a build without libsodium
    assert lines[0] != lines[1], lines
    assert all(len(each[0].split()[0]) == 64 and each[0].endswith(' none none') for each in lines), lines


@case
def a_secret_that_is_set_stays_as_it_is():
    result = run(1, SECRET, env=dict(without_secrets(), MXS_SECRET='a secret of my own'))
    assert result.stdout == 'a secret of my own none none\n', result.stdout
    result = run(1, SECRET, env=dict(without_secrets(), MXS_SECRET_FILE='/some/file'))
    assert result.stdout == 'none /some/file none\n', result.stdout


@case
def the_status_of_the_rank_that_failed_is_returned():
    result = run(4, SAY + 'if rank == 2: sys.exit(7)\ntime.sleep(600)')
    assert result.returncode == 7, result.returncode
    assert 'rank 2 ended with status 7' in result.stderr and 'other 3' in result.stderr, result.stderr
    assert gone(int(line) for line in result.stdout.split())


@case
def a_rank_that_is_killed_by_a_signal_gives_128_and_its_number():
    result = run(3, SAY + 'if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(600)')
    assert result.returncode == 128 + signal.SIGKILL, result.returncode
    assert 'rank 1 was killed by signal 9' in result.stderr, result.stderr
    assert gone(int(line) for line in result.stdout.split())


@case
def one_that_ignores_sigterm_is_killed_all_the_same():
    result = run(2, SAY + 'signal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
                 'if rank == 0: time.sleep(0.5); sys.exit(3)\ntime.sleep(600)')
    assert result.returncode == 3, result.returncode
    assert gone(int(line) for line in result.stdout.split())


@case
def one_that_ends_well_does_not_end_the_others():
    result = run(3, 'import os, time; time.sleep(0.3 * int(os.environ["RANK"])); print("done")')
    assert result.returncode == 0 and result.stdout == 'done\n' * 3, result.stdout


@case
def ranks_go_on_without_one_that_fails_when_asked():
    result = run(3, SAY + 'if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n'
                 'if rank == 2: time.sleep(0.3); sys.exit(5)\ntime.sleep(0.6); print("done")', '--keep-going')
    assert result.returncode == 0 and result.stdout.endswith('done\n'), result
    assert 'rank 1 was killed by signal 9 (Killed); the other 2 go on' in result.stderr, result.stderr
    assert 'rank 2 ended with status 5; the other one goes on' in result.stderr, result.stderr
    assert gone(int(line) for line in result.stdout.split()[:3])


@case
def the_status_of_the_first_that_failed_is_returned_if_none_ends_well():
    result = run(2, SAY + 'time.sleep(0.3 * rank); sys.exit(3 + rank)', '--keep-going')
    assert result.returncode == 3, result
    process = start(2, 'import os, signal\nprint(os.getpid(), flush=True)\nsignal.pause()', '--keep-going')
    numbers_of(process, 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, process.returncode


@case
def a_signal_is_passed_on():
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        program = ('import os, sys, signal\n'
                   f'signal.signal({int(sent)}, lambda *_: sys.exit(0))\n'
                   'print(os.getpid(), flush=True)\n'
                   'while True: signal.pause()')
        process = start(3, program)
        ranks = numbers_of(process, 3)
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0 and errors == '', (sent, process.returncode, errors)
        assert gone(ranks)


@case
def a_signal_that_kills_the_ranks_gives_128_and_its_number():
    process = start(2, SAY + 'signal.signal(signal.SIGTERM, signal.SIG_DFL)\ntime.sleep(600)')
    ranks = numbers_of(process, 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, process.returncode
    assert gone(ranks)


@case
def no_rank_outlives_the_launcher():
    process = start(3, SAY + 'time.sleep(600)')
    ranks = numbers_of(process, 3)
    process.kill()
    process.wait()
    assert gone(ranks)
    process.stdout.close()
    process.stderr.close()


@case
def nothing_that_a_rank_started_outlives_the_launcher():
    # A shell's child is in the rank's group, but doesn't die with the launcher by itself.
    program = SAY + 'child = subprocess.Popen(["sleep", "600"]); print(child.pid, flush=True); child.wait()'
    process = start(3, program)
    processes = numbers_of(process, 6)
    process.kill()
    process.wait()
    assert gone(processes)
    process.stdout.close()
    process.stderr.close()


@case
def a_reader_that_does_not_read_does_not_keep_signals_away():
    # Pipes are full within a moment; nobody empties them. A rank that ignores the signal goes all the same.
    program = ('import os, signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(3))\n'
               'print(os.getpid(), flush=True)\nwhile True: print("y" * 1000)')
    process = start(2, program, '--prefix')
    ranks = []
    while len(ranks) < 2:
        word = process.stdout.readline().split()[1]
        ranks += [int(word)] if word.isdigit() else []
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert gone(ranks)
    assert process.wait(timeout=60) == 3, process.returncode
    process.stdout.close()
    process.stderr.close()


@case
def a_hundred_ranks_say_long_lines():
    result = call('run', '-n', '100', '--prefix', '--', 'sh', '-c',
                  'printf $RANK; head -c 200000 /dev/zero | tr "\\0" x; echo')
    assert result.returncode == 0, result.stderr
    for rank in range(100):
        text = ''.join(line.split('] ', 1)[1] for line in result.stdout.splitlines() if line.startswith(f'[{rank}] '))
        assert text == str(rank) + 'x' * 200000, (rank, len(text))


@case
def what_ranks_leave_behind_is_killed():
    # One in the rank's own group, one in a session of its own.
    program = SAY + ('for own in (False, True):\n'
                     '  child = subprocess.Popen(["sleep", "600"], start_new_session=own, stdin=subprocess.DEVNULL,\n'
                     '    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n'
                     '  print(child.pid, flush=True)')
    result = run(2, program)
    processes = [int(line) for line in result.stdout.split()]
    assert result.returncode == 0 and len(processes) == 6, (result.returncode, result.stdout, result.stderr)
    assert gone(processes)


@case
def lines_begin_with_their_rank_when_asked():
    program = ('import os, sys\nrank = os.environ["RANK"]\n'
               'for i in range(300): print("line", i, "of", rank, "x" * 50)\n'
               'print("error of", rank, file=sys.stderr)\nsys.stdout.write("no end")')
    result = run(4, program, '--prefix')
    for rank in range(4):
        own = [line for line in result.stdout.splitlines() if line.startswith(f'[{rank}] ')]
        assert own == [f'[{rank}] line {i} of {rank} {"x" * 50}' for i in range(300)] + [f'[{rank}] no end'], own[-3:]
        assert f'[{rank}] error of {rank}\n' in result.stderr, result.stderr
    assert len(result.stdout.splitlines()) == 4 * 301


@case
def a_reader_that_goes_away_ends_the_ranks():
    process = start(2, SAY + 'while True: print("y" * 1000)', '--prefix')
    ranks = []
    while len(ranks) < 2:
        word = process.stdout.readline().split()[1]
        ranks += [int(word)] if word.isdigit() else []
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE, (process.returncode, errors)
    assert gone(ranks)


@case
def rank_0_reads_standard_input():
    result = run(2, 'import os, sys; print(os.environ["RANK"], sys.stdin.read())', stdin=None, input='hello')
    assert sorted(result.stdout.splitlines()) == ['0 hello', '1 '], result.stdout


@case
def a_program_that_cannot_be_started_is_named():
    result = call('run', '-n', '2', '--', '/no/such/program')
    assert result.returncode == 127 and result.stderr.count('/no/such/program') == 1, (result.returncode, result.stderr)
    result = call('run', '-n', '2', '--', 'no-such-program')
    assert result.returncode == 127 and './NAME' in result.stderr, (result.returncode, result.stderr)
    result = call('run', '-n', '2', '--', '/etc')
    assert result.returncode == 126 and '/etc' in result.stderr, (result.returncode, result.stderr)


@case
def bad_use_gives_2_and_says_what():
    for words, wanted in [((), 'command'), (('fly',), 'fly'), (('run',), '-n'), (('run', '-n'), 'number'),
                          (('run', '-n', '0', '--', 'true'), '"0"'), (('run', '-n', 'x', '--', 'true'), '"x"'),
                          (('run', '-n', '5000', '--', 'true'), '5000'), (('run', '-n', '2'), 'PROGRAM'),
                          (('run', '-n', '2', '--'), 'PROGRAM'), (('run', '-n', '2', '--wat', 'true'), '--wat'),
                          (('run', '-n', '2', '--port', '70000', 'true'), '70000'), (('run', '--', 'true'), '-n'),
                          (('info', '--xml'), '--xml')]:
        result = call(*words)
        assert result.returncode == 2 and wanted in result.stderr and result.stdout == '', (words, result)


@case
def a_number_may_be_joined_to_its_option():
    for words in (('-n2',), ('--ranks=2',), ('--ranks', '2', '--port=29777'), ('-n', '2')):
        for dashes in ((), ('--',)):
            result = call('run', *words, *dashes, 'echo', '-n5', '--ranks=7')
            assert result.returncode == 0 and result.stdout == '-n5 --ranks=7\n' * 2, (words, dashes, result)


@case
def help_and_version_are_there():
    for words in (('--help',), ('run', '--help'), ('info', '--help'), ('--version',)):
        result = call(*words)
        assert result.returncode == 0 and 'mxs' in result.stdout and result.stderr == '', (words, result)


@case
def info_says_what_can_be_used_here():
    result = call('info', '--json')
    told = json.loads(result.stdout)
    usable = {part['name']: part for part in told['transports'] + told['backends']}
    assert usable['loopback']['usable'] and usable['shm']['usable'] and usable['reference']['usable'], told
    for part in usable.values():
        assert part['usable'] or part['text'], part
    assert told['cpu']['cores'] >= 1 and told['version'].count('.') == 2, told
    cuda = told['cuda']
    assert cuda['usable'] == bool(cuda['devices'] or cuda['refused']) == (cuda['text'] == ''), cuda
    for device in cuda['devices']:
        assert device['name'] and device['total_bytes'] >= device['free_bytes'] > 0, cuda
    table = call('info')
    assert '\ncuda  ' in table.stdout and (cuda['usable'] or cuda['text'] in table.stdout), table.stdout
    assert table.returncode == 0 and 'loopback' in table.stdout and told['version'] in table.stdout, table.stdout


@case
def info_shows_any_topology_as_a_tree():
    tree = call('info', '--topology', 'nodes:8 ranks:8 nic:25 local:200 latency:10').stdout
    for wanted in ('8 nodes, 64 ranks', '200 GB/s', '25 GB/s a rail, latency 10 us', 'rail 7', 'of rank 7\n',
                   'nodes 1-7', 'like node 0, from rank 8'):
        assert wanted in tree, (wanted, tree)
    tree = call('info', '--topology=ranks:3+5').stdout
    assert 'ranks 0-2\n' in tree and 'ranks 3-7\n' in tree, tree
    own = call('info').stdout
    assert '1 node, 1 rank' in own and 'NUMA 0' in own, own


@case
def infos_json_is_a_topology_that_can_be_loaded():
    words = 'ranks:1+2 rails:2 nic:0.5'
    told = json.loads(call('info', '--json', '--topology', words).stdout)['topology']
    assert [len(node['ranks']) for node in told['nodes']] == [1, 2], told
    assert told['network']['bytes_per_second'] == 500_000_000, told
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'topology.json')
        with open(path, 'w', encoding='ascii') as file:
            json.dump(told, file)
        again = json.loads(call('info', '--json', '--topology', path).stdout)['topology']
        told['factors'] = {'chain': 1.1, 'contention': 1.3}
        with open(path, 'w', encoding='ascii') as file:
            json.dump(told, file)
        tree = call('info', '--topology', path).stdout
    assert again == dict(told, factors={}), (again, told)
    assert 'chain takes 1.1 of' in tree and 'a port that many send to takes 1.3 of' in tree, tree


@case
def an_impossible_topology_gives_2_and_a_sentence():
    for words in ('ranks:0', 'nodes:2 gpus:4', '/no/such/file.json', 'ranks:4 hwloc:/no/such.xml'):
        result = call('info', '--topology', words)
        shown = words.split()[-1].split(':')[-1]
        assert result.returncode == 2 and shown in result.stderr and result.stdout == '', (words, result)
    assert call('info', '--topology').returncode == 2
    assert call('info', '--topology=').returncode == 2


@case
def a_jobs_topology_does_not_trouble_info():
    result = call('info', env=dict(os.environ, MXS_TOPOLOGY='nodes:2 ranks:2'))
    assert result.returncode == 0 and 'shm        yes' in result.stdout, result


@case
def output_that_cannot_be_written_is_a_failure():
    for words in (['info'], ['simulate', '--topology', 'ranks:2'], ['--version']):
        with open('/dev/full', 'w', encoding='ascii') as full:
            result = subprocess.run([MXS, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                    check=False)
        assert result.returncode == 1 and 'standard output' in result.stderr, (words, result)
        closed = subprocess.run(['sh', '-c', '"$@" >&-', 'sh', MXS, *words], stderr=subprocess.PIPE, text=True,
                                timeout=60, check=False)
        assert closed.returncode == 1 and 'standard output' in closed.stderr, (words, closed)


run_cases()
