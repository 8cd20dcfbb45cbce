// SPDX-License-Identifier: Apache-2.0
// mxs info: asks the library by using it: a comm of one rank for each transport and for the topology, a small
// orthogonalizer for each backend. So what it says is what a program would meet.
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "cli/commands.hpp"
#include "cli/json_text.hpp"
#include "cli/print_topology.hpp"
#include "cli/read_topology.hpp"
#include "matrixshard/matrixshard.hpp"

namespace mxs_cli {

namespace {

struct Part {
  std::string name;
  bool usable = false;
  std::string text;  // which implementation, or why not
};

// A bootstrap of one rank: what it gathers is its own.
int gather_own(void *, const void *source, void *target, size_t bytes, void **) {
  std::memcpy(target, source, bytes);
  return 0;
}
int nothing(void *, void *) { return 0; }

// A comm of this process alone.
mxs_status make_comm(mxs_comm **comm, const char *transport) {
  mxs_bootstrap bootstrap = MXS_BOOTSTRAP_INIT;
  bootstrap.rank_count = 1;
  bootstrap.all_gather = gather_own;
  bootstrap.test = nothing;
  bootstrap.free_request = nothing;
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.bootstrap = &bootstrap;
  options.transport = transport;
  return mxs_comm_create(comm, &options);
}

Part ask_transport(const char *name) {
  mxs_comm *comm = nullptr;
  if (make_comm(&comm, name) != MXS_OK) return {name, false, mxs_last_error()};
  mxs_comm_destroy(&comm);
  return {name, true, ""};
}

// What a comm of this process finds: its node.
mxs::topology ask_topology() {
  mxs_comm *made = nullptr;
  mxs::check(make_comm(&made, "loopback"));
  const mxs::comm comm(made);
  return mxs::topology_of(comm);
}

Part ask_backend(mxs_backend backend) {
  const char *const name = mxs_backend_name(backend);
  mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
  options.backend = backend;
  mxs_orthogonalizer *orthogonalizer = nullptr;
  if (mxs_orthogonalizer_create(&orthogonalizer, 256, 256, &options) != MXS_OK)
    return {name, false, mxs_last_error()};
  Part part = {name, true, mxs_orthogonalizer_backend(orthogonalizer)};
  mxs_orthogonalizer_destroy(&orthogonalizer);
  return part;
}

struct Cpu {
  std::string model = "unknown", features;
  int cores = 0;
};

Cpu ask_cpu() {
  Cpu cpu;
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  const auto value_of = [&] { return line.substr(line.find(':') + (line.find(": ") == std::string::npos ? 1 : 2)); };
  while (std::getline(file, line) && !line.empty()) {  // the first CPU's
    if (line.rfind("model name", 0) == 0) cpu.model = value_of();
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream flags(value_of());
    for (std::string flag; flags >> flag;)
      for (const char *known : {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_bf16", "bf16", "sve"})
        if (flag == known) cpu.features += (cpu.features.empty() ? "" : " ") + flag;
  }
  cpu_set_t set;
  cpu.cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return cpu;
}

void print_json(const Cpu &cpu, const std::vector<Part> &transports, const std::vector<Part> &backends,
                const mxs_topology *topology) {
  const auto list = [](const char *name, const std::vector<Part> &parts) {
    std::printf("  \"%s\": [", name);
    for (size_t i = 0; i < parts.size(); ++i)
      std::printf("%s\n    {\"name\": %s, \"usable\": %s, \"text\": %s}", i ? "," : "", quoted(parts[i].name).c_str(),
                  parts[i].usable ? "true" : "false", quoted(parts[i].text).c_str());
    std::printf("\n  ]");
  };
  std::printf("{\n  \"version\": %s,\n", quoted(mxs_version_text()).c_str());
  std::printf("  \"cpu\": {\"model\": %s, \"cores\": %d, \"features\": %s},\n", quoted(cpu.model).c_str(), cpu.cores,
              quoted(cpu.features).c_str());
  list("transports", transports);
  std::printf(",\n");
  list("backends", backends);
  std::printf(",\n  \"topology\": %s\n}\n", topology_json(topology).c_str());
}

void print_table(const Cpu &cpu, const std::vector<Part> &transports, const std::vector<Part> &backends,
                 const mxs_topology *topology) {
  const auto list = [](const char *title, const std::vector<Part> &parts) {
    for (const Part &part : parts) {
      std::printf("%-12s %-10s %s%s%s\n", title, part.name.c_str(), part.usable ? "yes" : "no",
                  part.text.empty() ? "" : ": ", part.text.c_str());
      title = "";
    }
  };
  std::printf("%-12s %s\n", "matrixshard", mxs_version_text());
  std::printf("%-12s %s, %d cores for this process\n", "cpu", cpu.model.c_str(), cpu.cores);
  if (!cpu.features.empty()) std::printf("%-12s %s\n", "", cpu.features.c_str());
  list("transports", transports);
  list("backends", backends);
  std::fputs(topology_tree(topology).c_str(), stdout);
}

}  // namespace

int info(const Words &words) {
  bool json = false;
  std::string told;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--json") {
      json = true;
    } else if (words[i] == "--topology" && i + 1 < words.size() && !words[i + 1].empty()) {
      told = words[++i];
    } else if (words[i].rfind("--topology=", 0) == 0 && words[i].size() > 11) {
      told = words[i].substr(11);
    } else if (words[i].rfind("--topology", 0) == 0 && words[i].find_first_not_of('=', 10) == std::string::npos) {
      return bad_use("info", "--topology needs words, such as \"nodes:2 ranks:4\", or a file");
    } else {
      return bad_use("info", "\"" + words[i] + "\" is not understood");
    }
  }
  unsetenv("MXS_TOPOLOGY");  // of a job: the comms here have one rank
  try {
    const mxs::topology topology = told.empty() ? ask_topology() : read_topology(told);
    const Cpu cpu = ask_cpu();
    std::vector<Part> transports, backends;
    for (const char *name : {"loopback", "shm", "ucx"}) transports.push_back(ask_transport(name));
    for (const mxs_backend backend :
         {MXS_BACKEND_REFERENCE, MXS_BACKEND_ONEDNN, MXS_BACKEND_OPENBLAS, MXS_BACKEND_TILES})
      backends.push_back(ask_backend(backend));
    (json ? print_json : print_table)(cpu, transports, backends, topology.get());
  } catch (const mxs::error &error) {
    std::fprintf(stderr, "mxs info: %s\n", error.what());
    return told.empty() ? 1 : status_bad_use;
  }
  return 0;
}

}  // namespace mxs_cli
