# SPDX-License-Identifier: Apache-2.0
"""Optimizer: torch's interface to the owners' step.

    param_groups   parameters with equal values (lr, momentum, ...), as in torch; schedulers write into them
    values         one mxs_group_values for each tensor of the plan: a tensor's group number is its index, so that any
                   grouping will do. Filled in at each step
    step           the ranks agree on the norm (mxs_optimizer_agree), then each owner steps what it has
    state          views of the library's state on this rank, in torch's place: optimizer.state[parameter]

Gradients never lie in parameter.grad: backward sums them at the owners. So torch.nn.utils.clip_grad_norm_ finds none,
and clip_grad_norm_ here is the one that clips.
"""
from __future__ import annotations

import contextlib
import ctypes
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .. import Optimizer as OwnersOptimizer
from .. import _declarations as c
from .. import constants
from .._library import lib
from .._structs import info
from ..constants import Missing
from ..errors import HeldError, InvalidArgumentError, NotBuiltError
from ._groups import STEPPED, VALUES, Parameters, begin_values, check_cover, groups_of, rules_of, take_preset
from ._memory import tensor_of
from ._model import ShardedModel, sharded


class OwnersStep:
    """The C optimizer of a model's units, and the arguments of its next step, which stay where they are."""

    def __init__(self, model: ShardedModel, **options: Any):
        count = len(model.parameters)
        self.model = model
        self.values = (c.mxs_group_values * count)(*(c.mxs_group_values() for _ in range(count)))
        self._step = c.mxs_step(group_count=count, groups=self.values)
        self._verdict = c.mxs_verdict()
        self.core = OwnersOptimizer(model.units, **options)

    def say(self, gradient_scale: float | None, clip_norm: float, missing: str) -> None:
        """Of the next agreement. gradient_scale: None: the mean over ranks."""
        if gradient_scale is None:
            gradient_scale = 1 / self.model.comm.rank_count
        if not gradient_scale:
            raise InvalidArgumentError('gradient_scale is 0, which would make all gradients 0')
        self._step.gradient_scale = gradient_scale
        self._step.clip_norm = clip_norm
        self._step.missing = constants.number(Missing, missing)

    @property
    def scale(self) -> float:
        """As it was said last, in fp32."""
        return self._step.gradient_scale

    def agree(self) -> Any:
        return self._call(lib.mxs_optimizer_agree)

    def step(self) -> Any:
        return self._call(lib.mxs_optimizer_step)

    def _call(self, function) -> Any:
        self.core._call(function, ctypes.byref(self._step), ctypes.byref(self._verdict))
        return info(self._verdict)

    def check_nothing_kept(self) -> None:
        """Gradients of no_sync that no backward has sent would be left out of the step."""
        for one in self.model.parameters:
            if one.whole is not None and one.whole.grad is not None:
                raise HeldError(f'{one.name} has a gradient of no_sync() that was not sent: run the last backward of a '
                                'step outside of no_sync(), or call zero_grad()', c.MXS_HELD, self.model.comm.rank)

    def clear(self) -> None:
        for one in self.model.parameters:
            if one.whole is not None:
                one.whole.grad = None
        self.core.clear()


