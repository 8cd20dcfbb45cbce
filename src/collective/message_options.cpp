// SPDX-License-Identifier: Apache-2.0
#include "collective/message_options.hpp"

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "matrixshard/collective.h"
#include "transport/transport.hpp"

namespace mxs {

mxs_status check_message_options(const MessageOptions &options, const char *whose, int rank_count) {
  if (options.layout->rank_count != rank_count)
    return set_error(MXS_INVALID_ARGUMENT, "the layout is for %d ranks, %s has %d", options.layout->rank_count, whose,
                     rank_count);
  if (options.window < 0 || options.window > message_window_max)
    return set_error(MXS_INVALID_ARGUMENT, "window is %d, not from 1 to %d (0: chosen)", options.window,
                     message_window_max);
  if (options.kind != MXS_REDUCE) return MXS_OK;
  if (options.dtype != MXS_F32 && options.dtype != MXS_BF16 && options.dtype != MXS_F16)
    return set_error(MXS_INVALID_ARGUMENT, "dtype is %d, but a reduce takes MXS_F32, MXS_BF16 or MXS_F16",
                     options.dtype);
  return check_elements(*options.layout, static_cast<uint32_t>(dtype_bytes(options.dtype)));
}

Direction direction_of(const MessageOptions &options) {
  if (options.kind == MXS_GATHER) return Direction::gather;
  if (options.kind == MXS_RESHARD) return Direction::reshard;
  return options.rank_order ? Direction::ordered_reduce : Direction::reduce;
}

ScheduleOptions schedule_options(const Topology &topology, const MessageOptions &options) {
  ScheduleOptions plan;
  plan.direction = direction_of(options);
  plan.algorithm = options.algorithm;
  plan.layout = options.layout;
  plan.target_layout = options.target_layout;
  plan.topology = &topology;
  plan.element_bytes = options.kind == MXS_REDUCE ? static_cast<uint32_t>(dtype_bytes(options.dtype)) : 1;
  plan.accumulate = options.kind == MXS_REDUCE && options.accumulate;
  plan.chunk_bytes = options.chunk_bytes;
  return plan;
}

}  // namespace mxs
