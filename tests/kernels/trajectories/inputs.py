# SPDX-License-Identifier: Apache-2.0
"""Weights, gradients, lr and weight decay of a case: all exact in fp32. support/trajectory.hpp makes the same."""
import numpy as np

MASK = (1 << 64) - 1


def mixed(x):
    """splitmix64's output for the state x."""
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def bell(stream, index):
    """A whole number in [-4094, 4094], bell-shaped: the sum of four of 11 bits."""
    z = mixed((stream << 32) + index)
    return sum((z >> shift) & 2047 for shift in (0, 16, 32, 48)) - 4094


def table(stream, rows, columns):
    return np.array([[bell(stream, i * columns + j) for j in range(columns)] for i in range(rows)], dtype=np.float64)


def spread(index):
    """Scales of rows and columns, 3/16 to 31/16, different for neighbours."""
    return 3 + index * 7 % 29


def weights(case):
    return table(case.seed * 1000, case.count * case.rows, case.columns) / 2048


def gradient(case, step):
    stream = case.seed * 1000 + step
    if case.gradient == 'plain':
        return table(stream, case.count * case.rows, case.columns) / 2048
    if case.gradient == 'tiny':
        return table(stream, case.count * case.rows, case.columns) / 2.0 ** 35
    if case.gradient == 'late':  # nothing in two steps
        return table(stream, case.count * case.rows, case.columns) / 2048 * (step > 2)
    if case.gradient in ('spread', 'crossing'):
        # Crossing: after 24 steps the rows change places.
        turned = case.gradient == 'crossing' and step > 24
        rows = np.array([spread(case.rows - 1 - i if turned else i) for i in range(case.rows)] * case.count,
                        dtype=np.float64)
        columns = np.array([spread(j) for j in range(case.columns)], dtype=np.float64)
        return table(stream, case.count * case.rows, case.columns) * rows[:, None] * columns[None, :] / 2048 / 256
    if case.gradient == 'rank2':  # the column space stays, so that momentum has rank 2, too
        left = np.trunc(table(case.seed * 1000 + 999, case.rows, 2) / 4)
        right = np.trunc(table(stream, 2, case.columns) / 4)
        return left @ right / 2.0 ** 18
    raise ValueError(case.gradient)


def lr(case, step):
    return case.lr * (4 + step % 4) / 4


def weight_decay(case, step):
    return case.weight_decay * (step % 3)
