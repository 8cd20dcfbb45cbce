// SPDX-License-Identifier: Apache-2.0
// Which sanitizer is a test built with? gcc tells by a macro, clang by a feature.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MXS_UNDER_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define MXS_UNDER_TSAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(MXS_UNDER_ASAN)
#define MXS_UNDER_ASAN
#endif
#if defined(__SANITIZE_THREAD__) && !defined(MXS_UNDER_TSAN)
#define MXS_UNDER_TSAN
#endif

namespace mxs::test {

// For a case that is built all the same, so that no function is unused; under one of them it is not run.
#if defined(MXS_UNDER_ASAN) || defined(MXS_UNDER_TSAN)
constexpr bool under_sanitizer = true;
#else
constexpr bool under_sanitizer = false;
#endif

}  // namespace mxs::test
