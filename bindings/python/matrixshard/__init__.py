# SPDX-License-Identifier: Apache-2.0
"""matrixshard: ZeRO-3 memory and whole matrices, from Python.

Each matrix has one owner rank, the others hold an empty shard; forward and backward gather a unit's matrices, gradients
are summed into the owners, and the optimizer's step is local. This package is a thin layer over the C library: names
mirror the C ones, failures are exceptions (matrixshard.errors), and memory comes as views that numpy and torch read in
place.

    import matrixshard                 standard library only
    import matrixshard.torch           shard(model), Optimizer; needs torch
    python -m matrixshard.plot         pictures of measurements and plans; needs matplotlib
"""
from __future__ import annotations

from . import errors
from ._library import lib as _lib
from ._library import library_path
from .errors import *  # noqa: F401,F403

__version__ = _lib.mxs_version_text().decode()
