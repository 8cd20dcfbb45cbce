#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perf/cluster, and the library on its nodes: cluster.py CLUSTER RANKS_PROGRAM. Speaks TAP."""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
from tap_cases import case, need, run_cases  # noqa: E402

CLUSTER, RANKS = sys.argv[1:3]
FAILED = 7  # what RANKS ends with when its comm has failed
PRINT_PLACE = 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE on $GROUP_RANK $MASTER_ADDR'


def words(options, program):
    return [sys.executable, '-B', CLUSTER, '--timeout', '60', *options.split(), '--', *program]


def call(options, *program, **more):
    return subprocess.run(words(options, program), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, timeout=90, **more)


def measured(options, *program, environment=None):
    """The result and what --json wrote."""
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, 'table.json')
        result = call(f'--json {table} {options}', *program, env=dict(os.environ, **(environment or {})))
        need(os.path.exists(table), 'no table:', result.stdout, result.stderr)
        with open(table, encoding='utf-8') as file:
            return result, json.load(file)


def processes_of(launcher):
    """Those that belong to the nodes of a cluster, by the names that they have."""
    found = []
    for path in glob.glob('/proc/[0-9]*/comm'):
        try:
            with open(path, encoding='utf-8', errors='replace') as file:
                if re.fullmatch(rf'mxs{launcher}(n\d+|s)\n', file.read()):
                    found.append(path)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def sleepers(marker):
    """Processes that sleep so many seconds."""
    found = []
    for path in glob.glob('/proc/[0-9]*/cmdline'):
        try:
            with open(path, 'rb') as file:
                if file.read() == f'sleep\0{marker}\0'.encode():
                    found.append(path)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def cards():
    with open('/proc/net/dev', encoding='ascii') as file:
        return sorted(line.partition(':')[0].strip() for line in file if ':' in line)


def soon(condition):
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False


# ---- perf/cluster itself ----

@case
def ranks_get_the_variables_of_torchrun():
    result = call('-m 1,2 --least 0 --prefix', 'sh', '-c', PRINT_PLACE)
    need(result.returncode == 0, result.stderr)
    lines = sorted(result.stdout.splitlines())
    need(lines == ['[0] 0/3 0/1 on 0 10.111.0.1', '[1] 1/3 0/2 on 1 10.111.0.1', '[2] 2/3 1/2 on 1 10.111.0.1'], lines)


@case
def nodes_see_only_what_is_their_own():
    script = 'ls /proc | grep -c "^[0-9]"; ls /sys/class/net | tr "\\n" " "; touch /dev/shm/$RANK; ' \
             'ls /dev/shm | wc -l; cd /proc/self/ns; readlink net ipc pid mnt | tr "\\n" " "; hostname'
    result = call('-N 2 --rails 2 --least 0 --prefix', 'sh', '-c', script)
    need(result.returncode == 0, result.stderr)
    of = [[line[4:] for line in result.stdout.splitlines() if line.startswith(f'[{rank}]')] for rank in (0, 1)]
    for lines in of:
        need(int(lines[0]) < 10 and lines[1] == 'eth0 eth1 lo ' + lines[1][13:] and lines[1][13:] == '1', lines)
    need(not set(of[0][2].split()) & set(of[1][2].split()), of)


@case
def a_failing_rank_gives_the_status_and_ends_the_others():
    result, table = measured('-N 3 --least 0 --grace 0', 'sh', '-c', 'if [ $RANK = 1 ]; then exit 9; fi; sleep 50')
    need(result.returncode == 9, result.returncode, result.stderr)
    need([end['status'] for end in table['ranks']] == [128 + signal.SIGTERM, 9, 128 + signal.SIGTERM], table)


@case
def a_program_that_is_not_there_is_named():
    result = call('-N 2 --least 0', 'no-such-program-anywhere')
    need(result.returncode == 127 and 'no-such-program-anywhere' in result.stderr, result.returncode, result.stderr)


@case
def nothing_crossed_is_a_failure():
    result = call('-N 2', 'true')
    need(result.returncode == 3 and 'node 0' in result.stderr, result.returncode, result.stderr)


