# SPDX-License-Identifier: Apache-2.0
"""Plan: which rank owns which tensor, and where it lies in its unit (plan.h).

    plan = Plan([Tensor('w', (1024, 4096), rule='muon'), Tensor('norm', (1024,))], 'ranks:4', alignment=64)
    print(plan.report())
    plan.tensor('w').reason, plan.placements[0].owner

A pure function of the tensors, the topology and the options: each rank makes it and has the same.
"""
from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _declarations as c
from . import constants
from ._handles import Handle
from ._library import encoded, lib, text
from ._structs import Items, filled, int32, integers, sequence, set_field, uint64, unknown
from .constants import Dtype, ObjectiveKind, Role, Rule, Which
from .infos import Matrix, Memory, Objective, Placement, PlanMove, RankLoad, TensorInfo, UnitLoad
from .layout import Layout
from .topology import Topology

if TYPE_CHECKING:
    from .model import Model

__all__ = ['Plan', 'Tensor']

# mxs_tensor without what Python's sequences and None say already.
_FIELDS = ('name', 'shape', 'dtype', 'master_dtype', 'gradient_dtype', 'unit', 'rule', 'group', 'role', 'fixed_owner',
           'block_rows', 'co_owners', 'tied_to', 'block_columns', 'transposed', 'whole_rows', 'whole_columns')


class Tensor:
    """One named parameter, as the planner wants it described (mxs_tensor); immutable.

    shape: elements. dtype, master_dtype, gradient_dtype: f32 (or as C says) if None. unit: counted from 0. rule, role:
    members of Rule and Role or their names. group: which values of a step apply. fixed_owner: a rank; None: the
    planner chooses. block_rows, block_columns: sizes of the blocks that it is cut into. co_owners: ranks of a node
    that share it. tied_to: name of the tensor whose bytes it shares. transposed: stored as (in, out). whole_rows,
    whole_columns: of the matrix that it is a tensor-parallel piece of. Since 0.1.
    """

    __slots__ = _FIELDS

    name: str
    shape: tuple[int, ...]
    dtype: Dtype | None
    master_dtype: Dtype | None
    gradient_dtype: Dtype | None
    unit: int
    rule: Rule
    group: int
    role: Role
    fixed_owner: int | None
    block_rows: tuple[int, ...] | None
    co_owners: int
    tied_to: str | None
    block_columns: tuple[int, ...] | None
    transposed: bool
    whole_rows: int
    whole_columns: int

    def __init__(self, name: str, shape: Iterable[int] = (), *, dtype: Dtype | str | int | None = None,
                 master_dtype: Dtype | str | int | None = None, gradient_dtype: Dtype | str | int | None = None,
                 unit: int = 0, rule: Rule | str | int = Rule.AUTO, group: int = 0, role: Role | str | int = Role.AUTO,
                 fixed_owner: int | None = None, block_rows: Iterable[int] | None = None, co_owners: int = 0,
                 tied_to: str | None = None, block_columns: Iterable[int] | None = None, transposed: bool = False,
                 whole_rows: int = 0, whole_columns: int = 0):
        given = locals()
        if not isinstance(name, str):
            raise TypeError(f'the name of a tensor is {name!r}, not text')
        for field in _FIELDS:
            value = given[field]
            kind = constants.kind_of(c.mxs_tensor, field)
            try:
                if kind is not None and value is not None:
                    value = constants.named(kind, constants.number(kind, value))
                elif field in ('shape', 'block_rows', 'block_columns') and value is not None:
                    value = tuple(integers(value, field))
            except (TypeError, ValueError) as error:
                raise type(error)(f'tensor {name}: {error}') from None
            object.__setattr__(self, field, value)

    def __setattr__(self, field, *value):
        raise AttributeError('a Tensor is immutable: make another by replace()')

    __delattr__ = __setattr__

    def _asdict(self) -> dict:
        return {field: getattr(self, field) for field in _FIELDS}

    def replace(self, **changes: Any) -> Tensor:
        """A copy with other values. Since 0.1."""
        return Tensor(**{**self._asdict(), **changes})

    def __reduce__(self):
        return _tensor_of, (self._asdict(),)

    def __eq__(self, other):
        return self._asdict() == other._asdict() if isinstance(other, Tensor) else NotImplemented

    def __hash__(self):
        return hash(tuple(self._asdict().values()))

    def __repr__(self) -> str:
        said = [f'{field}={value}' if isinstance(value, constants.Constant) else f'{field}={value!r}'
                for field, value in self._asdict().items() if field not in ('name', 'shape') and value]
        if self.fixed_owner == 0:
            said.append('fixed_owner=0')
        return f'Tensor({", ".join([repr(self.name), repr(self.shape)] + said)})'

    @classmethod
    def _of(cls, struct: c.mxs_tensor) -> Tensor:
        """From what C has."""
        dtypes = ('dtype', 'master_dtype', 'gradient_dtype')
        values: dict[str, Any] = {field: getattr(struct, field) or None for field in dtypes}
        values.update((field, getattr(struct, field)) for field in
                      ('unit', 'rule', 'group', 'role', 'co_owners', 'whole_rows', 'whole_columns'))
        if struct.block_rows:
            values['block_rows'] = struct.block_rows[:struct.block_count]
        if struct.block_columns:
            values['block_columns'] = struct.block_columns[:struct.block_column_count]
        if struct.tied_to:
            values['tied_to'] = text(struct.tied_to)
        if struct.fixed_owner:
            values['fixed_owner'] = struct.fixed_owner - 1
        return cls(text(struct.name), struct.shape[:struct.dimension_count], transposed=bool(struct.transposed),
                   **values)

    def _write(self, struct: Any) -> None:
        """Into a C struct, which keeps what it points to alive."""
        struct.__init__()
        label = f'tensor {self.name}: '
        if len(self.shape) > c.MXS_DIMENSIONS_MAX:
            raise ValueError(f'{label}it has {len(self.shape)} dimensions; {c.MXS_DIMENSIONS_MAX} are the most')
        struct.shape[:len(self.shape)] = self.shape
        struct.dimension_count = len(self.shape)
        for field in ('name', 'dtype', 'master_dtype', 'gradient_dtype', 'unit', 'rule', 'group', 'role', 'co_owners',
                      'tied_to', 'transposed', 'whole_rows', 'whole_columns'):
            set_field(struct, field, getattr(self, field), label + field)
        if self.fixed_owner is not None:
            if int32(self.fixed_owner, label + 'fixed_owner') < 0:
                raise ValueError(f'{label}fixed_owner is {self.fixed_owner}: a rank is wanted, or None')
            set_field(struct, 'fixed_owner', self.fixed_owner + 1, label + 'fixed_owner')
        if self.block_rows is not None:
            struct.block_rows = integers(self.block_rows, label + 'block_rows')
            struct.block_count = len(self.block_rows)
        if self.block_columns is not None:
            struct.block_columns = integers(self.block_columns, label + 'block_columns')
            struct.block_column_count = len(self.block_columns)