class Optimizer(torch.optim.Optimizer):
    """Steps what each rank owns, with torch's interface. Collective: all ranks make it alike and step alike.

    params          the module that shard() returned, or parameters of it: what muon, shampoo or soap step becomes one
                    param group ('matrices'), what AdamW steps another ('others'). Or torch's param groups, which have
                    all that is stepped, each once; a group takes what it doesn't say from the arguments below, or
                    from `others` if AdamW steps all of it.
    lr, weight_decay, momentum, betas, eps
                    of matrices; of everything where the plan has none. None: the preset's, matrixshard.preset_values().
                    momentum is Muon's. In a group without Muon's tensors a momentum that is not None takes the place
                    of betas[0], so that OneCycleLR and CyclicLR cycle both.
    others          the same of what AdamW steps: dict(lr=3e-4, betas=(0.9, 0.95)). What it lacks is
                    torch.optim.AdamW's, and betas and eps those published beside Muon's preset.
    preset          whose optimizer: 'torch-muon', 'keller-jordan', 'moonlight', 'soap', ...: docs/optimizers.md. None:
                    the rule's own.
    muon, shampoo, soap, adamw
                    how rules step: dicts of mxs_muon_options and so on, such as muon=dict(decay='cautious',
                    newton_schulz=dict(table='polar-express')).
    backend         who multiplies: 'auto', 'reference', 'openblas', 'onednn', 'tiles'.
    thread_count    of this rank's kernels. None: the comm's.
    rounding, seed  of 16-bit weights without fp32 masters: 'nearest', 'stochastic'.
    gradient_scale  multiplies the summed gradients. None: 1 / ranks, their mean, as in DDP and FSDP. An attribute.
    clip_norm       largest global norm, at each step. 0: don't clip. An attribute. clip_grad_norm_ clips one step.
    missing         'error': where some rank has no gradient for a parameter, step is a NotOpenError on all ranks that
                    names both; sums are kept. 'zero': it counts as zero, as with find_unused_parameters of DDP. An
                    attribute.

    `last` is what the ranks agreed on in the latest step or clip_grad_norm_: norm (scaled, before clipping),
    clip_factor, skipped, found_inf_rank, step_number. A step with gradients that are not finite is skipped on all
    ranks, and changes nothing.

    Raises InvalidArgumentError for parameters that are not sharded, or in no group, or in two; HeldError while the
    model has another optimizer; NotBuiltError; MismatchError if ranks pass different things. Calls come one at a time,
    from any thread. Since 0.1.
    """

    def __init__(self, params: Parameters, lr: float | torch.Tensor | None = None, *,
                 weight_decay: float | None = None, momentum: float | None = None,
                 betas: tuple[float, float] | None = None, eps: float | None = None,
                 others: Mapping[str, Any] | None = None, preset: str | None = None,
                 muon: Mapping[str, Any] | None = None, shampoo: Mapping[str, Any] | None = None,
                 soap: Mapping[str, Any] | None = None, adamw: Mapping[str, Any] | None = None,
                 backend: str | None = None, thread_count: int | None = None, rounding: str | None = None,
                 seed: int = 0, gradient_scale: float | None = None, clip_norm: float = 0.0, missing: str = 'error'):
        self._owners: Any = None  # an OwnersStep until close()
        model, groups = groups_of(params)
        if model.optimizer is not None:
            raise HeldError('the model has an optimizer already: close() it before it gets another', c.MXS_HELD,
                            model.comm.rank)
        rules = rules_of(model)
        options = {'muon': dict(muon or {}), 'shampoo': dict(shampoo or {}), 'soap': dict(soap or {}),
                   'adamw': dict(adamw or {})}
        take_preset(preset, options, rules)
        matrices, rest = begin_values({'lr': lr, 'weight_decay': weight_decay, 'momentum': momentum, 'betas': betas,
                                       'eps': eps}, others, options, rules)
        for group in groups:
            by_adamw = all(rules[one._matrixshard.index] not in STEPPED[:-1] for one in group['params'])
            for name in VALUES:
                group.setdefault(name, (rest if by_adamw else matrices)[name])
        check_cover(model, groups)
        self._may_add = True
        # Without betas: where defaults have them, schedulers that cycle momentum cycle betas[0] of every group instead.
        super().__init__(groups, {name: matrices[name] for name in VALUES if name != 'betas'})
        self._may_add = False
        self._model = model
        self._tensors = [[one._matrixshard.index for one in group['params']] for group in self.param_groups]
        self._has_muon = [any(rules[index] == 'muon' for index in tensors) for tensors in self._tensors]
        self._next_clip: float | None = None
        self.preset = preset
        self.gradient_scale = gradient_scale
        self.clip_norm = clip_norm
        self.last: Any = None
        self.missing = missing
        self._values_of_groups()  # refused before anything is made
        constants.number(Missing, missing)
        model.close_outside()
        self._owners = OwnersStep(model, backend=backend, thread_count=thread_count, rounding=rounding, seed=seed,
                                  **{rule: fields for rule, fields in options.items() if fields})
        model.take_optimizer(self)
        self._show_state()

    # ---- the step ----

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Steps what this rank owns, and clears the sums. Collective. Returns what the closure returns.

        closure: computes the loss with backward, once, before the step. NotOpenError: see `missing`. HeldError:
        inside forward or backward, or gradients of no_sync were not sent. MismatchError: ranks differ in values or in
        the number of steps. InternalError: a tensor could not be updated. Since 0.1.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        owners = self._ready_to_step()
        with self._named_groups():
            self.last = owners.step()
        self._next_clip = None
        self._model.after_step()
        return loss

    def agree(self) -> Any:
        """Agrees on the norm and whether the step will be skipped, as step() does, and returns `last`. Collective. The
        step that follows doesn't ask again. Since 0.1."""
        owners = self._ready_to_step()
        with self._named_groups():
            self.last = owners.agree()
        return self.last

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0,
                        error_if_nonfinite: bool = False) -> torch.Tensor:
        """Agrees on the norm of all gradients; the step that follows clips by it. Collective. Returns the norm.

        max_norm: above 0; infinity only measures. norm_type: 2. error_if_nonfinite: RuntimeError on all ranks if some
        gradient is not finite; else the norm is infinite, and the step will be skipped. Since 0.1.
        """
        if float(norm_type) != 2.0:
            raise NotBuiltError(f'norm_type is {norm_type}; this release has the 2-norm only')
        if not float(max_norm) > 0:
            raise InvalidArgumentError(f'max_norm is {max_norm}; it is above 0 (infinity measures, and does not clip)')
        self._next_clip = 0.0 if math.isinf(max_norm) else float(max_norm)
        self.agree()
        if error_if_nonfinite and self.last.skipped:
            raise RuntimeError(f'the norm of the gradients is not finite: rank {self.last.found_inf_rank} was the '
                               'first to see it; the next step would be skipped')
        return torch.tensor(self.last.norm, dtype=torch.float32)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Throws away the gradients since the step before: the owners' sums, and what no_sync() has kept. Local, on
        all ranks alike. After a step there are none, and set_to_none makes no difference. Since 0.1."""
        self._ready().clear()
        self._next_clip = None

    def forget_clip(self) -> None:
        """Gradients that clip_grad_norm_ was called for are gone."""
        self._next_clip = None

    def _ready(self) -> OwnersStep:
        if self._owners is None:
            raise InvalidArgumentError('this Optimizer is closed')
        self._model.runtime.notice_failed_backward()
        return self._owners

    def _ready_to_step(self) -> OwnersStep:
        owners = self._ready()
        owners.check_nothing_kept()
        for tensors, values in zip(self._tensors, self._values_of_groups()):
            for index in tensors:
                owners.values[index] = values
        owners.say(self.gradient_scale, self.clip_norm if self._next_clip is None else self._next_clip, self.missing)
        return owners

    def _values_of_groups(self) -> list[c.mxs_group_values]:
        result = []
        for number, group in enumerate(self.param_groups):
            values = c.mxs_group_values()
            momentum = group['momentum']
            try:
                values.lr = float(group['lr'])
                values.weight_decay = float(group['weight_decay'])
                values.momentum = float(momentum or 0)
                values.beta1, values.beta2 = (float(beta) for beta in group['betas'])
                values.epsilon = float(group['eps'])
            except (TypeError, ValueError) as error:
                raise type(error)(f'param_groups[{number}]: {error}; lr, weight_decay, momentum and eps are numbers, '
                                  'betas are two') from None
            if momentum is not None and not self._has_muon[number]:
                values.beta1 = values.momentum
            result.append(values)
        return result

    @contextlib.contextmanager
    def _named_groups(self) -> Iterator[None]:
        """The library knows tensors' groups by number, users know param groups."""
        try:
            yield
        except InvalidArgumentError as error:
            found = re.search(r'step\.groups\[(\d+)\]', str(error))
            if found is None:
                raise
            index = int(found[1])
            number = next(number for number, tensors in enumerate(self._tensors) if index in tensors)
            raise InvalidArgumentError(str(error).replace(found[0], f'param_groups[{number}]'), error.status,
                                       error.rank) from None

    # ---- state ----

    def _show_state(self) -> None:
        for number, piece in enumerate(self._owners.core.state):
            parameter = self._model.parameters[piece.tensor]
            self.state[parameter.shard][self._key(parameter, piece)] = tensor_of(piece.view)

    def _key(self, parameter: Any, piece: Any) -> str:
        """As C names it; where this rank has several pieces of a tensor, with the piece's number among all of it."""
        if len(parameter.placements) == 1:
            return piece.name
        return f'{piece.name}[{piece.placement - self._model.plan.tensor(parameter.index).placement_index}]'

    def state_dict(self) -> dict[str, Any]:
        """This rank's state in torch's format: 'state' by parameter's number, 'param_groups', and 'matrixshard' with
        what load_state_dict compares. Tensors are views of the state, as everywhere in torch: clone what must outlive
        the next step. Local. Since 0.1."""
        self._ready()
        result = super().state_dict()
        result['matrixshard'] = {'step_number': self._owners.core.step_number, **self._identity()}
        return result

    def _identity(self) -> dict[str, Any]:
        return {'fingerprint': f'{self._model.plan.fingerprint:016x}', 'rank': self._model.comm.rank,
                'rank_count': self._model.comm.rank_count, 'preset': None if self.preset is None else str(self.preset)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """State, values of the groups and step number from state_dict() of the same rank, plan and preset. Local, on
        all ranks alike; then steps have the bits that they would have had. Nothing changes if it is refused.

        InvalidArgumentError: another plan (model, ranks, options), rank or preset, other groups, or a tensor whose
        state is missing or of another shape; the sentence names it. Since 0.1.
        """
        owners = self._ready()
        for hook in list(getattr(self, '_optimizer_load_state_dict_pre_hooks', {}).values()):
            state_dict = hook(self, state_dict) or state_dict
        step_number = self._check_identity(state_dict)
        groups = state_dict['param_groups']
        self._check_groups(groups)
        copies = self._check_state(state_dict['state'])
        with torch.no_grad():
            for target, source in copies:
                target.copy_(source)
        for group, loaded in zip(self.param_groups, groups):
            group.update({name: value for name, value in loaded.items() if name != 'params'})
        owners.core.step_number = step_number
        self._next_clip = None
        for hook in list(getattr(self, '_optimizer_load_state_dict_post_hooks', {}).values()):
            hook(self)

    def _check_identity(self, state_dict: Mapping[str, Any]) -> int:
        given = state_dict.get('matrixshard') if isinstance(state_dict, Mapping) else None
        if not isinstance(given, Mapping) or 'param_groups' not in state_dict or 'state' not in state_dict:
            raise InvalidArgumentError('this is no state_dict() of a matrixshard.torch.Optimizer: it lacks '
                                       '"matrixshard", "state" or "param_groups"')
        for name, mine in self._identity().items():
            if given.get(name) != mine:
                advice = {'fingerprint': 'it is for the same model, options and number of ranks only',
                          'preset': 'make the optimizer with the preset of the state'}
                raise InvalidArgumentError(f'the state has {name} {given.get(name)}, but this optimizer {mine}: '
                                           f'{advice.get(name, "each rank loads its own")}')
        return given['step_number']

    def _check_groups(self, groups: Any) -> None:
        counts = [len(group['params']) for group in groups]
        mine = [len(group['params']) for group in self.param_groups]
        if counts != mine:
            raise InvalidArgumentError(f'the state has param groups of {counts} parameters, but this optimizer has '
                                       f'groups of {mine}')
        for number, group in enumerate(groups):
            for name in VALUES:
                if name not in group:
                    raise InvalidArgumentError(f'param_groups[{number}] of the state has no {name}')

    def _check_state(self, state: Mapping[Any, Mapping[str, torch.Tensor]]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        copies = []
        parameters = [one for group in self.param_groups for one in group['params']]
        for number, parameter in enumerate(parameters):
            mine, given = self.state.get(parameter, {}), state.get(number, {})
            name = parameter._matrixshard.name
            if set(mine) != set(given):
                raise InvalidArgumentError(f'{name}: the state has {sorted(given) or "nothing"}, but this optimizer '
                                           f'{sorted(mine) or "nothing"}')
            for key, target in mine.items():
                source = given[key]
                if not isinstance(source, torch.Tensor) or source.shape != target.shape or source.dtype != target.dtype:
                    raise InvalidArgumentError(f'{name}: {key} of the state is {described(source)}, but this optimizer '
                                               f'has {described(target)}')
                copies.append((target, source))
        return copies

    # ---- life ----

    @property
    def closed(self) -> bool:
        """True after close(). Since 0.1."""
        return self._owners is None

    @property
    def step_number(self) -> int:
        """Steps done so far; those that were skipped don't count. Since 0.1."""
        return self._ready().core.step_number

    @property
    def owners(self) -> OwnersStep:
        """The C optimizer under this one."""
        return self._ready()

    def memory(self) -> Any:
        """Bytes of state and workspace on this rank (mxs_memory). Since 0.1."""
        return self._ready().core.memory()

    def close(self) -> None:
        """Gives state and workspace back; the model may then be closed, or get another optimizer. Tensors of
        optimizer.state that are still alive elsewhere put it off. Local, on all ranks alike. Since 0.1."""
        owners, self._owners = self._owners, None
        if owners is not None:
            self.state.clear()
            owners.core.close()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused: an optimizer steps all of a model, from the beginning. Pass the groups to Optimizer(). Since 0.1."""
        if not getattr(self, '_may_add', False):
            raise InvalidArgumentError('groups cannot be added: this optimizer steps all parameters of the model '
                                       'already; pass the groups when it is made')
        super().add_param_group(param_group)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """torch.amp.GradScaler asks this first."""
        raise NotBuiltError('GradScaler looks for gradients in parameters, but these are summed at their owners: bf16 '
                            'needs no scaler; for fp16 multiply the loss by a scale of your own and pass '
                            'gradient_scale=1 / (ranks * scale); a step that overflows is skipped, as '
                            'optimizer.last.skipped tells')

    def __reduce_ex__(self, protocol):
        raise TypeError('an Optimizer belongs to this process: save its state_dict() instead')


def described(value: Any) -> str:
    return f'{value.dtype} {tuple(value.shape)}' if isinstance(value, torch.Tensor) else repr(value)


def clip_grad_norm_(model: nn.Module, max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False) -> torch.Tensor:
    """Optimizer.clip_grad_norm_ of the model's optimizer, for programs that have the model at hand. Since 0.1."""
    optimizer = sharded(model).optimizer
    if optimizer is None:
        raise InvalidArgumentError('the model has no Optimizer: make one before clip_grad_norm_(); external() takes '
                                   'clip_norm')
    return optimizer.clip_grad_norm_(max_norm, norm_type, error_if_nonfinite)
