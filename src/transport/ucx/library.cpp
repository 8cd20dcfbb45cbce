// SPDX-License-Identifier: Apache-2.0
// What UCX reads while it is being loaded must be in the environment before: 1.13 takes over SIGSEGV, SIGBUS, SIGFPE,
// SIGILL and SIGHUP otherwise, and without UCX_MM_ERROR_HANDLING an endpoint that reports errors goes over TCP even
// inside a node. ucp_config_modify comes too late for all three (it says Success and changes nothing in 1.13).
#include "transport/ucx/library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/shared_library.hpp"

namespace mxs {

namespace {

constexpr const char *file_name = "libucp.so.0";

void set_unless_given(const char *name, const char *value, bool given) {
  if (given) return;
  setenv(name, value, 1);
  log_line(MXS_LOG_INFO, "ucx: %s=%s is set before UCX is loaded; set it yourself to choose otherwise", name, value);
}

// 1.13 warns of a variable that nobody asks for, as when the user's devices hold no shared memory.
bool uses_shared_memory() {
  const std::optional<std::string> devices = environment_text("UCX_TLS");
  if (!devices || devices->front() == '^') return true;
  for (const char *name : {"all", "sm", "shm", "mm", "posix", "sysv", "xpmem"})
    if (devices->find(name) != std::string::npos) return true;
  return false;
}

void prepare_environment() {
  set_unless_given("UCX_HANDLE_ERRORS", "none", environment_text("UCX_HANDLE_ERRORS").has_value());
  set_unless_given("UCX_DEBUG_SIGNO", "0", environment_text("UCX_DEBUG_SIGNO").has_value());
  if (uses_shared_memory())
    set_unless_given("UCX_MM_ERROR_HANDLING", "y", environment_text("UCX_MM_ERROR_HANDLING").has_value());
}

std::string load(UcxLibrary *library) {
  void *handle = dlopen(file_name, RTLD_NOW | RTLD_NOLOAD);
  if (handle) {
    log_line(MXS_LOG_INFO, "ucx: the program has loaded it already, so its environment is left as it is");
  } else {
    prepare_environment();
    handle = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  }
  if (!handle) {
    const char *reason = dlerror();
    return std::string("UCX can't be loaded: ") + (reason ? reason : file_name);
  }
  Symbols symbols{handle};
  symbols.find(&library->get_version, "ucp_get_version");
  symbols.find(&library->config_read, "ucp_config_read");
  symbols.find(&library->config_modify, "ucp_config_modify");
  symbols.find(&library->config_release, "ucp_config_release");
  symbols.find(&library->init_version, "ucp_init_version");
  symbols.find(&library->cleanup, "ucp_cleanup");
  symbols.find(&library->worker_create, "ucp_worker_create");
  symbols.find(&library->worker_destroy, "ucp_worker_destroy");
  symbols.find(&library->worker_query, "ucp_worker_query");
  symbols.find(&library->worker_release_address, "ucp_worker_release_address");
  symbols.find(&library->worker_get_efd, "ucp_worker_get_efd");
  symbols.find(&library->worker_arm, "ucp_worker_arm");
  symbols.find(&library->worker_progress, "ucp_worker_progress");
  symbols.find(&library->ep_create, "ucp_ep_create");
  symbols.find(&library->ep_close_nbx, "ucp_ep_close_nbx");
  symbols.find(&library->ep_print_info, "ucp_ep_print_info");
  symbols.find(&library->tag_send_nbx, "ucp_tag_send_nbx");
  symbols.find(&library->tag_recv_nbx, "ucp_tag_recv_nbx");
  symbols.find(&library->tag_probe_nb, "ucp_tag_probe_nb");
  symbols.find(&library->tag_msg_recv_nbx, "ucp_tag_msg_recv_nbx");
  symbols.find(&library->request_cancel, "ucp_request_cancel");
  symbols.find(&library->request_free, "ucp_request_free");
  symbols.find(&library->request_check_status, "ucp_request_check_status");
  symbols.find(&library->status_string, "ucs_status_string");
  if (symbols.missing) return std::string(file_name) + " has no " + symbols.missing;
  library->get_version(&library->major, &library->minor, &library->release);
  if (library->major != 1 || library->minor < 13)
    return "UCX is " + std::to_string(library->major) + "." + std::to_string(library->minor) +
           "; 1.13 or a later 1.x is needed";
  log_line(MXS_LOG_INFO, "ucx: version %u.%u.%u", library->major, library->minor, library->release);
  return "";
}

}  // namespace

const UcxLibrary *ucx_library(std::string *why_not) {
  static LoadedOnce<UcxLibrary> library;
  return library.get(load, why_not);
}

}  // namespace mxs
