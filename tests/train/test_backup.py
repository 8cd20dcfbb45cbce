# SPDX-License-Identifier: Apache-2.0
"""Ranks of a run with a backup are killed, and the others go on: test_backup.py MXS MXS_TRAIN. Speaks TAP.

What comes after has the bits of a run that was resumed from a checkpoint of the step that the others went back to, by
as many ranks as were left, and of one that nothing happened to.
"""
import json
import os

from runs import MXS, TINY, TRAIN, run_cases, start, train

STEPS = 8


def run(folder, ranks, *options):
    """As train, where ranks may die."""
    figures, weights = os.path.join(folder, 'figures'), os.path.join(folder, 'weights')
    done = start([MXS, 'run', '--keep-going', '-n', str(ranks), '--', TRAIN, '--json', figures, '--save-weights',
                  weights, '--steps', str(STEPS), '--rank-order', '--backup', *TINY, *options])
    assert done.returncode == 0, f'{options}: {done.returncode}\n{done.stdout}{done.stderr}'
    with open(figures, encoding='utf-8') as file, open(weights, 'rb') as data:
        return json.load(file), data.read()


def the_others_go_on_as_a_resumed_run(folder):
    """Each rank; in each moment of a step, which the seed draws."""
    moments = {}
    for seed, victim in ((1, 1), (2, 2), (5, 3), (5, 0)):  # in backward, step, forward, forward
        saves = os.path.join(folder, f'saves{seed}-{victim}')
        options = ['--steps', str(STEPS), '--rank-order', '--seed', str(seed)]
        saving = train(folder, 'owner', 4, *options, '--save', saves, '--save-every', '1')
        figures, weights = run(folder, 4, '--seed', str(seed), '--die', f'{victim}@5')
        what = f'seed {seed}, rank {victim}'
        assert len(figures['restarts']) == 1 and figures['ranks'] == 3, f'{what}: {figures["restarts"]}'
        restart = figures['restarts'][0]
        assert restart['ranks'] == 3 and restart['lost'] == 1 and restart['step'] in (3, 4), f'{what}: {restart}'
        moments[restart['step']] = moments.get(restart['step'], 0) + 1
        resumed = train(folder, 'owner', 3, *options, '--resume', os.path.join(saves, f'step-{restart["step"]:08}'))
        assert figures['losses'][restart['step']:] == resumed[0]['losses'], f'{what}: losses after {restart["step"]}'
        assert figures['losses'] == saving[0]['losses'], what
        assert weights == resumed[1] == saving[1], f'{what}: weights differ'
    print(f'# went back to the steps: {moments}')


def every_optimizer_goes_on(folder):
    for optimizer in ('shampoo', 'soap', 'adamw'):
        expected = train(folder, 'single', 1, '--steps', str(STEPS), '--rank-order', '--optimizer', optimizer)
        figures, weights = run(folder, 4, '--optimizer', optimizer, '--die', '1@4')
        assert figures['losses'] == expected[0]['losses'] and weights == expected[1], optimizer


def one_death_after_another_is_survived(folder):
    expected = train(folder, 'single', 1, '--steps', str(STEPS), '--rank-order')
    figures, weights = run(folder, 4, '--die', '3@3', '--die', '0@5', '--die', '1@7')
    assert [restart['ranks'] for restart in figures['restarts']] == [3, 2, 1], figures['restarts']
    assert figures['losses'] == expected[0]['losses'] and weights == expected[1]


def two_deaths_at_once_are_survived_where_nobody_kept_the_other(folder):
    expected = train(folder, 'single', 1, '--steps', str(STEPS), '--rank-order')
    figures, weights = run(folder, 4, '--die', '1@4', '--die', '3@4')
    assert figures['ranks'] == 2, figures['restarts']
    assert figures['losses'] == expected[0]['losses'] and weights == expected[1]


def a_backup_changes_no_bits_and_its_bytes_are_predicted(folder):
    for ranks in (1, 2, 3, 4):
        expected = train(folder, 'owner', ranks, '--steps', '3', '--rank-order')
        found = train(folder, 'owner', ranks, '--steps', '3', '--rank-order', '--backup')
        assert found[0]['losses'] == expected[0]['losses'] and found[1] == expected[1], ranks
        memory = found[0]['memory']
        assert memory['counted']['backup'] == memory['predicted']['backup'], memory
        assert all(bytes_ > 0 for bytes_ in memory['counted']['backup']) == (ranks > 1), memory
        assert found[0]['optimizer_matrix_bytes'] == 0 and expected[0]['optimizer_matrix_bytes'] == 0


def what_cannot_go_on_gets_a_sentence(folder):
    words = ['--steps', '6', '--quiet', *TINY]
    for options, sentence in [
            (['--backup', '--die', '1@1'], 'no backup is complete'),
            (['--die', '1@4'], 'rank 1'),
            (['--backup', '--die', '1@4', '--die', '2@4'], 'are both gone')]:
        done = start([MXS, 'run', '--keep-going', '-n', '3', '--', TRAIN, *words, *options])
        assert done.returncode != 0 and sentence in done.stderr, f'{options}: {done}'
    for options, sentence in [(['--backup', '--placement', 'ddp'], '--backup is for owner'),
                              (['--die', '3'], 'no RANK@STEP'), (['--die', '@3'], 'whole number')]:
        done = start([TRAIN, '--check', *options])
        assert done.returncode == 2 and sentence in done.stderr, done
    assert os.listdir(folder) == []


run_cases([the_others_go_on_as_a_resumed_run, every_optimizer_goes_on, one_death_after_another_is_survived,
           two_deaths_at_once_are_survived_where_nobody_kept_the_other,
           a_backup_changes_no_bits_and_its_bytes_are_predicted, what_cannot_go_on_gets_a_sentence])
