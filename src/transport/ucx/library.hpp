// SPDX-License-Identifier: Apache-2.0
// UCX, loaded when it is used first. Nothing here is linked against it: headers of 1.13 or later at build time, any
// libucp.so.0 of 1.13 or later at run time.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "matrixshard/status.h"

namespace mxs {

// The functions that we call, under their names without "ucp_".
struct UcxLibrary {
  decltype(&::ucp_get_version) get_version;
  decltype(&::ucp_config_read) config_read;
  decltype(&::ucp_config_modify) config_modify;
  decltype(&::ucp_config_release) config_release;
  decltype(&::ucp_init_version) init_version;
  decltype(&::ucp_cleanup) cleanup;
  decltype(&::ucp_worker_create) worker_create;
  decltype(&::ucp_worker_destroy) worker_destroy;
  decltype(&::ucp_worker_query) worker_query;
  decltype(&::ucp_worker_release_address) worker_release_address;
  decltype(&::ucp_worker_get_efd) worker_get_efd;
  decltype(&::ucp_worker_arm) worker_arm;
  decltype(&::ucp_worker_progress) worker_progress;
  decltype(&::ucp_ep_create) ep_create;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx;
  decltype(&::ucp_ep_print_info) ep_print_info;
  decltype(&::ucp_tag_send_nbx) tag_send_nbx;
  decltype(&::ucp_tag_recv_nbx) tag_recv_nbx;
  decltype(&::ucp_tag_probe_nb) tag_probe_nb;
  decltype(&::ucp_tag_msg_recv_nbx) tag_msg_recv_nbx;
  decltype(&::ucp_request_cancel) request_cancel;
  decltype(&::ucp_request_free) request_free;
  decltype(&::ucp_request_check_status) request_check_status;
  decltype(&::ucs_status_string) status_string;

  unsigned major, minor, release;
};

// nullptr: it can't be used, and *why_not says why. Loads at the first call; never unloads, since UCX leaves handlers
// and threads behind. Threads: any.
const UcxLibrary *ucx_library(std::string *why_not);

}  // namespace mxs
