# SPDX-License-Identifier: Apache-2.0
"""The C interface as ctypes sees it. Written by generate.py from include/matrixshard; don't edit.

A struct is made with what its INIT macro sets. Handles are c_void_p; in calls pointers to scalars are c_void_p too,
which takes byref(x), arrays and addresses.
"""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p, sizeof)


class Struct(Structure):
    """A public struct: made with its INIT values, then those given by name."""
    _initial_: tuple = ()
    _nested_: tuple = ()
    _names_: frozenset = frozenset()
    _kinds_: dict = {}  # of fields that hold a named constant: the C type's name

    def __init__(self, **values):
        super().__init__()
        if self._fields_[0][0] == 'size':
            self.size = sizeof(type(self))
        for name, value in self._initial_:
            setattr(self, name, value)
        for name in self._nested_:
            getattr(self, name).__init__()
        for name, value in values.items():
            if name not in self._names_:
                raise TypeError(f'{type(self).__name__} has no field {name}')
            setattr(self, name, value)


MXS_VERSION_MAJOR = 0
MXS_VERSION_MINOR = 1
MXS_VERSION_PATCH = 0
MXS_VERSION = 1000
MXS_OK = 0
MXS_IN_PROGRESS = 1
MXS_INVALID_ARGUMENT = -1
MXS_OUT_OF_MEMORY = -2
MXS_OVER_BUDGET = -3
MXS_NOT_GATHERED = -4
MXS_NOT_OPEN = -5
MXS_HELD = -6
MXS_STALE_VIEW = -7
MXS_NOT_BUILT = -8
MXS_NOT_FOUND = -9
MXS_MISMATCH = -10
MXS_ENVIRONMENT = -11
MXS_TIMED_OUT = -12
MXS_PEER_FAILED = -13
MXS_TRANSPORT_FAILED = -14
MXS_ABORTED = -15
MXS_SYSTEM = -16
MXS_FORKED = -17
MXS_INTERNAL = -18
MXS_DAMAGED = -19
MXS_CANCELLED = -20
MXS_NO_DEVICE = -21
MXS_DEVICE_FAILED = -22
MXS_LOG_WARNING = 1
MXS_LOG_INFO = 2
MXS_LOG_DEBUG = 3
MXS_F32 = 1
MXS_BF16 = 2
MXS_F16 = 3
MXS_F64 = 4
MXS_U8 = 5
MXS_HOST = 0
MXS_CUDA = 1
MXS_RULE_AUTO = 0
MXS_RULE_MUON = 1
MXS_RULE_ADAMW = 2
MXS_RULE_EXTERNAL = 3
MXS_RULE_FROZEN = 4
MXS_RULE_SHAMPOO = 5
MXS_RULE_SOAP = 6
MXS_DIMENSIONS_MAX = 8
MXS_DLPACK_VERSIONED = 1
MXS_DLPACK_READ_ONLY = 2
MXS_ROLE_AUTO = 0
MXS_ROLE_MATRIX = 1
MXS_ROLE_BLOCKS = 2
MXS_ROLE_TAIL = 3
MXS_ROLE_FLAT = 4
MXS_ROLE_TIED = 5
MXS_OBJECTIVE_BYTES = 0
MXS_OBJECTIVE_STEP = 1
MXS_OBJECTIVE_EGRESS = 2
MXS_OBJECTIVE_NIC = 3
MXS_WEIGHTS = 0
MXS_GRADIENTS = 1
MXS_PROGRESS_CHOSEN = 0
MXS_PROGRESS_MANUAL = 1
MXS_PROGRESS_THREAD = 2
MXS_GATHER = 0
MXS_REDUCE = 1
MXS_RESHARD = 2
MXS_AGREE = 3
MXS_COLLECTIVE_COUNT = 4
MXS_PHASE_OTHER = 0
MXS_PHASE_FORWARD = 1
MXS_PHASE_BACKWARD = 2
MXS_PHASE_STEP = 3
MXS_PHASE_COUNT = 4
MXS_NO_COLOR = -1
MXS_RANK_ORDER = 1
MXS_ACCUMULATE = 2
MXS_MAPPED_MEMORY = 4
MXS_GATHER_AUTO = 0
MXS_GATHER_BY_COPY = 1
MXS_GATHER_BY_REFERENCE = 2
MXS_FREE = 0
MXS_PIN = 1
MXS_AUTO = 2
MXS_WRITE = 0
MXS_ADD = 1
MXS_SHARDED = 0
MXS_GATHERING = 1
MXS_WHOLE = 2
MXS_PINNED = 3
MXS_EMPTY = 0
MXS_OPEN = 1
MXS_REDUCING = 2
MXS_PRESET_DEFAULT = 0
MXS_PRESET_TORCH_MUON = 1
MXS_PRESET_TORCH_MUON_RMS = 2
MXS_PRESET_KELLER_JORDAN = 3
MXS_PRESET_MOONLIGHT = 4
MXS_PRESET_NVIDIA = 5
MXS_PRESET_DION = 6
MXS_PRESET_NORMUON = 7
MXS_PRESET_SHAMPOO = 8
MXS_PRESET_SOAP = 9
MXS_PRESET_TORCH_ADAMW = 10
MXS_BACKEND_AUTO = 0
MXS_BACKEND_REFERENCE = 1
MXS_BACKEND_ONEDNN = 2
MXS_BACKEND_OPENBLAS = 3
MXS_BACKEND_TILES = 4
MXS_BACKEND_CUBLAS = 5
MXS_TABLE_PRESET = 0
MXS_TABLE_JORDAN = 1
MXS_TABLE_YOU = 2
MXS_TABLE_POLAR_EXPRESS = 3
MXS_TABLE_DEEPSEEK_V4 = 4
MXS_TABLE_POLAR_CUSHION = 5
MXS_TABLE_CUSTOM = 6
MXS_ALGORITHM_AUTO = 0
MXS_ALGORITHM_STANDARD = 1
MXS_ALGORITHM_GRAM = 2
MXS_EPSILON_PRESET = 0
MXS_EPSILON_MAX = 1
MXS_EPSILON_ADD = 2
MXS_SWITCH_PRESET = 0
MXS_ON = 1
MXS_OFF = 2
MXS_DECAY_PRESET = 0
MXS_DECAY_DECOUPLED = 1
MXS_DECAY_INDEPENDENT = 2
MXS_DECAY_L2 = 3
MXS_DECAY_PALM = 4
MXS_DECAY_CAUTIOUS = 5
MXS_MOMENTUM_PRESET = 0
MXS_MOMENTUM_EMA = 1
MXS_MOMENTUM_SGD = 2
MXS_SCALE_PRESET = 0
MXS_SCALE_NONE = 1
MXS_SCALE_SHAPE = 2
MXS_SCALE_MAX = 3
MXS_SCALE_RATIO = 4
MXS_SCALE_RMS = 5
MXS_ROUND_NEAREST = 0
MXS_ROUND_STOCHASTIC = 1
MXS_GRAFTING_PRESET = 0
MXS_GRAFTING_NONE = 1
MXS_GRAFTING_ADAM = 2
MXS_GRAFTING_SGD = 3
MXS_WEIGHTS_DEFAULT = 0
MXS_WEIGHTS_ALONE = 1
MXS_WEIGHTS_MASTER = 2
MXS_WEIGHTS_REMAINDER = 3
MXS_NORM_WORDS = 40
MXS_MISSING_ZERO = 0
MXS_MISSING_ERROR = 1
MXS_ARRAY_WEIGHTS = 1
MXS_ARRAY_MASTER = 2
MXS_ARRAY_STATE = 3
MXS_ARRAY_EXTRA = 4
MXS_LOAD_WEIGHTS_ONLY = 1
MXS_LOAD_OTHER_DTYPES = 2
MXS_LOAD_OTHER_OPTIMIZER = 4
MXS_LOAD_ALLOW_MISSING = 8
MXS_LOAD_ALLOW_EXTRA = 16
MXS_LOAD_UNVERIFIED = 32
MXS_LOAD_TOLD_MISSING = 1
MXS_LOAD_TOLD_EXTRA = 2
MXS_LOAD_TOLD_CONVERTED = 3
MXS_LOAD_TOLD_NEW_STATE = 4
MXS_EVENT_OPERATION = 0
MXS_EVENT_WAIT = 1
MXS_EVENT_AGREEMENT = 2
MXS_EVENT_STEP = 3
MXS_EVENT_FAILURE = 4
MXS_EVENT_MARK = 5

