// SPDX-License-Identifier: Apache-2.0
#include "base/environment.hpp"

#include <charconv>
#include <cstdlib>

#include "base/status.hpp"

namespace mxs {

std::optional<std::string> environment_text(const char *name) {
  const char *text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  return std::string(text);
}

mxs_status environment_number(const char *name, int64_t least, int64_t most, int64_t *value) {
  const std::optional<std::string> text = environment_text(name);
  if (!text) return MXS_OK;
  int64_t number = 0;
  const char *end = text->data() + text->size();
  const auto [stop, failure] = std::from_chars(text->data(), end, number);
  if (failure != std::errc() || stop != end || number < least || number > most)
    return set_error(MXS_ENVIRONMENT, "%s is \"%.64s\", not a whole number from %lld to %lld", name, text->c_str(),
                     static_cast<long long>(least), static_cast<long long>(most));
  *value = number;
  return MXS_OK;
}

}  // namespace mxs
