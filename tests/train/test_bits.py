# SPDX-License-Identifier: Apache-2.0
"""Under --rank-order every world's weights are those of one process: test_bits.py MXS MXS_TRAIN. Speaks TAP."""
from runs import run_cases, train


def equal_bits(folder, worlds, placements, *options):
    """Everything equals `single`, byte for byte."""
    _, expected = train(folder, 'single', 1, *options)
    assert len(expected) > 4 * 64 * 64 * 12, 'the file of weights is too short'
    for placement in placements:
        for ranks in worlds:
            _, weights = train(folder, placement, ranks, '--rank-order', *options)
            assert len(weights) == len(expected), f'{placement}, {ranks} ranks: {len(weights)} bytes'
            first = next((i // 4 for i in range(0, len(weights), 4) if weights[i:i + 4] != expected[i:i + 4]), None)
            assert first is None, f'{placement}, {ranks} ranks: differs from single at element {first} ({options})'


def owner_equals_single_bit_for_bit_in_every_world(folder):
    equal_bits(folder, [1, 2, 3, 4, 6], ['owner'], '--steps', '3')


def owner_equals_single_where_the_last_turn_is_not_full(folder):
    """12 micro-batches: ranks without one in the last turn go along, and give zeros."""
    equal_bits(folder, [5, 7, 8], ['owner'], '--steps', '2')


def ddp_equals_single_bit_for_bit_in_every_world(folder):
    equal_bits(folder, [1, 2, 3, 4, 6], ['ddp'], '--steps', '3')


def zero1_equals_single_bit_for_bit(folder):
    equal_bits(folder, [1, 3, 4], ['zero1'], '--steps', '3')


def tied_fp32_and_pinned_runs_have_equal_bits_too(folder):
    equal_bits(folder, [1, 4], ['owner', 'ddp'], '--steps', '2', '--tied')
    equal_bits(folder, [3], ['owner', 'zero1'], '--steps', '2', '--dtype', 'f32')
    equal_bits(folder, [2], ['owner'], '--steps', '2', '--reshard', 'auto')
    equal_bits(folder, [2], ['owner'], '--steps', '2', '--reshard', 'pin')
    equal_bits(folder, [3], ['owner'], '--steps', '2', '--gather', 'reference')


def every_optimizer_has_equal_bits(folder):
    """11 steps see a refresh of roots and bases, and use it."""
    equal_bits(folder, [3], ['owner', 'ddp'], '--steps', '11', '--optimizer', 'soap')
    equal_bits(folder, [2], ['owner', 'zero1'], '--steps', '11', '--optimizer', 'shampoo')
    equal_bits(folder, [4], ['owner'], '--steps', '3', '--optimizer', 'adamw')
    equal_bits(folder, [2], ['owner'], '--steps', '3', '--preset', 'normuon')


def slices_equal_single_where_nothing_is_rounded_on_the_way(folder):
    """Without bf16 on the wire and without the norm, whose sums slices cut elsewhere; 3 and 6 ranks pad."""
    equal_bits(folder, [1, 3, 4, 6], ['slices', 'alltoall'], '--steps', '2', '--dtype', 'f32', '--clip-norm', '0')


run_cases([owner_equals_single_bit_for_bit_in_every_world, owner_equals_single_where_the_last_turn_is_not_full,
           ddp_equals_single_bit_for_bit_in_every_world,
           zero1_equals_single_bit_for_bit, every_optimizer_has_equal_bits,
           tied_fp32_and_pinned_runs_have_equal_bits_too,
           slices_equal_single_where_nothing_is_rounded_on_the_way])