mxs_log_function = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
mxs_progress_function = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)


class mxs_view(Struct):
    _fields_ = [('size', c_uint32), ('dtype', c_int32), ('memory', c_int32), ('dimension_count', c_int32),
        ('data', c_void_p), ('bytes', c_uint64), ('shape', c_int64 * 8), ('strides', c_int64 * 8),
        ('generation', c_uint64), ('unit', c_int32), ('tensor', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'dtype': 'mxs_dtype', 'memory': 'mxs_memory_kind'}


class mxs_call(Struct):
    _fields_ = [('size', c_uint32), ('priority', c_int32), ('stream', c_void_p), ('timeout_ns', c_uint64),
        ('request_out', POINTER(c_uint64))]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_rank_info(Struct):
    _fields_ = [('size', c_uint32), ('node', c_int32), ('local_rank', c_int32), ('local_rank_count', c_int32),
        ('numa', c_int32), ('rail', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_node_info(Struct):
    _fields_ = [('size', c_uint32), ('rank_count', c_int32), ('rail_count', c_int32), ('numa_count', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_rail_info(Struct):
    _fields_ = [('size', c_uint32), ('numa', c_int32), ('name', c_char_p), ('bytes_per_second', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_link_info(Struct):
    _fields_ = [('size', c_uint32), ('same_node', c_int32), ('latency_ns', c_uint32), ('overhead_ns', c_uint32),
        ('bytes_per_second', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_algorithm_factor(Struct):
    _fields_ = [('size', c_uint32), ('per_mille', c_uint32), ('algorithm', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)
    _initial_ = (('per_mille', 1000),)


class mxs_speeds(Struct):
    _fields_ = [('size', c_uint32), ('local_latency_ns', c_uint32), ('local_overhead_ns', c_uint32),
        ('network_latency_ns', c_uint32), ('network_overhead_ns', c_uint32), ('factor_count', c_uint32),
        ('local_bytes_per_second', c_uint64), ('network_bytes_per_second', c_uint64),
        ('add_bytes_per_second', c_uint64), ('factors', POINTER(mxs_algorithm_factor))]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_tensor(Struct):
    _fields_ = [('size', c_uint32), ('dtype', c_int32), ('master_dtype', c_int32), ('gradient_dtype', c_int32),
        ('name', c_char_p), ('dimension_count', c_int32), ('unit', c_int32), ('shape', c_int64 * 8),
        ('rule', c_int32), ('group', c_int32), ('role', c_int32), ('fixed_owner', c_int32),
        ('block_rows', POINTER(c_int64)), ('block_count', c_int32), ('co_owners', c_int32), ('tied_to', c_char_p),
        ('block_columns', POINTER(c_int64)), ('block_column_count', c_int32), ('transposed', c_int32),
        ('whole_rows', c_int64), ('whole_columns', c_int64)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'dtype': 'mxs_dtype', 'master_dtype': 'mxs_dtype', 'gradient_dtype': 'mxs_dtype', 'rule': 'mxs_rule',
        'role': 'mxs_role'}


class mxs_plan_options(Struct):
    _fields_ = [('size', c_uint32), ('unit_count', c_int32), ('alignment', c_uint64), ('flat_bytes', c_uint64),
        ('rank_bytes_max', c_uint64), ('matrix_flops_per_second', c_uint64), ('memory_bytes_per_second', c_uint64),
        ('step_weight', c_uint32), ('bytes_weight', c_uint32), ('egress_weight', c_uint32),
        ('co_owners_max', c_int32), ('search_moves_max', c_uint64), ('previous', c_void_p),
        ('previous_ranks', POINTER(c_int32))]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_tensor_info(Struct):
    _fields_ = [('size', c_uint32), ('role', c_int32), ('rule', c_int32), ('unit', c_int32), ('group', c_int32),
        ('tied_to', c_int32), ('placement_index', c_uint64), ('placement_count', c_uint64), ('name', c_char_p),
        ('reason', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'role': 'mxs_role', 'rule': 'mxs_rule'}


class mxs_placement(Struct):
    _fields_ = [('size', c_uint32), ('tensor', c_int32), ('block', c_int32), ('owner', c_int32), ('unit', c_int32),
        ('dimension_count', c_int32), ('shape', c_int64 * 8), ('element_offset', c_uint64),
        ('element_count', c_uint64), ('weight_offset', c_uint64), ('gradient_offset', c_uint64),
        ('matrix_index', c_uint64), ('matrix_count', c_uint64), ('co_owner', c_int32), ('co_owner_count', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_matrix(Struct):
    _fields_ = [('size', c_uint32), ('tensor', c_int32), ('block', c_int32), ('owner', c_int32),
        ('placement', c_uint64), ('element_offset', c_uint64), ('rows', c_int64), ('columns', c_int64),
        ('row_stride', c_int64), ('scale_rows', c_int64), ('scale_columns', c_int64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_rank_load(Struct):
    _fields_ = [('size', c_uint32), ('matrix_count', c_int32), ('owned_bytes', c_uint64), ('step_flops', c_double),
        ('weight_bytes_max', c_uint64), ('step_ns', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_unit_load(Struct):
    _fields_ = [('size', c_uint32), ('owner_count', c_int32), ('segment_count', c_uint64), ('weight_bytes', c_uint64),
        ('gradient_bytes', c_uint64), ('rank_bytes_max', c_uint64), ('rank_bytes_bound', c_uint64),
        ('nic_bytes_max', c_uint64), ('nic_bytes_bound', c_uint64), ('network_bytes', c_uint64),
        ('gather_bound_ns', c_uint64), ('rank_of_most_bytes', c_int32), ('node_of_most_bytes', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_objective(Struct):
    _fields_ = [('size', c_uint32), ('rank', c_int32), ('unit', c_int32), ('reserved', c_int32), ('worst', c_uint64),
        ('bound', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_plan_move(Struct):
    _fields_ = [('size', c_uint32), ('tensor', c_int32), ('source_rank', c_int32), ('target_rank', c_int32),
        ('source_placement', c_uint64), ('target_placement', c_uint64), ('element_offset', c_uint64),
        ('element_count', c_uint64), ('bytes', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_memory_options(Struct):
    _fields_ = [('size', c_uint32), ('slots', c_int32), ('gradient_slots', c_int32), ('by_reference', c_int32),
        ('thread_count', c_int32), ('replicas', c_int32), ('own_slot_units', POINTER(c_int32)),
        ('own_slot_unit_count', c_int32), ('backup', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_memory(Struct):
    _fields_ = [('size', c_uint32), ('reserved', c_uint32), ('weights', c_uint64), ('masters', c_uint64),
        ('gradients', c_uint64), ('state', c_uint64), ('slack', c_uint64), ('rest', c_uint64), ('slots', c_uint64),
        ('gradient_slots', c_uint64), ('workspace', c_uint64), ('peak', c_uint64), ('own_slots', c_uint64),
        ('backup', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_model_rule(Struct):
    _fields_ = [('size', c_uint32), ('rule', c_int32), ('pattern', c_char_p), ('group', c_int32),
        ('reserved', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'rule': 'mxs_rule'}


class mxs_model_options(Struct):
    _fields_ = [('size', c_uint32), ('dtype', c_int32), ('master_dtype', c_int32), ('gradient_dtype', c_int32),
        ('rules', POINTER(mxs_model_rule)), ('rule_count', c_uint64), ('matrix_rule', c_int32), ('reserved', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'dtype': 'mxs_dtype', 'master_dtype': 'mxs_dtype', 'gradient_dtype': 'mxs_dtype',
        'matrix_rule': 'mxs_rule'}


class mxs_segment(Struct):
    _fields_ = [('size', c_uint32), ('owner', c_int32), ('offset', c_uint64), ('bytes', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_layout_move(Struct):
    _fields_ = [('size', c_uint32), ('source_rank', c_int32), ('target_rank', c_int32), ('reserved', c_int32),
        ('source_offset', c_uint64), ('target_offset', c_uint64), ('bytes', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_bootstrap(Struct):
    _fields_ = [('size', c_uint32), ('rank', c_int32), ('rank_count', c_int32), ('local_rank_hint', c_int32),
        ('context', c_void_p),
        ('all_gather', CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t, POINTER(c_void_p))),
        ('test', CFUNCTYPE(c_int, c_void_p, c_void_p)), ('free_request', CFUNCTYPE(c_int, c_void_p, c_void_p))]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_comm_options(Struct):
    _fields_ = [('size', c_uint32), ('thread_count', c_int32), ('bootstrap', POINTER(mxs_bootstrap)),
        ('transport', c_char_p), ('timeout_ns', c_uint64), ('progress', c_int32), ('device', c_int32),
        ('nccl_comm', c_void_p), ('secret', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_comm_info(Struct):
    _fields_ = [('size', c_uint32), ('rank', c_int32), ('rank_count', c_int32), ('node', c_int32),
        ('node_count', c_int32), ('local_rank', c_int32), ('local_rank_count', c_int32), ('thread_count', c_int32),
        ('timeout_ns', c_uint64), ('transports', c_char_p), ('bootstrap', c_char_p), ('progress', c_int32),
        ('device', c_int32), ('cuda', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_counter(Struct):
    _fields_ = [('calls', c_uint64), ('bytes_out', c_uint64), ('bytes_in', c_uint64), ('wait_ns', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_comm_stats(Struct):
    _fields_ = [('size', c_uint32), ('reserved', c_uint32), ('counters', (mxs_counter * 4) * 4),
        ('slot_remaps', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_collective_options(Struct):
    _fields_ = [('size', c_uint32), ('kind', c_int32), ('layout', c_void_p), ('target_layout', c_void_p),
        ('dtype', c_int32), ('flags', c_int32), ('algorithm', c_char_p), ('chunk_bytes', c_uint64),
        ('window', c_int32), ('memory', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'dtype': 'mxs_dtype', 'memory': 'mxs_memory_kind'}


class mxs_collective_info(Struct):
    _fields_ = [('size', c_uint32), ('kind', c_int32), ('algorithm', c_char_p), ('transports', c_char_p),
        ('bytes_out', c_uint64), ('bytes_in', c_uint64), ('message_count', c_uint64), ('chunk_bytes', c_uint64),
        ('scratch_bytes', c_uint64), ('bytes_in_least', c_uint64), ('predicted_ns', c_uint64), ('bound_ns', c_uint64),
        ('routes', c_char_p), ('reason', c_char_p), ('window', c_int32), ('reserved', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_simulation(Struct):
    _fields_ = [('size', c_uint32), ('window', c_int32), ('algorithm', c_char_p), ('time_ns', c_uint64),
        ('bound_ns', c_uint64), ('predicted_ns', c_uint64), ('message_count', c_uint64), ('rail_bytes_max', c_uint64),
        ('chunk_bytes', c_uint64), ('last_rank', c_int32), ('reserved', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_unit_options(Struct):
    _fields_ = [('size', c_uint32), ('gather', c_int32), ('slots', c_int32), ('gradient_slots', c_int32),
        ('flags', c_int32), ('memory', c_int32), ('algorithm', c_char_p), ('buffer', c_void_p),
        ('replicas', c_void_p), ('own_slot', c_int32), ('reserved', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'memory': 'mxs_memory_kind'}


class mxs_unit_info(Struct):
    _fields_ = [('size', c_uint32), ('unit', c_int32), ('weights_state', c_int32), ('gradients_state', c_int32),
        ('holders', c_int32), ('gather', c_int32), ('generation', c_uint64), ('address', c_void_p),
        ('bytes', c_uint64), ('gather_algorithm', c_char_p), ('reduce_algorithm', c_char_p), ('pages', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_newton_schulz(Struct):
    _fields_ = [('size', c_uint32), ('preset', c_int32), ('table', c_int32), ('step_count', c_int32),
        ('coefficients', POINTER(c_double)), ('algorithm', c_int32), ('backend', c_int32), ('thread_count', c_int32),
        ('epsilon_kind', c_int32), ('epsilon', c_double), ('safety', c_double)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'preset': 'mxs_preset', 'table': 'mxs_table', 'algorithm': 'mxs_algorithm', 'backend': 'mxs_backend',
        'epsilon_kind': 'mxs_epsilon_kind'}


class mxs_strides(Struct):
    _fields_ = [('size', c_uint32), ('reserved', c_uint32), ('row', c_int64), ('matrix', c_int64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_group_values(Struct):
    _fields_ = [('size', c_uint32), ('lr', c_float), ('weight_decay', c_float), ('momentum', c_float),
        ('beta1', c_float), ('beta2', c_float), ('epsilon', c_float), ('reserved', c_float)]
    _names_ = frozenset(field[0] for field in _fields_)
    _initial_ = (('lr', 0.001), ('weight_decay', 0.01), ('momentum', 0.95), ('beta1', 0.9), ('beta2', 0.999),
        ('epsilon', 1e-08),)


class mxs_muon_options(Struct):
    _fields_ = [('size', c_uint32), ('preset', c_int32), ('momentum', c_int32), ('nesterov', c_int32),
        ('scale', c_int32), ('scale_factor', c_float), ('decay', c_int32), ('normuon', c_int32),
        ('normuon_beta2', c_float), ('normuon_epsilon', c_float), ('newton_schulz', POINTER(mxs_newton_schulz)),
        ('thread_count', c_int32), ('backend', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'preset': 'mxs_preset', 'momentum': 'mxs_momentum_kind', 'nesterov': 'mxs_switch',
        'scale': 'mxs_scale', 'decay': 'mxs_decay', 'normuon': 'mxs_switch', 'backend': 'mxs_backend'}


class mxs_shampoo_options(Struct):
    _fields_ = [('size', c_uint32), ('preset', c_int32), ('block_max', c_int32), ('interval', c_int32),
        ('start', c_int32), ('grafting', c_int32), ('decay', c_int32), ('failures_max', c_int32),
        ('nesterov', c_int32), ('momentum', c_float), ('exponent', c_double), ('backend', c_int32),
        ('thread_count', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'preset': 'mxs_preset', 'grafting': 'mxs_grafting', 'decay': 'mxs_decay', 'nesterov': 'mxs_switch',
        'backend': 'mxs_backend'}


class mxs_soap_options(Struct):
    _fields_ = [('size', c_uint32), ('preset', c_int32), ('side_max', c_int32), ('interval', c_int32),
        ('one_sided', c_int32), ('factor_beta', c_float), ('decay', c_int32), ('failures_max', c_int32),
        ('backend', c_int32), ('thread_count', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'preset': 'mxs_preset', 'one_sided': 'mxs_switch', 'decay': 'mxs_decay', 'backend': 'mxs_backend'}


class mxs_adamw_options(Struct):
    _fields_ = [('size', c_uint32), ('preset', c_int32), ('decay', c_int32), ('epsilon_before', c_int32),
        ('thread_count', c_int32), ('reserved', c_uint32)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'preset': 'mxs_preset', 'decay': 'mxs_decay', 'epsilon_before': 'mxs_switch'}


class mxs_matrices(Struct):
    _fields_ = [('size', c_uint32), ('dtype', c_int32), ('gradient_dtype', c_int32), ('weights', c_int32),
        ('rows', c_int64), ('columns', c_int64), ('count', c_int64), ('weight_strides', mxs_strides),
        ('gradient_strides', mxs_strides), ('block_rows', POINTER(c_int64)), ('block_count', c_int32),
        ('heads', c_int32), ('transposed', c_int32), ('rounding', c_int32), ('seed', c_uint64),
        ('tensor_id', c_uint64), ('scale_rows', c_int64), ('scale_columns', c_int64)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'dtype': 'mxs_dtype', 'gradient_dtype': 'mxs_dtype', 'weights': 'mxs_weights',
        'rounding': 'mxs_rounding'}
    _nested_ = ('weight_strides', 'gradient_strides')


class mxs_state_part(Struct):
    _fields_ = [('size', c_uint32), ('dtype', c_int32), ('name', c_char_p), ('offset', c_uint64), ('bytes', c_uint64),
        ('dimension_count', c_int32), ('reserved', c_int32), ('shape', c_int64 * 8)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'dtype': 'mxs_dtype'}


class mxs_step_call(Struct):
    _fields_ = [('size', c_uint32), ('reserved', c_int32), ('values', POINTER(mxs_group_values)),
        ('gradient', c_void_p), ('weights', c_void_p), ('master', c_void_p), ('state', c_void_p),
        ('workspace', c_void_p), ('workspace_bytes', c_uint64), ('gradient_scale', c_float), ('clip_factor', c_float)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_step_result(Struct):
    _fields_ = [('size', c_uint32), ('skipped', c_int32), ('step_number', c_uint64), ('skipped_count', c_uint64),
        ('failed_count', c_uint64), ('gradient_norm', c_double)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_stepper_info(Struct):
    _fields_ = [('size', c_uint32), ('rule', c_int32), ('preset', c_int32), ('thread_count', c_int32),
        ('backend', c_char_p), ('passes', c_char_p), ('product_dtype', c_int32), ('reserved', c_int32),
        ('flops', c_double)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'rule': 'mxs_rule', 'preset': 'mxs_preset', 'product_dtype': 'mxs_dtype'}


class mxs_elements(Struct):
    _fields_ = [('size', c_uint32), ('dtype', c_int32), ('count', c_uint64), ('gradient', c_void_p),
        ('gradient_scale', c_float), ('update_scale', c_float), ('momentum', c_void_p), ('update', c_void_p),
        ('exp_avg', c_void_p), ('exp_avg_sq', c_void_p), ('master', c_void_p), ('weights', c_void_p),
        ('step_number', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'dtype': 'mxs_dtype'}


class mxs_optimizer_options(Struct):
    _fields_ = [('size', c_uint32), ('preset', c_int32), ('backend', c_int32), ('thread_count', c_int32),
        ('agree', CFUNCTYPE(c_int, c_void_p, c_void_p, c_uint64)), ('agree_context', c_void_p),
        ('muon_options', POINTER(mxs_muon_options)), ('shampoo_options', POINTER(mxs_shampoo_options)),
        ('soap_options', POINTER(mxs_soap_options)), ('adamw_options', POINTER(mxs_adamw_options)),
        ('rounding', c_int32), ('backup', c_int32), ('seed', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'preset': 'mxs_preset', 'backend': 'mxs_backend', 'rounding': 'mxs_rounding'}


class mxs_step(Struct):
    _fields_ = [('size', c_uint32), ('group_count', c_int32), ('groups', POINTER(mxs_group_values)),
        ('gradient_scale', c_float), ('clip_norm', c_float), ('missing', c_int32), ('reserved', c_int32),
        ('stream', c_void_p)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_verdict(Struct):
    _fields_ = [('size', c_uint32), ('skipped', c_int32), ('step_number', c_uint64), ('norm', c_double),
        ('clip_factor', c_float), ('found_inf_rank', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_state_info(Struct):
    _fields_ = [('size', c_uint32), ('tensor', c_int32), ('placement', c_uint64), ('name', c_char_p),
        ('view', mxs_view)]
    _names_ = frozenset(field[0] for field in _fields_)
    _nested_ = ('view',)


class mxs_kernel_info(Struct):
    _fields_ = [('size', c_uint32), ('rule', c_int32), ('backend', c_char_p), ('flops', c_double),
        ('product_dtype', c_int32), ('reserved', c_int32), ('failed_count', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'rule': 'mxs_rule', 'product_dtype': 'mxs_dtype'}


class mxs_recovery(Struct):
    _fields_ = [('size', c_uint32), ('lost_count', c_int32), ('step_number', c_uint64), ('newest_step', c_uint64),
        ('bytes_in', c_uint64), ('bytes_restored', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_extra_tensor(Struct):
    _fields_ = [('size', c_uint32), ('dimension_count', c_int32), ('name', c_char_p), ('dtype', c_char_p),
        ('data', c_void_p), ('shape', c_int64 * 8)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_checkpoint_options(Struct):
    _fields_ = [('size', c_uint32), ('masters', c_int32), ('weights_only', c_int32), ('keep', c_int32),
        ('name', c_char_p), ('files_from', c_char_p), ('user', c_void_p), ('user_bytes', c_uint64),
        ('extras', POINTER(mxs_extra_tensor)), ('extra_count', c_uint64), ('progress', mxs_progress_function),
        ('progress_context', c_void_p), ('timeout_ns', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_save_info(Struct):
    _fields_ = [('size', c_uint32), ('finished', c_int32), ('done_bytes', c_uint64), ('total_bytes', c_uint64),
        ('snapshot_bytes', c_uint64), ('path', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_checkpoint_info(Struct):
    _fields_ = [('size', c_uint32), ('has_manifest', c_int32), ('rank_count', c_int32), ('group_count', c_int32),
        ('masters', c_int32), ('has_state', c_int32), ('step_number', c_uint64), ('file_count', c_uint64),
        ('array_count', c_uint64), ('bytes', c_uint64), ('path', c_char_p), ('version', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_checkpoint_array(Struct):
    _fields_ = [('size', c_uint32), ('kind', c_int32), ('dtype', c_int32), ('dimension_count', c_int32),
        ('shape', c_int64 * 8), ('bytes', c_uint64), ('file_offset', c_uint64), ('name', c_char_p),
        ('dtype_word', c_char_p), ('file', c_char_p), ('tensor', c_char_p), ('part', c_char_p),
        ('piece_count', c_int32), ('reserved', c_int32)]
    _names_ = frozenset(field[0] for field in _fields_)
    _kinds_ = {'kind': 'mxs_array_kind', 'dtype': 'mxs_dtype'}


class mxs_verify_options(Struct):
    _fields_ = [('size', c_uint32), ('reserved', c_int32), ('fault', CFUNCTYPE(None, c_void_p, c_char_p)),
        ('fault_context', c_void_p), ('progress', mxs_progress_function), ('progress_context', c_void_p)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_load_options(Struct):
    _fields_ = [('size', c_uint32), ('flags', c_int32), ('tell', CFUNCTYPE(None, c_void_p, c_int32, c_char_p)),
        ('tell_context', c_void_p), ('progress', mxs_progress_function), ('progress_context', c_void_p),
        ('timeout_ns', c_uint64)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_cuda_info(Struct):
    _fields_ = [('size', c_uint32), ('device_count', c_int32), ('driver_version', c_int32), ('nccl_version', c_int32),
        ('nccl', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_cuda_device(Struct):
    _fields_ = [('size', c_uint32), ('index', c_int32), ('name', c_char_p), ('pci_address', c_char_p),
        ('major', c_int32), ('minor', c_int32), ('multiprocessors', c_int32), ('numa_node', c_int32),
        ('total_bytes', c_uint64), ('free_bytes', c_uint64), ('granule_bytes', c_uint64), ('nic', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_trace_event(Struct):
    _fields_ = [('size', c_uint32), ('rank', c_int32), ('kind', c_int32), ('peer', c_int32), ('unit', c_int32),
        ('phase', c_int32), ('sequence', c_uint64), ('begin_ns', c_uint64), ('end_ns', c_uint64),
        ('bytes_out', c_uint64), ('bytes_in', c_uint64), ('name', c_char_p), ('algorithm', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)


class mxs_trace_rank(Struct):
    _fields_ = [('size', c_uint32), ('rank', c_int32), ('process', c_int32), ('alive', c_int32),
        ('finished', c_int32), ('reserved', c_int32), ('event_count', c_uint64), ('lost_count', c_uint64),
        ('last_operation', c_uint64), ('last_complete', c_uint64), ('host', c_char_p), ('failure', c_char_p)]
    _names_ = frozenset(field[0] for field in _fields_)


# name: (result, parameters...)
PROTOTYPES = {
    'mxs_version': (c_uint32,),
    'mxs_version_text': (c_char_p,),
    'mxs_status_name': (c_char_p, c_int32),
    'mxs_status_text': (c_char_p, c_int32),
    'mxs_last_error': (c_char_p,),
    'mxs_set_log': (c_int32, mxs_log_function, c_void_p, c_int32),
    'mxs_dtype_bytes': (c_size_t, c_int32),
    'mxs_dtype_name': (c_char_p, c_int32),
    'mxs_rule_name': (c_char_p, c_int32),
    'mxs_view_dlpack': (c_int32, POINTER(mxs_view), c_int32, c_void_p, POINTER(c_void_p)),
    'mxs_topology_create': (c_int32, POINTER(c_void_p), c_char_p),
    'mxs_topology_load': (c_int32, POINTER(c_void_p), c_char_p),
    'mxs_topology_save': (c_int32, c_void_p, c_char_p),
    'mxs_topology_destroy': (None, POINTER(c_void_p)),
    'mxs_topology_rank_count': (c_int32, c_void_p),
    'mxs_topology_node_count': (c_int32, c_void_p),
    'mxs_topology_rank': (c_int32, c_void_p, c_int32, POINTER(mxs_rank_info)),
    'mxs_topology_node': (c_int32, c_void_p, c_int32, POINTER(mxs_node_info)),
    'mxs_topology_rail': (c_int32, c_void_p, c_int32, c_int32, POINTER(mxs_rail_info)),
    'mxs_topology_link': (c_int32, c_void_p, c_int32, c_int32, POINTER(mxs_link_info)),
    'mxs_topology_speeds': (c_int32, c_void_p, POINTER(mxs_speeds)),
    'mxs_topology_with_speeds': (c_int32, POINTER(c_void_p), c_void_p, POINTER(mxs_speeds)),
    'mxs_topology_of_ranks': (c_int32, POINTER(c_void_p), c_void_p, c_void_p, c_int32),
    'mxs_topology_save_speeds': (c_int32, c_void_p, c_char_p),
    'mxs_role_name': (c_char_p, c_int32),
    'mxs_plan_create': (c_int32, POINTER(c_void_p), POINTER(mxs_tensor), c_uint64, c_void_p,
        POINTER(mxs_plan_options)),
    'mxs_plan_destroy': (None, POINTER(c_void_p)),
    'mxs_plan_rank_count': (c_int32, c_void_p),
    'mxs_plan_unit_count': (c_int32, c_void_p),
    'mxs_plan_tensor_count': (c_uint64, c_void_p),
    'mxs_plan_placement_count': (c_uint64, c_void_p),
    'mxs_plan_fingerprint': (c_uint64, c_void_p),
    'mxs_plan_find': (c_int32, c_void_p, c_char_p, c_void_p),
    'mxs_plan_tensor': (c_int32, c_void_p, c_int32, POINTER(mxs_tensor_info)),
    'mxs_plan_placement': (c_int32, c_void_p, c_uint64, POINTER(mxs_placement)),
    'mxs_plan_matrix_count': (c_uint64, c_void_p),
    'mxs_plan_matrix': (c_int32, c_void_p, c_uint64, POINTER(mxs_matrix)),
    'mxs_plan_unit': (c_int32, c_void_p, c_int32, POINTER(mxs_unit_load)),
    'mxs_plan_objective': (c_int32, c_void_p, c_int32, POINTER(mxs_objective)),
    'mxs_plan_warning_count': (c_uint64, c_void_p),
    'mxs_plan_warning': (c_char_p, c_void_p, c_uint64),
    'mxs_plan_rank': (c_int32, c_void_p, c_int32, POINTER(mxs_rank_load)),
    'mxs_plan_layout': (c_int32, c_void_p, c_int32, c_int32, POINTER(c_void_p)),
    'mxs_plan_memory': (c_int32, c_void_p, c_int32, POINTER(mxs_memory_options), POINTER(mxs_memory)),
    'mxs_plan_report': (c_int32, c_void_p, c_void_p, c_size_t, c_void_p),
    'mxs_plan_moves': (c_int32, c_void_p, c_void_p, POINTER(mxs_plan_move), c_uint64, c_void_p),
    'mxs_plan_moves_from': (c_int32, c_void_p, c_void_p, c_void_p, POINTER(mxs_plan_move), c_uint64, c_void_p),
    'mxs_plan_save': (c_int32, c_void_p, c_char_p),
    'mxs_plan_load': (c_int32, POINTER(c_void_p), c_char_p),
    'mxs_model_load': (c_int32, POINTER(c_void_p), c_char_p, POINTER(mxs_model_options)),
    'mxs_model_create': (c_int32, POINTER(c_void_p), POINTER(mxs_tensor), c_uint64, POINTER(mxs_model_options)),
    'mxs_model_destroy': (None, POINTER(c_void_p)),
    'mxs_model_tensors': (c_int32, c_void_p, POINTER(POINTER(mxs_tensor)), c_void_p),
    'mxs_model_title': (c_char_p, c_void_p),
    'mxs_model_unit_count': (c_int32, c_void_p),
    'mxs_model_unit_name': (c_char_p, c_void_p, c_int32),
    'mxs_model_note_count': (c_uint64, c_void_p),
    'mxs_model_note': (c_char_p, c_void_p, c_uint64),
    'mxs_layout_create': (c_int32, POINTER(c_void_p), POINTER(mxs_segment), c_uint64, c_int32, c_uint64),
    'mxs_layout_create_even': (c_int32, POINTER(c_void_p), c_uint64, c_uint64, c_int32),
    'mxs_layout_destroy': (None, POINTER(c_void_p)),
    'mxs_layout_bytes': (c_uint64, c_void_p),
    'mxs_layout_owned_bytes': (c_uint64, c_void_p, c_int32),
    'mxs_layout_rank_count': (c_int32, c_void_p),
    'mxs_layout_segment_count': (c_uint64, c_void_p),
    'mxs_layout_segment': (c_int32, c_void_p, c_uint64, POINTER(mxs_segment)),
    'mxs_layout_moves': (c_int32, c_void_p, c_void_p, POINTER(mxs_layout_move), c_uint64, c_void_p),
    'mxs_comm_create': (c_int32, POINTER(c_void_p), POINTER(mxs_comm_options)),
    'mxs_comm_split': (c_int32, POINTER(c_void_p), c_void_p, c_int32, c_int32, POINTER(mxs_comm_options)),
    'mxs_comm_shrink': (c_int32, POINTER(c_void_p), c_void_p, POINTER(mxs_comm_options)),
    'mxs_comm_origin': (c_int32, c_void_p, c_int32, c_void_p),
    'mxs_comm_destroy': (c_int32, POINTER(c_void_p)),
    'mxs_comm_query': (c_int32, c_void_p, POINTER(mxs_comm_info)),
    'mxs_comm_topology': (c_int32, c_void_p, POINTER(c_void_p)),
    'mxs_comm_barrier': (c_int32, c_void_p, POINTER(mxs_call)),
    'mxs_comm_sum': (c_int32, c_void_p, c_void_p, c_uint64, POINTER(mxs_call)),
    'mxs_comm_sum_words': (c_int32, c_void_p, c_void_p, c_uint64, POINTER(mxs_call)),
    'mxs_comm_test': (c_int32, c_void_p, c_uint64),
    'mxs_comm_wait': (c_int32, c_void_p, c_uint64, POINTER(mxs_call)),
    'mxs_comm_abort': (c_int32, c_void_p, c_char_p),
    'mxs_comm_phase': (c_int32, c_void_p, c_int32),
    'mxs_comm_query_stats': (c_int32, c_void_p, POINTER(mxs_comm_stats)),
    'mxs_comm_reset_stats': (c_int32, c_void_p),
    'mxs_comm_allocate': (c_int32, c_void_p, c_uint64, c_int32, POINTER(c_void_p)),
    'mxs_comm_free': (c_int32, c_void_p, c_void_p),
    'mxs_collective_create': (c_int32, POINTER(c_void_p), c_void_p, POINTER(mxs_collective_options)),
    'mxs_collective_destroy': (c_int32, POINTER(c_void_p)),
    'mxs_collective_start': (c_int32, c_void_p, c_void_p, c_void_p, POINTER(mxs_call)),
    'mxs_collective_wait': (c_int32, c_void_p, POINTER(mxs_call)),
    'mxs_collective_describe': (c_int32, c_void_p, POINTER(mxs_collective_info)),
    'mxs_simulate': (c_int32, c_void_p, POINTER(mxs_collective_options), POINTER(mxs_simulation)),
    'mxs_unit_create': (c_int32, POINTER(c_void_p), c_void_p, c_void_p, c_int32, POINTER(mxs_unit_options)),
    'mxs_unit_destroy': (c_int32, POINTER(c_void_p)),
    'mxs_unit_gather': (c_int32, c_void_p, POINTER(mxs_call)),
    'mxs_unit_wait': (c_int32, c_void_p, POINTER(mxs_call)),
    'mxs_unit_tensor': (c_int32, c_void_p, c_int32, POINTER(mxs_view)),
    'mxs_unit_release': (c_int32, c_void_p, c_int32, POINTER(mxs_call)),
    'mxs_unit_gradient': (c_int32, c_void_p, c_int32, c_int32, POINTER(mxs_view)),
    'mxs_unit_gradient_set': (c_int32, c_void_p, c_int32, POINTER(mxs_view)),
    'mxs_unit_reduce': (c_int32, c_void_p, POINTER(mxs_call)),
    'mxs_unit_skip': (c_int32, c_void_p, POINTER(mxs_call)),
    'mxs_unit_discard': (c_int32, c_void_p),
    'mxs_unit_wait_reduce': (c_int32, c_void_p, POINTER(mxs_call)),
    'mxs_unit_shard': (c_int32, c_void_p, c_uint64, POINTER(mxs_view)),
    'mxs_unit_commit': (c_int32, c_void_p, POINTER(mxs_view)),
    'mxs_unit_shard_gradient': (c_int32, c_void_p, c_uint64, POINTER(mxs_view)),
    'mxs_unit_query': (c_int32, c_void_p, POINTER(mxs_unit_info)),
    'mxs_unit_memory': (c_int32, c_void_p, POINTER(mxs_memory)),
    'mxs_preset_name': (c_char_p, c_int32),
    'mxs_preset_from_name': (c_int32, c_char_p, c_void_p),
    'mxs_preset_rule': (c_int32, c_int32),
    'mxs_backend_name': (c_char_p, c_int32),
    'mxs_orthogonalizer_create': (c_int32, POINTER(c_void_p), c_int64, c_int64, POINTER(mxs_newton_schulz)),
    'mxs_orthogonalizer_destroy': (None, POINTER(c_void_p)),
    'mxs_orthogonalizer_backend': (c_char_p, c_void_p),
    'mxs_orthogonalizer_workspace_bytes': (c_uint64, c_void_p),
    'mxs_orthogonalizer_flops': (c_double, c_void_p),
    'mxs_orthogonalize': (c_int32, c_void_p, c_void_p, c_void_p),
    'mxs_orthogonalize_batch': (c_int32, c_void_p, c_void_p, POINTER(mxs_strides), c_void_p, POINTER(mxs_strides),
        c_int64),
    'mxs_preset_values': (c_int32, c_int32, POINTER(mxs_group_values)),
    'mxs_muon_create': (c_int32, POINTER(c_void_p), POINTER(mxs_matrices), POINTER(mxs_muon_options)),
    'mxs_shampoo_create': (c_int32, POINTER(c_void_p), POINTER(mxs_matrices), POINTER(mxs_shampoo_options)),
    'mxs_soap_create': (c_int32, POINTER(c_void_p), POINTER(mxs_matrices), POINTER(mxs_soap_options)),
    'mxs_adamw_create': (c_int32, POINTER(c_void_p), POINTER(mxs_matrices), POINTER(mxs_adamw_options)),
    'mxs_stepper_destroy': (None, POINTER(c_void_p)),
    'mxs_stepper_state_bytes': (c_uint64, c_void_p),
    'mxs_stepper_workspace_bytes': (c_uint64, c_void_p),
    'mxs_stepper_state_count': (c_uint64, c_void_p),
    'mxs_stepper_state': (c_int32, c_void_p, c_uint64, POINTER(mxs_state_part)),
    'mxs_stepper_init': (c_int32, c_void_p, c_void_p),
    'mxs_stepper_check_state': (c_int32, c_void_p, c_void_p, c_uint64),
    'mxs_stepper_step': (c_int32, c_void_p, POINTER(mxs_step_call), POINTER(mxs_step_result)),
    'mxs_stepper_update': (c_int32, c_void_p, POINTER(mxs_step_call), c_void_p, POINTER(mxs_step_result)),
    'mxs_stepper_apply': (c_int32, c_void_p, POINTER(mxs_step_call), c_void_p),
    'mxs_stepper_describe': (c_int32, c_void_p, POINTER(mxs_stepper_info)),
    'mxs_scale_heads': (c_int32, POINTER(mxs_matrices), c_void_p, c_void_p, c_void_p, c_int32, c_uint64),
    'mxs_muon_scale': (c_float, c_int32, c_int64, c_int64),
    'mxs_muon_momentum': (c_int32, POINTER(mxs_elements), POINTER(mxs_group_values)),
    'mxs_muon_apply': (c_int32, POINTER(mxs_elements), POINTER(mxs_group_values)),
    'mxs_adamw': (c_int32, POINTER(mxs_elements), POINTER(mxs_group_values)),
    'mxs_norm_add': (c_int32, c_void_p, c_void_p, c_uint64, c_float, c_void_p),
    'mxs_norm_value': (c_double, c_void_p),
    'mxs_clip_factor': (c_float, c_double, c_float),
    'mxs_optimizer_create': (c_int32, POINTER(c_void_p), POINTER(c_void_p), c_uint64, POINTER(mxs_optimizer_options)),
    'mxs_optimizer_destroy': (c_int32, POINTER(c_void_p)),
    'mxs_optimizer_agree': (c_int32, c_void_p, POINTER(mxs_step), POINTER(mxs_verdict)),
    'mxs_optimizer_step': (c_int32, c_void_p, POINTER(mxs_step), POINTER(mxs_verdict)),
    'mxs_optimizer_set_values': (c_int32, c_void_p, POINTER(mxs_step)),
    'mxs_optimizer_verdict': (c_int32, c_void_p, POINTER(mxs_verdict)),
    'mxs_optimizer_recover': (c_int32, c_void_p, c_void_p, POINTER(mxs_recovery)),
    'mxs_optimizer_clear': (c_int32, c_void_p),
    'mxs_optimizer_step_number': (c_uint64, c_void_p),
    'mxs_optimizer_set_step_number': (c_int32, c_void_p, c_uint64),
    'mxs_optimizer_state_count': (c_uint64, c_void_p),
    'mxs_optimizer_state': (c_int32, c_void_p, c_uint64, POINTER(mxs_state_info)),
    'mxs_optimizer_kernel': (c_int32, c_void_p, c_uint64, POINTER(mxs_kernel_info)),
    'mxs_optimizer_memory': (c_int32, c_void_p, POINTER(mxs_memory)),
    'mxs_checkpoint_save': (c_int32, c_char_p, POINTER(c_void_p), c_uint64, c_void_p,
        POINTER(mxs_checkpoint_options)),
    'mxs_save_start': (c_int32, POINTER(c_void_p), c_char_p, POINTER(c_void_p), c_uint64, c_void_p,
        POINTER(mxs_checkpoint_options)),
    'mxs_save_query': (c_int32, c_void_p, POINTER(mxs_save_info)),
    'mxs_save_wait': (c_int32, c_void_p, c_uint64),
    'mxs_save_cancel': (c_int32, c_void_p),
    'mxs_save_destroy': (c_int32, POINTER(c_void_p)),
    'mxs_checkpoint_open': (c_int32, POINTER(c_void_p), c_char_p),
    'mxs_checkpoint_close': (None, POINTER(c_void_p)),
    'mxs_checkpoint_query': (c_int32, c_void_p, POINTER(mxs_checkpoint_info)),
    'mxs_checkpoint_array_at': (c_int32, c_void_p, c_uint64, POINTER(mxs_checkpoint_array)),
    'mxs_checkpoint_find': (c_int32, c_void_p, c_char_p, c_void_p),
    'mxs_checkpoint_read': (c_int32, c_void_p, c_uint64, c_uint64, c_uint64, c_void_p),
    'mxs_checkpoint_plan': (c_int32, c_void_p, POINTER(c_void_p)),
    'mxs_checkpoint_group': (c_int32, c_void_p, c_int32, POINTER(mxs_group_values)),
    'mxs_checkpoint_rule': (c_int32, c_void_p, c_int32, c_void_p),
    'mxs_checkpoint_user': (c_int32, c_void_p, c_int32, POINTER(c_void_p), c_void_p),
    'mxs_checkpoint_verify': (c_int32, c_void_p, POINTER(mxs_verify_options)),
    'mxs_checkpoint_load': (c_int32, c_void_p, POINTER(c_void_p), c_uint64, c_void_p, POINTER(mxs_load_options)),
    'mxs_checkpoint_reshard': (c_int32, c_void_p, c_char_p, c_void_p, POINTER(mxs_plan_options),
        POINTER(mxs_checkpoint_options)),
    'mxs_cuda_query': (c_int32, POINTER(mxs_cuda_info)),
    'mxs_cuda_device_query': (c_int32, c_int32, POINTER(mxs_cuda_device)),
    'mxs_copy': (c_int32, c_void_p, c_void_p, c_uint64, POINTER(mxs_call)),
    'mxs_trace_open': (c_int32, POINTER(c_void_p), POINTER(c_void_p), c_uint64),
    'mxs_trace_close': (c_int32, POINTER(c_void_p)),
    'mxs_trace_rank_count': (c_int32, c_void_p),
    'mxs_trace_rank_at': (c_int32, c_void_p, c_int32, POINTER(mxs_trace_rank)),
    'mxs_trace_event_count': (c_uint64, c_void_p),
    'mxs_trace_event_at': (c_int32, c_void_p, c_uint64, POINTER(mxs_trace_event)),
    'mxs_trace_report': (c_int32, c_void_p, c_void_p, c_size_t, c_void_p),
    'mxs_trace_write': (c_int32, c_void_p, c_char_p),
}
