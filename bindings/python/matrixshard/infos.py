# SPDX-License-Identifier: Apache-2.0
"""What the library tells, as immutable named tuples: a class for each struct that it writes, fields as there.
Remarks are the headers'; where they say UINT64_MAX, here it is None. Written by generate.py from include/matrixshard;
don't edit.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .enums import (ArrayKind, CollectiveKind, Dtype, EventKind, Gather, GradientsState, Preset, Progress, Role,
        Rule, WeightsState)
    from .views import View

__all__ = ['CheckpointArray', 'CheckpointInfo', 'CollectiveInfo', 'CommInfo', 'CudaDevice', 'CudaInfo', 'GroupValues',
    'KernelInfo', 'LayoutMove', 'LinkInfo', 'Matrix', 'Memory', 'NodeInfo', 'Objective', 'Placement', 'PlanMove',
    'RailInfo', 'RankInfo', 'RankLoad', 'Recovery', 'SaveInfo', 'Segment', 'Simulation', 'Speeds', 'StateInfo',
    'StatePart', 'StepResult', 'StepperInfo', 'TensorInfo', 'TraceEvent', 'TraceRank', 'UnitInfo', 'UnitLoad',
    'Verdict']


class RankInfo(NamedTuple):
    """mxs_rank_info. Since 0.1."""
    # counted from 0 in the order of each node's lowest rank
    node: int
    # counted from 0 on its node, in rank order
    local_rank: int
    local_rank_count: int
    # of its cores, counted from 0 on its node; -1: not known, or several
    numa: int
    # the NIC nearest to it, counted from 0 on its node
    rail: int


class NodeInfo(NamedTuple):
    """mxs_node_info. Since 0.1."""
    rank_count: int
    # at least 1
    rail_count: int
    # at least 1
    numa_count: int


class RailInfo(NamedTuple):
    """mxs_rail_info. Since 0.1."""
    # -1: near to none, or not known
    numa: int
    # "mlx5_0", "eth0"; "" if the topology is made up. Lives as long as the topology
    name: str
    # in each direction; the network's if it doesn't tell its own
    bytes_per_second: int


class LinkInfo(NamedTuple):
    """mxs_link_info. Since 0.1."""
    # 1: by memory; 0: by the network
    same_node: bool
    latency_ns: int
    overhead_ns: int
    # in each direction; of the slower rail of the two
    bytes_per_second: int


class Speeds(NamedTuple):
    """mxs_speeds. Since 0.1."""
    # between ranks of a node
    local_latency_ns: int
    local_overhead_ns: int
    # between nodes
    network_latency_ns: int
    network_overhead_ns: int
    # of one rank's copying
    local_bytes_per_second: int
    # of one rail in each direction
    network_bytes_per_second: int
    # of gradients that one rank adds to a sum
    add_bytes_per_second: int
    factors: dict[str, int]


class TensorInfo(NamedTuple):
    """mxs_tensor_info. Since 0.1."""
    role: Role
    rule: Rule
    unit: int
    group: int
    # index of the tensor whose bytes it shares, else -1
    tied_to: int
    # its first one
    placement_index: int
    placement_count: int
    # owned by the plan
    name: str
    # why this rule and role, a sentence; owned by the plan
    reason: str


class Placement(NamedTuple):
    """mxs_placement. Since 0.1."""
    tensor: int
    # counted from 0 within the tensor
    block: int
    # rank
    owner: int
    unit: int
    # of the piece; flat shares have one dimension
    shape: tuple[int, ...]
    # within the tensor
    element_offset: int
    element_count: int
    # bytes within the unit's weight layout
    weight_offset: int
    # bytes within the unit's gradient layout; UINT64_MAX if frozen
    gradient_offset: int | None
    # its first one, see mxs_plan_matrix
    matrix_index: int
    # 0: it is no matrix (tail, flat)
    matrix_count: int
    # which of the ranks that share the matrix, counted from 0
    co_owner: int
    # 1: the owner has it alone
    co_owner_count: int


class Matrix(NamedTuple):
    """mxs_matrix. Since 0.1."""
    tensor: int
    # counted from 0 within the tensor, row and column blocks alike
    block: int
    # rank
    owner: int
    # that it lies in
    placement: int
    # of its first element, within the tensor
    element_offset: int
    # as stored, on this rank
    rows: int
    columns: int
    # elements from one row to the next; columns, unless it is a column block
    row_stride: int
    # (out, in) of the whole matrix, which scaling by shape uses: all co-owners' rows, whole_rows of tensor
    # parallelism, transposed
    scale_rows: int
    scale_columns: int


class RankLoad(NamedTuple):
    """mxs_rank_load. Since 0.1."""
    matrix_count: int
    # weights, masters, gradient sums and state together
    owned_bytes: int
    # of its optimizer step, by the rule's cost model
    step_flops: float
    # the most it sends out of one unit's gather, as one copy
    weight_bytes_max: int
    # of its optimizer step, by the rates of mxs_plan_options
    step_ns: int


class UnitLoad(NamedTuple):
    """mxs_unit_load. Since 0.1."""
    # ranks that have bytes of it
    owner_count: int
    # of its weights
    segment_count: int
    # gaps not counted
    weight_bytes: int
    gradient_bytes: int
    # the most that one rank owns of the weights
    rank_bytes_max: int
    # no placement has less
    rank_bytes_bound: int
    # the most that the ranks of a node own together, over its NICs. 0: one node
    nic_bytes_max: int
    nic_bytes_bound: int
    # of a gather: into other nodes than the owner's, once into each
    network_bytes: int
    # by the topology's speeds; no algorithm is faster
    gather_bound_ns: int
    # -1: none has any
    rank_of_most_bytes: int
    node_of_most_bytes: int


class Objective(NamedTuple):
    """mxs_objective. Since 0.1."""
    # that is worst; of the NIC: the node
    rank: int
    # that is worst; -1 where units don't matter
    unit: int
    worst: int
    # no placement of these tensors, fixed owners and flat shares has less
    bound: int


class PlanMove(NamedTuple):
    """mxs_plan_move. Since 0.1."""
    # of the target plan
    tensor: int
    source_rank: int
    target_rank: int
    # of the source plan
    source_placement: int
    # of the target plan
    target_placement: int
    # within the tensor
    element_offset: int
    element_count: int
    # in dtype; masters and state of the same elements go the same way
    bytes: int


class Memory(NamedTuple):
    """mxs_memory. Since 0.1."""
    # owned segments, in dtype
    weights: int
    # where master_dtype differs
    masters: int
    # the owner's fp32 sums
    gradients: int
    # of the optimizer
    state: int
    # from rounding segments and pools up to pages
    slack: int
    # the five above
    rest: int
    # gathered weights of others, while units are whole
    slots: int
    # open gradients
    gradient_slots: int
    # of the optimizer's step
    workspace: int
    # rest + the three above + own_slots + backup: pools stay mapped
    peak: int
    # as slots, of units with mxs_unit_options.own_slot: each unit's alone
    own_slots: int
    # of mxs_optimizer_options.backup: two copies of what this rank owns and two of what it keeps for another; in peak
    # and not in rest
    backup: int


class Segment(NamedTuple):
    """mxs_segment. Since 0.1."""
    # rank
    owner: int
    # bytes from the start of the buffer
    offset: int
    # may be 0
    bytes: int


class LayoutMove(NamedTuple):
    """mxs_layout_move. Since 0.1."""
    source_rank: int
    target_rank: int
    # bytes within the source rank's segments, packed
    source_offset: int
    # bytes within the target rank's segments, packed
    target_offset: int
    bytes: int


class CommInfo(NamedTuple):
    """mxs_comm_info. Since 0.1."""
    rank: int
    rank_count: int
    node: int
    node_count: int
    local_rank: int
    local_rank_count: int
    thread_count: int
    timeout_ns: int
    # "shm", "shm ucx", "none" for one rank, ...; owned by the comm
    transports: str
    # "torchrun", "slurm", "openmpi" or "callbacks"; static
    bootstrap: str
    # MXS_PROGRESS_MANUAL or MXS_PROGRESS_THREAD
    progress: Progress
    # index of the GPU; None: CUDA memory has not been used yet
    device: int | None
    # how CUDA memory goes: "nccl 2.30.4", "nccl 2.30.4 in nodes, ucx between", "staged over shm"; "" before CUDA
    # memory is used; owned by the comm
    cuda: str


class CollectiveInfo(NamedTuple):
    """mxs_collective_info. Since 0.1."""
    kind: CollectiveKind
    # static
    algorithm: str
    # owned by the comm
    transports: str
    # that this rank sends in one start
    bytes_out: int
    bytes_in: int
    # sent and received by this rank
    message_count: int
    chunk_bytes: int
    # taken at create
    scratch_bytes: int
    # that any algorithm must bring in here: the bound
    bytes_in_least: int
    # by the cost model, on the comm's topology; 0: not predicted (mapped memory)
    predicted_ns: int
    # no algorithm can be faster on a network with these speeds
    bound_ns: int
    # "shm 1, ucx 6": peers that this rank talks to, by transport; "memory 3": mapped
    routes: str
    # what was weighed, the chosen one first: "chain 703 us; circulant 790, spread 850, flat 4900; bound 671"
    reason: str
    # messages in flight per peer
    window: int


class Simulation(NamedTuple):
    """mxs_simulation. Since 0.1."""
    # messages in flight per peer
    window: int
    # static
    algorithm: str
    # simulated, until the last rank is done
    time_ns: int
    # no algorithm can be faster
    bound_ns: int
    # by the cost model, which chooses
    predicted_ns: int
    # of all ranks
    message_count: int
    # over the busiest rail, in one direction
    rail_bytes_max: int
    chunk_bytes: int
    # that is done last
    last_rank: int


class UnitInfo(NamedTuple):
    """mxs_unit_info. Since 0.1."""
    unit: int
    # MXS_SHARDED ... MXS_PINNED
    weights_state: WeightsState
    # MXS_EMPTY ... MXS_REDUCING
    gradients_state: GradientsState
    # gathers without their release
    holders: int
    # MXS_GATHER_BY_COPY or MXS_GATHER_BY_REFERENCE
    gather: Gather
    generation: int
    # of the range
    address: int | None
    # of the range
    bytes: int
    gather_algorithm: str
    reduce_algorithm: str
    # "4 KiB" or "2 MiB"; CUDA memory: "mapped" or "copied"
    pages: str


class GroupValues(NamedTuple):
    """mxs_group_values. Since 0.1."""
    lr: float
    # by the rule's kind; decoupled: weights *= 1 - lr * weight_decay, before the update
    weight_decay: float
    # muon
    momentum: float
    beta1: float
    # adamw, soap: averages. shampoo: filtered gradient, and factors (beta2 may be 1: sums)
    beta2: float
    # adamw: added after bias correction; soap: before; shampoo: of the roots. At 0 adamw and soap divide by 0 where a
    # gradient's square is 0 in fp32: the weight is then NaN
    epsilon: float


class StatePart(NamedTuple):
    """mxs_state_part. Since 0.1."""
    dtype: Dtype
    # "momentum", "exp_avg", "exp_avg_sq", "second_momentum" (NorMuon), "factor_left", "factor_right", "basis_left",
    # "basis_right", "root_left", "root_right", "graft_sq", "failures" (of decompositions: in a row, and in all); of
    # block b of several ".b" follows; owned by the stepper
    name: str
    # from the state's first byte
    offset: int
    bytes: int
    # count first if there are several matrices; dense
    shape: tuple[int, ...]


class StepResult(NamedTuple):
    """mxs_step_result. Since 0.1."""
    # 1: some gradient was not finite, or too large for its momentum (a norm above 2^100) or its square (2^63) to be;
    # nothing changed but skipped_count
    skipped: bool
    # of the state, after this call
    step_number: int
    # steps skipped so far
    skipped_count: int
    # decompositions that failed so far, while an old one was kept
    failed_count: int
    # scaled, not clipped. Infinity if an element is not finite
    gradient_norm: float


class StepperInfo(NamedTuple):
    """mxs_stepper_info. Since 0.1."""
    rule: Rule
    preset: Preset
    thread_count: int
    # of products, such as "tiles amx_bf16 standard"; owned by the stepper
    backend: str
    # of element passes, such as "x86-64-v4"
    passes: str
    # MXS_BF16 or MXS_F32
    product_dtype: Dtype
    # of one step of all matrices, refreshes spread over their interval
    flops: float


class Verdict(NamedTuple):
    """mxs_verdict. Since 0.1."""
    # 1: some gradient was not finite, or the norm is above 2^63; nothing changed
    skipped: bool
    # after this step; steps that were skipped don't count
    step_number: int
    # of all scaled gradients; infinite or NaN if skipped
    norm: float
    # min(1, clip_norm / (norm + 1e-6)), as torch; 1 if not asked for
    clip_factor: float
    # lowest rank that saw one that is not finite, else -1
    found_inf_rank: int


class StateInfo(NamedTuple):
    """mxs_state_info. Since 0.1."""
    tensor: int
    placement: int
    # "momentum", "exp_avg", "factor_left", ...: see mxs_state_part; owned by the optimizer
    name: str
    # writable between steps. Of the placement's shape, or of the part's: factors are square
    view: View


class KernelInfo(NamedTuple):
    """mxs_kernel_info. Since 0.1."""
    rule: Rule
    # of products: "reference", "onednn brg:avx512_core_bf16", ...; of column blocks all that differ, with commas; of
    # adamw its element passes; owned by the optimizer
    backend: str
    # of products, of one step; refreshes of shampoo and soap spread over their interval
    flops: float
    # MXS_BF16 or MXS_F32
    product_dtype: Dtype
    # decompositions of shampoo and soap that failed so far, while an old one was kept
    failed_count: int


class SaveInfo(NamedTuple):
    """mxs_save_info. Since 0.1."""
    # 1: mxs_save_wait returns at once
    finished: bool
    # written by this rank
    done_bytes: int
    total_bytes: int
    # of memory that the save has taken for its time
    snapshot_bytes: int
    # of the checkpoint when it is whole; owned by the save
    path: str


class CheckpointInfo(NamedTuple):
    """mxs_checkpoint_info. Since 0.1."""
    # 0: a safetensors model of others
    has_manifest: bool
    # of the world that saved it; 0 without a manifest
    rank_count: int
    # of group values; 0: no step was done before it
    group_count: int
    # 1: saved with options.masters
    masters: bool
    # 1: saved with an optimizer, and not weights_only
    has_state: bool
    step_number: int
    file_count: int
    array_count: int
    # of all arrays
    bytes: int
    # what was opened, such as ".../step-00000500"; owned by the checkpoint
    path: str
    # of the library that saved it; "" without a manifest
    version: str


class CheckpointArray(NamedTuple):
    """mxs_checkpoint_array. Since 0.1."""
    kind: ArrayKind
    # 0: none of ours, see dtype_word
    dtype: Dtype | None
    shape: tuple[int, ...]
    bytes: int
    # of its first byte
    file_offset: int
    name: str
    # "BF16"
    dtype_word: str
    # relative to the checkpoint
    file: str
    # of a master and of state: whose; else the name
    tensor: str
    # of state: "momentum"; else ""
    part: str
    # ranks that wrote it; 0 without a manifest
    piece_count: int


class CudaInfo(NamedTuple):
    """mxs_cuda_info. Since 0.1."""
    device_count: int
    # 13000 is 13.0
    driver_version: int
    # 23004 is 2.30.4; 0: none that can be used, and `nccl` says why
    nccl_version: int
    # "NCCL 2.30.4", or why there is none; the library's
    nccl: str


class CudaDevice(NamedTuple):
    """mxs_cuda_device. Since 0.1."""
    index: int
    # "NVIDIA H200"; the library's
    name: str
    # "0000:3b:00.0"; the library's
    pci_address: str
    # compute capability
    major: int
    minor: int
    multiprocessors: int
    # by hwloc; -1: not known
    numa_node: int
    total_bytes: int
    free_bytes: int
    # of mapped memory; 0: this device maps none, and units are "copied" (unit.h)
    granule_bytes: int
    # the NIC that is nearest to it by hwloc; "": not known; the library's
    nic: str


class Recovery(NamedTuple):
    """mxs_recovery. Since 0.1."""
    # ranks of the failed comm that are not in the new one
    lost_count: int
    # that all ranks have now
    step_number: int
    # that some rank had done: step_number or one more
    newest_step: int
    # that came to this rank from others
    bytes_in: int
    # of lost ranks, from their keepers, on all ranks together
    bytes_restored: int


class TraceEvent(NamedTuple):
    """mxs_trace_event. Since 0.1."""
    rank: int
    # MXS_EVENT_...
    kind: EventKind
    # that is waited for; -1: none, or several
    peer: int
    # -1: none
    unit: int
    # MXS_PHASE_... of comm.h
    phase: int
    # of the operation or agreement, the same on all ranks; of a step its number; of the marks split and shrink the
    # new comm's; 0: none
    sequence: int
    # on rank 0's clock as far as it could be compared; of nodes, within a message's time
    begin_ns: int
    # UINT64_MAX: not over when the ring was opened
    end_ns: int | None
    bytes_out: int
    bytes_in: int
    # "gather", "barrier", ...; owned by the trace
    name: str
    # "chain", "fanout", ...; "" where there is none; owned by the trace
    algorithm: str


class TraceRank(NamedTuple):
    """mxs_trace_rank. Since 0.1."""
    rank: int
    # its id on its host
    process: int
    # 1: it runs; 0: it has ended; -1: on another host, or not to be told
    alive: bool | None
    # 1: the comm was destroyed in good order
    finished: bool
    # that are in the ring
    event_count: int
    # older ones, overwritten
    lost_count: int
    # sequence of the latest that it started; 0: none
    last_operation: int
    # all up to this one are complete here
    last_complete: int
    # owned by the trace
    host: str
    # why the comm failed, as this rank saw it; "": it didn't; owned by the trace
    failure: str
