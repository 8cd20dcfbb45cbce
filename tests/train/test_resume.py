# SPDX-License-Identifier: Apache-2.0
"""A run that goes on from a checkpoint ends where one ends that was never interrupted: test_resume.py MXS MXS_TRAIN.
Speaks TAP."""
import json
import os

import reader
from runs import MXS, TINY, TRAIN, run_cases, start, train

STEPS = 12  # roots and bases are renewed in step 10: after the first checkpoints, before the last
PARTS = {'muon': {'momentum'}, 'adamw': {'exp_avg', 'exp_avg_sq'},
         'shampoo': {'factor_left', 'factor_right', 'root_left', 'root_right', 'exp_avg', 'graft_sq', 'failures'},
         'soap': {'factor_left', 'factor_right', 'basis_left', 'basis_right', 'exp_avg', 'exp_avg_sq',
                  'failures'}}


def step_path(folder, step):
    return os.path.join(folder, f'step-{step:08}')


def first_difference(found, expected):
    assert len(found) == len(expected), f'{len(found)} bytes, not {len(expected)}'
    return next((i // 4 for i in range(0, len(found), 4) if found[i:i + 4] != expected[i:i + 4]), None)


def resumed_runs_have_the_bits_of_an_uninterrupted_one(folder, optimizer):
    """Saved by 4 ranks, which saving doesn't disturb, at every fourth step."""
    options = ['--steps', str(STEPS), '--optimizer', optimizer, '--rank-order']
    expected, weights = train(folder, 'single', 1, *options)
    saves = os.path.join(folder, 'saves')
    saving = train(folder, 'owner', 4, *options, '--save', saves, '--save-every', '4')
    assert saving[1] == weights and saving[0]['losses'] == expected['losses'], 'saving changed the training'
    for ranks in (1, 2, 3, 4, 6, 5, 7, 8):
        step = 4 if ranks in (2, 3, 7) else 8
        found = train(folder, 'owner', ranks, *options, '--resume', step_path(saves, step))
        what = f'{optimizer}, {ranks} ranks, from step {step}'
        assert found[0]['first_step'] == step and len(found[0]['losses']) == STEPS - step, f'{what}: {found[0]}'
        if 12 % ranks == 0:
            assert found[0]['losses'] == expected['losses'][step:], what
            assert first_difference(found[1], weights) is None, \
                f'{what}: element {first_difference(found[1], weights)} of the weights differs'
        worst = max(abs(a - b) for a, b in zip(found[0]['losses'], expected['losses'][step:]))
        assert worst < 1e-5, f'{what}: losses are off by {worst}'


def muon_goes_on_bit_for_bit(folder):
    resumed_runs_have_the_bits_of_an_uninterrupted_one(folder, 'muon')


def shampoo_goes_on_bit_for_bit(folder):
    resumed_runs_have_the_bits_of_an_uninterrupted_one(folder, 'shampoo')


def soap_goes_on_bit_for_bit(folder):
    resumed_runs_have_the_bits_of_an_uninterrupted_one(folder, 'soap')


def adamw_goes_on_bit_for_bit(folder):
    resumed_runs_have_the_bits_of_an_uninterrupted_one(folder, 'adamw')


def a_run_that_saves_beside_training_goes_on_bit_for_bit(folder):
    """A checkpoint after each step, written while the next ones run; the two newest stay. Interrupted and resumed
    twice, in a tied model."""
    options = ['--tied', '--rank-order']
    expected, weights = train(folder, 'single', 1, '--steps', '7', *options)
    saves = os.path.join(folder, 'saves')
    saving = ['--save', saves, '--save-async', '--save-every', '1', '--keep', '2', *options]
    train(folder, 'owner', 3, '--steps', '3', *saving)
    train(folder, 'owner', 2, '--steps', '5', *saving, '--resume', saves)
    figures, found = train(folder, 'owner', 4, '--steps', '7', *saving, '--resume', saves)
    assert figures['losses'] == expected['losses'][5:] and found == weights
    assert sorted(os.listdir(saves)) == ['step-00000006', 'step-00000007'], os.listdir(saves)


def checkpoints_are_what_another_reader_finds(folder):
    """The masters are those that --save-weights tells, the weights are their roundings; each has its state."""
    for optimizer, parts in PARTS.items():
        for ranks in (1, 3):
            saves = os.path.join(folder, f'{optimizer}{ranks}')
            _, expected = train(folder, 'owner', ranks, '--steps', '2', '--optimizer', optimizer, '--save', saves)
            path = step_path(saves, 2)
            model, state = reader.read_model(path), reader.read_optimizer(path)
            masters = b''.join(state[name + '.master'].read() for name in sorted(model))
            assert first_difference(masters, expected) is None, f'{optimizer}, {ranks} ranks'
            for name, array in model.items():
                assert array.dtype == 'BF16' and state[name + '.master'].dtype == 'F32', name
                assert array.shape == state[name + '.master'].shape, name
                assert array.read() == reader.narrowed(state[name + '.master'].read()), name
            check_state(model, state, parts)


def check_state(model, state, parts):
    known = {name + '.master' for name in model}
    for name, array in model.items():
        is_hidden = name.startswith('block')
        for part in parts if is_hidden and len(array.shape) == 2 else PARTS['adamw']:
            key = f'{name}.{part}'
            assert key in state or key + '.0' in state, f'there is no {key}: {sorted(state)}'
        known |= {key for key in state if key.startswith(name + '.')}
    assert set(state) == known, set(state) - known


def mxs_shows_what_another_reader_finds(folder):
    saves = os.path.join(folder, 'saves')
    train(folder, 'owner', 3, '--steps', '2', '--optimizer', 'soap', '--save', saves)
    path = step_path(saves, 2)
    done = start([MXS, 'checkpoint', 'show', '--json', path])
    assert done.returncode == 0, done
    shown = json.loads(done.stdout)
    assert shown['step'] == 2 and shown['ranks'] == 3, done.stdout
    arrays = {**reader.read_model(path), **reader.read_optimizer(path)}
    assert sorted(array['name'] for array in shown['arrays']) == sorted(arrays)
    for array in shown['arrays']:
        found = arrays[array['name']]
        assert (found.dtype, found.shape, found.bytes, found.file, found.offset) == \
            (array['dtype'], array['shape'], array['bytes'], array['file'], array['offset']), f'{array}, {vars(found)}'
    done = start([MXS, 'checkpoint', 'verify', path])
    assert done.returncode == 0, done


def groups_with_equal_values_are_one_line(folder):
    for lr, wanted in (('0.003', ['0-1']), ('0.02', ['0', '1'])):
        train(folder, 'owner', 2, '--steps', '1', '--matrix-lr', lr, '--adamw-lr', '0.003', '--save', folder)
        lines = start([MXS, 'checkpoint', 'show', step_path(folder, 1)]).stdout.splitlines()
        first = next(number for number, line in enumerate(lines) if line.lstrip().startswith('lr '))
        assert [line.split()[-1] for line in lines[first + 1:first + 1 + len(wanted)]] == wanted, lines
        assert lines[first + 1 + len(wanted)] == '', lines


def a_run_tells_where_it_saved_and_what_it_goes_on_from(folder):
    saves = os.path.join(folder, 'saves')
    words = [word for word in TINY if word != '--quiet']
    for options, sentence in [
            (['--steps', '2', '--save', saves], f'step 2 is saved in {saves}\n'),
            (['--steps', '3', '--resume', saves], f'goes on from {step_path(saves, 2)}, after step 2\n')]:
        done = start([MXS, 'run', '-n', '2', '--', TRAIN, *words, *options])
        assert done.returncode == 0 and done.stderr.count(sentence) == 1, done


def what_cannot_be_resumed_gets_a_sentence(folder):
    saves = os.path.join(folder, 'saves')
    train(folder, 'owner', 2, '--steps', '2', '--save', saves)
    for options, sentence in [
            (['--resume', os.path.join(folder, 'absent')], 'absent'),
            (['--resume', saves, '--seed', '2'], 'is of --seed 1, not 2'),
            (['--resume', saves, '--steps', '2'], 'has 2 steps behind it, so --steps 2 leaves nothing to do'),
            (['--resume', saves, '--width', '32'], '(MISMATCH)'),
            (['--resume', saves, '--optimizer', 'soap'], '(MISMATCH)')]:
        done = start([MXS, 'run', '-n', '2', '--', TRAIN, *TINY, *options])
        assert done.returncode != 0 and sentence in done.stderr, f'{options}: {done}'


run_cases([muon_goes_on_bit_for_bit, shampoo_goes_on_bit_for_bit, soap_goes_on_bit_for_bit, adamw_goes_on_bit_for_bit,
           a_run_that_saves_beside_training_goes_on_bit_for_bit, checkpoints_are_what_another_reader_finds,
           mxs_shows_what_another_reader_finds, groups_with_equal_values_are_one_line,
           a_run_tells_where_it_saved_and_what_it_goes_on_from, what_cannot_be_resumed_gets_a_sentence])
