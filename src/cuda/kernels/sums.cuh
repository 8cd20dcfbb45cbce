// SPDX-License-Identifier: Apache-2.0
// Sums and conversions of device memory: see arguments.hpp.
#pragma once

#include "cuda/kernels/block.hpp"
#include "cuda/kernels/arguments.hpp"
#include "kernels/elements.hpp"

MXS_KERNEL(mxs_add, mxs::AddArguments, mxs::NothingShared) {
  block.spread(arguments.elements, [&](uint64_t i) {
    arguments.target[i] += mxs::element::load(arguments.source, arguments.dtype, i);
  });
}

MXS_KERNEL(mxs_sum_in_order, mxs::SumInOrderArguments, mxs::NothingShared) {
  block.spread(arguments.elements, [&](uint64_t i) {
    arguments.target[i] =
        mxs::element::sum_in_order(arguments.base, arguments.sources, arguments.count, arguments.dtype, i);
  });
}

MXS_KERNEL(mxs_narrow, mxs::ConvertArguments, mxs::NothingShared) {
  block.spread(arguments.elements, [&](uint64_t i) {
    mxs::element::store(arguments.target, arguments.dtype, i, static_cast<const float *>(arguments.source)[i]);
  });
}

MXS_KERNEL(mxs_widen, mxs::ConvertArguments, mxs::NothingShared) {
  block.spread(arguments.elements, [&](uint64_t i) {
    static_cast<float *>(arguments.target)[i] = mxs::element::load(arguments.source, arguments.dtype, i);
  });
}
