/* SPDX-License-Identifier: Apache-2.0 */
// Cases of the stand-in's tests that want a process of their own: switches are read when the driver begins, and some
// errors stay. The program itself must not use CUDA.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "standins/cuda_functions.hpp"
#include "standins/test_kernels.hpp"

namespace mxs::test {

using Variables = std::vector<std::pair<const char *, const char *>>;

// The child's wait status; the body's complaint is told on standard error, and is exit code 1.
inline int status_of_child(const Variables &variables, const std::function<std::string()> &body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    for (const int fault : {SIGSEGV, SIGBUS}) std::signal(fault, SIG_DFL);  // cmocka would go on with the next case
    for (const auto &[name, value] : variables) setenv(name, value, 1);
    const std::string complaint = body();
    if (!complaint.empty()) std::fprintf(stderr, "%s\n", complaint.c_str());
    std::exit(complaint.empty() ? 0 : 1);  // not _exit: the end of a process that uses CUDA is part of the case
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

inline bool holds_in_child(const Variables &variables, const std::function<std::string()> &body) {
  const int status = status_of_child(variables, body);
  if (WIFSIGNALED(status)) std::fprintf(stderr, "the child died of signal %d\n", WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The same, with device 0's context.
inline bool holds_with_cuda(const Variables &variables, const std::function<void(Expect &expect)> &body) {
  return holds_in_child(variables, [&] {
    CUcontext context = nullptr;
    const std::string complaint = cuda().begin(&context);
    if (!complaint.empty()) return complaint;
    Expect expect;
    body(expect);
    return expect.complaint();
  });
}

inline CUfunction find_kernel(Expect *expect, const char *name) {
  const uint32_t image[4] = {0xBA55ED50, 0, 0, 0};
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  expect->ok(cuda().load_module(&module, image), "cuModuleLoadData");
  expect->ok(cuda().find_function(&function, module, name), name);
  return function;
}

template <class Arguments>
CUresult launch_kernel(CUfunction function, const Arguments &arguments, uint32_t count, CUstream stream) {
  Arguments copied = arguments;
  size_t bytes = sizeof copied;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &copied, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  const CUresult result = cuda().launch(function, 1, 1, 1, count, 1, 1, 0, stream, nullptr, extra);
  copied = Arguments{};  // they were copied by the call
  return result;
}

inline CUstream new_stream(Expect *expect, unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  expect->ok(cuda().make_stream(&stream, flags, 0), "cuStreamCreateWithPriority");
  return stream;
}

inline CUdeviceptr new_memory(Expect *expect, size_t bytes) {
  CUdeviceptr address = 0;
  expect->ok(cuda().allocate(&address, bytes), "cuMemAlloc");
  return address;
}

inline uint32_t *new_flags(Expect *expect, size_t count) {
  void *flags = nullptr;
  expect->ok(cuda().allocate_host(&flags, count * sizeof(uint32_t), CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
  for (size_t i = 0; flags && i < count; ++i) __atomic_store_n(static_cast<uint32_t *>(flags) + i, 0, __ATOMIC_RELEASE);
  return static_cast<uint32_t *>(flags);
}

inline CUdeviceptr device_pointer(const void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline uint32_t *words_at(CUdeviceptr address) { return reinterpret_cast<uint32_t *>(address); }

inline std::vector<uint32_t> read_words(Expect *expect, CUdeviceptr address, size_t count) {
  std::vector<uint32_t> words(count);
  expect->ok(cuda().copy_out(words.data(), address, count * sizeof(uint32_t)), "cuMemcpyDtoH");
  return words;
}

}  // namespace mxs::test
