// SPDX-License-Identifier: Apache-2.0
// What a command line of mxs-perf says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "matrixshard/types.h"

namespace bench {

enum class Command { gather, reduce, allreduce, latency, idle, step, plan, tune, checkpoint };

// Which of the two forms of a gather and an allreduce are measured; see contenders.hpp.
enum class Form { out_of_place, in_place };

struct Options {
  Command command = Command::gather;

  // Sizes of whole buffers: bytes_first * factor^n, or bytes_first + n * increment, up to bytes_last.
  uint64_t bytes_first = uint64_t{1} << 20, bytes_last = uint64_t{256} << 20, increment = 0;
  double factor = 2;
  std::string layout = "even";
  mxs_dtype dtype = MXS_F32;

  int iterations = 20, warmups = 5;
  int check = 1;         // 0: never, 1: a turn before and a turn after the timed ones, 2: every timed turn, too
  std::string over_ranks = "max";
  std::vector<Form> forms = {Form::out_of_place, Form::in_place};

  std::string transport, algorithm;
  std::vector<std::string> compare;  // names; "all": every one that there is
  bool peers = false;
  uint64_t chunk_bytes = 0;
  int window = 0;
  bool rank_order = false, accumulate = false, heap = false;
  bool spin = false, pin = false;
  bool plant_fault = false, verbose = false;
  std::string json;

  int late_ms = 200;  // idle

  // tune
  std::string save;  // "": where comms look
  bool dry_run = false;

  std::string folder = ".";  // checkpoint

  // step, plan and checkpoint
  int units = 4;
  std::string shapes = "256x256*4,256x1024*2,1024x256,256*4";
  std::vector<int> plan_ranks = {8, 64, 1024};
  bool by_reference = false;
  int slots = 0, threads = 0;

  // step --local
  bool local = false;
  std::vector<int> local_threads;
  std::vector<std::string> backends;
  uint64_t pass_elements = 0;
};

// Returns true if there is something to measure; else what was asked for has been said, or what is wrong with it, and
// `status` is how the program ends.
bool read_options(int count, char **words, Options *options, int *status);

// The sizes that -b, -e, -f and -i mean, in order.
std::vector<uint64_t> sizes(const Options &options);

const char *command_name(Command command);

}  // namespace bench
