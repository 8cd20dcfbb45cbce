# SPDX-License-Identifier: Apache-2.0
"""Kernels: the local step of whole matrices, alone: no comm, no unit, no plan (kernels.h).

    Orthogonalizer          Newton-Schulz for one shape
    Muon, Shampoo,          one rule for one batch of equal matrices: state, update, apply
    Soap, AdamW
    muon_momentum, ...      the element loops of a step
    Norm, clip_factor       the exact norm of a model whose parts are stepped alone

    stepper = Muon(1024, 4096, preset='torch-muon')
    stepper.init()                                              # its own state; or init(memory of yours)
    result = stepper.step(preset_values('torch-muon'), gradient, weights)
    result.skipped, result.gradient_norm, stepper.parts()['momentum']

Arrays are numpy's, torch's on the CPU, ctypes's, whatever has the buffer protocol or DLPack; they are read and written
in place. A call releases the interpreter's lock; a second one on the same object waits for the first.
"""
from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from ctypes import byref
from typing import Any

from . import _declarations as c
from . import constants
from ._arrays import Array, ArrayLike, aligned_memory, array, dense, empty_like, memory, shaped
from ._handles import Handle
from ._library import check, lib, text
from ._options import matrices_of, newton_schulz, rule_options, values_of
from ._structs import Items, filled, info, int32, int64, real, reals, uint64
from .constants import Dtype, Preset, Rule, Weights
from .infos import GroupValues, StatePart, StepperInfo, StepResult

__all__ = ['AdamW', 'Muon', 'Norm', 'Orthogonalizer', 'Shampoo', 'Soap', 'Stepper', 'adamw', 'aligned_memory',
           'clip_factor', 'dtype_bytes', 'group_values', 'muon_apply', 'muon_momentum', 'muon_scale', 'preset_rule',
           'preset_values', 'scale_heads']


def dtype_bytes(dtype: Dtype | str | int) -> int:
    """Bytes of one element. Since 0.1."""
    return lib.mxs_dtype_bytes(constants.number(Dtype, dtype))


# ---- Values of a step ----------------------------------------------------------------------------------------------


def group_values(preset: Preset | str | int | None = None, **values) -> GroupValues:
    """Values of one group at one step: lr, weight_decay, momentum, beta1, beta2, epsilon, as a named tuple.

    preset: whose published defaults to begin with (mxs_preset_values); None: torch's for AdamW and a momentum of 0.95.
    values take their place; `_replace(lr=...)` makes others of them, as a schedule does. A zero means zero. Since 0.1.
    """
    made = c.mxs_group_values()
    if preset is not None:
        check(lib.mxs_preset_values(constants.number(Preset, preset), byref(made)))
    given = info(filled(c.mxs_group_values, values, 'group_values()'))
    return info(made)._replace(**{name: getattr(given, name) for name in values})


def preset_values(preset: Preset | str | int) -> GroupValues:
    """A preset's published defaults, as group_values() gives them. Since 0.1."""
    return group_values(constants.number(Preset, preset))


def preset_rule(preset: Preset | str | int) -> Rule:
    """The rule that a preset belongs to; AUTO for 'default'. Since 0.1."""
    return constants.named(Rule, lib.mxs_preset_rule(constants.number(Preset, preset)))


def muon_scale(preset: Preset | str | int, rows: int, columns: int) -> float:
    """The factor that a preset puts on the update of a whole (out, in) = (rows, columns) matrix, beside lr. 0 for a
    preset that is none of Muon's. Since 0.1."""
    return lib.mxs_muon_scale(constants.number(Preset, preset), int64(rows, 'rows'), int64(columns, 'columns'))


def clip_factor(norm: float, clip_norm: float) -> float:
    """What an optimizer multiplies gradients by for a norm: min(1, clip_norm / (norm + 1e-6)); 1 if clip_norm is 0.

    Since 0.1.
    """
    return lib.mxs_clip_factor(real(norm, 'norm'), real(clip_norm, 'clip_norm'))


