# SPDX-License-Identifier: Apache-2.0
"""Finds libmatrixshard, loads it and gives its functions their types.

    MXS_LIBRARY=PATH                that file, and no other
    the package's own lib/ folder   where the wheel has the library inside
    libmatrixshard.so.0.1           an installed one, as the dynamic linker finds it

Calls release the interpreter's lock while they are in the library, those that wait among them.
"""
from __future__ import annotations

import ctypes
import os

from . import _declarations as c
from .errors import error_of

SONAME = f'libmatrixshard.so.{c.MXS_VERSION_MAJOR}.{c.MXS_VERSION_MINOR}'


def _find() -> str:
    given = os.environ.get('MXS_LIBRARY')
    if given:
        return given
    packaged = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib', SONAME)
    return packaged if os.path.exists(packaged) else SONAME


def _load() -> ctypes.CDLL:
    path = _find()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f'libmatrixshard was not loaded: {error}. Install it (meson install), reinstall this package with the '
            f'library inside (pip install ./bindings/python), or name its file in MXS_LIBRARY') from None
    for name, (result, *parameters) in c.PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f'{path} has no {name}: it is older than this package ({c.MXS_VERSION_MAJOR}.'
                              f'{c.MXS_VERSION_MINOR}.{c.MXS_VERSION_PATCH}); use the library of the same '
                              'release') from None
        function.restype = result
        function.argtypes = parameters
    version = library.mxs_version()
    if version // 1000 != c.MXS_VERSION // 1000:
        raise ImportError(f'{path} is version {library.mxs_version_text().decode()}, but this package is for '
                          f'{c.MXS_VERSION_MAJOR}.{c.MXS_VERSION_MINOR}')
    return library


lib = _load()


def loaded_library() -> str:
    """The file that was loaded: a path, or the name that the dynamic linker was given. Since 0.1."""
    return lib._name


def last_error() -> str:
    """The sentence of this thread's latest failure."""
    return lib.mxs_last_error().decode(errors='replace')


def check(status: int, rank: int | None = None) -> int:
    """Raises the status's exception if the call failed, on the thread that made it. Returns the status else."""
    if status < 0:
        sentence = last_error() or lib.mxs_status_text(status).decode()
        raise error_of(status, sentence, rank)
    return status


def text(value: bytes | None) -> str:
    """Text of the library."""
    return value.decode(errors='replace') if value else ''


def encoded(value: str | os.PathLike | None) -> bytes | None:
    """Text or a path for the library, which ends at a zero byte."""
    if value is None:
        return None
    data = os.fsencode(value)
    if b'\0' in data:
        raise ValueError(f'{value!r} has a zero byte in it')
    return data
