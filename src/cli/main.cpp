// SPDX-License-Identifier: Apache-2.0
// mxs: the program beside the library. It uses the public interface only.
#include <cstdio>
#include <cstring>

#include "cli/commands.hpp"
#include "cli/standard_streams.hpp"
#include "matrixshard/version.h"

namespace mxs_cli {

namespace {

struct Command {
  const char *name;
  int (*function)(const Words &words);
  const char *usage, *help;
};

const Command commands[] = {
    {"info", info, "mxs info [--json] [--topology WORDS|FILE]",
     "  Version, CPU, what of this build can be used on this machine (transports, kernels), and its topology: NUMA\n"
     "  nodes, NICs and speeds.\n"
     "    --topology WORDS|FILE  another one: words such as \"nodes:8 ranks:8 nic:25\", a saved topology, or a\n"
     "                           machine that hwloc has saved as XML\n"},
    {"run", run, "mxs run -n RANKS [--prefix] [--port PORT] [--] PROGRAM [ARGUMENTS...]",
     "  Starts PROGRAM that many times on this machine, with torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK,\n"
     "  LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT). Signals are passed on. When one rank fails the others get\n"
     "  SIGTERM, and SIGKILL 5 seconds later; no process is left behind.\n"
     "    -n, --ranks RANKS  how many, from 1 to 4096\n"
     "    --prefix           begin each line of output with its rank, as in \"[3] \"\n"
     "    --port PORT        where rank 0 listens; without it a free port is looked for\n"
     "  Rank 0 reads standard input unless that is a terminal; the others read nothing.\n"
     "  Ends with the status of the rank that failed first: its own, or 128 + N if signal N killed it.\n"
     "  126, 127: PROGRAM can't be started. 2: bad use.\n"},
    {"simulate", simulate,
     "mxs simulate --topology WORDS|FILE [--layout WORDS|FILE] [--bytes 16M] [--algorithm all|NAME] [options]",
     "  What a collective would take on a topology that needn't exist: each algorithm's schedule, run event by\n"
     "  event, beside the cost model's prediction and the bound. The one that would be chosen is marked.\n"
     "    --topology WORDS|FILE  \"nodes:8 ranks:8 nic:25 local:200 latency:10 overhead:1\", or a saved one\n"
     "    --layout WORDS|FILE    even, one, k:N, k:N+tail, zipf:S; a file has \"owner bytes\" in each line (even)\n"
     "    --bytes SIZE           of the whole buffer, as in 512M (16M)\n"
     "    --kind KIND            gather or reduce (gather)\n"
     "    --dtype DTYPE          of gradients: f32, bf16, f16 (f32)\n"
     "    --rank-order           reduce in rank order\n"
     "    --algorithm NAME       only this one (all)\n"
     "    --chunk SIZE, --window COUNT, --add GBPS\n"
     "                           instead of those chosen, and of the topology's speed of adding\n"
     "    --json                 an object in each line\n"},
};

int help() {
  std::printf("mxs %s: matrix-owner shards\n\n", mxs_version_text());
  for (const Command &command : commands) std::printf("%s\n%s\n", command.usage, command.help);
  return 0;
}

int perform(int count, char **arguments) {
  if (count < 2) return bad_use("", "a command is missing: info, run, simulate");
  const std::string name = arguments[1];
  if (name == "--help" || name == "-h" || name == "help") return help();
  if (name == "--version") {
    std::printf("mxs %s\n", mxs_version_text());
    return 0;
  }
  const Words words(arguments + 2, arguments + count);
  for (const Command &command : commands) {
    if (name != command.name) continue;
    if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h")) {
      std::printf("%s\n%s", command.usage, command.help);
      return 0;
    }
    return command.function(words);
  }
  return bad_use("", "there is no command \"" + name + "\"; there are info, run and simulate");
}

}  // namespace

int bad_use(const char *command, const std::string &sentence) {
  std::fprintf(stderr, "mxs%s%s: %s\n", *command ? " " : "", command, sentence.c_str());
  for (const Command &entry : commands)
    if (std::strcmp(entry.name, command) == 0) std::fprintf(stderr, "usage: %s\n", entry.usage);
  std::fprintf(stderr, "mxs --help says more\n");
  return status_bad_use;
}

}  // namespace mxs_cli

int main(int count, char **arguments) {
  mxs_cli::occupy_standard_streams();
  return mxs_cli::status_after_output("mxs", mxs_cli::perform(count, arguments));
}
