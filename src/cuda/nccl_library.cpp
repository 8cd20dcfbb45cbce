// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl_library.hpp"

#include <dlfcn.h>

#include <mutex>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

constexpr char file_name[] = "libnccl.so.2";

// *how: for sentences, how it was found.
mxs_status open_file(void **file, std::string *how) {
  *how = "which the process had loaded";
  *file = dlopen(file_name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (*file) return MXS_OK;
  if (const auto given = environment_text("MXS_NCCL_LIBRARY")) {
    *how = "of MXS_NCCL_LIBRARY";
    *file = dlopen(given->c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*file) return MXS_OK;
    return set_error(MXS_NOT_BUILT, "NCCL can't be loaded: %.400s (MXS_NCCL_LIBRARY)", dlerror());
  }
  *how = "as the loader finds it";
  *file = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (*file) return MXS_OK;
  return set_error(MXS_NOT_BUILT, "NCCL can't be loaded: %.400s; install libnccl2, or say where it is by "
                   "MXS_NCCL_LIBRARY", dlerror());
}

template <class Function>
bool find(void *file, const char *symbol, Function *function) {
  *function = reinterpret_cast<Function>(dlsym(file, symbol));
  return *function != nullptr;
}

// nullptr: all are there; else the first that isn't.
const char *find_mandatory(void *file, NcclLibrary *library) {
  const char *missing = nullptr;
  const auto want = [&](const char *symbol, auto *function) {
    if (!find(file, symbol, function) && !missing) missing = symbol;
  };
  want("ncclGetVersion", &library->get_version);
  want("ncclGetUniqueId", &library->get_unique_id);
  want("ncclCommInitRankConfig", &library->comm_init_rank_config);
  want("ncclCommFinalize", &library->comm_finalize);
  want("ncclCommDestroy", &library->comm_destroy);
  want("ncclCommAbort", &library->comm_abort);
  want("ncclCommGetAsyncError", &library->comm_get_async_error);
  want("ncclCommCount", &library->comm_count);
  want("ncclCommCuDevice", &library->comm_device);
  want("ncclCommUserRank", &library->comm_user_rank);
  want("ncclGetErrorString", &library->get_error_string);
  want("ncclGetLastError", &library->get_last_error);
  want("ncclBroadcast", &library->broadcast);
  want("ncclReduce", &library->reduce);
  want("ncclAllReduce", &library->all_reduce);
  want("ncclSend", &library->send);
  want("ncclRecv", &library->receive);
  want("ncclGroupStart", &library->group_start);
  want("ncclGroupEnd", &library->group_end);
  return missing;
}

void find_optional(void *file, NcclLibrary *library) {
  if (!find(file, "ncclCommRegister", &library->comm_register) ||
      !find(file, "ncclCommDeregister", &library->comm_deregister))
    library->comm_register = nullptr;
  find(file, "ncclCommRevoke", &library->comm_revoke);
}

std::string path_of(void *file) {
  Dl_info found{};
  void *const symbol = dlsym(file, "ncclGetVersion");
  return symbol && dladdr(symbol, &found) && found.dli_fname ? found.dli_fname : file_name;
}

mxs_status fill(void *file, const std::string &how, NcclLibrary *library) {
  library->path = path_of(file);
  const char *const missing = find_mandatory(file, library);
  int version = 0;
  if (library->get_version && library->get_version(&version) != nccl_success) version = 0;
  library->version = version;
  if (library->get_version && version < nccl_version_min)
    return set_error(MXS_NOT_BUILT, "NCCL is too old: %.300s (%s) is %s, and 2.18 at least is wanted",
                     library->path.c_str(), how.c_str(), nccl_version_text(version).c_str());
  if (missing)
    return set_error(MXS_NOT_BUILT, "%.300s (%s) has no %s, which every NCCL from 2.18 on has: it is another library, "
                     "or a damaged one", library->path.c_str(), how.c_str(), missing);
  find_optional(file, library);
  return MXS_OK;
}

struct Loaded {
  std::mutex mutex;
  NcclLibrary table;
  bool is_filled = false;
};

// Never freed: threads of NCCL may outlive our destructors.
Loaded &loaded() {
  static Loaded *const state = new Loaded;
  return *state;
}

}  // namespace

mxs_status load_nccl(const NcclLibrary **library) {
  Loaded &state = loaded();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (!state.is_filled) {
    void *file = nullptr;
    std::string how;
    mxs_status status = open_file(&file, &how);
    if (status != MXS_OK) return status;
    NcclLibrary made;
    status = fill(file, how, &made);
    if (status != MXS_OK) {
      dlclose(file);
      return status;
    }
    log_line(MXS_LOG_INFO, "nccl: %s is %s, %s", made.path.c_str(), nccl_version_text(made.version).c_str(),
             how.c_str());
    state.table = made;
    state.is_filled = true;
  }
  *library = &state.table;
  return MXS_OK;
}

std::string nccl_version_text(int version) {
  // Up to 2.8 a number had four digits: 2708.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  return std::to_string(major) + "." + std::to_string(version / 100 % (version < 10000 ? 10 : 100)) + "." +
         std::to_string(version % 100);
}

}  // namespace mxs