@case
def time_runs_out():
    result = call('-N 2 --timeout 0.5', 'sleep', '50')
    need(result.returncode == 124 and 'out of time' in result.stderr, result.returncode, result.stderr)


@case
def bad_options_are_refused_in_sentences():
    for options, sentence in (('-N 0', 'from 1 to'), ('-N 2 -m 1,2,3', '3 nodes'), ('-N 2 --rate 5', 'no rate'),
                              ('-N 2 --rate 1gbit --slow 2:1mbit', 'nodes are 0 to 1'), ('-N 2 --down 1.1@0', '1.1'),
                              ('-N 2 --down 1', 'NODE@SECONDS'), ('-N 2 --json /no/folder/x', "can't be written"),
                              ('', '-N NODES is missing'), ('-N 2 -m 4000', 'the most'), ('-N 2 --odd', '--odd'),
                              ('-N 2 --timeout -1', 'time in seconds'), ('-N 2 --queue much', 'no size')):
        result = call(options, 'true')
        need(result.returncode == 2 and sentence in result.stderr, options, result.returncode, result.stderr)
    result = subprocess.run([sys.executable, '-B', CLUSTER, '-N', '2', 'true'], check=False, capture_output=True,
                            text=True, timeout=60)
    need(result.returncode == 2 and 'after --' in result.stderr, result.stderr)


@case
def others_than_root_are_told_so():
    # Not by another user's own Python: neither its modules nor perf/words.py may be readable to others than root.
    become = 'import argparse, ctypes, glob, json, os, re, selectors, shutil, signal, socket, subprocess, sys, time\n' \
             'text = open(sys.argv[1], encoding="utf-8").read(); sys.argv.pop(0)\n' \
             'sys.path.insert(0, os.path.dirname(sys.argv[0])); import words; os.setuid(65534); exec(text)'
    result = subprocess.run([sys.executable, '-B', '-c', become, CLUSTER, '-N', '2', '--', 'true'], check=False,
                            capture_output=True, text=True, timeout=60)
    need(result.returncode == 77 and result.stderr == 'perf/cluster: virtual nodes need root\n', result.returncode,
         result.stderr)