class Norm:
    """The norm of gradients that are added in any order, exactly (mxs_norm_add).

        norm = Norm()
        for gradient in gradients: norm.add(gradient, gradient_scale=1 / tokens)
        norm.value, norm.not_finite

    words: 40 whole numbers, zero at first. Those of several norms, and of several ranks (Comm.sum_words), are added
    word by word. Threads: one call at a time. Since 0.1.
    """

    def __init__(self, words: Iterable[int] = ()):
        words = list(words)
        if len(words) not in (0, c.MXS_NORM_WORDS):
            raise ValueError(f'{len(words)} words; a norm has {c.MXS_NORM_WORDS}')
        self._words = (ctypes.c_int64 * c.MXS_NORM_WORDS)(*(int64(word, 'a word') for word in words))
        self._not_finite = ctypes.c_int32()

    def add(self, gradient: ArrayLike, gradient_scale: float = 1.0) -> None:
        """The squares of gradient_scale * gradient (fp32, contiguous) more. Since 0.1."""
        found = dense(gradient, 'gradient', c.MXS_F32)
        if found.count:
            check(lib.mxs_norm_add(self._words, found.address, found.count, real(gradient_scale, 'gradient_scale'),
                                   byref(self._not_finite)))

    @property
    def words(self) -> list[int]:
        return list(self._words)

    @property
    def value(self) -> float:
        """The square root of what was added. Since 0.1."""
        return lib.mxs_norm_value(self._words)

    @property
    def not_finite(self) -> bool:
        """Was an element infinite or no number? Not part of the words. Since 0.1."""
        return bool(self._not_finite.value)

    def __repr__(self) -> str:
        return f'<Norm: {self.value}{", not finite" if self.not_finite else ""}>'


# ---- Newton-Schulz alone -------------------------------------------------------------------------------------------


class Orthogonalizer(Handle):
    """Newton-Schulz for one shape: chosen kernels and workspace (mxs_orthogonalizer_create).

    options: fields of mxs_newton_schulz: preset, table, step_count, coefficients ((a, b, c) of each step), algorithm,
    backend, thread_count, epsilon_kind, epsilon, safety. Raises InvalidArgumentError (a table that diverges),
    NotBuiltError. Since 0.1.
    """

    _destroy_name = 'mxs_orthogonalizer_destroy'

    def __init__(self, rows: int, columns: int, **options):
        self._rows, self._columns = int64(rows, 'rows'), int64(columns, 'columns')
        given = newton_schulz(options, 'Orthogonalizer()')
        self._create(lib.mxs_orthogonalizer_create, self._rows, self._columns, byref(given))

    def __call__(self, source: ArrayLike, out: ArrayLike = None) -> ArrayLike:
        """X = U f(S) V^T of the source's U S V^T scaled to norm 1, f the table's polynomials one after the other.

        source: fp32, (rows, columns) or (count, rows, columns), with columns side by side; other strides are as they
        are. out: likewise; may be source; None: a new array of the source's library. Returns out. Raises
        InvalidArgumentError: a source that is not finite, or matrices that overlap. Since 0.1.
        """
        taken, source_strides = self._taken(source, 'source', False)
        if out is None:
            out = empty_like(source, taken.shape)
            if taken.count == 0:
                return out
        target, target_strides = self._taken(out, 'out', True)
        if target.shape != taken.shape:
            raise ValueError(f'out has shape {target.shape}, source {taken.shape}')
        count = taken.shape[0] if len(taken.shape) == 3 else 1
        if count:
            self._call(lib.mxs_orthogonalize_batch, taken.address, byref(source_strides), target.address,
                       byref(target_strides), count)
        return out

    def _taken(self, source, name: str, writable: bool) -> tuple[Array, c.mxs_strides]:
        self._pointer  # closed already?
        found = array(source, name, c.MXS_F32, writable)
        if found.shape[-2:] != (self._rows, self._columns) or len(found.shape) > 3:
            raise ValueError(f'{name} has shape {found.shape}; ({self._rows}, {self._columns}) is wanted, or several '
                             f'of them: (count, {self._rows}, {self._columns})')
        row, column = found.strides[-2:]
        if column != 1 and self._columns > 1:
            raise ValueError(f'{name} is not contiguous in its rows: their elements are {column} apart')
        strides = c.mxs_strides()
        if self._rows > 1:
            strides.row = row
        if len(found.shape) == 3 and found.shape[0] > 1:
            strides.matrix = found.strides[0]
        for field in ('row', 'matrix'):  # where a zero or less is no stride of the library's
            length = self._rows if field == 'row' else found.shape[0] if len(found.shape) == 3 else 1
            if length > 1 and getattr(strides, field) <= 0:
                raise ValueError(f'{name} has strides {found.strides} in elements: matrices overlap, or run backwards')
        return found, strides

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def columns(self) -> int:
        return self._columns

    @property
    def backend(self) -> str:
        """Backend, implementation and algorithm. Since 0.1."""
        return text(self._ask(lib.mxs_orthogonalizer_backend))

    @property
    def workspace_bytes(self) -> int:
        return self._ask(lib.mxs_orthogonalizer_workspace_bytes)

    @property
    def flops(self) -> float:
        """Of one matrix as they are commonly counted: 4 m n^2 + 2 n^3 a step, n the shorter side. Since 0.1."""
        return self._ask(lib.mxs_orthogonalizer_flops)

    def __repr__(self) -> str:
        if self.closed:
            return '<Orthogonalizer: closed>'
        return f'<Orthogonalizer: {self._rows} x {self._columns}, {self.backend}>'


