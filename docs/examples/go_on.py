# SPDX-License-Identifier: Apache-2.0
"""Ranks that go on when one of them dies. Start it with: mxs run --keep-going -n 4 -- python3 go_on.py 2

The argument is a rank that is killed in the forward pass of step 5; without it nobody is.
"""
import os
import signal
import sys

import matrixshard as mxs

LAYERS, STEPS = 3, 8
model = [mxs.Tensor(f'layer{layer}.weight', (96, 64), unit=layer) for layer in range(LAYERS)]
victim = int(sys.argv[1]) if len(sys.argv) > 1 else -1


def make(comm, plan):
    units = [mxs.Unit(comm, plan, layer) for layer in range(LAYERS)]
    return units, mxs.Optimizer(units, backup=True)


def close(comm, units, optimizer):
    for handle in (optimizer, *units, comm):
        handle.close()


def one_step(units, optimizer, dies):
    for layer, unit in enumerate(units):  # forward
        with unit.whole():
            if dies and layer == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    for layer in reversed(range(LAYERS)):  # backward
        units[layer].gradient(layer).numpy()[...] = 1
        units[layer].reduce()
    return optimizer.step(dict(lr=0.02))


def go_on(comm, plan, units, optimizer):
    """The same of the ranks that are left, with what they had after the newest step that all of it exists of."""
    living = comm.shrink(timeout=30)
    next_plan = mxs.Plan(model, living.topology(), previous=plan, previous_ranks=living.origins)
    next_units, next_optimizer = make(living, next_plan)
    recovery = next_optimizer.recover(optimizer)
    close(comm, units, optimizer)
    print(f'{living.rank_count} ranks go on after step {recovery.step_number}')
    return living, next_plan, next_units, next_optimizer


comm = mxs.Comm()
first_rank = comm.rank
plan = mxs.Plan(model, comm.topology())
units, optimizer = make(comm, plan)
while optimizer.step_number < STEPS:
    try:
        one_step(units, optimizer, first_rank == victim and optimizer.step_number == 4)
    except (mxs.PeerFailedError, mxs.TimedOutError, mxs.TransportFailedError, mxs.AbortedError) as failure:
        print(f'rank {comm.rank}: {failure}')
        comm, plan, units, optimizer = go_on(comm, plan, units, optimizer)
print(f'rank {comm.rank} of {comm.rank_count} has done {optimizer.step_number} steps')
close(comm, units, optimizer)
