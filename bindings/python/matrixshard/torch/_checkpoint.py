# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a sharded model: matrixshard.save and Checkpoint.load, and what they don't know of torch.

    parameters, masters, state, step number    the library's: by the plan's names, which are the module's
    persistent buffers                         extra tensors of the checkpoint, under their names
    param_groups, random state, the caller's   bytes that each rank gives (mxs_checkpoint_options.user), JSON:

        {"format": "matrixshard.torch", "version": 1, "rank": 0, "rank_count": 4,
         "groups": [{"lr": 0.02, ..., "name": "matrices", "parameter_count": 16}, ...],   as param_groups; of rank 0
         "random": {"torch": BASE64, "python": [3, [...], null], "numpy": ["MT19937", BASE64, 0, 0, 0.0]},
         "user": ...}                                                                     whatever the caller gives

No pickle is written or read.
"""
from __future__ import annotations

import base64
import collections
import contextlib
import ctypes
import json
import os
import random as python_random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from .. import _declarations as c
from .. import checkpoint as core
from ..constants import ArrayKind
from ..errors import (HeldError, InvalidArgumentError, MatrixShardError, MismatchError, NotBuiltError,
                      NotFoundError)
from ._model import ShardedModel, sharded
from ._optimizer import Optimizer
from ._state import _buffers

if TYPE_CHECKING:
    from ..infos import CheckpointArray

# Torch's dtypes by safetensors' words; those that this PyTorch has.
DTYPES = {word: getattr(torch, name) for word, name in (
    ('F64', 'float64'), ('F32', 'float32'), ('F16', 'float16'), ('BF16', 'bfloat16'), ('I64', 'int64'),
    ('I32', 'int32'), ('I16', 'int16'), ('I8', 'int8'), ('U64', 'uint64'), ('U32', 'uint32'), ('U16', 'uint16'),
    ('U8', 'uint8'), ('BOOL', 'bool'), ('C64', 'complex64'), ('F8_E4M3', 'float8_e4m3fn'), ('F8_E5M2', 'float8_e5m2'),
    ('F8_E8M0', 'float8_e8m0fnu')) if hasattr(torch, name)}
WORDS = {dtype: word for word, dtype in DTYPES.items()}
REFUSALS = (InvalidArgumentError, HeldError, MismatchError, NotBuiltError, NotFoundError)
RANDOM = ('torch', 'python', 'numpy')
ITEMS, COUNTER = 'matrixshard.items', 'matrixshard.counter'
FORMAT = {'format': 'matrixshard.torch', 'version': 1}


class Loaded(NamedTuple):
    """What load_checkpoint has found; the first two as of torch's load_state_dict. Since 0.1."""
    # parameters and persistent buffers of the model that the checkpoint lacks
    missing_keys: list[str]
    # of the checkpoint that the model lacks
    unexpected_keys: list[str]
    # of the checkpoint; 0 without a manifest
    step_number: int
    # what this rank gave to save_checkpoint, or rank 0 where there were fewer ranks
    user: Any
    # the optimizer's state, step number and param_groups were loaded
    has_state: bool
    # random state was restored
    has_random: bool
    # what was opened
    path: str


def save_checkpoint(model: nn.Module, path: str | os.PathLike, optimizer: torch.optim.Optimizer | None = None, *,
                    masters: bool = False, weights_only: bool = False, keep: int = 0, name: str | None = None,
                    files_from: str | os.PathLike | None = None, user: Any = None,
                    random: Iterable[str] = ('torch',), progress: core.ProgressFunction | None = None,
                    timeout: float | None = None) -> None:
    """Saves a sharded model into path/step-N: a safetensors model of its own names (tied parameters once), and beside
    it masters, optimizer state, param_groups, step number and random state. Collective: when it returns all is on
    disk.

    optimizer       the model's Optimizer; None: that which it has, if any. Optimizers of torch's, which step inside of
                    external(), are not saved: for external parameters that is weights and masters alone.
    masters         the safetensors files have the fp32 masters, not the weights in dtype.
    weights_only    the model alone: no state of the optimizer, nothing random.
    keep            so many of the newest checkpoints stay, the others are deleted. 0: all stay.
    name            of the folder. None: step-00000500 by the optimizer's step number.
    files_from      a folder whose config.json, tokenizer, ... are copied, so that transformers opens the result.
    user            what JSON can say, of this rank: epochs, the place in the data, schedule.state_dict();
                    load_checkpoint gives it back. Keys of dicts may be numbers, tuples come back as lists.
    random          whose random state: 'torch' (of the CPU), 'python', 'numpy'.
    progress, timeout   as of matrixshard.save.

    Raises as matrixshard.save; TypeError for what JSON can't say. Since 0.1.
    """
    units, owner, beside = _saved(model, optimizer, weights_only, user, random)
    core.save(path, units, owner, masters=masters, weights_only=weights_only, keep=keep, name=name,
              files_from=files_from, progress=progress, timeout=timeout, **beside)


