/* SPDX-License-Identifier: Apache-2.0 */
// Ranks as forked processes of this machine, joined by a comm over torchrun's variables. Public interface only.
//
// Call it from a program that has no other threads: a fork copies none of them, but all of their locks.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "matrixshard/comm.h"

namespace mxs::test {

struct ProcessOptions {
  const char *transport = nullptr;   // NULL: chosen, so shm
  double comm_timeout_seconds = 60;  // of the comm
  double timeout_seconds = 400;      // of it all: past it all ranks are killed
  int thread_count = 1;
  std::vector<std::string> environment;  // more variables, "NAME=VALUE", for all ranks
  std::vector<int> nodes;                // by rank: MXS_NODE, which makes them up. Empty: one node
  // What the parent does while they run, such as killing one.
  std::function<void(const std::vector<pid_t> &processes)> meanwhile;
  int may_die = -1;  // this rank's end by a signal is no complaint
  std::vector<int> expendable;  // nor one of these ranks'
  bool any_may_die = false;  // nor any other's
};

// Forks the ranks; each creates a comm, runs the body and destroys the comm. Text: complaints, with their ranks.
std::string run_processes(int rank_count, const std::function<std::string(int rank, mxs_comm *comm)> &body,
                          const ProcessOptions &options = {});

// The same without a comm: torchrun's variables are set in each child.
std::string run_processes_bare(int rank_count, const std::function<std::string(int rank)> &body,
                               const ProcessOptions &options = {});

// A port of 127.0.0.1 that nobody had a moment ago, outside of what outgoing connections get.
int free_port();

}  // namespace mxs::test
