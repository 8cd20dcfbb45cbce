/* SPDX-License-Identifier: Apache-2.0 */
// Does a bootstrap carry blobs of every rank to every rank, and barriers behind them?
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "bootstrap/bootstrap.hpp"

namespace mxs::test {

// "" or what was wrong. On all ranks together.
inline std::string gathers(Bootstrap &bootstrap) {
  for (const size_t bytes : {size_t{1}, size_t{9}, size_t{100000}}) {
    std::vector<unsigned char> source(bytes), target(bytes * static_cast<size_t>(bootstrap.rank_count()), 0xee);
    for (size_t i = 0; i < bytes; ++i)
      source[i] = static_cast<unsigned char>(static_cast<size_t>(bootstrap.rank()) * 3 + i);
    if (bootstrap.all_gather(source.data(), target.data(), bytes) != MXS_OK) return last_error_text();
    for (size_t rank = 0; rank < static_cast<size_t>(bootstrap.rank_count()); ++rank)
      for (size_t i = 0; i < bytes; ++i)
        if (target[rank * bytes + i] != static_cast<unsigned char>(rank * 3 + i)) return "a byte is wrong";
  }
  for (int turn = 0; turn < 20; ++turn)
    if (bootstrap.barrier() != MXS_OK) return last_error_text();
  return bootstrap.check() == MXS_OK ? "" : last_error_text();
}

}  // namespace mxs::test
