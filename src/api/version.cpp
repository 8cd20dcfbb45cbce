// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/version.h"

uint32_t mxs_version(void) { return MXS_VERSION; }

#define MXS_TEXT_OF(number) #number
#define MXS_VERSION_TEXT_OF(major, minor, patch) MXS_TEXT_OF(major) "." MXS_TEXT_OF(minor) "." MXS_TEXT_OF(patch)

const char *mxs_version_text(void) {
  return MXS_VERSION_TEXT_OF(MXS_VERSION_MAJOR, MXS_VERSION_MINOR, MXS_VERSION_PATCH);
}