def _tensor_of(fields: dict) -> Tensor:
    return Tensor(**fields)


def array_of(tensors):
    """A C array of tensors: Tensor objects or dicts of their arguments."""
    tensors = [_checked(tensor, index) for index, tensor in enumerate(sequence(tensors, 'tensors'))]
    array = (c.mxs_tensor * len(tensors))()
    for index, tensor in enumerate(tensors):
        tensor._write(array[index])
    return array


def _checked(tensor, index: int) -> Tensor:
    if isinstance(tensor, Mapping):
        for field in tensor:
            if field not in _FIELDS:
                raise unknown(f'tensors[{index}]', field, _FIELDS)
        if 'name' not in tensor:
            raise TypeError(f'tensors[{index}] has no name')
        return Tensor(**tensor)
    if not isinstance(tensor, Tensor):
        raise TypeError(f'tensors[{index}] is {tensor!r}, neither a Tensor nor a dict')
    return tensor


class Plan(Handle):
    """Decides owners and places (mxs_plan_create).

    tensors: Tensor objects, dicts of their arguments, or a Model. topology: a Topology, or the words of one
    ('nodes:2 ranks:4'). options: fields of mxs_plan_options: unit_count, alignment, flat_bytes, rank_bytes_max,
    matrix_flops_per_second, memory_bytes_per_second, step_weight, bytes_weight, egress_weight, co_owners_max,
    search_moves_max; previous: a plan of the same tensors whose owners keep what they have unless moving it pays;
    previous_ranks: by rank, its number in the previous plan, as Comm.origins tells after a shrink; -1: it is new.

    Immutable; any thread may ask it. Raises InvalidArgumentError with the tensor and the field, OverBudgetError with
    the smallest budget that works. Since 0.1.
    """

    _destroy_name = 'mxs_plan_destroy'

    def __init__(self, tensors: Model | Iterable[Tensor | Mapping], topology: Topology | str, **options: Any):
        previous, ranks = options.pop('previous', None), options.pop('previous_ranks', None)
        given = filled(c.mxs_plan_options, options, 'Plan()', special=('previous', 'previous_ranks'))
        if not isinstance(topology, (Topology, str)):
            raise TypeError(f'topology is {topology!r}, neither a Topology nor the words of one')
        if previous is not None and not isinstance(previous, Plan):
            raise TypeError(f'previous is {previous!r}, not a Plan')
        if ranks is not None:  # given keeps the array
            given.previous_ranks = (ctypes.c_int32 * len(ranks))(*(int32(rank, 'previous_ranks') for rank in ranks))
        if isinstance(topology, str):
            with Topology(topology) as made:
                self._plan_of(tensors, made, given, previous, ranks)
        else:
            self._plan_of(tensors, topology, given, previous, ranks)

    def _plan_of(self, tensors, topology: Topology, given, previous: Plan | None, ranks) -> None:
        if ranks is not None and len(ranks) != topology.rank_count:
            raise ValueError(f'previous_ranks has {len(ranks)} numbers, but the plan is of {topology.rank_count} ranks')
        self._plan(tensors, topology, given, previous)

    def _plan(self, tensors, topology: Topology, given, previous: Plan | None) -> None:
        if previous is not None:
            with previous._lent() as pointer:
                given.previous = pointer
                self._plan(tensors, topology, given, None)
        elif hasattr(tensors, '_array'):  # a Model: C has them
            with tensors._lent():
                array, count = tensors._array()
                self._planned(array, count, topology, given)
        else:
            array = array_of(tensors)
            self._planned(array, len(array), topology, given)

    def _planned(self, array, count: int, topology: Topology, given) -> None:
        with topology._lent() as pointer:
            self._create(lib.mxs_plan_create, array, count, pointer, ctypes.byref(given))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Plan:
        """What save() wrote: the same plan, with the same fingerprint. Since 0.1."""
        return cls._made(lib.mxs_plan_load, encoded(path))

    def save(self, path: str | os.PathLike) -> None:
        """As JSON, with the tensors, topology and options. The file is complete or not there. Since 0.1."""
        self._call(lib.mxs_plan_save, encoded(path))

    @property
    def rank_count(self) -> int:
        return self._ask(lib.mxs_plan_rank_count)

    @property
    def unit_count(self) -> int:
        return self._ask(lib.mxs_plan_unit_count)

    @property
    def tensor_count(self) -> int:
        return self._ask(lib.mxs_plan_tensor_count)

    @property
    def placement_count(self) -> int:
        return self._ask(lib.mxs_plan_placement_count)

    @property
    def matrix_count(self) -> int:
        return self._ask(lib.mxs_plan_matrix_count)

    @property
    def fingerprint(self) -> int:
        """64 bits over all that must be equal on all ranks. Since 0.1."""
        return self._ask(lib.mxs_plan_fingerprint)

    def find(self, name: str) -> int:
        """Index of a tensor by name. Raises NotFoundError. Since 0.1."""
        index = ctypes.c_int32()
        self._call(lib.mxs_plan_find, encoded(name), ctypes.byref(index))
        return index.value

    def tensor(self, tensor: int | str) -> TensorInfo:
        """What became of a tensor, by index or name: role, rule, unit, group, tied_to (an index or -1),
        placement_index, placement_count, name, reason. Since 0.1."""
        index = self.find(tensor) if isinstance(tensor, str) else int32(tensor, 'tensor')
        return self._query(lib.mxs_plan_tensor, c.mxs_tensor_info, index)

    def placement(self, index: int) -> Placement:
        """A piece of a tensor with one owner, Placement; gradient_offset is None if it is frozen. Since 0.1."""
        return self._query(lib.mxs_plan_placement, c.mxs_placement, uint64(index, 'index'))

    def matrix(self, index: int) -> Matrix:
        """What one call of an optimizer's rule treats. Since 0.1."""
        return self._query(lib.mxs_plan_matrix, c.mxs_matrix, uint64(index, 'index'))

    @property
    def tensors(self) -> Items[TensorInfo]:
        """tensor() of all. Since 0.1."""
        return Items('Plan.tensors', lambda: self.tensor_count, self.tensor)

    @property
    def placements(self) -> Items[Placement]:
        """placement() of all. Since 0.1."""
        return Items('Plan.placements', lambda: self.placement_count, self.placement)

    @property
    def matrices(self) -> Items[Matrix]:
        """matrix() of all. Since 0.1."""
        return Items('Plan.matrices', lambda: self.matrix_count, self.matrix)

    def unit(self, unit: int) -> UnitLoad:
        """What a unit's gathers and reduces carry. Since 0.1."""
        return self._query(lib.mxs_plan_unit, c.mxs_unit_load, int32(unit, 'unit'))

    @property
    def units(self) -> Items[UnitLoad]:
        """unit() of all. Since 0.1."""
        return Items('Plan.units', lambda: self.unit_count, self.unit)

    def rank(self, rank: int) -> RankLoad:
        """What a rank carries. Since 0.1."""
        return self._query(lib.mxs_plan_rank, c.mxs_rank_load, int32(rank, 'rank'))

    @property
    def ranks(self) -> Items[RankLoad]:
        """rank() of all. Since 0.1."""
        return Items('Plan.ranks', lambda: self.rank_count, self.rank)

    def objective(self, kind: ObjectiveKind | str | int) -> Objective:
        """How good the plan is, 'bytes', 'step', 'egress' or 'nic': rank, unit, worst, bound. Since 0.1."""
        return self._query(lib.mxs_plan_objective, c.mxs_objective, constants.number(ObjectiveKind, kind))

    @property
    def warnings(self) -> Items[str]:
        """Surprises that a person should look at: sentences. Since 0.1."""
        return Items('Plan.warnings', lambda: self._ask(lib.mxs_plan_warning_count),
                     lambda index: text(self._ask(lib.mxs_plan_warning, index)))

    def layout(self, unit: int, which: Which | str | int = Which.WEIGHTS) -> Layout:
        """A unit's layout of 'weights' or 'gradients', as an object of its own. Since 0.1."""
        made = ctypes.c_void_p()
        self._call(lib.mxs_plan_layout, int32(unit, 'unit'), constants.number(Which, which), ctypes.byref(made))
        return Layout._from(made)

    def memory(self, rank: int, **options) -> Memory:
        """Bytes of a rank, predicted before launch. options: slots, gradient_slots, by_reference,
        thread_count, replicas, backup. Since 0.1."""
        given = filled(c.mxs_memory_options, options, 'Plan.memory()')
        return self._query(lib.mxs_plan_memory, c.mxs_memory, int32(rank, 'rank'), ctypes.byref(given))

    def report(self) -> str:
        """The routing report: a line for each tensor, then one for each rank. Since 0.1."""
        size = ctypes.c_size_t()
        self._call(lib.mxs_plan_report, None, 0, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(lib.mxs_plan_report, buffer, size.value, ctypes.byref(size))
        return text(buffer.value)

    def moves(self, target: Plan, ranks: Sequence[int] | None = None) -> list[PlanMove]:
        """What must go where when `target` takes this plan's place, by tensor and offset.

        ranks: by rank of target, its number here, as Comm.origins tells after a shrink; -1: it is new. source_rank is
        then a rank of target, -1 where the owner isn't among them. None: equal numbers (mxs_plan_moves). Since 0.1.
        """
        if not isinstance(target, Plan):
            raise TypeError(f'target is {target!r}, not a Plan')
        with target._lent() as pointer:
            if ranks is None:
                return self._listed(lib.mxs_plan_moves, c.mxs_plan_move, pointer)
            if len(ranks) != target.rank_count:
                raise ValueError(f'ranks has {len(ranks)} numbers, but target is of {target.rank_count} ranks')
            numbers = (ctypes.c_int32 * len(ranks))(*(int32(rank, 'ranks') for rank in ranks))
            return self._listed(lib.mxs_plan_moves_from, c.mxs_plan_move, pointer, numbers)

    def __repr__(self) -> str:
        if self.closed:
            return '<Plan: closed>'
        return (f'<Plan: {self.tensor_count} tensors in {self.unit_count} units on {self.rank_count} ranks, '
                f'{self.fingerprint:#018x}>')
