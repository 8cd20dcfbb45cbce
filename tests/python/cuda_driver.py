# SPDX-License-Identifier: Apache-2.0
"""What programs with GPUs have beside matrixshard: streams and arrays on the device, by ctypes and the driver alone.

    driver = Driver(comm.device)         the device's primary context is this thread's from here on
    stream = driver.stream()             has cuda_stream, as torch.cuda.Stream has; synchronize()
    array = driver.floats([1, 2, 3])     has __cuda_array_interface__; values()

Only in ranks (world.py): a process that has begun to use CUDA can't fork others that use it.
"""
import array
import contextlib
import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

import matrixshard as mxs

NON_BLOCKING = 1


class Driver:
    def __init__(self, device):
        self._library = ctypes.CDLL('libcuda.so.1')
        self.is_standin = hasattr(self._library, 'mxs_standin_set_switch')
        self.call('cuInit', 0)
        handle, context = c_int(), c_void_p()
        self.call('cuDeviceGet', byref(handle), c_int(device))
        self.call('cuDevicePrimaryCtxRetain', byref(context), handle)
        self.call('cuCtxSetCurrent', context)

    def call(self, name, *arguments):
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            raise RuntimeError(f'{name}: CUDA error {result}')

    def set_switch(self, name, value):
        """Of the stand-in: tests/standins/cuda/switches.hpp."""
        if self._library.mxs_standin_set_switch(name.encode(), None if value is None else str(value).encode()) != 0:
            raise RuntimeError(f'the stand-in has no switch {name}')

    def slow_down(self, microseconds):
        """Each job of each stream sleeps first, on the stand-in; None: as before."""
        if self.is_standin:
            self.set_switch('MXS_STANDIN_SLOW', microseconds)

    def stream(self):
        return Stream(self)

    def floats(self, values, stream=None):
        return DeviceArray(self, array.array('f', values), stream)


class Stream:
    """Doesn't wait for the legacy default stream, nor that for it, as those of torch."""

    def __init__(self, driver):
        self._driver = driver
        handle = c_void_p()
        driver.call('cuStreamCreate', byref(handle), NON_BLOCKING)
        self.cuda_stream = handle.value

    def be_late(self):
        """What the stream gets from here on comes late: on slow streams 30 jobs are before it."""
        self._idle = self._driver.floats([0.0, 0.0])
        for _ in range(30):
            mxs.copy_memory(self._idle.address, self._idle.address + 4, 4, stream=self)

    def synchronize(self):
        self._driver.call('cuStreamSynchronize', c_void_p(self.cuda_stream))


class DeviceArray:
    """fp32, one dimension. stream: that its __cuda_array_interface__ names."""

    def __init__(self, driver, values, stream=None):
        self._driver = driver
        self.count = len(values)
        address = c_uint64()
        driver.call('cuMemAlloc_v2', byref(address), c_size_t(max(4 * self.count, 4)))
        self.address = address.value
        self._host = values  # a stream may read it later on
        mxs.copy_memory(self.address, values.buffer_info()[0], 4 * self.count, stream=stream)
        self.__cuda_array_interface__ = {'version': 3, 'typestr': '<f4', 'shape': (self.count,), 'strides': None,
                                         'data': (self.address, False), 'stream': getattr(stream, 'cuda_stream', None)}

    def __del__(self):
        with contextlib.suppress(Exception):
            self._driver.call('cuMemFree_v2', c_uint64(self.address))

    def values(self):
        found = array.array('f', bytes(4 * self.count))
        mxs.copy_memory(found.buffer_info()[0], self.address, 4 * self.count)
        return list(found)


class ByDlpack:
    """A view as torch would show it: DLPack alone. Remembers the streams that it was asked for."""

    def __init__(self, view):
        self._view = view
        self.streams = []

    def __dlpack_device__(self):
        return self._view.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        return self._view.__dlpack__(stream=stream, max_version=max_version)


class Torch:
    """As much of torch as docs/python.md shows, for a torch that has no CUDA."""

    def __init__(self):
        self.cuda = self
        self._current = None

    def Stream(self):  # noqa: N802
        count = mxs.cuda_info().device_count
        return Driver(int(os.environ['LOCAL_RANK']) % count).stream()

    @contextlib.contextmanager
    def stream(self, stream):
        self._current = stream
        yield
        self._current = None

    def from_dlpack(self, view):
        assert view.__dlpack_device__()[0] == 2
        return _Tensor(view, view.__dlpack__(stream=self._current.cuda_stream), self._current)


class _Tensor:
    def __init__(self, view, capsule, stream):
        self._view, self._capsule, self._stream = view, capsule, stream

    def fill_(self, value):
        values = array.array('f', [value]) * (self._view.bytes // 4)
        mxs.copy_memory(self._view.address, values.buffer_info()[0], self._view.bytes, stream=self._stream)
        self._stream.synchronize()  # of `values`