def start_save(model: nn.Module, path: str | os.PathLike, optimizer: torch.optim.Optimizer | None = None, *,
               masters: bool = False, weights_only: bool = False, keep: int = 0, name: str | None = None,
               files_from: str | os.PathLike | None = None, user: Any = None, random: Iterable[str] = ('torch',),
               timeout: float | None = None) -> core.Save:
    """As save_checkpoint, but it only copies what this rank owns, and returns; a thread writes while training goes on.
    Collective. Returns a matrixshard.Save: wait() for it before the next one, or at the end. Since 0.1."""
    units, owner, beside = _saved(model, optimizer, weights_only, user, random)
    beside['extras'] = {name: (word, shape, bytes(memory)) for name, (word, shape, memory) in beside['extras'].items()}
    return core.start_save(path, units, owner, masters=masters, weights_only=weights_only, keep=keep, name=name,
                           files_from=files_from, timeout=timeout, **beside)


def load_checkpoint(model: nn.Module, path: str | os.PathLike | core.Checkpoint,
                    optimizer: torch.optim.Optimizer | None = None, *, strict: bool = True,
                    weights_only: bool = False, other_dtypes: bool = False, other_optimizer: bool = False,
                    unverified: bool = False, random: bool | None = None,
                    progress: core.ProgressFunction | None = None, timeout: float | None = None) -> Loaded:
    """Loads a checkpoint, or any safetensors model, into a sharded model. Collective. The world, units and plan may be
    others than those that saved.

    path            a checkpoint, a folder of them (the newest is loaded), a safetensors file, index or folder; or an
                    open matrixshard.Checkpoint.
    optimizer       the model's Optimizer, whose state, step number and param_groups are loaded, or it is an error.
                    None: the one that the model has, if it has one and the checkpoint has state.
    strict          a parameter or persistent buffer that is missing, or a tensor that the model lacks, is an error
                    with their names. False: they are left alone, and the lists are returned, as by load_state_dict.
    weights_only    the optimizer stays as it is.
    other_dtypes    fp32, bf16, fp16 and fp64 are converted into each other.
    other_optimizer state of the same names and shapes is taken where presets, options or rules differ; other state
                    begins anew, and param_groups are taken if they fit.
    unverified      hashes aren't compared.
    random          restore the random state that this rank has saved. None: if the number of ranks is the same. True:
                    of a rank with this one's number, or it is an error. False: don't.
    progress, timeout   as of matrixshard.Checkpoint.load.

    Returns a Loaded: missing_keys, unexpected_keys, step_number, user, has_state, has_random, path. Raises
    NotFoundError and MismatchError before anything is changed; and as Checkpoint.load. Since 0.1.
    """
    made = sharded(model)
    made.runtime.notice_failed_backward()
    reading: _Reading | None = None
    failure: Exception | None = None
    try:
        owners = _optimizer_of(made, optimizer)
        reading = _Reading(made, path, optimizer is not None, owners, weights_only, strict)
        reading.check(other_dtypes, other_optimizer, random)
    except Exception as error:  # pylint: disable=broad-except
        failure = error
    try:
        _settle(made, failure, 'could not open the checkpoint, or refused it')
        assert reading is not None
        return reading.load(other_dtypes=other_dtypes, other_optimizer=other_optimizer, unverified=unverified,
                            progress=progress, timeout=timeout)
    finally:
        if reading is not None:
            reading.close()


def _settle(made: ShardedModel, failure: Exception | None, what: str) -> None:
    """Raises what has failed here, on all ranks: others would wait for this one, or take its next call for this one."""
    if made.comm.sum([0.0 if failure is None else 1.0])[0]:
        raise failure or InvalidArgumentError(f'another rank {what}, as its own error says; nothing changed',
                                              rank=made.comm.rank)


# ---- what is saved ----

