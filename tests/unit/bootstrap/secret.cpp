// SPDX-License-Identifier: Apache-2.0
// Where a secret is read, what is refused, and that no sentence ever holds one.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "bootstrap/secret.hpp"
#include "support/complaints.hpp"
#include "support/temporary_folder.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::expect;
using mxs::test::good;

namespace {

const std::string telling = "Tr0ub4dor&3-and-more";  // not to be seen anywhere

Code fingerprint(const Secret &secret) { return secret.code_of({{"x", 1}}); }

// What comes of an option and the two variables; nullptr: not there.
std::string read_with(std::shared_ptr<const Secret> *secret, const char *option, const char *variable,
                      const char *file, mxs_status status = MXS_OK, const std::vector<std::string> &words = {}) {
  variable ? setenv("MXS_SECRET", variable, 1) : unsetenv("MXS_SECRET");
  file ? setenv("MXS_SECRET_FILE", file, 1) : unsetenv("MXS_SECRET_FILE");
  const std::shared_ptr<const Secret> before = *secret;
  const mxs_status got = read_secret(secret, option);
  unsetenv("MXS_SECRET");
  unsetenv("MXS_SECRET_FILE");
  if (got != MXS_OK && std::strstr(last_error_text(), telling.c_str())) return "the sentence has the secret in it";
  if (got != MXS_OK && *secret != before) return "an output changed on failure";
  return status == MXS_OK && got == MXS_OK ? "" : expect(got, status, words);
}

std::string write_file(const std::string &path, const std::string &text, mode_t mode) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return "can't write " + path;
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  fchmod(file, mode);
  close(file);
  return written ? "" : "can't write " + path;
}

bool order_of_places() {
  const mxs::test::TemporaryFolder folder;
  const std::string path = folder.path() + "/secret", others = "another secret of the file";
  std::shared_ptr<const Secret> by_option, by_variable, by_file, option_first, variable_first, none;
  std::string complaint = write_file(path, others + "\nsecond line\n", 0600);
  const auto step = [&](std::shared_ptr<const Secret> *secret, const char *option, const char *variable,
                        const char *file) {
    if (complaint.empty()) complaint = read_with(secret, option, variable, file);
  };
  step(&none, nullptr, nullptr, nullptr);
  step(&by_option, telling.c_str(), nullptr, nullptr);
  step(&by_variable, nullptr, telling.c_str(), nullptr);
  step(&by_file, nullptr, nullptr, path.c_str());
  step(&option_first, telling.c_str(), "something else entirely", path.c_str());
  step(&variable_first, nullptr, telling.c_str(), path.c_str());
  if (!complaint.empty()) return good(complaint);
  if (none) return good("a secret from nowhere");
  std::shared_ptr<const Secret> same;
  complaint = read_with(&same, others.c_str(), nullptr, nullptr);
  const Code told = fingerprint(*by_option);
  if (fingerprint(*by_variable) != told || fingerprint(*option_first) != told || fingerprint(*variable_first) != told)
    return good("one text gave two keys");
  if (fingerprint(*by_file) == told || fingerprint(*by_file) != fingerprint(*same))
    return good("the file's first line isn't the secret");
  return good(complaint);
}

void the_option_goes_before_the_variable_and_that_before_the_file(void **) {
  assert_true(order_of_places());
}

bool lengths() {
  std::shared_ptr<const Secret> secret;
  std::string complaint;
  const auto check = [&](const std::string &text, mxs_status status, const std::vector<std::string> &words) {
    if (complaint.empty()) complaint = read_with(&secret, text.c_str(), nullptr, nullptr, status, words);
    const mxs_status other = status == MXS_INVALID_ARGUMENT ? MXS_ENVIRONMENT : status;
    if (complaint.empty() && !text.empty())  // an empty variable counts as not set
      complaint = read_with(&secret, nullptr, text.c_str(), nullptr, other, words);
  };
  check("", MXS_INVALID_ARGUMENT, {"secret", "0 bytes", "16"});
  check("fifteen letters", MXS_INVALID_ARGUMENT, {"secret", "15 bytes", "16"});
  check("sixteen letters!", MXS_OK, {});
  check(std::string(1024, 'x'), MXS_OK, {});
  check(std::string(1025, 'x'), MXS_INVALID_ARGUMENT, {"secret", "1024 bytes"});
  check(std::string(100000, 'x'), MXS_INVALID_ARGUMENT, {"secret", "1024 bytes"});
  return good(complaint);
}

