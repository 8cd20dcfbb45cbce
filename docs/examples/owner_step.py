# SPDX-License-Identifier: Apache-2.0
"""Two matrices, an owner for each, one step of Muon. Start it with: mxs run -n 2 -- python3 owner_step.py"""
import matrixshard
import numpy

with matrixshard.Comm() as comm:
    tensors = [matrixshard.Tensor(name, (64, 64)) for name in ('first', 'second')]
    plan = matrixshard.Plan(tensors, comm.topology())
    unit = matrixshard.Unit(comm, plan, 0)
    optimizer = matrixshard.Optimizer([unit])

    for tensor in range(2):  # backward: every rank has a gradient of every tensor
        unit.gradient(tensor).numpy()[:] = numpy.eye(64)
    unit.reduce()  # the sums go to the owners

    verdict = optimizer.step(dict(lr=0.02, weight_decay=0.0))  # local: no matrix bytes move

    with unit.whole():  # forward: everybody sees the new weights
        weights = unit.tensor(1).numpy()
        print(f'step {verdict.step_number}, norm {verdict.norm:g}, first weight {weights[0, 0]:g}')