def _optimizer_of(made: ShardedModel, optimizer: torch.optim.Optimizer | None) -> Optimizer | None:
    if optimizer is None:
        return made.optimizer
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f'optimizer is a {type(optimizer).__name__}, not a matrixshard.torch.Optimizer: state of '
                        'optimizers that step inside of external() is not in checkpoints; save what this rank has of '
                        'its state_dict() beside')
    if made.optimizer is not optimizer:
        closed = ': it is closed' if optimizer.closed else ''
        raise InvalidArgumentError(f'this Optimizer is not the model\'s{closed}')
    return optimizer


def _saved(model: nn.Module, optimizer, weights_only: bool, user: Any, random: Iterable[str]) -> tuple:
    """(units, optimizer, user and extras) of a save."""
    made = sharded(model)
    made.runtime.notice_failed_backward()
    owners: Optimizer | None = None
    beside: dict[str, Any] = {}
    failure: Exception | None = None
    try:
        owners = _optimizer_of(made, optimizer)
        beside = _beside(made, owners, weights_only, user, random)
    except Exception as error:  # pylint: disable=broad-except
        failure = error
    _settle(made, failure, 'could not save')
    return made.units, None if owners is None else owners.owners.core, beside


def _beside(made: ShardedModel, owners: Optimizer | None, weights_only: bool, user: Any,
            random: Iterable[str]) -> dict[str, Any]:
    """user and extras of a save."""
    said: dict[str, Any] = {**FORMAT, 'rank': made.comm.rank, 'rank_count': made.comm.rank_count,
                            'user': _plain(user, 'user')}
    if not weights_only:
        if owners is not None and made.comm.rank == 0:
            said['groups'] = [_group(number, group) for number, group in enumerate(owners.param_groups)]
        said['random'] = _random_state(random)
    return {'user': json.dumps(said).encode(), 'extras': {names[0]: _extra(names[0], buffer)
                                                          for buffer, names in _named_once(_buffers(made.module))}}


def _named_once(buffers: dict[str, torch.Tensor]) -> list[tuple[torch.Tensor, list[str]]]:
    """Each with its names: modules may share one."""
    found: dict[int, tuple[torch.Tensor, list[str]]] = {}
    for name, buffer in buffers.items():
        found.setdefault(id(buffer), (buffer, []))[1].append(name)
    return list(found.values())


def _group(number: int, group: dict[str, Any]) -> dict[str, Any]:
    """A param group's values as JSON can say them."""
    said = {name: _plain(value, f'param_groups[{number}][{name!r}]') for name, value in group.items()
            if name != 'params'}
    return {'parameter_count': len(group['params']), **said}


def _plain(value: Any, label: str) -> Any:
    """What JSON can say: numbers that are tensors or of numpy as numbers, tuples as lists, a dict whose keys aren't all
    texts as {ITEMS: [[key, value], ...]}, and a Counter, such as MultiStepLR's milestones, as {COUNTER: ...}."""
    if isinstance(value, torch.Tensor) and value.numel() == 1 or getattr(value, 'shape', None) == ():
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(one, f'{label}[{number}]') for number, one in enumerate(value)]
    if not isinstance(value, dict):
        raise TypeError(f'{label} is a {type(value).__name__}, which a checkpoint has no place for: numbers, texts, '
                        'lists and dicts of them are saved')
    for key in value:
        if key is not None and not isinstance(key, (bool, int, float, str)):
            raise TypeError(f'{label} has the key {key!r}, a {type(key).__name__}: numbers and texts can be keys')
    items = [(key, _plain(one, f'{label}[{key!r}]')) for key, one in value.items()]
    is_counter = isinstance(value, collections.Counter)
    if not is_counter and all(isinstance(key, str) and key not in (ITEMS, COUNTER) for key in value):
        return dict(items)
    return {COUNTER if is_counter else ITEMS: [list(item) for item in items]}


def _with_keys(said: dict[str, Any]) -> Any:
    """The opposite, for json.loads: of each dict."""
    if set(said) == {COUNTER}:
        return collections.Counter(dict(said[COUNTER]))
    return dict(said[ITEMS]) if set(said) == {ITEMS} else said


def _memory(tensor: torch.Tensor) -> Any:
    """The bytes of a dense tensor of any dtype."""
    count = tensor.numel() * tensor.element_size()
    memory: Any = (ctypes.c_ubyte * count).from_address(tensor.data_ptr()) if count else (ctypes.c_ubyte * 0)()
    memory.tensor = tensor
    return memory


