#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fifty steps of every preset in fp64, written from the published formulas alone.

    python3 tests/kernels/trajectories/trajectories.py tests/data/trajectories [PRESET ...]

It needs numpy; the tests don't.

Nothing here comes from the library: tests/kernels/presets.cpp holds its steppers to what this script wrote. Weights and
gradients are small whole numbers over powers of two, made by splitmix64 in both languages (inputs.py,
support/trajectory.hpp), so only results are stored.

Each case is run four ways:

  exact      fp64: what is written
  fp32       the same lines in fp32: what rounding alone does. The test's bound is a multiple of it
  bf16       fp32 with the factors of Newton-Schulz rounded to bf16: the bound of bf16 backends
  mistaken   fp64 with one plausible mistake after another (no nesterov, decay after the update, second moment not
             permuted with the basis, ...): each must end far outside the bound, or the case proves nothing
"""
import math
import pathlib
import re
import sys

import numpy as np

import cases
import inputs
import rules

SNAPSHOTS = [1, 2, 3, 10, 20, 50]
# Kernels add in another order than numpy; both are one draw of rounding errors.
MARGIN = 8
FLOOR = 2.0 ** -21
# The first basis: LAPACK's fp32 eigenvectors have errors of a few 2^-20, as large as they happen to be.
FLOOR_OF_BASES = 2.0 ** -18


def run(case, arithmetic, mistake=None):
    """Weights after the steps of SNAPSHOTS, then the states after the last."""
    rule = rules.RULES[case.rule](case, arithmetic, mistake)
    weights = inputs.weights(case).astype(arithmetic.real)
    after = {}
    for step in range(1, SNAPSHOTS[-1] + 1):
        gradient = inputs.gradient(case, step).astype(arithmetic.real)
        weights = rule.step(weights, gradient, arithmetic.real(inputs.lr(case, step)),
                            arithmetic.real(inputs.weight_decay(case, step)))
        if step in SNAPSHOTS:
            after[step] = weights.copy()
    return after, rule


def distance(case, got, exact):
    """The worst, over snapshots, of the error's norm over the norm of all that the steps did."""
    start = inputs.weights(case)
    moved = {step: np.linalg.norm(exact[step] - start) for step in exact}
    return max(np.linalg.norm(got[step].astype(np.float64) - exact[step]) / moved[step]
               for step in exact if moved[step] > 0)


def text_of(number):
    """A hex float of 37 bits: 1e-11, a thousandth of what the sharpest bound sees, and a third fewer bytes than all."""
    fraction, exponent = math.frexp(float(number))
    return re.sub(r'\.?0*p', 'p', math.ldexp(round(math.ldexp(fraction, 37)), exponent - 37).hex())


def lines_of(case, exact, states, bounds):
    yield f'case {case.name}'
    for name, value in case.descriptor():
        yield f'{name} {value}'
    for name, value in bounds.items():
        yield f'bound_{name} {value:.3g}'
    for step, weights in exact.items():
        yield f'weights {step} ' + ' '.join(text_of(x) for x in weights.ravel()[::case.stride])
    for name, state in states.items():
        yield f'state {name} ' + ' '.join(text_of(x) for x in state.ravel()[::case.stride])
    yield 'end'


def make(case, report):
    exact, rule = run(case, rules.FP64)
    rule.check()
    bounds = {}
    for arithmetic in [rules.FP32] + ([rules.BF16] if case.rule == 'muon' else []):
        error = distance(case, run(case, arithmetic)[0], exact)
        floor = FLOOR_OF_BASES if case.rule == 'soap' else FLOOR
        bound = MARGIN * max(error, floor) if arithmetic is rules.FP32 else 2 * error
        # Where rank is missing, bf16 makes noise as large as the rest, and no bound tells anything.
        if bound < 0.1:
            bounds[arithmetic.name] = bound
        report.append(f'  {case.name:<24} {arithmetic.name} {error:.1e}, bound {bound:.1e}')
    for mistake in case.mistakes:
        away = distance(case, run(case, rules.FP64, mistake)[0], exact)
        report.append(f'  {"":<24} {mistake}: {away:.1e}, {away / bounds["fp32"]:.0f} bounds')
        if not away > 10 * bounds['fp32']:
            raise SystemExit(f'{case.preset} {case.name}: "{mistake}" ends at {away:.1e}; the bound is '
                             f'{bounds["fp32"]:.1e}')
    return lines_of(case, exact, rule.states(), bounds)


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for preset in sys.argv[2:] or cases.PRESETS:
        report, lines = [], [f'# Made by tests/kernels/trajectories/trajectories.py; do not edit. {cases.FORMAT}']
        for case in cases.of(preset):
            lines += make(case, report)
        (folder / f'{preset}.txt').write_text('\n'.join(lines) + '\n')
        print(preset, *report, sep='\n')


if __name__ == '__main__':
    main()
