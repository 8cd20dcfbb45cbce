# SPDX-License-Identifier: Apache-2.0
"""Where the library's log lines go.

    set_log(logging.getLogger('matrixshard'))              to Python's logging, by its levels
    set_log(lambda level, line: print(line), 'debug')
    set_log(None)                                          nowhere, as at first
"""
from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from types import SimpleNamespace

from . import _declarations as c
from . import constants
from ._library import check, lib, text
from .constants import LogLevel

__all__ = ['set_log']

_LEVELS = {c.MXS_LOG_WARNING: logging.WARNING, c.MXS_LOG_INFO: logging.INFO, c.MXS_LOG_DEBUG: logging.DEBUG}
_kept: list = []  # functions that a thread of the library may still be in


def set_log(function: Callable[[int, str], object] | logging.Logger | logging.LoggerAdapter | None,
            level: LogLevel | str | int = 'info') -> None:
    """Say where log lines go: a function of (level, line), or a logger; None stops logging.

    level: 'warning', 'info' (what was chosen, once) or 'debug': the highest that is delivered. The function may be
    called from any thread, in the middle of a call: it must not call the comm that it hears of. What it raises goes to
    sys.unraisablehook. Since 0.1.
    """
    number = constants.number(LogLevel, level)
    if function is None:
        check(lib.mxs_set_log(c.mxs_log_function(), None, number))
        return
    deliver: Callable[[int, str], object]
    if isinstance(function, (logging.Logger, logging.LoggerAdapter)):
        logger = function

        def to_logger(line_level: int, line: str) -> None:
            logger.log(_LEVELS.get(line_level, logging.DEBUG), '%s', line)

        deliver = to_logger
    elif callable(function):
        deliver = function
    else:
        raise TypeError(f'function is a {type(function).__name__}; give a function of (level, line), a logger or None')

    def receive(_context, line_level: int, line: bytes) -> None:
        try:
            deliver(line_level, text(line))
        except BaseException as error:  # pylint: disable=broad-except
            sys.unraisablehook(SimpleNamespace(exc_type=type(error), exc_value=error, exc_traceback=error.__traceback__,
                                               err_msg='Exception ignored in the log function of matrixshard',
                                               object=deliver))

    called = c.mxs_log_function(receive)
    check(lib.mxs_set_log(called, None, number))
    if not _kept:
        atexit.register(set_log, None)
    _kept.append(called)