# ---- Steppers ------------------------------------------------------------------------------------------------------


class Stepper(Handle):
    """One rule for one batch of equal matrices. Made as Muon, Shampoo, Soap or AdamW:

        Muon(rows, columns, **fields)

    fields are those of mxs_matrices: dtype, gradient_dtype, weights ('alone', 'master', 'remainder'), count,
    weight_strides and gradient_strides ((row, matrix) in elements), block_rows, heads, transposed, rounding, seed,
    tensor_id, scale_rows, scale_columns; and those of the rule's options.

    State is memory: the stepper's own after init(), or yours, at a 64-byte border. Workspace likewise: the stepper's
    own, taken at the first call that needs it, unless you pass some. Calls come one at a time; a second one waits.
    Raises InvalidArgumentError, NotBuiltError. Since 0.1.
    """

    _destroy_name = 'mxs_stepper_destroy'
    _rule = ''

    def __init__(self, rows: int, columns: int, **fields):
        if not self._rule:
            raise TypeError('a Stepper is made as Muon, Shampoo, Soap or AdamW')
        caller = f'{type(self).__name__}()'
        fields.update(rows=rows, columns=columns)
        own = {name: value for name, value in fields.items() if name in c.mxs_matrices._names_}
        options = rule_options(self._rule, {name: value for name, value in fields.items() if name not in own}, caller)
        self._matrices = matrices_of(own, caller)
        self._create(getattr(lib, f'mxs_{self._rule}_create'), byref(self._matrices), byref(options))
        self._state_bytes = self._ask(lib.mxs_stepper_state_bytes)
        self._workspace_bytes = self._ask(lib.mxs_stepper_workspace_bytes)
        self._state: memoryview | None = None
        self._workspace: Array | None = None
        self._form = _Form(self._matrices)

    @property
    def state_bytes(self) -> int:
        return self._state_bytes

    @property
    def workspace_bytes(self) -> int:
        """That a call needs; 0: none. May differ between CPUs. Since 0.1."""
        return self._workspace_bytes

    @property
    def state(self) -> memoryview | None:
        """The stepper's own state, all bytes of it; None before init(). Since 0.1."""
        return self._state

    @property
    def state_parts(self) -> Items[StatePart]:
        """Named parts of a state: dtype, name, offset and bytes from its first byte, shape. Since 0.1."""
        return Items('Stepper.state_parts', lambda: self._ask(lib.mxs_stepper_state_count), self._part)

    def _part(self, index: int) -> StatePart:
        return self._query(lib.mxs_stepper_state, c.mxs_state_part, uint64(index, 'index'))

    def parts(self, state: ArrayLike = None) -> dict[str, memoryview]:
        """The parts of a state (None: the stepper's own) by name, in place: memoryviews with shapes, of which
        numpy.asarray makes arrays. Since 0.1."""
        block = self._block(state)
        return {part.name: shaped(block[part.offset:part.offset + part.bytes], part.dtype, part.shape)
                for part in self.state_parts}

    def _block(self, state) -> memoryview:
        if state is None:
            return self._own_state()
        return memory(state, 'state', self.state_bytes, writable=False).block()

    def _own_state(self) -> memoryview:
        if self._state is None:
            raise ValueError(f'this {type(self).__name__} has no state yet: call init(), or pass state=')
        return self._state

    def init(self, state: ArrayLike = None) -> ArrayLike:
        """Writes the first state into yours, or into the stepper's own, which is taken then. Returns it. Since 0.1."""
        if state is None:
            if self._state is None:
                self._state = aligned_memory(self.state_bytes)
            state = self._state
        found = memory(state, 'state', self.state_bytes)
        self._call(lib.mxs_stepper_init, found.address)
        return state

    def check_state(self, state: ArrayLike = None) -> None:
        """Is it a state of such a stepper, and all of it finite? For what comes from a file. Raises MismatchError with
        what differs or is damaged. Since 0.1."""
        found = memory(self._own_state() if state is None else state, 'state', 0, writable=False)
        self._call(lib.mxs_stepper_check_state, found.address, found.bytes)

    def step(self, values: GroupValues | Mapping, gradient: ArrayLike, weights: ArrayLike, master: ArrayLike = None, *,
             state: ArrayLike = None, workspace: ArrayLike = None, gradient_scale: float = 1.0,
             clip_factor: float = 1.0) -> StepResult:
        """One step: state and weights change.

        values: of group_values(), preset_values(), or a dict of their names. gradient, weights: (rows, columns) or
        (count, rows, columns) in the strides the stepper was made for; in their dtypes, bf16 also as words of 16 bits.
        master: the fp32 master, or the uint16 remainder. gradient_scale: such as 1 / tokens.

        Returns skipped (a gradient was not finite; nothing changed), step_number, skipped_count, failed_count,
        gradient_norm. Raises MismatchError: the state is another's. InternalError: the state was damaged, or
        decompositions failed too often. Since 0.1.
        """
        call, _held = self._step_call(values, gradient, weights, master, state, workspace, gradient_scale, clip_factor)
        return _result(self._call, lib.mxs_stepper_step, byref(call))

    def update(self, values: GroupValues | Mapping, gradient: ArrayLike, weights: ArrayLike = None,
               master: ArrayLike = None, *, out: ArrayLike = None, state: ArrayLike = None,
               workspace: ArrayLike = None, gradient_scale: float = 1.0,
               clip_factor: float = 1.0) -> tuple[Any, StepResult]:
        """The first half of a step: the state changes, weights don't (L2 decay and shampoo with momentum read them).

        out: fp32, dense, count * rows * columns; None: a new array of the gradient's library. Returns (out, result);
        out is untouched if the step was skipped. Since 0.1.
        """
        call, held = self._step_call(values, gradient, weights, master, state, workspace, gradient_scale, clip_factor)
        if out is None:
            out = empty_like(gradient, held[0].shape)
        found = dense(out, 'out', c.MXS_F32, self._form.count, writable=True)
        return out, _result(self._call, lib.mxs_stepper_update, byref(call), found.address)

    def apply(self, values: GroupValues | Mapping, update: ArrayLike, weights: ArrayLike, master: ArrayLike = None, *,
              state: ArrayLike = None, gradient_scale: float = 1.0, clip_factor: float = 1.0) -> None:
        """The second half: weights change by what update() gave. Both together have step()'s bits. Since 0.1."""
        found = dense(update, 'update', c.MXS_F32, self._form.count)
        call, _held = self._step_call(values, None, weights, master, state, None, gradient_scale, clip_factor)
        self._call(lib.mxs_stepper_apply, byref(call), found.address)

    def _step_call(self, values, gradient, weights, master, state, workspace, gradient_scale, clip_factor):
        """(mxs_step_call, what must live until the call is over)."""
        caller = type(self).__name__
        call = c.mxs_step_call(gradient_scale=real(gradient_scale, 'gradient_scale'),
                               clip_factor=real(clip_factor, 'clip_factor'))
        call.values = ctypes.pointer(values_of(values, caller))
        held = []
        if gradient is not None:
            held.append(self._form.gradient(gradient))
            call.gradient = held[-1].address
            call.workspace, call.workspace_bytes = self._work(workspace, held)
        if weights is not None:
            held.append(self._form.weights(weights))
            call.weights = held[-1].address
        if master is not None:
            held.append(self._form.master(master))
            call.master = held[-1].address
        held.append(memory(self._own_state() if state is None else state, 'state', self.state_bytes))
        call.state = held[-1].address
        return call, held

    def _work(self, workspace, held: list) -> tuple[int | None, int]:
        if workspace is not None:
            found = memory(workspace, 'workspace', 0)
            held.append(found)
            return found.address, found.bytes
        own = self._workspace
        if own is None:
            own = self._workspace = memory(aligned_memory(self._workspace_bytes), 'workspace', 0)
        held.append(own)  # another thread may have taken one, too
        return own.address, own.bytes

    def describe(self) -> StepperInfo:
        """What was chosen: rule, preset, thread_count, backend, passes, product_dtype, flops of a step. Since 0.1."""
        return self._query(lib.mxs_stepper_describe, c.mxs_stepper_info)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f'<{name}: closed>' if self.closed else f'<{name}: {self._form}, {self.describe().backend}>'


