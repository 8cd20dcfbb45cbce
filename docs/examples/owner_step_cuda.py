# SPDX-License-Identifier: Apache-2.0
"""owner_step.py on GPUs: weights, gradients and the step in CUDA memory, in the order of one stream.

Start it with: mxs run -n 2 -- python3 owner_step_cuda.py. cupy or torch would have the stream and the kernels; here the
driver makes the stream, and copies stand for kernels.
"""
import ctypes
import struct

import matrixshard


def new_stream(device):
    """What torch.cuda.Stream(device).cuda_stream is."""
    driver, context, stream = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p(), ctypes.c_void_p()
    for failed in (driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), driver.cuCtxSetCurrent(context),
                   driver.cuStreamCreate(ctypes.byref(stream), 1)):
        assert not failed, f'CUDA error {failed}'
    return stream.value


with matrixshard.Comm() as comm:
    plan = matrixshard.Plan([matrixshard.Tensor(name, (64, 64)) for name in ('first', 'second')], comm.topology())
    unit = matrixshard.Unit(comm, plan, 0, memory='cuda')  # the first use of CUDA memory: the comm has its device now
    optimizer = matrixshard.Optimizer([unit])
    stream = new_stream(comm.device)

    identity = struct.pack('4096f', *(float(index % 65 == 0) for index in range(4096)))
    with unit.whole(stream=stream):  # forward and backward: torch.from_dlpack(unit.tensor(0)) is for kernels
        for tensor in range(2):
            unit.gradient_set(tensor, memoryview(identity).cast('f'))  # on the stream
    unit.reduce(stream=stream)  # the sums go to the owners

    optimizer.step(dict(lr=0.02, weight_decay=0.0), stream=stream, verdict=False)  # nothing waits for the GPU
    verdict = optimizer.verdict()  # this does

    with unit.whole():
        weight = unit.tensor(1).to_host()[0, 0]
    print(f'step {verdict.step_number}, norm {verdict.norm:g}, first weight {weight:g}, by {comm.cuda}')
