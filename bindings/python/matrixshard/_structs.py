# SPDX-License-Identifier: Apache-2.0
"""Between Python values and the C interface's structs.

    filled(struct, {...})   keyword arguments -> struct: names of constants, text, numbers that must fit
    info(struct)            struct -> an immutable named tuple, with text decoded, shapes as tuples, constants named
    Items                   what is counted and asked for by index -> a sequence

ctypes cuts numbers off without a word: 2**32 + 1 is rank 1. So all numbers come by integer().
"""
from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from . import constants, infos
from ._library import encoded, text

_RANGES: dict[Any, tuple[int, int]] = {
    kind: (-(1 << 8 * ctypes.sizeof(kind) - 1), (1 << 8 * ctypes.sizeof(kind) - 1) - 1)
    for kind in (ctypes.c_int32, ctypes.c_int64)}
_RANGES.update({kind: (0, (1 << 8 * ctypes.sizeof(kind)) - 1) for kind in (ctypes.c_uint32, ctypes.c_uint64)})
_LEFT_OUT = ('size', 'reserved', 'dimension_count')
Item = TypeVar('Item')
_NONE = (1 << 64) - 1  # UINT64_MAX: "there is none"


def integer(value: Any, kind: Any, name: str) -> int:
    """A whole number that the C type can hold; `name` is what the sentence calls it."""
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f'{name} is {value!r}, not a whole number') from None
    least, most = _RANGES[kind]
    if not least <= value <= most:
        raise ValueError(f'{name} is {value}, which is outside of {least} to {most}')
    return value


def int32(value, name: str) -> int:
    return integer(value, ctypes.c_int32, name)


def int64(value, name: str) -> int:
    return integer(value, ctypes.c_int64, name)


def uint64(value, name: str) -> int:
    return integer(value, ctypes.c_uint64, name)


def real(value, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f'{name} is {value!r}, not a number') from None


def integers(values: Any, name: str, kind: Any = ctypes.c_int64) -> Any:
    """A C array of a sequence's whole numbers."""
    values = list(sequence(values, name))
    return (kind * len(values))(*(integer(value, kind, f'{name}[{index}]') for index, value in enumerate(values)))


def reals(values: Any, name: str, kind: Any = ctypes.c_double) -> Any:
    values = list(sequence(values, name))
    return (kind * len(values))(*(real(value, f'{name}[{index}]') for index, value in enumerate(values)))


def sequence(values, name: str):
    """The same, if it can be iterated over and is no text."""
    if isinstance(values, (str, bytes)) or not hasattr(values, '__iter__'):
        raise TypeError(f'{name} is {values!r}, not a sequence')
    return values


def set_field(struct: ctypes.Structure, name: str, value, label: str = '') -> None:
    """One field from a Python value; None leaves what INIT has set."""
    if value is None:
        return
    label = label or name
    kind = constants.kind_of(type(struct), name)
    declared = _types(type(struct))[name]
    if kind is not None:
        try:
            value = constants.number(kind, value)
        except (TypeError, ValueError) as error:
            raise type(error)(f'{label}: {error}') from None
    elif declared in _RANGES:
        value = integer(value, declared, label)
    elif declared in (ctypes.c_float, ctypes.c_double):
        value = real(value, label)
    elif declared is ctypes.c_char_p:
        if not isinstance(value, bytes):
            if not isinstance(value, str):
                raise TypeError(f'{label} is {value!r}, not text')
            value = encoded(value)
    setattr(struct, name, value)


def filled(struct: Any, values: Mapping, caller: str, special=(), hidden=()) -> Any:
    """A struct from keyword arguments called as its fields are. `special` are the caller's own and left out; `hidden`
    nobody may give."""
    known = _known(struct, tuple(special), tuple(hidden))
    made = struct()
    for name, value in values.items():
        if name in known:
            set_field(made, name, value)
        elif name not in special:
            raise unknown(caller, name, known + tuple(special))
    return made


@functools.lru_cache(maxsize=None)
def _known(struct: Any, special: tuple, hidden: tuple) -> tuple[str, ...]:
    """Names that may be given, in the order of the header."""
    return tuple(name for name, declared in struct._fields_ if name not in _LEFT_OUT and name not in special and
                 name not in hidden and not _counts(name, special) and _is_simple(declared))


def unknown(caller: str, name: str, names) -> TypeError:
    return TypeError(f'{caller} got an unknown argument {name!r}: there are {", ".join(names)}')


def info(struct: Any, **others: Any) -> Any:
    """The named tuple of infos.py of what the library wrote. `others` take the place of fields that are pointers."""
    kind = type(struct)
    if kind not in _infos:
        made = getattr(infos, ''.join(word.capitalize() for word in kind.__name__.split('_')[1:]))
        _infos[kind] = made, [(name, _reader(kind, name)) for name in made._fields]
    made, readers = _infos[kind]
    return made._make([others[name] if name in others else read(struct, name) for name, read in readers])


def _counts(name: str, sequences) -> bool:
    """Is it the count of a field that is a sequence here? Its length tells."""
    return name.endswith('_count') and name[:-len('_count')] + 's' in sequences


_infos: dict[type, tuple] = {}
_declared: dict[type, dict[str, type]] = {}


def _types(struct: Any) -> dict[str, type]:
    if struct not in _declared:
        _declared[struct] = dict(struct._fields_)
    return _declared[struct]


def _is_simple(declared: Any) -> bool:
    return not hasattr(declared, 'contents') and not hasattr(declared, 'argtypes')


def _shortest(value: float) -> float:
    """The fewest digits that are the same fp32: 0.001 rather than 0.0010000000474974513."""
    for digits in range(6, 9):
        short = float(f'{value:.{digits}g}')
        if ctypes.c_float(short).value == value:
            return short
    return value


def _reader(struct: Any, field: str):
    """Of a field: function(struct, name) -> its value in Python."""
    kind = constants.kind_of(struct, field)
    declared = _types(struct)[field]
    if kind is not None:
        return lambda struct, name: constants.named(kind, getattr(struct, name))
    if declared is ctypes.c_char_p:
        return lambda struct, name: text(getattr(struct, name))
    if declared is ctypes.c_float:
        return lambda struct, name: _shortest(getattr(struct, name))
    if declared is ctypes.c_uint64:
        return lambda struct, name: None if getattr(struct, name) == _NONE else getattr(struct, name)
    if hasattr(declared, '_length_'):
        return lambda struct, name: tuple(getattr(struct, name)[:struct.dimension_count])
    return getattr


class Items(Sequence[Item], Generic[Item]):
    """What a handle counts and gives by index, such as Plan.tensors: len(), [], slices, iteration. Nothing is read
    before it is asked for."""

    def __init__(self, name: str, count: Callable[[], int], get: Callable[[int], Item]):
        self._name = name
        self._count = count
        self._get = get

    def __len__(self) -> int:
        return self._count()

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self._get(one) for one in range(*index.indices(len(self)))]
        place = operator.index(index)
        count = len(self)
        if not -count <= place < count:
            raise IndexError(f'{self._name}[{place}]: there are {count}')
        return self._get(place % count)

    def __iter__(self) -> Iterator[Item]:
        return map(self._get, range(len(self)))

    def __repr__(self) -> str:
        return f'<{self._name}: {len(self)}>'
