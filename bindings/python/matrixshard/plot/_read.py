# SPDX-License-Identifier: Apache-2.0
"""What a file holds, told by its content: rows of mxs-perf, a plan of `mxs plan --json`, or a saved plan."""
from __future__ import annotations

import json
import math
import sys
from typing import Any, Iterable, Mapping, Optional

from ..errors import InvalidArgumentError, SystemCallError

SWEEPS = ('gather', 'reduce', 'allreduce')
OPERATIONS = SWEEPS + ('latency', 'idle', 'step', 'step-local', 'plan', 'tune')


def read(path: str) -> Any:
    """What `perf` and `plan` draw: a list of dicts (rows of mxs-perf), or a dict (a plan). Of a saved plan
    (mxs_plan_save) the library is asked for what `mxs plan --json` would print. `-` is standard input. Raises
    InvalidArgumentError or SystemCallError with a sentence. Since 0.1."""
    name = 'standard input' if path == '-' else path
    try:
        if path == '-':
            data = sys.stdin.buffer.read()
        else:
            with open(path, 'rb') as file:
                data = file.read()
    except OSError as error:
        raise SystemCallError(f'{name} cannot be read: {error.strerror or error}') from None
    try:
        text = data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f'{name} is no JSON: byte {error.start} is not UTF-8') from None
    if not text.strip():
        raise InvalidArgumentError(f'{name} is empty: mxs-perf writes a line for each row as soon as it is measured, '
                                   'so nothing was')
    try:
        parsed = _parsed(text, name)
    except RecursionError:
        raise InvalidArgumentError(f'{name} is nested too deeply to be a measurement or a plan') from None
    if not is_saved_plan(parsed):
        return parsed
    if path == '-':
        raise InvalidArgumentError('a saved plan comes from standard input, but the library reads it from a file: name '
                                   'that one')
    from ._describe import describe_saved
    return describe_saved(path, parsed)


def _parsed(text: str, name: str) -> Any:
    try:
        whole = json.loads(text)
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        try:
            first = json.loads(lines[0][1])
        except ValueError:
            where = f'line {error.lineno}, column {error.colno}: {error.msg}' if isinstance(
                error, json.JSONDecodeError) else str(error)
            raise InvalidArgumentError(f'{name} is no JSON, or not all of it ({where})') from None
        return _lines(lines, first, name)
    if isinstance(whole, dict):
        return [whole] if 'operation' in whole else whole
    if isinstance(whole, list) and all(isinstance(row, dict) for row in whole):
        return whole
    raise InvalidArgumentError(f'{name} holds a JSON {_type_word(whole)}, not the objects of mxs-perf or of a plan')


def _lines(lines: list[tuple[int, str]], first: Any, name: str) -> list[dict]:
    rows = []
    for number, line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            last = number == lines[-1][0]
            raise InvalidArgumentError(
                f'{name}, line {number}, is no JSON object' +
                ('; it is the last one, so the run was cut off while it wrote: without that line the rest can be drawn'
                 if last else '')) from None
        if not isinstance(row, dict):
            raise InvalidArgumentError(f'{name}, line {number}, holds a JSON {_type_word(row)}, not an object')
        rows.append(row)
    return rows


def _type_word(value: Any) -> str:
    words = {list: 'array', dict: 'object', str: 'string', bool: 'boolean', type(None): 'null'}
    return words.get(type(value), 'number')


def is_rows(data: Any) -> bool:
    return isinstance(data, list)


def is_saved_plan(data: Any) -> bool:
    return isinstance(data, Mapping) and 'matrixshard_plan' in data


def is_plan(data: Any) -> bool:
    return isinstance(data, Mapping) and {'objectives', 'ranks', 'units'} <= data.keys()


def refuse_others(data: Any, name: str) -> None:
    """A sentence about what is none of the three."""
    if is_rows(data) or is_saved_plan(data) or is_plan(data):
        return
    if isinstance(data, Mapping) and 'matrixshard_topology' in data:
        raise InvalidArgumentError(f'{name} is a saved topology: there is no picture of one; `mxs plan --json` with '
                                   '--world and this file makes a plan')
    keys = ', '.join(repr(str(key)[:40]) for key in list(data)[:6]) if isinstance(data, Mapping) and data else 'nothing'
    raise InvalidArgumentError(f'{name} is neither from mxs-perf --json nor a plan: its object has {keys}')


class Row:
    """A row with its place, so that whoever asks for what isn't there is told where."""

    def __init__(self, fields: Mapping[str, Any], place: str):
        self.fields, self.place = fields, place

    def raw(self, key: str) -> Any:
        value: Any = self.fields
        for part in key.split('.'):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def text(self, key: str, default: str = '') -> str:
        value = self.raw(key)
        return default if value is None else str(value)

    def number(self, key: str, least: float = 0.0, above: bool = False) -> float:
        """Finite, at least `least`, or with `above` more than it."""
        value = self.raw(key)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number:
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number) and (number > least if above else number >= least):
                return number
        told = 'missing' if value is None and not self._has(key) else 'null' if value is None else f'{value!r:.40}'
        raise InvalidArgumentError(f'{self.place}: {key} is {told}, not a number {"above" if above else "of at least"} '
                                   f'{least:g}')

    def maybe(self, key: str) -> Optional[float]:
        """None where the tool wrote null or nothing."""
        return None if self.raw(key) is None else self.number(key)

    def _has(self, key: str) -> bool:
        *parents, last = key.split('.')
        value: Any = self.fields
        for part in parents:
            value = value.get(part) if isinstance(value, Mapping) else None
        return isinstance(value, Mapping) and last in value


def rows_of(data: Iterable[Any], name: str) -> list[Row]:
    """The rows of one operation each, checked for being such."""
    rows = []
    for number, fields in enumerate(data, 1):
        place = f'{name}, row {number}'
        if not isinstance(fields, Mapping):
            raise InvalidArgumentError(f'{place} is a {_type_word(fields)}, not an object')
        operation = fields.get('operation')
        if operation not in OPERATIONS:
            told = 'has no "operation"' if operation is None else f'is of the operation {operation!r:.40}'
            raise InvalidArgumentError(f'{place} {told}; known are {", ".join(OPERATIONS)}')
        rows.append(Row(fields, place))
    if not rows:
        raise InvalidArgumentError(f'{name} has no rows: nothing was measured')
    return rows