void a_secret_has_16_to_1024_bytes(void **) {
  assert_true(lengths());
}

bool files() {
  const mxs::test::TemporaryFolder folder;
  const std::string path = folder / "secret", missing = folder / "missing", pipe = folder / "pipe";
  const std::string link = folder / "link";
  std::shared_ptr<const Secret> secret;
  std::string complaint;
  const auto check = [&](const std::string &text, mode_t mode, mxs_status status,
                         const std::vector<std::string> &words) {
    if (complaint.empty()) complaint = write_file(path, text, mode);
    if (complaint.empty()) complaint = read_with(&secret, nullptr, nullptr, path.c_str(), status, words);
  };
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0602, 0610, 0777})
    check(telling, mode, MXS_ENVIRONMENT, {"MXS_SECRET_FILE", path, "chmod 600"});
  check(telling, 0600, MXS_OK, {});
  check(telling, 0400, MXS_OK, {});
  check(telling + "\r\n", 0600, MXS_OK, {});
  check("", 0600, MXS_ENVIRONMENT, {"MXS_SECRET_FILE", "0 bytes"});
  check("\n" + telling, 0600, MXS_ENVIRONMENT, {"MXS_SECRET_FILE", "0 bytes"});
  check(std::string(1024, 'x') + "\n", 0600, MXS_OK, {});
  check(std::string(1024, 'x') + "\r\n", 0600, MXS_OK, {});
  check(std::string(1025, 'x') + "\n", 0600, MXS_ENVIRONMENT, {"MXS_SECRET_FILE", "1024 bytes"});
  check(std::string(1 << 20, 'x'), 0600, MXS_ENVIRONMENT, {"MXS_SECRET_FILE", "1024 bytes"});
  const auto refuses = [&](const std::string &place, const char *word) {
    if (complaint.empty())
      complaint = read_with(&secret, nullptr, nullptr, place.c_str(), MXS_ENVIRONMENT, {"MXS_SECRET_FILE", word});
  };
  refuses(missing, "No such file");
  refuses(folder.path(), "no ordinary file");
  if (mkfifo(pipe.c_str(), 0600) == 0) refuses(pipe, "no ordinary file");
  // A link is followed, as to the mounted secrets of containers.
  check(telling, 0600, MXS_OK, {});
  if (symlink(path.c_str(), link.c_str()) == 0 && complaint.empty())
    complaint = read_with(&secret, nullptr, nullptr, link.c_str());
  return good(complaint);
}

void a_file_that_others_may_read_is_refused(void **) {
  assert_true(files());
}

bool foreign_file() {
  const mxs::test::TemporaryFolder folder;
  const std::string path = folder.path() + "/secret";
  std::shared_ptr<const Secret> secret;
  std::string complaint = write_file(path, telling, 0600);
  if (chown(path.c_str(), 12345, 0) != 0) return true;
  if (complaint.empty())
    complaint = read_with(&secret, nullptr, nullptr, path.c_str(), MXS_ENVIRONMENT, {"another user", "12345"});
  return good(complaint);
}

void a_file_of_somebody_else_is_refused(void **) {
  if (geteuid() != 0) test::not_run("only root can give a file away");
  else assert_true(foreign_file());
}

bool not_built() {
  std::shared_ptr<const Secret> secret;
  std::string complaint = read_with(&secret, telling.c_str(), nullptr, nullptr, MXS_NOT_BUILT, {"libsodium"});
  if (complaint.empty())
    complaint = read_with(&secret, nullptr, telling.c_str(), nullptr, MXS_NOT_BUILT, {"libsodium"});
  if (complaint.empty()) complaint = read_with(&secret, nullptr, nullptr, nullptr);
  return good(complaint);
}

void a_secret_is_refused_and_none_is_fine(void **) {
  assert_true(not_built());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_option_goes_before_the_variable_and_that_before_the_file),
      cmocka_unit_test(a_secret_has_16_to_1024_bytes),
      cmocka_unit_test(a_file_that_others_may_read_is_refused),
      cmocka_unit_test(a_file_of_somebody_else_is_refused),
  };
  const CMUnitTest without_libsodium[] = {cmocka_unit_test(a_secret_is_refused_and_none_is_fine)};
  if (prepare_proofs() != MXS_OK) return cmocka_run_group_tests(without_libsodium, nullptr, nullptr);
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
