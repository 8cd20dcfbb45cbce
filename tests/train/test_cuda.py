# SPDX-License-Identifier: Apache-2.0
"""Training with weights, gradients' sums and steps in CUDA memory: test_cuda.py MXS MXS_TRAIN. Speaks TAP."""
from runs import run_cases, train


def trained(folder, ranks, memory, *options):
    return train(folder, 'owner', ranks, '--memory', memory, '--rank-order', *options)


def adamw_in_cuda_memory_has_the_hosts_bits(folder):
    for ranks in (1, 2, 3, 4):
        options = ('--optimizer', 'adamw', '--steps', '3')
        _, host = trained(folder, ranks, 'host', *options)
        _, cuda = trained(folder, ranks, 'cuda', *options)
        assert len(host) > 4 * 64 * 64 * 12, 'the file of weights is too short'
        assert cuda == host, f'{ranks} ranks: weights differ'


def muon_in_cuda_memory_has_equal_bits_in_every_world_and_the_hosts_losses(folder):
    """Products of other kernels: near to the host's, not equal."""
    host, _ = trained(folder, 2, 'host', '--steps', '4')
    cuda, expected = trained(folder, 1, 'cuda', '--steps', '4')
    for mine, theirs in zip(cuda['losses'], host['losses']):
        assert abs(mine - theirs) < 0.02, f'losses {cuda["losses"]}, on the host {host["losses"]}'
    for ranks in (2, 3, 4):
        _, weights = trained(folder, ranks, 'cuda', '--steps', '4')
        assert weights == expected, f'{ranks} ranks differ from one'


def pinned_units_and_fp32_are_as_on_the_host(folder):
    for options in (('--reshard', 'pin'), ('--reshard', 'auto'), ('--dtype', 'f32'), ('--tied',)):
        options += ('--optimizer', 'adamw', '--steps', '2')
        _, host = trained(folder, 2, 'host', *options)
        _, cuda = trained(folder, 2, 'cuda', *options)
        assert cuda == host, f'{options}: weights differ'


run_cases([adamw_in_cuda_memory_has_the_hosts_bits,
           muon_in_cuda_memory_has_equal_bits_in_every_world_and_the_hosts_losses,
           pinned_units_and_fp32_are_as_on_the_host])