def _result(call, function, *arguments) -> StepResult:
    result = c.mxs_step_result()
    call(function, *arguments, byref(result))
    return info(result)


class _Form:
    """The shape, strides and dtypes that a stepper's arrays have."""

    def __init__(self, matrices: c.mxs_matrices):
        self._matrices = matrices
        self.shape = (matrices.count or 1, matrices.rows, matrices.columns)
        self.count = self.shape[0] * matrices.rows * matrices.columns

    def gradient(self, source: ArrayLike) -> Array:
        return self._checked(source, 'gradient', self._matrices.gradient_dtype or c.MXS_F32,
                             self._matrices.gradient_strides, 'gradient_strides', False)

    def weights(self, source: ArrayLike) -> Array:
        return self._checked(source, 'weights', self._matrices.dtype or c.MXS_F32, self._matrices.weight_strides,
                             'weight_strides', True)

    def master(self, source: ArrayLike) -> Array:
        is_remainder = self._matrices.weights == Weights.REMAINDER
        return self._checked(source, 'master', ('words of 16 bits',) if is_remainder else c.MXS_F32,
                             self._matrices.weight_strides, 'weight_strides', True)

    def _checked(self, source, name: str, dtype, strides: c.mxs_strides, field: str, writable: bool) -> Array:
        found = array(source, name, dtype, writable)
        count, rows, columns = self.shape
        if found.shape != self.shape and not (count == 1 and found.shape == self.shape[1:]):
            wanted = self.shape if count > 1 else self.shape[1:]
            raise ValueError(f'{name} has shape {found.shape}; {wanted} is wanted')
        row = strides.row or columns
        wanted = (strides.matrix or rows * row, row, 1)
        given = found.strides if len(found.shape) == 3 else (wanted[0],) + found.strides
        if any(length > 1 and stride != other for length, stride, other in zip(self.shape, given, wanted)):
            raise ValueError(f'{name} has strides {found.strides} in elements; this stepper was made for '
                             f'{wanted[-len(found.shape):]}: pass a contiguous array, or make it with '
                             f'{field}=({given[1]}, {given[0]})')
        return found

    def __str__(self) -> str:
        count, rows, columns = self.shape
        return f'{rows} x {columns}' + (f', {count} of them' if count > 1 else '')


