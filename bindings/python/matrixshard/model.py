# SPDX-License-Identifier: Apache-2.0
"""Model: the tensors of a model, read from files before anything is launched, or as a framework has them (model.h).

    model = Model.load('llama-3-8b/config.json', rules={'*.q_proj.weight': 'shampoo', 'lm_head*': 'external'})
    model = Model.create([dict(name='layers.0.up.weight', shape=(64, 16), unit=-1), ...])
    plan = Plan(model, 'nodes:2 ranks:8')
"""
from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _declarations as c
from ._handles import Handle
from ._library import encoded, lib, text
from ._structs import Items, filled, int32, sequence, set_field
from .plan import Tensor, array_of

__all__ = ['Model']


class Model(Handle):
    """What stands in a model's files: names, shapes and dtypes, never the weights. Made by load() or create().

    Goes to Plan as it is, or as `model.tensors`, changed where it should be. Immutable; any thread may ask it.
    Since 0.1.
    """

    _destroy_name = 'mxs_model_destroy'

    @classmethod
    def load(cls, path: str | os.PathLike, *, rules: Mapping | Iterable = (), **options) -> Model:
        """Reads safetensors, their index, a folder of them, a config.json, a list as JSON or CSV.

        rules: {pattern: rule}, or (pattern, rule) and (pattern, rule, group) in a row; the first that matches counts.
        options: dtype, master_dtype, gradient_dtype, matrix_rule. Raises SystemCallError, InvalidArgumentError,
        NotFoundError (a pattern that matches nothing), NotBuiltError. Since 0.1.
        """
        return cls._made(lib.mxs_model_load, encoded(path), ctypes.byref(_options('Model.load()', rules, options)))

    @classmethod
    def create(cls, tensors: Iterable[Tensor | Mapping], *, rules: Mapping | Iterable = (), **options) -> Model:
        """The same for tensors that are described already, such as a framework's parameters: rules that are AUTO are
        chosen by pattern, name and shape, and so are units that are -1 (by name).

        tensors: Tensor objects or dicts of their arguments; copied. rules, options: as of load(). Raises
        InvalidArgumentError with the tensor and the field, NotFoundError (a pattern that matches nothing). Since 0.1.
        """
        array = array_of(tensors)
        return cls._made(lib.mxs_model_create, array, len(array),
                         ctypes.byref(_options('Model.create()', rules, options)))

    def _array(self):
        """The C tensors, which live as long as the model, and how many."""
        tensors, count = ctypes.POINTER(c.mxs_tensor)(), ctypes.c_uint64()
        self._call(lib.mxs_model_tensors, ctypes.byref(tensors), ctypes.byref(count))
        return tensors, count.value

    @property
    def tensors(self) -> Items[Tensor]:
        """Its tensors, as Tensor objects. Since 0.1."""
        return Items('Model.tensors', lambda: self._array()[1], self._tensor)

    def _tensor(self, index: int) -> Tensor:
        return Tensor._of(self._array()[0][index])

    @property
    def title(self) -> str:
        """In a few words: 'llama, 80 layers, 70.6 billion parameters'. Since 0.1."""
        return text(self._ask(lib.mxs_model_title))

    @property
    def unit_count(self) -> int:
        return self._ask(lib.mxs_model_unit_count)

    def unit_name(self, unit: int) -> str:
        """Such as 'model.layers.7'. Raises IndexError. Since 0.1."""
        name = self._ask(lib.mxs_model_unit_name, int32(unit, 'unit'))
        if name is None:
            raise IndexError(f'unit {unit}: the model has {self.unit_count}')
        return text(name)

    @property
    def unit_names(self) -> Items[str]:
        """unit_name() of all. Since 0.1."""
        return Items('Model.unit_names', lambda: self.unit_count, self.unit_name)

    @property
    def notes(self) -> Items[str]:
        """What was assumed where the files are silent: sentences. Since 0.1."""
        return Items('Model.notes', lambda: self._ask(lib.mxs_model_note_count),
                     lambda index: text(self._ask(lib.mxs_model_note, index)))

    def __repr__(self) -> str:
        return '<Model: closed>' if self.closed else f'<Model: {self.title}>'


def _options(caller: str, rules: Mapping | Iterable, options: dict) -> c.mxs_model_options:
    given = filled(c.mxs_model_options, options, caller, special=('rules',))
    rules = list(rules.items() if isinstance(rules, Mapping) else sequence(rules, 'rules'))
    array: Any = (c.mxs_model_rule * len(rules))()
    for index, rule in enumerate(rules):
        label = f'rules[{index}]'
        values = tuple(sequence(rule, label))
        if not 2 <= len(values) <= 3:
            raise TypeError(f'{label} has {len(values)} values: pattern and rule are wanted, and maybe a group')
        array[index].__init__()
        for name, value in zip(('pattern', 'rule', 'group'), values):
            set_field(array[index], name, value, f'{label}.{name}')
    given.rules, given.rule_count = array, len(rules)
    return given
