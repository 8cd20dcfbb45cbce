# SPDX-License-Identifier: Apache-2.0
"""CUDA: is there a GPU that the library can use, and copies between host and device memory by address.

Everything CUDA is loaded at the first use; a machine without it gets one clear sentence (NoDeviceError, NotBuiltError).
"""
from __future__ import annotations

from ctypes import byref, c_void_p

from . import _declarations as c
from ._library import check, lib
from ._structs import info, int32, uint64
from .infos import CudaDevice, CudaInfo

__all__ = ['copy_memory', 'cuda_device', 'cuda_info']


def cuda_info() -> CudaInfo:
    """Devices, driver and NCCL (mxs_cuda_query). Raises NoDeviceError, NotBuiltError: the sentence says what is
    missing. Since 0.1."""
    found = c.mxs_cuda_info()
    check(lib.mxs_cuda_query(byref(found)))
    return info(found)


def cuda_device(index: int) -> CudaDevice:
    """One of the devices, counted from 0 (mxs_cuda_device_query). Since 0.1."""
    found = c.mxs_cuda_device()
    check(lib.mxs_cuda_device_query(int32(index, 'index'), byref(found)))
    return info(found)


def copy_memory(target: int, source: int, bytes: int, *, stream: int | None = None) -> None:
    """Copy between any two of host and device memory, by address (mxs_copy). With a stream (cudaStream_t as a number)
    it is put on that stream; else it is complete on return. Since 0.1."""
    call = c.mxs_call(stream=c_void_p(stream))
    check(lib.mxs_copy(c_void_p(target), c_void_p(source), uint64(bytes, 'bytes'), byref(call)))
