# SPDX-License-Identifier: Apache-2.0
"""What the enums of enums.py have in common: how a member is written, and what else may stand for it."""
from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

# As numpy, torch and Python call them.
_OTHER_NAMES = {('Dtype', other): name for other, name in
                (('FLOAT32', 'F32'), ('BFLOAT16', 'BF16'), ('FLOAT16', 'F16'), ('FLOAT64', 'F64'), ('UINT8', 'U8'),
                 ('FLOAT', 'F32'), ('DOUBLE', 'F64'), ('HALF', 'F16'))}


def none_of(kind: Iterable[Any], name: str, value: Any) -> str:
    """The sentence about a value that is none of them."""
    return f'{value!r} is no {name.lower()}: there are {", ".join(map(str, kind))}'


class Constant(enum.IntEnum):
    """A number of the C interface with a name: str() gives it as users write it, 'torch-muon'. Since 0.1."""

    def __str__(self) -> str:
        return self.name.lower().replace('_', '-')

    @classmethod
    def _missing_(cls, value):
        text = value if isinstance(value, str) else getattr(value, 'name', None) or getattr(value, '__name__', '')
        text = str(text or value).rpartition('.')[2].upper().replace('-', '_')
        text = _OTHER_NAMES.get((cls.__name__, text), text)
        if text in cls.__members__:
            return cls.__members__[text]
        raise ValueError(none_of(cls, cls.__name__, value))
