// SPDX-License-Identifier: Apache-2.0
#include "soak/options.hpp"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <vector>

namespace soak {

namespace {

std::vector<std::string> parts_of(const std::string &text) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == ':') parts.emplace_back();
    else parts.back() += letter;
  }
  return parts;
}

bool read_fault(const std::string &text, Fault *fault) {
  const std::vector<std::string> parts = parts_of(text);
  const std::map<std::string, FaultKind> kinds = {
      {"kill", FaultKind::kill}, {"pause", FaultKind::pause}, {"abort", FaultKind::abort}};
  if (parts.size() != 5 || !kinds.count(parts[0])) return false;
  fault->kind = kinds.at(parts[0]);
  fault->who = parts[1];
  fault->when = parts[2];
  fault->delay_us = std::strtoll(parts[3].c_str(), nullptr, 10);
  fault->pause_ms = std::strtoll(parts[4].c_str(), nullptr, 10);
  return true;
}

}  // namespace

int Fault::rank() const { return std::atoi(who.c_str()); }

uint64_t Fault::case_number() const { return std::strtoull(when.c_str(), nullptr, 10); }

bool read_options(int count, char **words, Options *options) {
  const std::map<std::string, std::function<bool(const std::string &)>> readers = {
      {"--seed",
       [&](const std::string &text) { return options->seed = std::strtoull(text.c_str(), nullptr, 10), true; }},
      {"--seconds", [&](const std::string &text) { return (options->seconds = std::atof(text.c_str())) > 0; }},
      {"--first-round",
       [&](const std::string &text) { return options->first_round = std::strtoull(text.c_str(), nullptr, 10), true; }},
      {"--rounds",
       [&](const std::string &text) { return options->round_count = std::strtoull(text.c_str(), nullptr, 10), true; }},
      {"--transport", [&](const std::string &text) { return options->transport = text, true; }},
      {"--folder", [&](const std::string &text) { return options->folder = text, true; }},
      {"--bytes",
       [&](const std::string &text) { return (options->bytes_max = std::strtoull(text.c_str(), nullptr, 10)) > 0; }},
      {"--timeout", [&](const std::string &text) { return (options->timeout = std::atof(text.c_str())) > 0; }},
      {"--threads", [&](const std::string &text) { return (options->threads = std::atoi(text.c_str())) > 0; }},
      {"--fault", [&](const std::string &text) { return read_fault(text, &options->fault); }},
  };
  for (int i = 1; i < count; i++) {
    const std::string word = words[i];
    if (word == "--matrix") {
      options->matrix = true;
    } else if (word == "--plant-fault") {
      options->plant_fault = true;
    } else if (word == "--failure-expected") {
      options->failure_expected = true;
    } else if (word == "--verbose") {
      options->verbose = true;
    } else if (!readers.count(word) || i + 1 == count || !readers.at(word)(words[i + 1])) {
      std::fprintf(stderr, "mxs-soak: \"%s\" is not understood; perf/soak/soak is to start this program\n", words[i]);
      return false;
    } else {
      i++;
    }
  }
  return true;
}

}  // namespace soak
