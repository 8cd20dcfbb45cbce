# SPDX-License-Identifier: Apache-2.0
"""Exceptions: a class for each status of the C interface (include/matrixshard/status.h).

str(error) is the library's sentence: what failed, on which rank and unit, and what to do. Each class is also the
built-in exception that it resembles, so `except TimeoutError` works, too. Whether the comm can still be used is said
in the class's docstring.
"""
from __future__ import annotations

from . import _declarations as c


class MatrixShardError(Exception):
    """A call failed. `status`: its number, such as -12; `rank`: of the comm that it was made on, else None."""

    status: int = 0

    def __init__(self, sentence: str, status: int | None = None, rank: int | None = None):
        super().__init__(sentence)
        if status is not None:
            self.status = status
        self.rank = rank

    @property
    def status_name(self) -> str:
        """Such as 'TIMED_OUT'; 'UNKNOWN' for a status of a newer library."""
        return _NAMES.get(self.status, 'UNKNOWN')

    def __str__(self) -> str:
        return self.args[0] if self.args else ''

    def __reduce__(self):
        return type(self), (self.args[0], self.status, self.rank)


class InvalidArgumentError(MatrixShardError, ValueError):
    """The sentence names the argument. The comm stays usable."""
    status = c.MXS_INVALID_ARGUMENT


class OutOfMemoryError(MatrixShardError, MemoryError):
    """Take a smaller model, fewer slots, or more memory. The comm stays usable."""
    status = c.MXS_OUT_OF_MEMORY


class OverBudgetError(MatrixShardError):
    """Release a unit, or allow more when units are made. The comm stays usable."""
    status = c.MXS_OVER_BUDGET


class NotGatheredError(MatrixShardError):
    """Pair each gather with one release. The comm stays usable."""
    status = c.MXS_NOT_GATHERED


class NotOpenError(MatrixShardError):
    """No gradient is open, or one is missing on some rank. The comm stays usable."""
    status = c.MXS_NOT_OPEN


class HeldError(MatrixShardError):
    """Something is still in use: release it first. The comm stays usable."""
    status = c.MXS_HELD


class StaleViewError(MatrixShardError):
    """Ask for the view again after a step. The comm stays usable."""
    status = c.MXS_STALE_VIEW


class NotBuiltError(MatrixShardError, NotImplementedError):
    """Not in this build or this release. The comm stays usable."""
    status = c.MXS_NOT_BUILT


class NotFoundError(MatrixShardError, LookupError):
    """No such name or index. The comm stays usable."""
    status = c.MXS_NOT_FOUND


class MismatchError(MatrixShardError):
    """Ranks passed different things. After a create the comm is usable, inside a collective it has failed."""
    status = c.MXS_MISMATCH


class EnvironmentVariableError(MatrixShardError):
    """Set the variable that the sentence names. No comm was made."""
    status = c.MXS_ENVIRONMENT


class TimedOutError(MatrixShardError, TimeoutError):
    """Look at the rank that the sentence names. The comm has failed."""
    status = c.MXS_TIMED_OUT


class PeerFailedError(MatrixShardError, ConnectionError):
    """The rank that is named died or hung up. The comm has failed."""
    status = c.MXS_PEER_FAILED


class TransportFailedError(MatrixShardError, ConnectionError):
    """The network, or UCX. The comm has failed."""
    status = c.MXS_TRANSPORT_FAILED


class AbortedError(MatrixShardError):
    """Somebody called Comm.abort. The comm has failed."""
    status = c.MXS_ABORTED


class SystemCallError(MatrixShardError, OSError):
    """The operating system refused; the sentence names errno. The comm stays usable."""
    status = c.MXS_SYSTEM


class ForkedError(MatrixShardError):
    """Use the library in the parent process only: this one was forked off it."""
    status = c.MXS_FORKED


class InternalError(MatrixShardError):
    """Our fault: please report it with the sentence. The comm has failed."""
    status = c.MXS_INTERNAL


class DamagedError(MatrixShardError):
    """A file is not what was written: take another. The comm stays usable."""
    status = c.MXS_DAMAGED


class CancelledError(MatrixShardError):
    """It was asked for. The comm stays usable."""
    status = c.MXS_CANCELLED


class NoDeviceError(MatrixShardError):
    """No CUDA device can be used here: the sentence names the driver, library or GPU that is missing."""
    status = c.MXS_NO_DEVICE


class DeviceFailedError(MatrixShardError):
    """CUDA or NCCL refused a call, which the sentence names. Met inside a collective, the comm has failed."""
    status = c.MXS_DEVICE_FAILED


_CLASSES = {cls.status: cls for cls in MatrixShardError.__subclasses__()}
_NAMES = {getattr(c, name): name[4:] for name in
          ('MXS_OK', 'MXS_IN_PROGRESS', 'MXS_INVALID_ARGUMENT', 'MXS_OUT_OF_MEMORY', 'MXS_OVER_BUDGET',
           'MXS_NOT_GATHERED', 'MXS_NOT_OPEN', 'MXS_HELD', 'MXS_STALE_VIEW', 'MXS_NOT_BUILT', 'MXS_NOT_FOUND',
           'MXS_MISMATCH', 'MXS_ENVIRONMENT', 'MXS_TIMED_OUT', 'MXS_PEER_FAILED', 'MXS_TRANSPORT_FAILED',
           'MXS_ABORTED', 'MXS_SYSTEM', 'MXS_FORKED', 'MXS_INTERNAL', 'MXS_DAMAGED', 'MXS_CANCELLED',
           'MXS_NO_DEVICE', 'MXS_DEVICE_FAILED')}


# What the library's sentences advise, in Python's words.
_ADVICE = {'MXS_LOAD_WEIGHTS_ONLY': 'weights_only=True', 'MXS_LOAD_OTHER_DTYPES': 'other_dtypes=True',
           'MXS_LOAD_OTHER_OPTIMIZER': 'other_optimizer=True', 'MXS_LOAD_ALLOW_MISSING': 'allow_missing=True',
           'MXS_LOAD_ALLOW_EXTRA': 'allow_extra=True', 'mxs_checkpoint_load': 'load'}


def error_of(status: int, sentence: str, rank: int | None = None) -> MatrixShardError:
    """The exception for a status."""
    for name, advice in _ADVICE.items():
        sentence = sentence.replace(name, advice)
    return _CLASSES.get(status, MatrixShardError)(sentence, status, rank)
