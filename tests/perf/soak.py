#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perf/soak, briefly: soak.py SOAK PROGRAM. Speaks TAP. Worlds without and with faults, the matrix of roles and phases
where virtual nodes are allowed and where not, and faults that must be found."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
from tap_cases import case, need, run_cases  # noqa: E402

SOAK, PROGRAM = sys.argv[1:3]


def soak(options, status=0):
    """What --json wrote, and what was printed."""
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, 'table.json')
        result = subprocess.run([sys.executable, '-B', SOAK, PROGRAM, '--json', table, *options.split()], check=False,
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150)
        need(result.returncode == status, options, result.returncode, result.stdout[-3000:], result.stderr[-2000:])
        if not os.path.exists(table):
            return None, result.stdout + result.stderr
        with open(table, encoding='utf-8') as file:
            return json.load(file), result.stdout + result.stderr


@case
def worlds_with_faults_are_right():
    table, _ = soak('--seconds 8 --seed 9 --ranks 1,2,3,4 --transport shm,ucx,loopback --faults none,kill,abort')
    need(table['wrong'] == 0 and table['cases'] > 0 and table['bytes'] > 100000, table)
    need(all(table['kinds'].get(kind) for kind in ('gather', 'reduce', 'reshard', 'sums', 'units')), table['kinds'])


@case
def killed_ranks_are_named_in_every_phase():
    table, text = soak('--kills 9 --seed 4 --transport shm --faults kill --phases gather,reduce,step,checkpoint')
    need(table['wrong'] == 0 and len(table['matrix']) == 9 and table['survivors'] >= 27, table, text)
    need(all(cell['worst_s'] <= 5 for cell in table['matrix']), table['matrix'])


@case
def so_they_are_between_virtual_nodes():
    table, text = soak('--kills 4 --seed 4 --transport cluster --faults kill --phases gather,reduce,step',
                       status=NODES_STATUS)
    need(NODES_STATUS == 77 or table['wrong'] == 0, text)


@case
def a_planted_fault_is_found_and_its_command_told():
    table, text = soak('--seconds 5 --seed 2 --ranks 2 --transport shm --faults none --plant-fault', status=1)
    need(table['wrong'] == 1 and 'is wrong' in text, text)
    need(re.search(r'seed 2, episode 0 .*once more:\n.*--seed 2 .*--only 0', text, re.DOTALL), text)


@case
def equal_seeds_draw_equal_episodes():
    episodes = load('episodes')
    drawn = [[vars(episodes.draw(seed, number, [2, 4], ['shm', 'cluster'], ['none', 'kill', 'cut']))
              for number in range(50)] for seed in (5, 5, 6)]
    need(drawn[0] == drawn[1] and drawn[0] != drawn[2], 'the seed does not decide')
    cells = {(run.transport, run.fault, *run.cell)
             for run in (episodes.matrix_run(3, number, ['shm', 'cluster'], ['kill', 'stop'], episodes.PHASES)
                         for number in range(80))}
    need(len(cells) == 80, len(cells), 'of 80 cells')


def load(name):
    path = os.path.join(os.path.dirname(SOAK), name + '.py')
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@case
def what_must_not_be_is_judged_wrong():
    episodes, running = load('episodes'), load('running')
    episode = episodes.Episode()
    episode.fault, episode.ranks = 'kill', 3
    fault = {'rank': 2, 'event': 'fault', 'at': 10 ** 9}

    def heard(rank, seconds, named=True, status='PEER_FAILED'):
        return {'rank': rank, 'event': 'heard', 'at': int((1 + seconds) * 10 ** 9), 'named': named, 'status': status,
                'in': 'world', 'doing': 'a gather', 'sentence': 'rank 2 hung up'}

    def shrunk(rank, *members):
        return {'rank': rank, 'event': 'shrunk', 'at': 2 * 10 ** 9, 'members': list(members)}

    both = [fault, heard(0, 1), heard(1, 1)]
    for events, what in ((both + [shrunk(0, 0, 1), shrunk(1, 0, 1)], None),
                         (both + [shrunk(0, 0, 1)], 'rank 1 did not go on'),
                         (both + [shrunk(0, 0), shrunk(1, 1)], 'different worlds'),
                         (both + [shrunk(0, 0, 1, 2), shrunk(1, 0, 1, 2)], 'dead rank 2'),
                         (both + [shrunk(0, 0, 1), {'rank': 1, 'event': 'alone', 'status': 'TIMED_OUT',
                                                    'sentence': 'nobody came'}], 'rank 1 could not go on'),
                         ([fault, heard(0, 1)], 'rank 1 never heard'),
                         ([fault, heard(0, 1), heard(1, 9)], 'after 9.0 s'),
                         ([fault, heard(0, 1), heard(1, 1, named=False)], 'another rank'),
                         ([fault, heard(0, 1), heard(1, 1, status='INTERNAL')], 'INTERNAL'),
                         ([heard(0, 1)], 'without a cause'),
                         ([fault, heard(0, 1), heard(1, 1),
                           {'rank': 0, 'event': 'leak', 'sentence': '1 descriptors more: pipe'}], 'descriptors')):
        world = running.World()
        world.events = events
        wrong, _ = episodes.judge(episode, world)
        need(not wrong if what is None else any(what in sentence for sentence in wrong), what, wrong)


@case
def bad_options_are_refused_in_sentences():
    for options, sentence in (('--transport rdma', 'none of shm'), ('--ranks 0', 'from 1 to 64'),
                              ('--faults quake', 'none of none')):
        _, text = soak(options, status=2)
        need(sentence in text, options, text)
    result = subprocess.run([PROGRAM, '--odd'], capture_output=True, text=True, check=False, timeout=60)
    need(result.returncode == 2 and '--odd' in result.stderr, result.returncode, result.stderr)


NODES_STATUS = 77 if load('running').no_cluster() else 0


def main():
    run_cases(pattern=''.join(sys.argv[3:4]))


main()
