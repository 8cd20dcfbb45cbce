// SPDX-License-Identifier: Apache-2.0
// The sentence behind a failure, and the fence at the door.
//
// The cause is written once, where it is known: `return set_error(...)`.
// Callers pass the status on and add nothing.
#pragma once

#include <exception>
#include <new>

#include "matrixshard/status.h"

namespace mxs {

// Keeps the sentence for this thread's mxs_last_error and returns the status, so that it can be returned at once.
mxs_status set_error(mxs_status status, const char *format, ...) noexcept __attribute__((format(printf, 2, 3)));

// The sentence of this thread's latest failure, "" if none.
const char *last_error_text() noexcept;

// Turns what escapes from a body into a status. Every exported function that can fail has its body in one.
template <class Body>
mxs_status fenced(Body &&body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return set_error(MXS_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception &error) {
    return set_error(MXS_INTERNAL, "%s", error.what());
  } catch (...) {
    return set_error(MXS_INTERNAL, "an unknown exception");
  }
}

}  // namespace mxs
