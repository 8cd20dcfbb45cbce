// SPDX-License-Identifier: Apache-2.0
// What is said about a measurement: a table for people, an object a line for programs.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "bench/ranks.hpp"
#include "cli/json_text.hpp"

namespace bench {

// Of the turns: the times of one contender in one form, in microseconds.
struct Times {
  double least = 0, median = 0, most = 0;                            // of turns, over ranks as -a says
  double rank_least = 0, rank_mean = 0, rank_most = 0;               // of ranks, each rank's median
  std::optional<uint64_t> wrong;                                     // nothing: not checked
};

struct Row {
  uint64_t bytes = 0, count = 0;
  int owners = 0;
  std::string algorithm;
  bool chosen = false, peer = false;
  double busiest_bytes = 0, bound_us = 0;
  double predicted_us = 0;                        // 0: not known
  mxs_collective_info info = MXS_COLLECTIVE_INFO_INIT;  // of rank 0; its texts are those that follow
  std::string routes, reason;
  std::optional<Times> out_of_place, in_place;
};

// Opened before anything is measured, so that a name that can't be written is told at once. "": writes nothing.
class JsonFile {
 public:
  explicit JsonFile(const std::string &name);
  ~JsonFile();
  JsonFile(const JsonFile &) = delete;
  JsonFile &operator=(const JsonFile &) = delete;
  void write_line(const std::string &object);

 private:
  std::string name_;
  std::FILE *file_ = nullptr;
};

using mxs_cli::quoted;

// What all rows of a run have in common.
struct Setting {
  const Options &options;
  int ranks, nodes;
  std::string transports;
  double copy_rate;
};

void print_titles(const Setting &setting);
void print_row(const Setting &setting, const Row &row);
// Two objects, if it has both forms.
void write_row(const Setting &setting, const Row &row, JsonFile *file);

}  // namespace bench
