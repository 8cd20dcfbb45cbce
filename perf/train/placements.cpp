// SPDX-License-Identifier: Apache-2.0
// Which placement does a name mean?
#include <stdexcept>

#include "placement.hpp"

namespace train {

std::unique_ptr<Placement> make_placement(const std::string &name, const Model &model, mxs_comm *comm,
                                          const PlacementOptions &options) {
  if (name == "single") return make_single(model, options);
  if (name == "ddp") return make_ddp(model, comm, options);
  if (name == "zero1") return make_zero1(model, comm, options);
  if (name == "slices") return make_slices(model, comm, options);
  if (name == "alltoall") return make_alltoall(model, comm, options);
  if (name == "owner") return make_owner(model, comm, options);
  throw std::runtime_error("--placement " + name + " is none of: single, ddp, zero1, slices, alltoall, owner");
}

}  // namespace train
