# SPDX-License-Identifier: Apache-2.0
"""Options and values of the rules (kernels.h) from dicts, for kernels alone and for the optimizer of units."""
from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping

from . import _declarations as c
from ._structs import filled, integers, reals, sequence


def newton_schulz(given: Mapping, caller: str) -> c.mxs_newton_schulz:
    """mxs_newton_schulz from a dict; coefficients: (a, b, c) of each step, or all one after the other."""
    made = filled(c.mxs_newton_schulz, given, caller, special=('coefficients',))
    coefficients = given.get('coefficients')
    if coefficients is not None:
        flat: list = []
        for one in sequence(coefficients, 'coefficients'):
            flat += one if isinstance(one, (list, tuple)) else [one]
        if not made.step_count:
            made.step_count = len(flat) // 3
        if len(flat) == 0 or len(flat) != 3 * made.step_count:
            raise ValueError(f'{caller}: {len(flat)} coefficients for {made.step_count} steps of three')
        made.coefficients = reals(flat, 'coefficients')
    return made


def rule_options(rule: str, given: Mapping, caller: str) -> ctypes.Structure:
    """mxs_muon_options and the like from a dict; newton_schulz is a dict again."""
    options = filled(getattr(c, f'mxs_{rule}_options'), given, caller,
                     special=('newton_schulz',) if rule == 'muon' else ())
    if given.get('newton_schulz') is not None:
        if not isinstance(given['newton_schulz'], Mapping):
            raise TypeError(f'{caller}: newton_schulz is {given["newton_schulz"]!r}, not a dict')
        options.newton_schulz = ctypes.pointer(newton_schulz(given['newton_schulz'], f'{caller} newton_schulz'))
    return options


def values_of(given, caller: str) -> c.mxs_group_values:
    """mxs_group_values from a dict, or from what group_values() and preset_values() give."""
    if isinstance(given, c.mxs_group_values):
        return given
    if hasattr(given, '_asdict'):
        given = given._asdict()
    if not isinstance(given, Mapping):
        raise TypeError(f'{caller}: values are {given!r}; a dict is wanted, or what group_values() gives')
    return filled(c.mxs_group_values, given, caller)


def group_array(groups: Iterable | Mapping):
    """An array of mxs_group_values from several, or one, of what values_of takes."""
    is_one = isinstance(groups, (Mapping, c.mxs_group_values)) or hasattr(groups, '_asdict')
    given = [groups] if is_one else list(sequence(groups, 'groups'))
    array = (c.mxs_group_values * len(given))()
    for index, values in enumerate(given):
        array[index] = values_of(values, f'groups[{index}]')
    return array


def matrices_of(given: Mapping, caller: str) -> c.mxs_matrices:
    """mxs_matrices from a dict; strides are (row, matrix) in elements, or the row's alone."""
    special = ('block_rows', 'weight_strides', 'gradient_strides')
    made = filled(c.mxs_matrices, given, caller, special, ('block_count',))
    if given.get('block_rows') is not None:
        made.block_rows = integers(given['block_rows'], 'block_rows')
        made.block_count = len(given['block_rows'])
    for name in special[1:]:
        if given.get(name) is not None:
            strides = given[name]
            values = integers([strides] if isinstance(strides, int) else strides, name)
            if not 1 <= len(values) <= 2:
                raise ValueError(f'{name} has {len(values)} values; (row, matrix) is wanted, in elements')
            place = getattr(made, name)
            place.row, place.matrix = values[0], values[1] if len(values) > 1 else 0
    return made