class Muon(Stepper):
    """Momentum, orthogonalised (mxs_muon_create). Options: preset, momentum ('ema', 'sgd'), nesterov, scale,
    scale_factor, decay, normuon, normuon_beta2, normuon_epsilon, newton_schulz (a dict of Orthogonalizer's),
    thread_count, backend. See Stepper. Since 0.1."""
    _rule = 'muon'


class Shampoo(Stepper):
    """Inverse roots of both factors (mxs_shampoo_create). Options: preset, block_max, interval, start, grafting, decay,
    failures_max, nesterov, momentum, exponent, backend, thread_count. See Stepper. Since 0.1."""
    _rule = 'shampoo'


class Soap(Stepper):
    """Adam in the factors' eigenbasis (mxs_soap_create). Options: preset, side_max, interval, one_sided, factor_beta,
    decay, failures_max, backend, thread_count. See Stepper. Since 0.1."""
    _rule = 'soap'


class AdamW(Stepper):
    """AdamW (mxs_adamw_create). Options: preset, decay, epsilon_before, thread_count. See Stepper. Since 0.1."""
    _rule = 'adamw'


def scale_heads(weights: ArrayLike, factors: Iterable[float], rows: int, columns: int, *, master: ArrayLike = None,
                step_number: int = 0, **fields) -> None:
    """QK-clip (MuonClip): multiply the rows of each head by its factor, in place.

    weights: one matrix of rows x columns in its form: fields of mxs_matrices as Muon takes them, but count and blocks.
    factors: a number a head, finite and not negative; rows are dealt evenly. Since 0.1.
    """
    fields.update(rows=rows, columns=columns)
    matrices = matrices_of(fields, 'scale_heads()')
    form = _Form(matrices)
    found = form.weights(weights)
    second = None if master is None else form.master(master)
    numbers = reals(factors, 'factors', ctypes.c_float)
    check(lib.mxs_scale_heads(byref(matrices), found.address, second and second.address, numbers,
                              int32(len(numbers), 'factors'), uint64(step_number, 'step_number')))