def _extra(name: str, buffer: torch.Tensor) -> tuple[str, tuple[int, ...], Any]:
    if buffer.dtype not in WORDS:
        raise InvalidArgumentError(f'the buffer {name} is {buffer.dtype}, which safetensors has no word for: register '
                                   'it with persistent=False')
    return WORDS[buffer.dtype], tuple(buffer.shape), _memory(buffer.detach().to('cpu').contiguous())


# ---- random state ----

def _text(data: Any) -> str:
    return base64.b64encode(data).decode()


def _random_state(kinds: Iterable[str]) -> dict[str, Any]:
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    for kind in kinds:
        if kind not in RANDOM:
            raise ValueError(f'random has {kind!r}; there are {", ".join(RANDOM)}')
    state: dict[str, Any] = {}
    if 'torch' in kinds:
        state['torch'] = _text(bytes(_memory(torch.get_rng_state())))
    if 'python' in kinds:
        state['python'] = python_random.getstate()
    if 'numpy' in kinds:
        import numpy
        kind, words, *rest = numpy.random.get_state()
        state['numpy'] = [kind, _text(words.astype('<u4').tobytes()), *rest]
    return state


def _set_random_state(state: dict[str, Any]) -> None:
    if 'torch' in state:
        torch.set_rng_state(torch.frombuffer(bytearray(base64.b64decode(state['torch'])), dtype=torch.uint8))
    if 'python' in state:
        version, words, gauss = state['python']
        python_random.setstate((version, tuple(words), gauss))
    if 'numpy' in state:
        import numpy
        kind, words, *rest = state['numpy']
        numpy.random.set_state((kind, numpy.frombuffer(base64.b64decode(words), '<u4'), *rest))


# ---- what is loaded ----

