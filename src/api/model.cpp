// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/model.h"

#include "api/door.hpp"

using namespace mxs;

static_assert(sizeof(mxs_model_rule) == 24, "part of the ABI");
static_assert(sizeof(mxs_model_options) == 40, "part of the ABI");

mxs_status mxs_model_load(mxs_model **, const char *, const mxs_model_options *) {
  return set_error(MXS_NOT_BUILT, "mxs_model_load is not built yet");
}

void mxs_model_destroy(mxs_model **) {}

mxs_status mxs_model_tensors(const mxs_model *, const mxs_tensor **, uint64_t *) {
  return set_error(MXS_NOT_BUILT, "mxs_model_tensors is not built yet");
}

const char *mxs_model_title(const mxs_model *) { return ""; }

int32_t mxs_model_unit_count(const mxs_model *) { return 0; }

const char *mxs_model_unit_name(const mxs_model *, int32_t) { return nullptr; }

uint64_t mxs_model_note_count(const mxs_model *) { return 0; }

const char *mxs_model_note(const mxs_model *, uint64_t) { return nullptr; }
