// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz of a matrix whose rows are dealt over co-owners. All that they exchange are sums over the group:
//
//   squares   each puts its own into a place of its own, among zeros: four numbers a rank, no bit is lost
//   tall      rows are the long side: parts are as they lie; the Gram matrices are summed
//   wide      rows are the short side: first rows are exchanged for columns, at the end columns for rows. What goes to
//             one rank is a sum to which every rank gives its own rows among zeros
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/shared.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

class SharedNewtonSchulz {
 public:
  // rows: of this rank. The team outlives it.
  static mxs_status create(std::unique_ptr<SharedNewtonSchulz> *made, const SharedMatrix &shared, int64_t rows,
                           int64_t columns, const NewtonSchulzRecipe &recipe, OrthogonalizerChoice choice, Team *team);

  uint64_t workspace_bytes() const;
  // update: this rank's rows, dense; in place. squares: of its elements; what is not finite is everybody's failure.
  mxs_status run(float *update, double squares, std::byte *workspace);
  const char *backend() const { return orthogonalizer_->backend(); }
  mxs_dtype product_dtype() const { return orthogonalizer_->product_dtype(); }
  double flops() const { return orthogonalizer_->flops(); }

 private:
  SharedNewtonSchulz(const SharedMatrix &shared, int64_t rows, int64_t columns);
  bool is_tall() const { return shared_.whole_rows >= columns_; }
  int64_t first_column(int member) const { return columns_ * member / shared_.member_count; }
  int64_t width(int member) const { return first_column(member + 1) - first_column(member); }
  int64_t largest_width() const;
  uint64_t exchange_floats() const;
  mxs_status sum_squares(double own, double *total) const;
  mxs_status rows_to_columns(const float *update, float *part, float *exchange) const;
  mxs_status columns_to_rows(float *update, const float *part, float *exchange) const;

  SharedMatrix shared_;
  int64_t rows_, columns_;
  std::unique_ptr<Orthogonalizer> orthogonalizer_;
};

}  // namespace mxs