class _Reading:
    """An open checkpoint beside a model. Everything is looked at before anything is changed, alike on all ranks."""

    def __init__(self, made: ShardedModel, path, is_wanted: bool, owners: Optimizer | None, weights_only: bool,
                 strict: bool):
        self.made = made
        self.strict = strict
        self._is_mine = not isinstance(path, core.Checkpoint)
        self.checkpoint = core.Checkpoint(path) if self._is_mine else path
        self.info = self.checkpoint.info
        with_state = owners is not None and not weights_only and (is_wanted or self.info.has_state)
        self.owners = owners if with_state else None
        self.weights_only = weights_only
        self.persistent = _named_once(_buffers(made.module))
        self.said = self._said(made.comm.rank if made.comm.rank < self.info.rank_count else 0)
        self.groups: list[dict[str, Any]] | None = None
        self.random: dict[str, Any] | None = None
        self.buffers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.missing: list[str] = []
        self.unexpected: list[str] = []

    def close(self) -> None:
        if self._is_mine:
            self.checkpoint.close()

    def _said(self, rank: int) -> dict[str, Any]:
        """What a rank gave; {} if it was saved by another program."""
        if rank >= self.info.rank_count:
            return {}
        try:
            said = json.loads(self.checkpoint.user(rank) or b'{}', object_hook=_with_keys)
        except ValueError:
            return {}
        if not isinstance(said, dict) or said.get('format') != FORMAT['format']:
            return {}
        if said.get('version') != FORMAT['version']:
            raise MismatchError(f'{self.info.path}: rank {rank} has saved version {said.get("version")} of '
                                f'matrixshard.torch\'s bytes; this release reads {FORMAT["version"]}')
        return said

    def check(self, other_dtypes: bool, other_optimizer: bool, random: bool | None) -> None:
        self._match()
        self._read_buffers(other_dtypes)
        if self.owners is not None:
            self._match_groups(other_optimizer)
        same = self.info.rank_count == self.made.comm.rank_count
        if (same and not self.weights_only) if random is None else random:
            mine = self.said if self.said.get('rank') == self.made.comm.rank else {}
            self.random = mine.get('random')
            if self.random is None and random:
                raise NotFoundError(f'{self.info.path}: no rank {self.made.comm.rank} has saved its random state there',
                                    c.MXS_NOT_FOUND, self.made.comm.rank)

    def _match(self) -> None:
        """Names of parameters and buffers. What is tied may be there under any of its names; what was tied when it was
        saved has the bytes that it shared."""
        there = {one.tensor for one in self.checkpoint if one.kind != ArrayKind.STATE}
        named = [parameter.names for parameter in self.made.parameters]
        tied = self._tied_names() if self.info.has_manifest else set()
        self.missing = [names[0] for names in named if not any(name in there or name in tied for name in names)]
        self.missing += [names[0] for _, names in self.persistent if not any(name in there for name in names)]
        self.unexpected = sorted(there.difference(*named, *(names for _, names in self.persistent)))
        if self.strict and (self.missing or self.unexpected):
            sentences = [f'{what} {_list(names)}' for what, names in
                         (('it lacks', self.missing), ('the model lacks its', self.unexpected)) if names]
            raise NotFoundError(f'{self.info.path}: {"; ".join(sentences)}: strict=False leaves them out',
                                c.MXS_NOT_FOUND, self.made.comm.rank)

    def _tied_names(self) -> set[str]:
        try:
            plan = self.checkpoint.plan()
        except NotBuiltError:  # another release's
            return set()
        with plan:
            return {one.name for one in plan.tensors if one.tied_to >= 0}

    def _fits(self, found: CheckpointArray, buffer: torch.Tensor, other_dtypes: bool) -> torch.dtype:
        """The array's dtype, if it can be taken for the buffer."""
        dtype = DTYPES.get(found.dtype_word)
        is_float = dtype is not None and dtype.is_floating_point and buffer.is_floating_point()
        if found.shape != tuple(buffer.shape):
            wrong = f'is {found.shape}, but the model has {tuple(buffer.shape)}'
        elif dtype is None or dtype != buffer.dtype and not (is_float and other_dtypes):
            wrong = f'is of {found.dtype_word}, but the model has it in {buffer.dtype}' + (
                ': other_dtypes=True converts it' if is_float else '')
        else:
            return dtype
        raise MismatchError(f'{self.info.path}: {found.name} {wrong}', c.MXS_MISMATCH, self.made.comm.rank)

    def _read_buffers(self, other_dtypes: bool) -> None:
        there = {one.name: one for one in self.checkpoint if one.kind != ArrayKind.STATE}
        for buffer, names in self.persistent:
            found = next((there[name] for name in names if name in there), None)
            if found is not None:
                taken = torch.empty(found.shape, dtype=self._fits(found, buffer, other_dtypes))
                self.checkpoint.read(found.name, out=_memory(taken))
                self.buffers.append((buffer, taken))

    def _match_groups(self, other_optimizer: bool) -> None:
        assert self.owners is not None
        groups = self._said(0).get('groups')
        if groups is None:
            return
        counts = [group.get('parameter_count') for group in groups]
        mine = [len(group['params']) for group in self.owners.param_groups]
        if counts == mine:
            self.groups = groups
        elif not other_optimizer:
            raise MismatchError(f'{self.info.path}: it was saved with param groups of {counts} parameters, but this '
                                f'optimizer has groups of {mine}: other_optimizer=True leaves their values as they are',
                                c.MXS_MISMATCH, self.made.comm.rank)

    def load(self, **options: Any) -> Loaded:
        made, owners = self.made, self.owners
        try:
            self.checkpoint.load(made.units, None if owners is None else owners.owners.core,
                                 weights_only=self.weights_only, allow_missing=not self.strict, allow_extra=True,
                                 **options)
        except REFUSALS:  # nothing has changed: gradients, graphs and views are good
            raise
        except BaseException:
            with contextlib.suppress(MatrixShardError):  # what happened first is what matters
                made.after_step()
            raise
        with torch.no_grad():
            for buffer, taken in self.buffers:
                buffer.copy_(taken)
        for parameter in made.parameters:
            if parameter.whole is not None:
                parameter.whole.grad = None
        made.after_step()  # what is a copy of the units' memory becomes as that
        if owners is not None:
            for group, given in zip(owners.param_groups, self.groups or []):
                for name, value in given.items():
                    if name != 'parameter_count':
                        group[name] = _like(group.get(name), value)
            owners.forget_clip()
        if self.random is not None:
            _set_random_state(self.random)
        return Loaded(self.missing, self.unexpected, self.info.step_number, self.said.get('user'),
                      owners is not None, self.random is not None, self.info.path)


def _like(before: Any, value: Any) -> Any:
    """JSON knows neither tuples nor tensors."""
    if isinstance(before, torch.Tensor):
        return torch.full_like(before, value)
    return tuple(value) if isinstance(before, tuple) and isinstance(value, list) else value


def _list(names: list[str]) -> str:
    return ', '.join(names[:8]) + (f' and {len(names) - 8} more' if len(names) > 8 else '')
