// SPDX-License-Identifier: Apache-2.0
#include "kernels/batch.hpp"

#include <atomic>

#include "base/status.hpp"

namespace mxs {

mxs_status BatchSquares::form(const NewtonSchulzShape &shape, const MatrixSource *sources, size_t count,
                              const double *given, Team *team) {
  shape_ = shape;
  sources_ = sources;
  given_ = given;
  if (given) return MXS_OK;
  std::atomic<bool> finite{true};
  team->run(count, [&](size_t i, int) {
    double sum = 0;
    if (find_squares(sources[i], static_cast<size_t>(shape.rows), static_cast<size_t>(shape.columns), &sum) != MXS_OK)
      finite = false;
    if (i < formed_.size()) formed_[i] = sum;
  });
  if (finite) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "the source of Newton-Schulz has an element that is not finite");
}

double BatchSquares::of(size_t i) const {
  if (given_) return given_[i];
  if (i < formed_.size()) return formed_[i];
  double sum = 0;
  (void)find_squares(sources_[i], static_cast<size_t>(shape_.rows), static_cast<size_t>(shape_.columns), &sum);
  return sum;
}

}  // namespace mxs
