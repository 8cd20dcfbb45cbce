// SPDX-License-Identifier: Apache-2.0
// What launchers leave in the environment: lines NAME=VALUE of the variables that are read. What is taken has a rank
// in its world and, if that has others, an address and a port.
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/environment.hpp"
#include "bootstrap/bootstrap.hpp"
#include "fuzz.hpp"

using namespace mxs;

namespace {

constexpr const char *names[] = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "MXS_PORT", "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID",
    "SLURM_STEP_ID", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "MXS_TIMEOUT"};

// setenv keeps a copy of every value for good; these are written over.
std::array<std::array<char, 512>, std::size(names)> texts;

void set(size_t variable, std::string_view value) {
  std::array<char, 512> &text = texts[variable];
  const size_t name_bytes = std::strlen(names[variable]);
  const size_t bytes = std::min(value.size(), text.size() - name_bytes - 2);
  std::memcpy(text.data(), names[variable], name_bytes);
  text[name_bytes] = '=';
  if (bytes) std::memcpy(text.data() + name_bytes + 1, value.data(), bytes);
  text[name_bytes + 1 + bytes] = '\0';
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const bool known = [] {
    for (size_t i = 0; i < std::size(names); ++i) {
      set(i, "");
      putenv(texts[i].data());
    }
    return true;
  }();
  static_cast<void>(known);
  for (size_t i = 0; i < std::size(names); ++i) set(i, "");
  std::string_view text = fuzz::text_of(data, size);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t equals = line.find('=');
    for (size_t i = 0; i < std::size(names); ++i)
      if (equals != std::string_view::npos && line.substr(0, equals) == names[i]) set(i, line.substr(equals + 1));
  }
  int64_t seconds = 300;
  if (environment_number("MXS_TIMEOUT", 1, 10'000'000, &seconds) == MXS_OK)
    fuzz::promise(seconds >= 1 && seconds <= 10'000'000);
  JobEnvironment job;
  if (read_job_environment(&job) != MXS_OK) return 0;
  fuzz::promise(job.rank >= 0 && job.rank < job.rank_count && job.local_rank >= 0);
  fuzz::promise(job.rank_count == 1 || (!job.address.empty() && job.port >= 1 && job.port <= 65535));
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"RANK=1\nWORLD_SIZE=4\nLOCAL_RANK=1\nMASTER_ADDR=127.0.0.1\nMASTER_PORT=29500\n",
          "RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=h\nMASTER_PORT=29500\nTORCHELASTIC_USE_AGENT_STORE=True\n"
          "TORCHELASTIC_RUN_ID=none\n",
          "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=1\n"
          "OMPI_COMM_WORLD_LOCAL_SIZE=2\nPMIX_NAMESPACE=prterun-a\n",
          "SLURM_PROCID=3\nSLURM_NTASKS=4\nSLURM_LOCALID=1\nSLURM_JOB_ID=42\nSLURM_STEP_ID=0\n"
          "SLURM_STEP_NODELIST=node[03-07,9]-ib,other\n",
          "SLURM_PROCID=0\nSLURM_NTASKS=2\nMXS_PORT=7\nSLURM_JOB_NODELIST=a,b\nMXS_TIMEOUT=12\n"};
}
