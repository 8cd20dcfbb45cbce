// SPDX-License-Identifier: Apache-2.0
// mxs info: asks the library by using it: a comm of one rank for each transport and for the topology, a small
// orthogonalizer for each backend, the driver's GPUs. So what it says is what a program would meet.
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

// GPUs, and what carries bytes between them.
struct Cuda {
  Part part = {"", false, ""};
  Part nccl = {"nccl", false, ""};
  std::string driver;
  std::vector<mxs_cuda_device> devices;  // of those that answer
  std::vector<Part> refused;             // by index: why not
};

std::string version_of(int32_t number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

Cuda ask_cuda() {
  Cuda cuda;
  mxs_cuda_info found = MXS_CUDA_INFO_INIT;
  if (mxs_cuda_query(&found) != MXS_OK) {
    cuda.part.text = mxs_last_error();
    return cuda;
  }
  cuda.part.usable = true;
  cuda.driver = version_of(found.driver_version);
  cuda.nccl.usable = found.nccl_version != 0;
  cuda.nccl.text = found.nccl;
  for (int32_t index = 0; index < found.device_count; ++index) {
    mxs_cuda_device device = MXS_CUDA_DEVICE_INIT;
    if (mxs_cuda_device_query(index, &device) == MXS_OK) cuda.devices.push_back(device);
    else cuda.refused.push_back({std::to_string(index), false, mxs_last_error()});
  }
  return cuda;
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

void print_device_json(const mxs_cuda_device &device) {
  std::printf("{\"index\": %d, \"name\": %s, \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, "
              "\"total_bytes\": %llu, \"free_bytes\": %llu, \"granule_bytes\": %llu, \"pci_address\": %s, "
              "\"numa_node\": %d, \"nic\": %s}", device.index, quoted(device.name).c_str(), device.major, device.minor,
              device.multiprocessors, static_cast<unsigned long long>(device.total_bytes),
              static_cast<unsigned long long>(device.free_bytes),
              static_cast<unsigned long long>(device.granule_bytes), quoted(device.pci_address).c_str(),
              device.numa_node, quoted(device.nic).c_str());
}

void print_cuda_json(const Cuda &cuda) {
  std::printf("  \"cuda\": {\"usable\": %s, \"text\": %s, \"driver\": %s,\n", cuda.part.usable ? "true" : "false",
              quoted(cuda.part.text).c_str(), quoted(cuda.driver).c_str());
  std::printf("    \"nccl\": {\"usable\": %s, \"text\": %s},\n    \"devices\": [", cuda.nccl.usable ? "true" : "false",
              quoted(cuda.nccl.text).c_str());
  for (size_t i = 0; i < cuda.devices.size(); ++i) {
    std::printf("%s\n      ", i ? "," : "");
    print_device_json(cuda.devices[i]);
  }
  std::printf("],\n    \"refused\": [");
  for (size_t i = 0; i < cuda.refused.size(); ++i)
    std::printf("%s\n      {\"index\": %s, \"text\": %s}", i ? "," : "", cuda.refused[i].name.c_str(),
                quoted(cuda.refused[i].text).c_str());
  std::printf("]}");
}

void print_cuda_table(const Cuda &cuda) {
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  if (!cuda.part.usable) {
    std::printf("%-12s %-10s no: %s\n", "cuda", "", cuda.part.text.c_str());
    return;
  }
  std::printf("%-12s %-10s yes: %s\n", "cuda", "driver", cuda.driver.c_str());
  std::printf("%-12s %-10s %s: %s\n", "", "nccl", cuda.nccl.usable ? "yes" : "no", cuda.nccl.text.c_str());
  for (const mxs_cuda_device &device : cuda.devices) {
    std::printf("%-12s gpu %-6d yes: %s, compute capability %d.%d, %.1f of %.1f GiB free, %s", "", device.index,
                device.name, device.major, device.minor, static_cast<double>(device.free_bytes) / gib,
                static_cast<double>(device.total_bytes) / gib, device.pci_address);
    if (device.numa_node >= 0) std::printf(", NUMA node %d", device.numa_node);
    if (*device.nic) std::printf(", near to %s", device.nic);
    std::printf("%s\n", device.granule_bytes ? "" : ", maps no memory");
  }
  for (const Part &part : cuda.refused)
    std::printf("%-12s gpu %-6s no: %s\n", "", part.name.c_str(), part.text.c_str());
}

void print_json(const Cpu &cpu, const std::vector<Part> &transports, const std::vector<Part> &backends,
                const Cuda &cuda, const mxs_topology *topology) {
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
  std::printf(",\n");
  print_cuda_json(cuda);
  std::printf(",\n  \"topology\": %s\n}\n", topology_json(topology).c_str());
}

void print_table(const Cpu &cpu, const std::vector<Part> &transports, const std::vector<Part> &backends,
                 const Cuda &cuda, const mxs_topology *topology) {
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
  print_cuda_table(cuda);
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
    (json ? print_json : print_table)(cpu, transports, backends, ask_cuda(), topology.get());
  } catch (const mxs::error &error) {
    std::fprintf(stderr, "mxs info: %s\n", error.what());
    return told.empty() ? 1 : status_bad_use;
  }
  return 0;
}

}  // namespace mxs_cli
