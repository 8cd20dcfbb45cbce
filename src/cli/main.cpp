// SPDX-License-Identifier: Apache-2.0
// mxs: the program beside the library. It uses the public interface only.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cli/commands.hpp"
#include "cli/standard_streams.hpp"
#include "matrixshard/version.h"

namespace mxs_cli {

namespace {

struct Command {
  const char *name;  // of one word or two
  int (*function)(const Words &words);
  const char *usage, *help;
};

const Command commands[] = {
    {"info", info, "mxs info [--json] [--topology WORDS|FILE]",
     "  Version, CPU, what of this build can be used on this machine (transports, kernels), and its topology: NUMA\n"
     "  nodes, NICs and speeds.\n"
     "    --topology WORDS|FILE  another one: words such as \"nodes:8 ranks:8 nic:25\", a saved topology, or a\n"
     "                           machine that hwloc has saved as XML\n"},
    {"checkpoint show", checkpoint_show, "mxs checkpoint show PATH [--tensors] [--json]",
     "  What a checkpoint has, from its manifest and headers: step, world, files, kinds of arrays, rules and their\n"
     "  values, tensors with owners and state. Of a folder of checkpoints: which there are, which is the newest, what\n"
     "  killed saves have left. Of any safetensors model: its files and tensors.\n"
     "    PATH        a checkpoint, a folder of them; a safetensors file, its index, or a folder of such files\n"
     "    --tensors   all tensors and files, not the largest and first alone\n"
     "    --json      one JSON object, with all arrays\n"},
    {"checkpoint verify", checkpoint_verify, "mxs checkpoint verify PATH [--json]",
     "  Reads all bytes and compares their hashes with the manifest's; each fault is a line. Without a manifest: are\n"
     "  the headers sound, and can all bytes be read? Of a folder of checkpoints the newest is verified.\n"
     "  Ends with 1 if there are faults.\n"},
    {"checkpoint reshard", checkpoint_reshard, "mxs checkpoint reshard SOURCE TARGET --world WORDS|FILE [options]",
     "  Writes SOURCE again as another world would have saved it, into the folder of checkpoints TARGET: the same\n"
     "  arrays, each in the files of its owners there. Loads need no reshard; this is for files of another number, or\n"
     "  for the model alone. Streams, in at most 64 MiB of memory; nothing is left behind if it fails.\n"
     "  A checkpoint of the result's name in TARGET is replaced, but SOURCE not by its model alone.\n"
     "    --world WORDS|FILE  \"nodes:8 ranks:8\", or a saved topology\n"
     "    --weights-only      no masters and no optimizer state beside the model\n"
     "    --name NAME         of the folder in TARGET (step-00000500, by the step)\n"
     "    --keep N            afterwards only the newest N step-* folders stay in TARGET\n"
     "    --files-from DIR    config.json, a tokenizer and the like are copied from there (SOURCE)\n"
     "    --budget SIZE, --flat SIZE, --alignment SIZE, --co-owners N, --flops RATE, --memory RATE,\n"
     "    --weights step:100,bytes:10,egress:1\n"
     "                        as in mxs plan (as SOURCE was planned)\n"
     "    --json              one JSON object\n"},
    {"checkpoint diff", checkpoint_diff, "mxs checkpoint diff A B [--weights-only] [--json]",
     "  Two checkpoints or models, array by array, however their files are cut: arrays that only one has, other\n"
     "  shapes and dtypes, how many numbers differ and how far at most. NaN has no distance, it is counted.\n"
     "    --weights-only  masters and state aren't looked at\n"
     "    --json          one JSON object\n"
     "  Ends with 0 if all bits are equal, 1 if something differs, 2 after bad use or if one can't be read.\n"},
    {"inspect", inspect, "mxs inspect PATH... [--json] [--timeline FILE] [--events N]",
     "  What the rings of a job's ranks tell, which MXS_TRACE and MXS_RING make, while it runs or after its end: is\n"
     "  anybody stuck, which rank lags, in which collective, whom do the others miss, who died, who failed first; and\n"
     "  totals of bytes, times and waits. docs/tracing.md explains it.\n"
     "    PATH             rings, or folders of them; of several comms the one that wrote last counts\n"
     "    --timeline FILE  all ranks on one timeline in JSON, for ui.perfetto.dev or chrome://tracing\n"
     "    --events N       the latest N events, too\n"
     "    --json           one JSON object\n"
     "  Ends with 0 if all is well, 1 if somebody is stuck, has died or failed, 2 after bad use or if no ring can be\n"
     "  read.\n"},
    {"plan", plan, "mxs plan PATH --world WORDS|FILE [options]",
     "  Who would own what of a model on a cluster that needn't exist: bytes of each rank, time of the optimizer's\n"
     "  step, bytes on the wire, lower bounds, and what is wrong with the plan if anything is. Nothing is launched;\n"
     "  of weights only names, shapes and dtypes are read. docs/planning.md explains each number.\n"
     "    PATH                   safetensors file or folder, config.json, or a list of tensors (*.json, *.csv)\n"
     "    --world WORDS|FILE     \"nodes:8 ranks:8 nic:25 local:200 latency:10\", or a saved topology\n"
     "    --replicas R           the world holds R copies of the model (HSDP); the plan is for one, which has the\n"
     "                           first of R parts of consecutive ranks (1)\n"
     "    --rule PATTERN=RULE    tensors whose names match (* any text, ? any letter) get this rule: muon, adamw,\n"
     "                           external, frozen, shampoo, soap; RULE:GROUP sets the group, too. May be repeated:\n"
     "                           the first that matches counts\n"
     "    --matrix-rule RULE     of matrices that no pattern names (muon)\n"
     "    --dtype, --master-dtype, --gradient-dtype DTYPE\n"
     "                           f32, bf16, f16 (as the model says; f32; as dtype)\n"
     "    --budget SIZE          of what a rank owns, as in 40GiB or 40GB\n"
     "    --flat SIZE            non-matrix tensors from this size on are cut over the ranks, in shares of no less\n"
     "                           (64KiB)\n"
     "    --alignment SIZE       of borders between owners (4KiB)\n"
     "    --co-owners N          at most N ranks of a node may share a matrix where ranks would be idle (1)\n"
     "    --flops RATE           of a rank's matrix products, as in 150T (150T)\n"
     "    --memory RATE          bytes that pass through a rank's memory each second, as in 1.5T (1.5T)\n"
     "    --weights step:100,bytes:10,egress:1\n"
     "                           what the worst rank's excess over its bounds counts in the search\n"
     "    --slots N, --gradient-slots N, --threads N, --by-reference\n"
     "                           how the run will use the plan, for its memory (2, 2, 1, by copy)\n"
     "    --compare NAMES        the same under slices, alltoall, zero1, ddp; or all, with times of communication and\n"
     "                           advice. Predicted by formulas and the simulator\n"
     "    --tokens N             that a rank takes in a step: whole steps are compared, too\n"
     "    --train-flops RATE     of a rank in forward and backward (as --flops)\n"
     "    --active N             parameters that a token passes, as in 37B, where experts take turns (all)\n"
     "    --tensors              rule, role, owners and the reason of every tensor\n"
     "    --save FILE            the plan as JSON, for mxs_plan_load and --previous\n"
     "    --previous FILE        start from this plan and move little; says what moves\n"
     "    --html FILE            the same as a page for browsers, which needs no network\n"
     "    --json                 the same as one JSON object\n"
     "  Wire: a unit is gathered twice and its gradients reduced once in each step. Of a gather each byte enters each\n"
     "  other node once, and is copied to each further rank inside; of a reduce each node but the owner's sends one\n"
     "  fp32 sum, and each rank but one of a node gives its gradients inside it.\n"
     "  Ends with 1 if the model can't be read or planned (a budget that nobody can meet), 2 after bad use.\n"},
    {"run", run, "mxs run -n RANKS [--prefix] [--keep-going] [--port PORT] [--] PROGRAM [ARGUMENTS...]",
     "  Starts PROGRAM that many times on this machine, with torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK,\n"
     "  LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), and with a secret drawn for them (MXS_SECRET) unless MXS_SECRET\n"
     "  or MXS_SECRET_FILE is set, so that no other user of the machine gets in. Signals are passed on.\n"
     "  When one rank fails the others get SIGTERM, and SIGKILL 5 seconds later; no process is left behind.\n"
     "    -n, --ranks RANKS  how many, from 1 to 4096\n"
     "    --prefix           begin each line of output with its rank, as in \"[3] \"\n"
     "    --keep-going       a rank that fails is told of, and the others live: for programs that go on without it\n"
     "    --port PORT        where rank 0 listens; without it a free port is looked for\n"
     "  Rank 0 reads standard input unless that is a terminal; the others read nothing.\n"
     "  Ends with the status of the rank that failed first: its own, or 128 + N if signal N killed it. With\n"
     "  --keep-going: 0 if some rank ended with 0.\n"
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

void print_help(const std::string &family) {
  for (const Command &command : commands)
    if (family.empty() || (command.name + std::string(" ")).starts_with(family + " "))
      std::printf("%s\n%s\n", command.usage, command.help);
}

int help() {
  std::printf("mxs %s: matrix-owner shards\n\n", mxs_version_text());
  print_help("");
  return 0;
}

bool asks_for_help(const Words &words) {
  return words.size() == 1 && (words[0] == "--help" || words[0] == "-h");
}

int perform(const Command &command, const Words &words) {
  if (!asks_for_help(words)) return command.function(words);
  std::printf("%s\n%s", command.usage, command.help);
  return 0;
}

const Command *find(const std::string &name) {
  const Command *const found = std::find_if(std::begin(commands), std::end(commands),
                                            [&](const Command &command) { return command.name == name; });
  return found == std::end(commands) ? nullptr : found;
}

int perform(int count, char **arguments) {
  if (count < 2) return bad_use("", "a command is missing: checkpoint, info, inspect, plan, run, simulate");
  const std::string name = arguments[1];
  if (name == "--help" || name == "-h" || name == "help") return help();
  if (name == "--version") {
    std::printf("mxs %s\n", mxs_version_text());
    return 0;
  }
  const Words words(arguments + 2, arguments + count);
  if (const Command *const command = find(name)) return perform(*command, words);
  if (name == "checkpoint") {
    if (asks_for_help(words)) {
      print_help(name);
      return 0;
    }
    const Command *const command = words.empty() ? nullptr : find(name + " " + words[0]);
    if (command) return perform(*command, Words(words.begin() + 1, words.end()));
    const std::string known = "show, verify, reshard or diff";
    return bad_use("checkpoint", words.empty() ? "what to do is missing: " + known
                                               : "\"" + words[0] + "\" is not " + known);
  }
  return bad_use("", "there is no command \"" + name + "\"; there are checkpoint, info, inspect, plan, run and "
                         "simulate");
}

}  // namespace

int bad_use(const char *command, const std::string &sentence) {
  std::fprintf(stderr, "mxs%s%s: %s\n", *command ? " " : "", command, sentence.c_str());
  for (const Command &entry : commands)
    if (std::strcmp(entry.name, command) == 0) std::fprintf(stderr, "usage: %s\n", entry.usage);
  std::fprintf(stderr, "mxs%s%s --help says more\n", *command ? " " : "", command);
  return status_bad_use;
}

}  // namespace mxs_cli

int main(int count, char **arguments) {
  mxs_cli::occupy_standard_streams();
  return mxs_cli::status_after_output("mxs", mxs_cli::perform(count, arguments));
}
