// SPDX-License-Identifier: Apache-2.0
// How a communicator ends in order. ncclCommFinalize wants all ranks of the node, and only when it is over may the
// communicator be destroyed; but a rank must not wait for peers that come late or never. So finalizing is begun and
// waited for shortly, and the rest is done when the next communicator is made or ends.
#pragma once

#include "cuda/context.hpp"
#include "cuda/nccl_library.hpp"

namespace mxs {

// Takes the communicator, which has not failed. Waits 100 ms at most.
void retire_nccl_comm(const NcclLibrary &nccl, const Driver &driver, CUcontext context, NcclComm comm);

// Looks after those that have been retired: destroys what is finalized, aborts what has not been for 30 s.
void sweep_retired_nccl_comms();

}  // namespace mxs
