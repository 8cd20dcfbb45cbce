// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/secret.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/environment.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

// Room for a secret that is too long, too, so that this shows; wiped at the end.
struct Text {
  std::array<char, secret_bytes_max + 2> bytes{};
  size_t count = 0;
  ~Text() { wipe(bytes.data(), bytes.size()); }
};

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

mxs_status make_checked(std::shared_ptr<const Secret> *secret, const char *text, size_t bytes, const char *where,
                        mxs_status wrong) {
  if (bytes < secret_bytes_min)
    return set_error(wrong, "the secret of %s has %zu bytes, not from %zu to %zu; `openssl rand -hex 32` draws a good "
                     "one", where, bytes, secret_bytes_min, secret_bytes_max);
  if (bytes > secret_bytes_max)
    return set_error(wrong, "the secret of %s has more than %zu bytes", where, secret_bytes_max);
  return Secret::make(secret, text, bytes);
}

// Nobody but this user, and root, could have read it or put another one in its place.
mxs_status check_rights(const struct stat &found, const char *path) {
  if (!S_ISREG(found.st_mode))
    return set_error(MXS_ENVIRONMENT, "MXS_SECRET_FILE is \"%.200s\", which is no ordinary file", path);
  if (found.st_uid != geteuid() && found.st_uid != 0)
    return set_error(MXS_ENVIRONMENT, "MXS_SECRET_FILE is \"%.200s\", which belongs to another user (%u); a secret "
                     "wants a file of one's own", path, found.st_uid);
  if ((found.st_mode & 077) != 0)
    return set_error(MXS_ENVIRONMENT, "MXS_SECRET_FILE is \"%.200s\", which its group or others may read or write "
                     "(mode %04o): chmod 600, and draw another secret if somebody may have seen this one", path,
                     found.st_mode & 07777);
  return MXS_OK;
}

// The first line, without its end, as far as there is room.
mxs_status read_first_line(Text *text, const char *path) {
  // O_NONBLOCK: a pipe that nobody writes to must not keep us.
  const Descriptor file = {open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
  struct stat found{};
  if (file.value < 0 || fstat(file.value, &found) != 0)
    return set_error(MXS_ENVIRONMENT, "MXS_SECRET_FILE is \"%.200s\", which can't be read: %s", path,
                     std::strerror(errno));
  const mxs_status status = check_rights(found, path);
  if (status != MXS_OK) return status;
  while (text->count < text->bytes.size()) {
    const ssize_t count = read(file.value, text->bytes.data() + text->count, text->bytes.size() - text->count);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return set_error(MXS_ENVIRONMENT, "MXS_SECRET_FILE is \"%.200s\", which can't be read: %s", path,
                       std::strerror(errno));
    if (count == 0) break;
    text->count += static_cast<size_t>(count);
  }
  const char *const begin = text->bytes.data(), *const end = begin + text->count;
  text->count = static_cast<size_t>(std::find(begin, end, '\n') - begin);
  if (text->count > 0 && begin[text->count - 1] == '\r') --text->count;
  return MXS_OK;
}

}  // namespace

mxs_status Secret::make(std::shared_ptr<const Secret> *secret, const char *text, size_t bytes) {
  const mxs_status status = prepare_proofs();
  if (status != MXS_OK) return status;
  void *const memory = take_guarded(sizeof(Code));
  if (!memory) return set_error(MXS_OUT_OF_MEMORY, "no memory for the key of the job's secret");
  const char label[] = "matrixshard: key of a job, 1";
  Code key = mxs::code_of(text, bytes, {{label, sizeof label}});
  std::memcpy(memory, key.data(), key.size());
  wipe(key.data(), key.size());
  secret->reset(new Secret(memory));
  return MXS_OK;
}

mxs_status read_secret(std::shared_ptr<const Secret> *secret, const char *option) {
  std::shared_ptr<const Secret> made;
  mxs_status status = MXS_OK;
  if (option) {
    // No further than a secret may be: whoever passes something else has it read no longer than that.
    status = make_checked(&made, option, strnlen(option, secret_bytes_max + 1), "options.secret", MXS_INVALID_ARGUMENT);
  } else if (std::optional<std::string> text = environment_text("MXS_SECRET")) {
    status = make_checked(&made, text->data(), text->size(), "MXS_SECRET", MXS_ENVIRONMENT);
    wipe(text->data(), text->size());
  } else if (const std::optional<std::string> path = environment_text("MXS_SECRET_FILE")) {
    Text line;
    status = read_first_line(&line, path->c_str());
    if (status == MXS_OK)
      status = make_checked(&made, line.bytes.data(), line.count, "the file of MXS_SECRET_FILE", MXS_ENVIRONMENT);
  }
  if (status == MXS_OK) *secret = std::move(made);
  return status;
}

}  // namespace mxs
