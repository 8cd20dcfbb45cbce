// SPDX-License-Identifier: Apache-2.0
#include "bench/options.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>

#include "cli/layout_words.hpp"
#include "matrixshard/version.h"

namespace bench {

namespace {

struct CommandWords {
  Command command;
  const char *name, *help;
};

const CommandWords commands[] = {
    {Command::gather, "gather", "owners to all ranks"},
    {Command::reduce, "reduce", "sums to owners"},
    {Command::allreduce, "allreduce", "a reduce and a gather of an even layout, fp32"},
    {Command::latency, "latency", "a gather of a few bytes, start after start: median, 90 and 99 %"},
    {Command::idle, "idle", "what waiting costs while one rank is late: cpu time over wall time"},
    {Command::step, "step", "gathers, reduces and a Muon step of units; --local: the step's kernels alone, no ranks"},
    {Command::plan, "plan", "how long planning takes, and how even the loads are; one process, no ranks"},
    {Command::tune, "tune", "measure messages, copies and sums here, and save them for later comms"},
    {Command::checkpoint, "checkpoint", "a model and its optimizer saved and loaded, beside dd in the same folder"},
};

// What options say before they are understood.
struct Words {
  std::string first = "1M", last = "256M", increment, chunk;
  std::string dtype = "f32", memory = "mapped", forms = "both", passes = "64M";
};

// A size as a validator: CLI11 shows the sentence that it returns.
std::string is_size(std::string &text) {
  uint64_t bytes = 0;
  return mxs_cli::read_size(text, &bytes);
}

// Without CLI11's own description, which --help would show beside ours.
template <class Number>
CLI::Validator range(Number least, Number most) {
  return CLI::Range(least, most).description("");
}
CLI::Validator one_of(std::initializer_list<const char *> words) {
  const std::vector<std::string> list(words.begin(), words.end());
  return CLI::IsMember(list).description("");
}

void add_sizes(CLI::App *app, Options *options, Words *words) {
  const auto size = CLI::Validator(is_size, "");
  app->add_option("-b,--begin", words->first, "first size of the whole buffer; K M G are powers of 1024 (1M)")
      ->check(size)->type_name("SIZE");
  app->add_option("-e,--end", words->last, "last size (256M)")->check(size)->type_name("SIZE");
  auto *factor = app->add_option("-f,--factor", options->factor, "from a size to the next: times so much (2)");
  factor->check(range(1.0001, 1e9))->type_name("FACTOR");
  app->add_option("-i,--increment", words->increment, "from a size to the next: plus so much, instead of -f")
      ->check(size)->type_name("SIZE")->excludes(factor);
}

void add_turns(CLI::App *app, Options *options) {
  app->add_option("-n,--iterations", options->iterations, "timed turns (20)")->check(range(1, 10'000'000));
  app->add_option("-w,--warmups", options->warmups, "turns before them (5)")->check(range(0, 10'000'000));
}

void add_common(CLI::App *app, Options *options) {
  app->add_option("--transport", options->transport, "loopback, shm or ucx for all pairs (chosen)")->type_name("NAME");
  app->add_option("--json", options->json, "rank 0 writes an object a line there")->type_name("FILE");
  app->add_flag("--pin", options->pin, "each rank on one core: core (local rank mod cores)");
  app->add_flag("--spin", options->spin, "callers spin on mxs_comm_test instead of waiting");
}

void add_collective(CLI::App *app, Options *options, Words *words) {
  const Command command = options->command;
  add_sizes(app, options, words);
  add_turns(app, options);
  add_common(app, options);
  app->add_option("-c,--check", options->check,
                  "0: no, 1: every byte of a turn before and one after the timed ones, 2: of these, too (1)")
      ->check(range(0, 2));
  app->add_option("-a,--average", options->over_ranks,
                  "a turn's time is that of rank0, or avg, min, max over ranks (max)")
      ->check(one_of({"rank0", "avg", "min", "max"}));
  if (command != Command::allreduce) {
    app->add_option("-d,--dtype", words->dtype, "f32, bf16 or f16 (f32)")->check(one_of({"f32", "bf16", "f16"}));
    app->add_option("--layout", options->layout,
                    "even; one: rank 0 owns all; k:N, k:N+tail: N owners; zipf:S; or a file of \"owner bytes\" (even)")
        ->type_name("WORDS");
  }
  if (command != Command::reduce)
    app->add_option("--form", words->forms, "out-of-place, in-place or both (both)")
        ->check(one_of({"out-of-place", "in-place", "both"}));
  auto *algorithm = app->add_option("--algorithm", options->algorithm, "force one (chosen)")->type_name("NAME");
  app->add_option("--compare", options->compare, "algorithms that take turns, or all that there are here")
      ->delimiter(',')->type_name("all|LIST")->excludes(algorithm);
  if (command != Command::allreduce)
    app->add_flag("--peers", options->peers,
                  command == Command::gather ? "beside them: each rank copies the whole by memcpy"
                                             : "beside them: each rank adds 1/p of p arrays of its own");
  app->add_option("--chunk", words->chunk, "bytes of a message's chunk (chosen)")
      ->check(CLI::Validator(is_size, ""))->type_name("SIZE");
  app->add_option("--window", options->window, "messages in flight per peer (chosen)")->check(range(1, 1 << 20));
  app->add_option("--memory", words->memory,
                  "mapped: of mxs_comm_allocate; heap: of malloc, bytes go in messages (mapped)")
      ->check(one_of({"mapped", "heap"}));
  if (command != Command::gather) app->add_flag("--rank-order", options->rank_order, "sums are formed in rank order");
  if (command == Command::reduce) app->add_flag("--accumulate", options->accumulate, "add to what the target holds");
  app->add_flag("-v,--verbose", options->verbose, "more columns: least and most of turns, ranks, bytes, messages");
  app->add_flag("--plant-fault", options->plant_fault,
                "flip a bit of rank 0's result before each check, to see that checks see it: the status is then 1");
}

void add_model(CLI::App *app, Options *options) {
  app->add_option("--units", options->units, "units with these shapes each (4)")->check(range(1, 100'000));
  app->add_option("--shapes", options->shapes,
                  "tensors of a unit: ROWSxCOLUMNS or N, f: frozen, *COUNT (" + options->shapes + ")")
      ->type_name("LIST");
}

void add_local(CLI::App *app, Options *options, Words *words) {
  auto *local = app->add_flag("--local", options->local,
                              "the kernels of the step alone, in this process: Newton-Schulz by each backend in turns "
                              "with its bare products, and the element passes beside memcpy. --shapes are batches of "
                              "*COUNT (2048x2048,1024x4096,4096x4096,256x1024*64)");
  app->add_option("--backends", options->backends,
                  "tiles, onednn, openblas, reference, each perhaps with -standard or -gram (tiles,onednn,openblas)")
      ->delimiter(',')->type_name("LIST")->needs(local);
  app->add_option("--passes", words->passes, "bytes of each array of the element passes, 0: none (64M)")
      ->check(CLI::Validator(is_size, ""))->type_name("SIZE")->needs(local);
}

void add_options(CLI::App *app, Options *options, Words *words) {
  switch (options->command) {
    case Command::gather:
    case Command::reduce:
    case Command::allreduce: return add_collective(app, options, words);
    case Command::latency:
      words->first = "8";
      options->iterations = 20'000;
      options->warmups = 1'000;
      add_turns(app, options);
      add_common(app, options);
      app->add_option("-b,--bytes", words->first, "of the whole buffer (8)")
          ->check(CLI::Validator(is_size, ""))->type_name("SIZE");
      app->add_option("--layout", options->layout, "as of gather (even)")->type_name("WORDS");
      app->add_option("--algorithm", options->algorithm, "force one (chosen)")->type_name("NAME");
      return;
    case Command::idle:
      options->iterations = 5;
      options->warmups = 1;
      words->first = "1M";
      add_turns(app, options);
      add_common(app, options);
      app->add_option("--late", options->late_ms, "milliseconds by which the last rank comes late (200)")
          ->check(range(1, 10'000));
      app->add_option("--memory", words->memory, "mapped or heap (mapped)")->check(one_of({"mapped", "heap"}));
      return;
    case Command::step:
      options->iterations = 10;
      options->warmups = 2;
      add_turns(app, options);
      add_common(app, options);
      add_model(app, options);
      app->add_option("-d,--dtype", words->dtype, "of weights and gradients: f32 or bf16 (f32)")
          ->check(one_of({"f32", "bf16"}));
      app->add_option("--slots", options->slots, "units that may be whole at a time (2)")->check(range(1, 100'000));
      app->add_option("--threads", options->local_threads, "of the optimizer on each rank (the comm's); local: 1,2")
          ->delimiter(',')->check(range(1, 1024))->type_name("LIST");
      app->add_flag("--by-reference", options->by_reference, "gather by reference");
      app->add_flag("--rank-order", options->rank_order, "sums are formed in rank order");
      app->add_option("--algorithm", options->algorithm, "force one (chosen)")->type_name("NAME");
      app->add_flag("--plant-fault", options->plant_fault, "as of gather");
      add_local(app, options, words);
      return;
    case Command::tune:
      options->iterations = 50;
      app->add_option("-n,--iterations", options->iterations, "messages there and back of each size (50)")
          ->check(range(1, 1'000'000));
      add_common(app, options);
      app->add_option("--save", options->save, "file of speeds (where comms look: MXS_SPEEDS, or in ~/.cache)")
          ->type_name("FILE");
      app->add_flag("--dry-run", options->dry_run, "save nothing");
      return;
    case Command::checkpoint:
      options->units = 8;
      options->shapes = "1024x1024*4,1024x4096,4096x1024,1024*4";
      words->dtype = "bf16";
      options->iterations = 5;
      options->warmups = 1;
      add_turns(app, options);
      add_common(app, options);
      add_model(app, options);
      app->add_option("FOLDER", options->folder, "on the disk that is measured, seen by all ranks (.)");
      app->add_option("-d,--dtype", words->dtype, "of weights: f32, or bf16 with fp32 masters (bf16)")
          ->check(one_of({"f32", "bf16"}));
      app->add_option("--threads", options->threads, "of the optimizer on each rank (the comm's)")
          ->check(range(1, 1024));
      app->add_flag("--plant-fault", options->plant_fault, "as of gather");
      return;
    case Command::plan:
      options->units = 48;
      options->iterations = 5;
      options->warmups = 1;
      add_turns(app, options);
      add_model(app, options);
      app->add_option("--ranks", options->plan_ranks,
                      "for so many ranks, 8 to a node where that divides them (8,64,1024)")
          ->delimiter(',')
          ->check(range(1, 1 << 20))
          ->type_name("LIST");
      app->add_option("--json", options->json, "an object a line")->type_name("FILE");
      return;
  }
}

uint64_t size_of(const std::string &text) {
  uint64_t bytes = 0;
  if (!text.empty()) mxs_cli::read_size(text, &bytes);
  return bytes;
}

// What is wrong with options that are each right by themselves.
std::string understand(const Words &words, Options *options) {
  options->bytes_first = size_of(words.first);
  options->bytes_last = size_of(words.last);
  options->increment = size_of(words.increment);
  options->chunk_bytes = size_of(words.chunk);
  options->heap = words.memory == "heap";
  options->dtype = words.dtype == "bf16" ? MXS_BF16 : words.dtype == "f16" ? MXS_F16 : MXS_F32;
  if (words.forms == "out-of-place") options->forms = {Form::out_of_place};
  if (words.forms == "in-place") options->forms = {Form::in_place};
  options->pass_elements = size_of(words.passes) / sizeof(float);
  if (options->local) {
    if (options->shapes == Options().shapes) options->shapes = "2048x2048,1024x4096,4096x4096,256x1024*64";
    if (options->local_threads.empty()) options->local_threads = {1, 2};
    if (options->backends.empty()) options->backends = {"tiles", "onednn", "openblas"};
  } else if (options->local_threads.size() > 1) {
    return "--threads takes a list with --local only";
  } else if (!options->local_threads.empty()) {
    options->threads = options->local_threads[0];
  }
  // Other commands have one size.
  const bool sweeps = options->command <= Command::allreduce;
  if (sweeps && options->bytes_last < options->bytes_first)
    return "-e " + words.last + " is less than -b " + words.first;
  if (!words.increment.empty() && options->increment == 0) return "-i 0 would never come to an end";
  if (sweeps && options->bytes_first == 0 && options->bytes_last > 0 && options->increment == 0)
    return "-b 0 stays 0 however often it is multiplied; give -i or -e 0";
  if (sweeps && sizes(*options).size() > 10'000) return "these are more than 10,000 sizes";
  if (options->plant_fault && sweeps && options->check == 0) return "--plant-fault is found by checks, but -c is 0";
  return "";
}

}  // namespace

const char *command_name(Command command) {
  for (const CommandWords &entry : commands)
    if (entry.command == command) return entry.name;
  return "";
}

std::vector<uint64_t> sizes(const Options &options) {
  std::vector<uint64_t> list;
  uint64_t bytes = options.bytes_first;
  while (bytes <= options.bytes_last && list.size() <= 10'000) {
    list.push_back(bytes);
    const auto times = static_cast<uint64_t>(std::floor(static_cast<double>(bytes) * options.factor));
    const uint64_t next = options.increment ? bytes + options.increment : times;
    if (next <= bytes) break;
    bytes = next;
  }
  return list;
}

bool read_options(int count, char **words, Options *options, int *status) {
  // Each command has its own copy, because defaults differ.
  constexpr size_t command_count = std::size(commands);
  std::vector<Options> all(command_count);
  std::vector<Words> texts(command_count);
  CLI::App app{"How fast matrixshard is here, in the manner of nccl-tests. Every rank runs it, rank 0 prints:\n"
               "  mxs run -n 4 -- mxs-perf gather -b 1M -e 256M -f 2 --layout k:2\n"
               "docs/measuring.md says what each figure is.", "mxs-perf"};
  app.require_subcommand(1);
  app.set_version_flag("--version", mxs_version_text());
  for (size_t i = 0; i < command_count; i++) {
    all[i].command = commands[i].command;
    add_options(app.add_subcommand(commands[i].name, commands[i].help), &all[i], &texts[i]);
  }
  const std::string first = count > 1 ? words[1] : "-";
  const auto is_first = [&](const CommandWords &entry) { return first == entry.name; };
  if (first[0] != '-' && std::none_of(std::begin(commands), std::end(commands), is_first)) {
    std::string names;
    for (const CommandWords &entry : commands) names.append(names.empty() ? "" : ", ").append(entry.name);
    std::fprintf(stderr, "mxs-perf: there is no command \"%s\"; there are %s\n", first.c_str(), names.c_str());
    *status = 2;
    return false;
  }
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError &error) {
    *status = 0;
    if (error.get_exit_code() == 0) {
      app.exit(error);
      return false;
    }
    std::fprintf(stderr, "mxs-perf: %s\nmxs-perf --help and mxs-perf COMMAND --help say more\n", error.what());
    *status = 2;
    return false;
  }
  for (size_t i = 0; i < command_count; i++)
    if (app.got_subcommand(commands[i].name)) {
      const std::string wrong = understand(texts[i], &all[i]);
      if (!wrong.empty()) {
        std::fprintf(stderr, "mxs-perf: %s\n", wrong.c_str());
        *status = 2;
        return false;
      }
      *options = all[i];
    }
  return true;
}

}  // namespace bench
