// SPDX-License-Identifier: Apache-2.0
// Modules and launches. Of an image only its first bytes are looked at; the kernel NAME is the function NAME_on_cpu of
// the library that MXS_STANDIN_KERNELS names:
//   extern "C" void NAME_on_cpu(const void *arguments, uint32_t blocks, uint32_t threads)
#include <dlfcn.h>

#include <cstring>

#include "driver.hpp"

using namespace standin;

namespace {

using Twin = void (*)(const void *arguments, uint32_t blocks, uint32_t threads);

constexpr uint32_t fat_binary = 0xBA55ED50, fat_wrapper = 0x466243B1, elf = 0x464C457F;
constexpr int compute_min = 80;  // of the code that our images have
constexpr size_t argument_bytes_max = 4096;  // 32764 on newer cards; ours are to work on all

bool is_image(const void *image) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  return magic == fat_binary || magic == fat_wrapper || magic == elf || std::memcmp(image, "//", 2) == 0 ||
         std::memcmp(image, ".ver", 4) == 0;
}

// The library stays loaded. nullptr: standard error says why.
Twin find_twin(const char *name) {
  const std::string &path = driver().switches.kernels_path;
  static void *library = nullptr;
  static std::string loaded_path;
  if (!library || loaded_path != path) {
    library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    loaded_path = path;
    if (!library)
      complain("no twins of kernels: MXS_STANDIN_KERNELS %s", path.empty() ? "is not set" : dlerror());
  }
  if (!library) return nullptr;
  const auto twin = reinterpret_cast<Twin>(dlsym(library, (std::string(name) + "_on_cpu").c_str()));
  if (!twin) complain("%s has no %s_on_cpu", path.c_str(), name);
  return twin;
}

CUresult get_function(CUfunction *handle, CUmodule module, const char *name) {
  const auto found = driver().modules.find(module);
  if (!handle || !name || found == driver().modules.end()) return CUDA_ERROR_INVALID_VALUE;
  auto &function = found->second[name];
  if (!function) {
    const Twin twin = find_twin(name);
    if (!twin) {
      found->second.erase(name);
      return CUDA_ERROR_NOT_FOUND;
    }
    function = std::make_unique<Function>();
    function->name = name;
    function->run = twin;
    for (const auto &context : driver().contexts)
      if (context->modules.count(module)) function->context = context.get();
    driver().functions.insert(function.get());
  }
  *handle = reinterpret_cast<CUfunction>(function.get());
  return CUDA_SUCCESS;
}

// The bytes that `extra` points at.
CUresult read_extra(void **extra, std::vector<std::byte> *arguments) {
  const void *data = nullptr;
  const size_t *bytes = nullptr;
  for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) data = extra[1];
    else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = static_cast<const size_t *>(extra[1]);
    else return CUDA_ERROR_INVALID_VALUE;
  }
  if (!extra) return CUDA_SUCCESS;
  if (!data || !bytes || *bytes > argument_bytes_max) return CUDA_ERROR_INVALID_VALUE;
  const auto *const first = static_cast<const std::byte *>(data);
  arguments->assign(first, first + *bytes);
  return CUDA_SUCCESS;
}

CUresult launch(const Function &function, uint32_t blocks, uint32_t threads, void **extra,
                const StreamPointer &stream) {
  std::vector<std::byte> arguments;
  const CUresult result = read_extra(extra, &arguments);
  if (result != CUDA_SUCCESS) return result;
  Job job;
  job.kind = JobKind::device;
  job.name = function.name;
  job.body = [run = function.run, blocks, threads,
              bytes = std::make_shared<const std::vector<std::byte>>(std::move(arguments))] {
    run(bytes->data(), blocks, threads);
    return CUDA_SUCCESS;
  };
  return enqueue(stream, std::move(job));
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image) {
  return call_in_context("cuModuleLoadData", [&](Lock &, Context &context) {
    if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = refuse_in_capture(); refused != CUDA_SUCCESS) return refused;
    if (!is_image(image)) return CUDA_ERROR_INVALID_IMAGE;
    if (driver().switches.compute < compute_min) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *module = new_handle<CUmodule>();
    driver().modules[*module];
    context.modules.insert(*module);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  return call_in_context("cuModuleUnload", [&](Lock &, Context &context) {
    if (!context.modules.erase(module)) return CUDA_ERROR_INVALID_VALUE;
    for (const auto &[name, function] : driver().modules[module]) driver().functions.erase(function.get());
    driver().modules.erase(module);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  return call_in_context("cuModuleGetFunction",
                         [&](Lock &, Context &) { return get_function(function, module, name); });
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int value) {
  return call_in_context("cuFuncSetAttribute", [&](Lock &, Context &) {
    if (!driver().functions.count(reinterpret_cast<Function *>(function))) return CUDA_ERROR_INVALID_HANDLE;
    return value < 0 || value > 227 << 10 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

// One struct by `extra`. Of kernelParams the sizes can't be known here: such launches are refused.
CUresult CUDAAPI cuLaunchKernel(CUfunction handle, unsigned int blocks, unsigned int blocks_y, unsigned int blocks_z,
                                unsigned int threads, unsigned int threads_y, unsigned int threads_z,
                                unsigned int shared_bytes, CUstream stream_handle, void **parameters, void **extra) {
  return call_in_context("cuLaunchKernel", [&](Lock &, Context &context) {
    auto *const function = reinterpret_cast<Function *>(handle);
    if (!driver().functions.count(function)) return CUDA_ERROR_INVALID_HANDLE;
    const StreamPointer stream = find_stream(context, stream_handle);
    if (!stream || stream->context != function->context) return CUDA_ERROR_INVALID_HANDLE;
    if (parameters) return extra ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    if (blocks_y != 1 || blocks_z != 1 || threads_y != 1 || threads_z != 1) return CUDA_ERROR_NOT_SUPPORTED;
    if (blocks == 0 || blocks > 2147483647 || threads == 0 || threads > 1024 || shared_bytes > 227 << 10)
      return CUDA_ERROR_INVALID_VALUE;
    return launch(*function, blocks, threads, extra, stream);
  });
}

}  // extern "C"
