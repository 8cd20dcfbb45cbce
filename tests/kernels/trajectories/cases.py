# SPDX-License-Identifier: Apache-2.0
"""Which shapes, gradients and options each preset is run with.

Sizes are small, because every number is stored; the "big" cases, which bf16 backends need (they leave matrices of
less than 32 rows or columns to fp32), store one number of 11.
"""
import copy

import numpy as np

import inputs
import rules

FORMAT = 'Numbers are C hex floats.'

PRESETS = ['default', 'torch-muon', 'torch-muon-rms', 'keller-jordan', 'moonlight', 'nvidia', 'dion', 'normuon',
           'shampoo', 'soap', 'torch-adamw']


class Case:
    def __init__(self, preset, rule, name, rows, columns, gradient='plain', mistakes=(), stride=1, count=1, blocks=(),
                 heads=1, transposed=False, lr=2.0 ** -6, weight_decay=2.0 ** -3, **options):
        self.preset, self.rule, self.name, self.rows, self.columns = preset, rule, name, rows, columns
        self.gradient, self.mistakes, self.stride = gradient, mistakes, stride
        self.count, self.blocks, self.heads, self.transposed = count, blocks, heads, transposed
        self.lr, self.weight_decay, self.options = lr, weight_decay, options
        self.seed = 1 + sum(ord(letter) * (i + 1) for i, letter in enumerate(preset + name)) % 100000

    def option(self, name, otherwise):
        return self.options.get(name, otherwise)

    def parts(self):
        """Rows of each part that is orthogonalised by itself."""
        first = 0
        for block in self.count * list(self.blocks or [self.rows]):
            for _ in range(self.heads):
                yield slice(first, first + block // self.heads)
                first += block // self.heads

    def part(self, rows):
        """The same of so many rows alone."""
        alone = copy.copy(self)
        alone.rows, alone.count, alone.blocks, alone.heads = rows, 1, (), 1
        return alone

    def descriptor(self):
        yield from {'rule': self.rule, 'rows': self.rows, 'columns': self.columns, 'seed': self.seed,
                    'gradient': self.gradient, 'stride': self.stride, 'lr': self.lr.hex(),
                    'weight_decay': self.weight_decay.hex()}.items()
        for name, value, usual in (('count', self.count, 1), ('heads', self.heads, 1),
                                   ('transposed', int(self.transposed), 0)):
            if value != usual:
                yield name, value
        if self.blocks:
            yield 'blocks', ' '.join(map(str, self.blocks))
        for name, value in self.options.items():
            yield name, value.hex() if isinstance(value, float) else int(value) if isinstance(value, bool) else value


def of_muon(preset):
    def case(name, rows, columns, *arguments, **options):
        return Case(preset, 'muon', name, rows, columns, *arguments, **options)

    order = ('decay after the update', 'nesterov turned')
    tiny = ('epsilon of the other kind',) if preset != 'default' and preset != 'nvidia' else ()
    if preset in ('torch-muon', 'torch-muon-rms', 'keller-jordan', 'dion', 'moonlight', 'normuon'):
        tiny += ('momentum of the other kind',)
    scaled = () if preset in ('torch-muon', 'keller-jordan', 'normuon') else ('decay with the scaled lr',)
    post = ('no normuon', 'not rescaled to the old norm') if preset == 'normuon' else ()
    safety = ('no safety',) if preset == 'dion' else ()
    yield case('wide', 6, 11, mistakes=order + scaled + post + safety)
    yield case('tall', 11, 6, mistakes=order + post + safety)
    yield case('square', 8, 8, mistakes=order + post + safety)
    yield case('row', 1, 9, gradient='late', mistakes=order)
    yield case('tiny', 5, 8, gradient='tiny', mistakes=tiny)
    yield case('big', 40, 56, stride=11, mistakes=order + post)
    if preset == 'default':
        yield from of_muon_options(case)


def of_muon_options(case):
    parts = ('parts together', 'scale of the whole matrix')
    yield case('column', 9, 1)
    yield case('low_rank', 10, 12, gradient='rank2')
    yield case('plain_momentum', 6, 9, nesterov=False, mistakes=('nesterov turned',))
    yield case('sgd', 6, 9, momentum_kind='sgd')
    yield case('sgd_plain', 6, 9, momentum_kind='sgd', nesterov=False, mistakes=('nesterov turned',))
    yield case('heads', 12, 5, heads=3, mistakes=parts)
    yield case('blocks', 12, 7, blocks=(6, 4, 2), mistakes=parts)
    yield case('blocks_of_heads', 12, 7, blocks=(8, 4), heads=2, mistakes=parts)
    yield case('experts', 4, 6, count=3, mistakes=('parts together',))
    yield case('transposed', 5, 9, transposed=True, scale='ratio', mistakes=('not transposed',))
    for scale in ('none', 'shape', 'max', 'ratio'):
        yield case(f'scale_{scale}', 7, 4, scale=scale)
    for decay in ('independent', 'l2', 'palm', 'cautious'):
        yield case(f'decay_{decay}', 6, 7, decay=decay, mistakes=('decay decoupled',))
    yield case('normuon', 6, 7, normuon=True, mistakes=('no normuon',))
    yield case('normuon_blocks', 9, 7, normuon=True, blocks=(6, 3), mistakes=('no normuon', 'parts together'))


def of_adamw():
    def case(name, rows, columns, *arguments, **options):
        return Case('torch-adamw', 'adamw', name, rows, columns, *arguments, **options)

    order = ('decay after the update', 'no bias correction')
    yield case('matrix', 6, 11, mistakes=order)
    yield case('row', 1, 37, gradient='late')
    yield case('tiny', 5, 8, gradient='tiny', mistakes=order + ('epsilon at the other place',))
    yield case('epsilon_before', 5, 8, gradient='tiny', epsilon_before=True, mistakes=('epsilon at the other place',))
    yield case('epsilon_large', 5, 8, epsilon=2.0 ** -6, mistakes=('epsilon at the other place',))
    for decay in ('independent', 'l2', 'palm', 'cautious'):
        yield case(f'decay_{decay}', 6, 7, decay=decay, mistakes=('decay decoupled',))


def of_shampoo():
    def case(name, rows, columns, *arguments, **options):
        return Case('shampoo', 'shampoo', name, rows, columns, 'spread', *arguments, **options)

    filtered = ('no bias correction of the gradient', 'exponent of one dimension')
    later = ('starts a step later',)
    yield case('wide', 5, 9, interval=10, grafting='none', mistakes=filtered + later)
    yield case('tall', 9, 5, interval=10, grafting='none', mistakes=filtered + later)
    yield case('averaged', 6, 7, interval=10, grafting='none', beta2=0.75,
               mistakes=filtered + ('no bias correction of the factors',))
    yield case('graft_adam', 6, 7, interval=5, grafting='adam', beta2=0.984375,
               mistakes=('no grafting', 'exponent of one dimension') + later)
    yield case('graft_sgd', 7, 7, interval=10, start=12, grafting='sgd', mistakes=('no grafting',) + later)
    yield case('every_step', 5, 7, interval=1, grafting='none', epsilon=2.0 ** -7,
               mistakes=('no bias correction of the gradient',))
    yield case('blocks', 9, 10, interval=10, grafting='adam', block_max=4, mistakes=('no blocks', 'no grafting'))
    yield case('momentum', 6, 7, interval=10, grafting='none', momentum=0.5, mistakes=('decay beside momentum',))
    yield case('nesterov', 6, 7, interval=10, grafting='none', momentum=0.5, nesterov=True,
               mistakes=('decay beside momentum',))
    yield case('decay_l2', 6, 7, interval=10, grafting='adam', decay='l2')
    yield case('exponent', 6, 7, interval=10, grafting='none', exponent=0.5)
    yield case('row', 1, 9, interval=10, grafting='adam', epsilon=2.0 ** -7)
    yield case('row_blocks', 11, 6, blocks=(6, 5), interval=10, grafting='adam', mistakes=('parts together',))
    yield case('experts', 5, 6, count=2, interval=10, grafting='none', momentum=0.5)
    # All as published: a root at each step, from the first. A square matrix, so that the first factors have full rank.
    yield case('published', 6, 6, mistakes=filtered + later)
    yield case('big', 33, 36, interval=10, grafting='adam', stride=11)


def first_gap(case):
    """The least gap between eigenvalues of the factors that SOAP begins with, over the largest."""
    gap = 1.0
    for part in case.parts():
        gradient = inputs.gradient(case, 1)[part]
        for side, factor in enumerate((gradient @ gradient.T, gradient.T @ gradient)):
            values = np.linalg.eigvalsh(factor)
            if len(values) > 1 and rules.sides_with_factors(case, *gradient.shape)[side]:
                gap = min(gap, np.min(np.diff(values)) / values[-1])
    return gap


def of_soap():
    def case(name, rows, columns, *arguments, **options):
        # fp32 turns eigenvectors by some 1e-7 over the gap: the first seed whose gaps are wide.
        made = Case('soap', 'soap', name, rows, columns, *arguments, **options)
        while first_gap(made) < 2e-3:
            made.seed += 1
        return made

    order = ('decay before the update', 'first step not skipped', 'first call counted', 'basis refreshed before use')
    # The first factor of a side has rank min(rows, columns): its null space must have one dimension at most, or the
    # first basis is anybody's choice. So sides differ by one, or the longer one has no factor.
    yield case('wide', 5, 6, gradient='spread', mistakes=order)
    yield case('tall', 6, 5, gradient='spread', mistakes=order)
    yield case('square', 7, 7, gradient='spread', mistakes=order)
    yield case('crossing', 6, 7, gradient='crossing', mistakes=order + ('second moment not permuted', 'not sorted'))
    yield case('epsilon_large', 5, 6, gradient='spread', epsilon=2.0 ** -6,
               mistakes=('epsilon after bias correction',))
    yield case('interval', 5, 6, gradient='crossing', interval=3, mistakes=('second moment not permuted',))
    yield case('factor_beta', 5, 6, gradient='spread', factor_beta=0.875)
    yield case('one_sided', 5, 9, gradient='spread', one_sided=True, mistakes=('first step not skipped',))
    yield case('one_sided_tall', 9, 5, gradient='spread', one_sided=True, mistakes=('first step not skipped',))
    yield case('side_max', 9, 5, gradient='spread', side_max=8, mistakes=('first step not skipped',))
    yield case('row', 1, 9, gradient='spread', side_max=8)
    yield case('row_blocks', 11, 6, gradient='spread', blocks=(6, 5), mistakes=('first step not skipped',))
    yield case('heads', 12, 6, gradient='spread', heads=2, mistakes=('first step not skipped',))
    yield case('experts', 5, 6, gradient='crossing', count=2, mistakes=('second moment not permuted',))
    yield case('larger', 10, 10)


def of(preset):
    if preset == 'torch-adamw':
        return of_adamw()
    if preset == 'shampoo':
        return of_shampoo()
    return of_soap() if preset == 'soap' else of_muon(preset)
