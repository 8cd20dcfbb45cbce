// SPDX-License-Identifier: Apache-2.0
// What is said where there is no driver, one that is too old, broken or without a GPU, and where libmatrixshard_cuda.so
// can't be had: test_gpu_device_driver FOLDER_OF_A_FAULTY_DRIVER. Each case is this program once more, since the loader
// reads LD_LIBRARY_PATH when a program begins and the library's answer stays.
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "matrixshard/cuda.h"
#include "support/complaints.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using mxs::test::good;

namespace {

std::string faulty_folder, standin_folders;

// A path of folders without one of them: Meson adds the folder of every library that a test depends on.
std::string without(const std::string &path, const std::string &folder) {
  std::string kept;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string entry = path.substr(begin, end - begin);
    begin = end + 1;
    if (!entry.empty() && entry != folder) kept += (kept.empty() ? "" : ":") + entry;
  }
  return kept;
}

// In the program that is begun again: what is said, on one line, and how the rest of the library takes it.
int answer() {
  mxs_cuda_info info = MXS_CUDA_INFO_INIT;
  info.driver_version = -7;
  mxs_status status = mxs_cuda_query(&info);
  const std::string first = status == MXS_OK ? "" : mxs_last_error();
  std::string also;
  mxs_cuda_device device = MXS_CUDA_DEVICE_INIT;
  if (status != MXS_OK) {
    if (mxs_cuda_query(&info) != status || first != mxs_last_error()) also += " ANOTHER ANSWER";
    if (mxs_cuda_device_query(0, &device) != status || first != mxs_last_error()) also += " ANOTHER OF THE DEVICE";
    if (info.driver_version != -7) also += " TOUCHED";
    if (loaded_device_library()) also += " LOADED";
    int here = 7, there = 0, stream = 0;
    if (mxs_copy(&there, &here, sizeof here, nullptr) != MXS_OK || there != 7) also += " NO COPY OF THE HOST'S";
    mxs_call call = MXS_CALL_INIT;
    call.stream = &stream;
    if (mxs_copy(&there, &here, sizeof here, &call) != status) also += " A STREAM WITHOUT A DEVICE";
  }
  std::printf("%s: %s%s\n", mxs_status_name(status), first.c_str(), also.c_str());
  return 0;
}

struct Setting {
  const char *name;
  std::string value;  // "": not set
};

// What answer() said with these variables.
std::string asked_with(const std::vector<Setting> &settings) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    for (const Setting &setting : settings)
      if (setting.value.empty()) unsetenv(setting.name);
      else setenv(setting.name, setting.value.c_str(), 1);
    dup2(ends[1], STDOUT_FILENO);
    execl("/proc/self/exe", "/proc/self/exe", "answer", static_cast<char *>(nullptr));
    _exit(3);
  }
  close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t bytes; (bytes = read(ends[0], part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(bytes));
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) text += " ended by " + std::to_string(status);
  return text;
}

std::string said(const std::vector<Setting> &settings, const std::vector<const char *> &expected) {
  const std::string text = asked_with(settings);
  for (const char *part : expected)
    if (text.find(part) == std::string::npos) return text + " -- doesn't say: " + part;
  for (const char *bad : {"ANOTHER", "TOUCHED", "LOADED", "NO COPY", "WITHOUT A DEVICE", "ended by"})
    if (text.find(bad) != std::string::npos) return text;
  return "";
}

// With a driver that can't do anything: its version, and what it lacks.
std::string faulty(const char *version, const std::vector<const char *> &expected) {
  return said({{"LD_LIBRARY_PATH", faulty_folder}, {"MXS_FAULTY_VERSION", version}}, expected);
}

std::string no_driver_names_the_file() {
  if (void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    dlclose(driver);
    if (standin_folders.empty()) return "";  // this machine has one wherever we look
  }
  return said({{"LD_LIBRARY_PATH", ""}}, {"NO_DEVICE: ", "libcuda.so.1", "cannot open", "12.0"});
}

std::string an_old_driver_gets_both_numbers() {
  std::string complaint = faulty("11080", {"NO_DEVICE: ", "11.8", "12.0", "update"});
  if (complaint.empty()) complaint = faulty("9000", {"NO_DEVICE: ", "9.0", "12.0"});
  return complaint;
}

std::string a_driver_that_fails_is_told() {
  return faulty("-1", {"NO_DEVICE: ", "cuDriverGetVersion", "CUDA_ERROR_UNKNOWN"});
}

std::string what_a_driver_lacks_is_named() {
  return faulty("12040", {"NO_DEVICE: ", "libcuda.so.1", "12.4", "cuDeviceGetCount"});
}

std::string no_gpu_is_no_driver_problem() {
  if (standin_folders.empty()) return "";
  return said({{"LD_LIBRARY_PATH", standin_folders}, {"MXS_STANDIN_DEVICES", "0"}},
              {"NO_DEVICE: ", "no GPU", "CUDA_VISIBLE_DEVICES"});
}

std::string a_missing_cuda_part_names_its_file() {
  std::string complaint = said({{"MXS_CUDA_LIBRARY", "/nowhere/libmatrixshard_cuda.so"}},
                               {"NOT_BUILT: ", "/nowhere/libmatrixshard_cuda.so", "MXS_CUDA_LIBRARY"});
  if (complaint.empty())
    complaint = said({{"MXS_CUDA_LIBRARY", faulty_folder + "/libcuda.so.1"}},
                     {"NOT_BUILT: ", "mxs_open_device_library"});
  return complaint;
}

void without_a_driver_the_file_is_named(void **) { assert_true(good(no_driver_names_the_file())); }
void of_an_old_driver_both_versions_are_told(void **) { assert_true(good(an_old_driver_gets_both_numbers())); }
void a_driver_that_answers_nothing_is_told(void **) { assert_true(good(a_driver_that_fails_is_told())); }
void a_driver_without_a_function_is_told_which(void **) { assert_true(good(what_a_driver_lacks_is_named())); }
void a_driver_without_a_gpu_is_told(void **) { assert_true(good(no_gpu_is_no_driver_problem())); }
void without_the_cuda_part_its_file_is_named(void **) { assert_true(good(a_missing_cuda_part_names_its_file())); }

}  // namespace

int main(int count, char **arguments) {
  if (count != 2) return 2;
  if (std::strcmp(arguments[1], "answer") == 0) return answer();
  faulty_folder = arguments[1];
  const char *const folders = getenv("LD_LIBRARY_PATH");
  if (folders && !getenv("MXS_TEST_GPU")) standin_folders = without(folders, faulty_folder);
  const CMUnitTest tests[] = {
      cmocka_unit_test(without_a_driver_the_file_is_named),
      cmocka_unit_test(of_an_old_driver_both_versions_are_told),
      cmocka_unit_test(a_driver_that_answers_nothing_is_told),
      cmocka_unit_test(a_driver_without_a_function_is_told_which),
      cmocka_unit_test(a_driver_without_a_gpu_is_told),
      cmocka_unit_test(without_the_cuda_part_its_file_is_named),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
