// SPDX-License-Identifier: Apache-2.0
// How ranks come together at the store. What they do there afterwards is in store.cpp.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/store_wire.hpp"

namespace mxs {

// Rank 0: waits until everybody has come; peers: of ranks 1 ... rank_count - 1.
mxs_status wait_for_ranks(std::vector<std::unique_ptr<Peer>> *peers, const JobEnvironment &job, uint64_t timeout_ns);

// Another rank: goes to rank 0 and waits until everybody has come; peers: rank 0 alone.
mxs_status go_to_rank_0(std::vector<std::unique_ptr<Peer>> *peers, const JobEnvironment &job, uint64_t timeout_ns);

// The same over connections that are there: at rank 0 to all others, elsewhere to rank 0. launcher: static.
std::unique_ptr<Bootstrap> make_store_bootstrap(const char *launcher, int rank, int rank_count,
                                                std::vector<std::unique_ptr<Peer>> peers, uint64_t timeout_ns);

// "2, 5 and 9", at most 16 of them; for sentences.
std::string rank_list(const std::vector<int> &ranks);

}  // namespace mxs
