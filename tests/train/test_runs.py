# SPDX-License-Identifier: Apache-2.0
"""Whole runs of the demo on a tiny model: test_runs.py MXS MXS_TRAIN DEMO. Speaks TAP."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest.mock

from runs import MXS, TINY, TRAIN, run_cases, start, train

DEMO = sys.argv[3]
PLACEMENTS = ['single', 'ddp', 'owner', 'slices', 'alltoall', 'zero1']
KEYS = {'loss_first', 'loss_last', 'loss_max_difference', 'step_ms', 'optimizer_ms', 'optimizer_matrix_bytes',
        'rest_bytes', 'peak_bytes', 'peak_bytes_predicted'}


def equal_runs_have_equal_bits_and_other_seeds_have_not(folder):
    first, second, other = (train(folder, 'single', 1, '--steps', '2', '--seed', seed) for seed in ('1', '1', '2'))
    assert first[1] == second[1] and first[0]['weights_hash'] == second[0]['weights_hash']
    assert first[1] != other[1] and first[0]['weights_hash'] != other[0]['weights_hash']


def loss_falls_within_20_steps(folder):
    figures, _ = train(folder, 'single', 1, '--steps', '20')
    losses = figures['losses']
    assert 5.3 < losses[0] < 5.8, f'a model that knows nothing loses about log 256 = 5.5, not {losses[0]}'
    assert losses[-1] < losses[0] - 1.5, losses


def all_placements_learn_the_same(folder):
    reference = train(folder, 'ddp', 4, '--steps', '5')[0]['losses']
    for placement in ('slices', 'alltoall', 'zero1', 'owner'):
        for ranks in (3, 4):
            figures, _ = train(folder, placement, ranks, '--steps', '5')
            worst = max(abs(a - b) for a, b in zip(figures['losses'], reference))
            assert worst < 0.02, f'{placement}, {ranks} ranks: {worst} off: {figures["losses"]} {reference}'
            sent = figures['optimizer_matrix_bytes']
            assert (sent == 0) == (placement == 'owner'), f'{placement} sent {sent} bytes in the optimizer step'


def costs_are_told_by_phase(folder):
    for placement, forward, step in (('owner', True, False), ('slices', True, True), ('alltoall', True, True),
                                     ('zero1', False, True), ('ddp', False, False)):
        figures, _ = train(folder, placement, 2, '--steps', '2')
        sent = {phase: sum(figures[f'sent_{phase}_bytes']) for phase in ('forward', 'backward', 'step', 'other')}
        tables = 2 * (figures['parameters'] - figures['matrix_parameters'])  # bf16; zero1's step gives them out, too
        assert (sent['forward'] > 0) == forward and sent['backward'] > 0, f'{placement}: {sent}'
        assert (sent['step'] > tables) == step, f'{placement}: {sent}'
        assert sent['other'] < 1000, f'{placement}: {sent}: sums of a few numbers are all that is left'
        weights = 2 * figures['parameters'] * 6  # each of 6 turns brings a rank what the other owns
        assert not forward or abs(sent['forward'] / weights - 1) < 0.05, f'{placement}: {sent}, not {weights}'
        assert figures['newton_schulz_steps'] == 5 and figures['matrices'] == 12, figures
        for all_cpu, part in zip(figures['cpu_ms'], figures['optimizer_cpu_ms']):
            assert 0 < part < all_cpu, f'{placement}: {part} of {all_cpu} ms'


def a_cpu_without_bf16_trains_in_f32(folder):
    with unittest.mock.patch.dict(os.environ, DNNL_MAX_CPU_ISA='AVX2'):  # the most that oneDNN takes the CPU for
        single, weights = train(folder, 'single', 1, '--steps', '10', '--rank-order')
        owner, owned_weights = train(folder, 'owner', 3, '--steps', '10', '--rank-order')
        said = start([TRAIN, '--placement', 'single', '--steps', '1', *(word for word in TINY if word != '--quiet')])
    assert single['dtype'] == 'bf16' and single['product_dtype'] == 'f32', single
    assert single['losses'][-1] < single['losses'][0] - 0.5, single['losses']
    assert owner['losses'] == single['losses'] and owned_weights == weights, (owner['losses'], single['losses'])
    assert 'products of the network are of f32' in said.stdout, said


def every_optimizer_learns(folder):
    for options in (['--optimizer', 'soap'], ['--optimizer', 'shampoo'], ['--optimizer', 'adamw'],
                    ['--preset', 'moonlight'], ['--preset', 'dion']):
        losses = train(folder, 'owner', 2, '--steps', '20', *options)[0]['losses']
        assert losses[-1] < losses[0] - 1.5, f'{options}: {losses}'


def memory_is_what_was_predicted(folder):
    for placement in PLACEMENTS:
        for ranks in (1, 4):
            memory = train(folder, placement, ranks, '--steps', '1')[0]['memory']
            for column in ('rest', 'peak'):
                predicted, counted = memory['predicted'][column], memory['counted'][column]
                assert all(abs(a - b) <= 0.01 * a for a, b in zip(predicted, counted)), \
                    f'{placement}, {ranks} ranks, {column}: predicted {predicted}, counted {counted}'
    for optimizer in ('shampoo', 'soap'):
        memory = train(folder, 'owner', 3, '--steps', '1', '--optimizer', optimizer)[0]['memory']
        assert memory['predicted'] == memory['counted'], f'{optimizer}: {memory}'


def the_table_is_written_as_json(folder):
    path = os.path.join(folder, 'table')
    done = start([DEMO, '--steps', '2', '--ranks', '2', '--rank-order', '--json', path, *TINY])
    assert done.returncode == 0, done.stdout + done.stderr
    with open(path, encoding='utf-8') as file:
        table = json.load(file)
    assert set(table) == {'placements', 'ranks', 'steps'} and table['ranks'] == 2 and table['steps'] == 2, table
    assert set(table['placements']) == set(PLACEMENTS), table
    for name, row in table['placements'].items():
        assert set(row) == KEYS, f'{name}: {set(row) ^ KEYS}'
        assert all(isinstance(value, (int, float)) for value in row.values()), row
    assert table['placements']['owner']['loss_max_difference'] == 0, table
    assert 'equal weights' in done.stdout, done.stdout


def the_demo_saves_and_goes_on_with_other_ranks(folder):
    saves = os.path.join(folder, 'saves')
    for options in (['--steps', '2', '--ranks', '2', '--save', saves],
                    ['--steps', '4', '--ranks', '5', '--resume', saves]):
        path = os.path.join(folder, 'table')
        done = start([DEMO, '--placement', 'owner', '--rank-order', '--json', path, *options, *TINY])
        assert done.returncode == 0, done.stdout + done.stderr
    with open(path, encoding='utf-8') as file:
        last = json.load(file)['placements']['owner']['loss_last']
    assert last == train(folder, 'single', 1, '--steps', '4')[0]['losses'][-1]


def complains(command, sentence):
    done = start(command)
    said = done.stdout + done.stderr
    assert done.returncode != 0, f'{command} succeeded'
    assert sentence in said, f'{command} said: {said}'


def bad_flags_get_a_sentence(_):
    for options, sentence in [
            (['--placement', 'nowhere'], '--placement nowhere is none of: single, ddp'),
            (['--frobnicate'], 'unknown option --frobnicate'),
            (['--steps'], '--steps wants a value: N'),
            (['--steps', '0'], '--steps 0 is no whole number from 1'),
            (['--steps', '9223372036854775808'], 'is no whole number'),
            (['--steps', '3x'], '--steps 3x is no whole number'),
            (['--heads', '3'], "--heads 3 doesn't divide --width 64"),
            (['--dtype', 'f8'], '--dtype f8 is none of: bf16, f32'),
            (['--matrix-lr', 'nan'], '--matrix-lr nan is no number'),
            (['--optimizer', 'sgd'], '--optimizer sgd is none of: muon, shampoo, soap, adamw'),
            (['--preset', 'mine'], '--preset: '),
            (['--optimizer', 'soap', '--preset', 'moonlight'], "--preset moonlight is none of --optimizer soap's"),
            (['--placement', 'slices', '--optimizer', 'soap'], 'soap wants whole ones'),
            (['--placement', 'alltoall', '--preset', 'moonlight'], "which --preset moonlight doesn't"),
            (['--reshard', 'never'], '--reshard never is none of: free, auto, pin'),
            (['--save', '/tmp'], '--placement single has no checkpoints: --save and --resume are for owner'),
            (['--resume', '/tmp'], '--placement single has no checkpoints'),
            (['--keep', '2'], '--save DIR says where'),
            (['--save-every', '0'], '--save-every 0 is no whole number from 1'),
    ]:
        complains([TRAIN, '--placement', 'single', *TINY, *options], sentence)


def bad_worlds_and_texts_get_a_sentence(folder):
    complains([TRAIN, '--placement', 'single', *TINY, '--text', os.path.join(folder, 'absent')], 'cannot open')
    short = os.path.join(folder, 'short')
    with open(short, 'w', encoding='utf-8') as file:
        file.write('too short')
    complains([TRAIN, '--placement', 'single', *TINY, '--text', short], 'has 9 bytes, and one sequence needs 18')
    complains([MXS, 'run', '-n', '2', '--', TRAIN, '--placement', 'ddp', *TINY, '--micro-batches', '3'],
              "2 ranks don't divide --micro-batches 3")
    complains([TRAIN, '--placement', 'single', *TINY, '--text', folder], 'is a folder; give a text')
    complains([DEMO, '--placement', 'ddp,nowhere'], 'nowhere" is none of')
    complains([DEMO, '--ranks', '5'], "--ranks 5 doesn't divide the 12 micro-batches of a step: take one of 1, 2, 3, 4")
    complains([DEMO, '--ranks', '0'], 'no whole number')
    complains([DEMO, '--placement', 'single', '--steps', '1', *TINY, '--text', folder], 'failed with status 1')


def the_demo_refuses_words_before_it_trains(folder):
    for options, sentence in [
            (['--frobnicate'], 'demo: unknown option --frobnicate'),
            (['--preset', 'mine'], 'demo: --preset: no preset is called "mine"'),
            (['--optimizer', 'soap', '--preset', 'nvidia'], "demo: --preset nvidia is none of --optimizer soap's"),
            (['--placement', 'single,slices', '--optimizer', 'soap'], 'demo: --placement slices cuts matrices'),
            (['--placement', 'single,alltoall', '--preset', 'moonlight'], "which --preset moonlight doesn't"),
            (['--width', '63'], 'demo: ')]:
        done = start([DEMO, *options])
        assert done.returncode == 2 and sentence in done.stderr and done.stderr.count('\n') == 1, f'{options}: {done}'
        assert 'loss' not in done.stdout + done.stderr, f'{options}: it trained first: {done.stderr}'
    path = os.path.join(folder, 'table')
    done = start([DEMO, '--steps', '1', '--ranks', '2', '--preset', 'moonlight', '--json', path, *TINY])
    assert done.returncode == 0 and 'muon of moonlight, 2 ranks' in done.stdout, done
    with open(path, encoding='utf-8') as file:
        assert set(json.load(file)['placements']) == set(PLACEMENTS) - {'slices', 'alltoall'}


def files_that_cannot_be_written_are_refused_before_training(folder):
    absent = os.path.join(folder, 'absent', 'file')
    complains([DEMO, '--json', absent], "can't be written")
    complains([DEMO, '--json', folder], "can't be written")
    for option in ('--json', '--save-weights'):
        done = start([TRAIN, '--placement', 'single', *TINY[:-1], option, absent])
        assert done.returncode == 1 and f'cannot write {absent}' in done.stderr, done
        assert 'loss' not in done.stderr, f'it trained first: {done.stderr}'


def an_interrupt_ends_the_demo_without_a_traceback(_):
    command = [DEMO, '--steps', '1000000', '--placement', 'single', *TINY]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as demo:
        children = f'/proc/{demo.pid}/task/{demo.pid}/children'
        while demo.poll() is None and not open(children, encoding='utf-8').read():
            time.sleep(0.01)
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
        said = demo.communicate(timeout=60)[1]
    assert demo.returncode == 130 and said == 'demo: interrupted\n', f'{demo.returncode}: {said}'


run_cases([equal_runs_have_equal_bits_and_other_seeds_have_not, loss_falls_within_20_steps,
           all_placements_learn_the_same, costs_are_told_by_phase, a_cpu_without_bf16_trains_in_f32,
           every_optimizer_learns,
           memory_is_what_was_predicted, the_table_is_written_as_json, the_demo_saves_and_goes_on_with_other_ranks,
           bad_flags_get_a_sentence, bad_worlds_and_texts_get_a_sentence,
           the_demo_refuses_words_before_it_trains,
           files_that_cannot_be_written_are_refused_before_training,
           an_interrupt_ends_the_demo_without_a_traceback])