# ---- Passes --------------------------------------------------------------------------------------------------------


def muon_momentum(values: GroupValues | Mapping, gradient: ArrayLike, momentum: ArrayLike, update: ArrayLike, *,
                  gradient_scale: float = 1.0) -> None:
    """momentum = lerp(momentum, g, 1 - values.momentum); update = lerp(g, momentum, values.momentum). fp32, contiguous,
    of equal counts. Since 0.1."""
    _pass(lib.mxs_muon_momentum, values, dict(gradient=gradient, momentum=momentum, update=update),
          gradient_scale=gradient_scale)


def muon_apply(values: GroupValues | Mapping, update: ArrayLike, weights: ArrayLike, master: ArrayLike = None, *,
               dtype: Dtype | str | int = Dtype.F32, update_scale: float = 1.0) -> None:
    """master = master * (1 - lr * weight_decay) - lr * update_scale * update; weights = rounded.

    dtype: of weights. master: fp32; None where weights are fp32, and then their own. update_scale: muon_scale().
    Since 0.1.
    """
    _pass(lib.mxs_muon_apply, values, dict(update=update, weights=weights, master=master), dtype=dtype,
          update_scale=update_scale)


def adamw(values: GroupValues | Mapping, gradient: ArrayLike, exp_avg: ArrayLike, exp_avg_sq: ArrayLike,
          weights: ArrayLike, master: ArrayLike = None, *, step_number: int, dtype: Dtype | str | int = Dtype.F32,
          gradient_scale: float = 1.0) -> None:
    """torch.optim.AdamW in fp32; weights = rounded. step_number: of this step, from 1. Since 0.1."""
    _pass(lib.mxs_adamw, values, dict(gradient=gradient, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq, weights=weights,
                                      master=master), dtype=dtype, gradient_scale=gradient_scale,
          step_number=step_number)


def _pass(function, values, arrays: dict, **fields) -> None:
    elements = filled(c.mxs_elements, dict(fields, dtype=fields.get('dtype', Dtype.F32)), 'a pass')
    held: list[Array] = []
    for name, source in arrays.items():
        if source is not None:
            dtype = elements.dtype if name == 'weights' else c.MXS_F32
            is_read = name == 'gradient' or (name == 'update' and 'weights' in arrays)
            found = dense(source, name, dtype, held[0].count if held else None, writable=not is_read)
            held.append(found)
            setattr(elements, name, found.address)
    elements.count = held[0].count
    check(function(byref(elements), byref(values_of(values, 'values'))))