@case
def an_interrupt_leaves_nothing():
    before = cards()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        marker = f'5{os.getpid()}.{int(number)}'  # seconds to sleep
        with subprocess.Popen(words('-N 3 -m 2 --rate 1gbit', ['sleep', marker]), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
            need(soon(lambda: len(sleepers(marker)) == 6), 'the ranks never came')
            need(len(processes_of(launcher.pid)) == 4, 'three nodes and a switch', processes_of(launcher.pid))
            launcher.send_signal(number)
            code = launcher.wait(timeout=30)
        need(code == (-number if number == signal.SIGKILL else 128 + number), number, code)
        need(soon(lambda: not sleepers(marker) and not processes_of(launcher.pid)), number, 'left some')
    need(cards() == before, cards(), before)
    result = subprocess.run([sys.executable, '-B', CLUSTER, '--sweep'], check=False, capture_output=True, text=True,
                            timeout=60)
    need(result.returncode == 0, result.stderr)


@case
def a_signal_reaches_the_ranks():
    script = 'trap "echo heard; exit 5" USR1; echo up; while :; do sleep 0.05; done'
    with subprocess.Popen(words('-N 2 --prefix', ['sh', '-c', script]), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        need({launcher.stdout.readline(), launcher.stdout.readline()} == {'[0] up\n', '[1] up\n'}, 'not up')
        launcher.send_signal(signal.SIGUSR1)
        output, errors = launcher.communicate(timeout=30)
        need(launcher.returncode == 5 and sorted(output.split()) == ['[0]', '[1]', 'heard', 'heard'], output, errors)


@case
def runs_at_the_same_time_do_not_meet():
    children = [subprocess.Popen(words('-N 2 --rate 1gbit', [RANKS, 'gather', '100000', '1', 'chain']),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(3)]
    for child in children:
        output, errors = child.communicate(timeout=90)
        need(child.returncode == 0, output, errors)


# ---- the library on it ----

def collects(options, place):
    result = call(options, RANKS, 'collect')
    need(result.returncode == 0, result.stdout[-2000:], result.stderr[-2000:])
    need(place in result.stdout, result.stdout[:2000])
    need('WARN' not in result.stdout, result.stdout[-2000:])


@case
def two_ranks_in_each_of_four_nodes_collect():
    collects('-N 4 -m 2 --rate 1gbit', 'rank 7 of 8, node 3 of 4, by shm ucx')


@case
def three_ranks_and_five_collect():
    collects('-m 3,5 --rate 1gbit', 'rank 7 of 8, node 1 of 2, by shm ucx')


@case
def two_rails_collect():
    collects('-N 3 --rails 2 --rate 1gbit', 'rank 2 of 3, node 2 of 3, by ucx')


@case
def a_slow_node_is_slow_and_right():
    collects('-N 3 --rate 200mbit --slow 1:20mbit', 'rank 2 of 3, node 2 of 3, by ucx')


@case
def every_byte_crosses_every_nodes_link_once():
    payload = 4 << 20
    result, table = measured('-N 4 -m 2 --rate 1gbit', RANKS, 'gather', str(payload), '1', 'chain')
    need(result.returncode == 0, result.stdout, result.stderr)
    for node in table['nodes']:
        least, most = (0, 0.1) if node['node'] == 0 else (1, 1.15)
        need(least * payload <= node['bytes_in'] <= most * payload, node)
    out = sum(node['bytes_out'] for node in table['nodes'])
    need(3 * payload <= out <= 3 * 1.15 * payload, table['nodes'])


@case
def what_ucx_uses_is_told():
    result = call('-N 3 -m 2 --rate 1gbit --prefix', RANKS, 'lanes')
    need(result.returncode == 0, result.stdout, result.stderr)
    for rank in range(6):
        need(f'[{rank}] ucx: rank {rank} by tcp/eth0 to ranks ' in result.stdout, rank, result.stdout)
    need('same node' not in result.stdout, result.stdout)


@case
def the_network_inside_a_node_is_warned_of():
    result = call('-N 2 -m 2 --rate 1gbit --prefix', RANKS, 'lanes',
                  env=dict(os.environ, MXS_TRANSPORT='ucx', UCX_TLS='tcp,self'))
    need(result.returncode == 0, result.stdout, result.stderr)
    for rank, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        need(f'[{rank}] ucx: rank {rank} reaches rank {other} of the same node over the network' in result.stdout,
             rank, result.stdout)


@case
def ranks_of_a_node_share_its_rails():
    payload = 4 << 20
    result, table = measured('-N 2 -m 2 --rails 2 --rate 1gbit', RANKS, 'gather', str(payload), '4', 'flat')
    need(result.returncode == 0, result.stdout, result.stderr)
    for node in table['nodes']:  # two ranks that want the other node's half each
        need(payload <= node['bytes_in'] <= 1.15 * payload, node)
        for card in node['cards']:
            need(0.2 * payload <= card['bytes_in'] <= 0.9 * payload, node)


def fails_everywhere(options, ranks, dead=(), seconds=2):
    """All ranks but the dead end with the status of a failed comm and a sentence that names a rank."""
    result, table = measured(f'--least 0 --grace 30 --prefix --after runs {options}', RANKS, 'on', str(seconds))
    codes = [end['status'] for end in table['ranks']]
    need(codes == [137 if rank in dead else FAILED for rank in range(ranks)], codes, result.stdout, result.stderr)
    for rank in set(range(ranks)) - set(dead):
        said = [line for line in result.stdout.splitlines() if line.startswith(f'[{rank}] ')]
        said = [line for line in said if ' UCX ' not in line][-1]
        need(re.search(r'rank \d', said), said)
    return result.stdout


@case
def a_card_that_goes_down_fails_all_ranks():
    fails_everywhere('-N 4 -m 2 --rate 1gbit --down 2@0.2', 8)


@case
def a_pulled_cable_fails_all_ranks():
    fails_everywhere('-N 4 --rate 1gbit --unplug 3@0.2', 4)


@case
def one_of_two_rails_that_goes_down_fails_all_ranks():
    fails_everywhere('-N 3 -m 2 --rails 2 --rate 1gbit --down 1.1@0.2', 6)


@case
def a_killed_node_fails_the_others():
    output = fails_everywhere('-N 4 -m 2 --rate 1gbit --kill 2@0.2', 8, dead=(4, 5), seconds=60)
    need(re.search(r'rank [45] ', output), output)


@case
def a_cable_that_is_away_when_a_rank_leaves_loses_nothing():
    result = call('-N 2 --rate 1gbit --least 0 --prefix --after runs --unplug 1@0.3 --plug 1@3.3', RANKS, 'leave')
    need(result.returncode == 0, result.stdout, result.stderr)


def goes_on(options, ranks, living, dead=(), seconds=2):
    """The living make a comm of their own and collect; the others, if they live, are told that they may not."""
    result, table = measured(f'--least 0 --grace 30 --prefix --after runs {options}', RANKS, 'shrink', str(seconds))
    codes = [end['status'] for end in table['ranks']]
    need(codes == [137 if rank in dead else 0 if rank in living else FAILED for rank in range(ranks)], codes,
         result.stdout, result.stderr)
    who = ' '.join(map(str, living))
    for rank in living:
        need(f'[{rank}] went on with {who}\n' in result.stdout, rank, result.stdout, result.stderr)
    return result.stdout


@case
def the_others_go_on_without_a_killed_node():
    goes_on('-N 4 -m 2 --rate 1gbit --kill 2@0.2', 8, (0, 1, 2, 3, 6, 7), dead=(4, 5), seconds=60)


@case
def the_others_go_on_without_the_node_of_rank_0():
    goes_on('-N 3 -m 2 --rate 1gbit --kill 0@0.2', 6, (2, 3, 4, 5), dead=(0, 1), seconds=60)


@case
def only_the_larger_side_of_a_pulled_cable_goes_on():
    output = goes_on('-N 4 --rate 1gbit --unplug 3@0.2', 4, (0, 1, 2))
    need(re.search(r'\[3\] shrink: ranks 0, 1 and 2 of 4 did not come', output), output)


@case
def of_two_halves_that_of_rank_0_goes_on():
    output = goes_on('-N 2 -m 2 --rate 1gbit --unplug 0@0.2', 4, (0, 1))
    need(re.search(r'\[3\] shrink: ranks 0 and 1 of 4 did not come', output), output)


def the_network_is_measured():
    network = os.path.join(os.path.dirname(CLUSTER), 'network')
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, 'table.json')
        options = f'--nodes 2 --rate 1gbit --size 1M --owners 1,2 --kinds gather,rank-order --turns 2 --json {table}'
        result = subprocess.run([sys.executable, '-B', network, BUILD, '--algorithms', 'chosen', *options.split()],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=90)
        need(result.returncode == 0, result.stdout, result.stderr)
        with open(table, encoding='utf-8') as file:
            rows = [json.loads(line) for line in file]
    need([(row['kind'], row['owners'], row['wrong']) for row in rows] ==
         [('gather', 1, 0), ('gather', 2, 0), ('rank-order', 1, 0), ('rank-order', 2, 0)], rows)
    need(all(row['chosen'] and row['median_s'] > 0 and row['bound_s'] > 0 for row in rows), rows)


BUILD = os.environ.get('MXS_TEST_BUILD')  # with mxs-perf in it
if BUILD:
    case(the_network_is_measured)


def why_not():
    """One sentence, or nothing."""
    result = call('-N 2 --rate 1gbit --least 0', 'true')
    return result.stderr.strip().removeprefix('perf/cluster: ') if result.returncode == 77 else ''


def main():
    reason = why_not()
    if reason:
        print(f'1..0 # SKIP {reason}')
        return
    run_cases(pattern=''.join(sys.argv[3:4]))


main()
