# SPDX-License-Identifier: Apache-2.0
"""Views as torch tensors, in place."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import dlpack

if TYPE_CHECKING:
    from ..views import View


def tensor_of(view: View) -> torch.Tensor:
    """The same memory. The view's unit stays mapped as long as the tensor lives."""
    return dlpack.from_dlpack(view.__dlpack__())


def tensor_over(views: list[View], dtype: torch.dtype) -> torch.Tensor:
    """One dimension over the memory of views that lie side by side, which stay as long as the tensor lives."""
    memory: Any = (ctypes.c_char * sum(view.bytes for view in views)).from_address(views[0].address)
    memory.views = [tensor_of(view) for view in views]
    return torch.frombuffer(memory, dtype=dtype)
