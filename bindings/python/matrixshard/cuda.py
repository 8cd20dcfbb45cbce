# SPDX-License-Identifier: Apache-2.0
"""CUDA: is there a GPU that the library can use, and copies between host and device memory by address.

Everything CUDA is loaded at the first use; a machine without it gets one clear sentence (NoDeviceError, NotBuiltError).
"""
from __future__ import annotations

from ctypes import byref

from . import _declarations as c
from ._calls import StreamLike, stream_of
from ._library import check, lib
from ._structs import info, int32, uint64
from .infos import CudaDevice, CudaInfo
from .views import copy_memory as copy

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


def copy_memory(target: int, source: int, bytes: int, *, stream: StreamLike = None) -> None:
    """Copy between any two of host and device memory, by address (mxs_copy); View.to_host and from_host are safer.

    stream: a handle as a number, torch.cuda.Stream, cupy.cuda.Stream, or what has __cuda_stream__. The copy is put on
    that stream, and both memories must stay until it has got there. None: it is complete on return, after what the
    legacy default stream has so far. Since 0.1.
    """
    copy(uint64(target, 'target'), uint64(source, 'source'), uint64(bytes, 'bytes'), stream_of(stream))
