// SPDX-License-Identifier: Apache-2.0
// Who am I? The variables of torchrun, mpirun and srun, read once and checked.
//
//   torchrun, mxs run   RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
//   Open MPI            OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   Slurm               SLURM_PROCID SLURM_NTASKS SLURM_LOCALID SLURM_STEP_NODELIST SLURM_JOB_ID
//
// The first of the three that is there counts: torchrun and mpirun are started under srun, not the other way round.
// MXS_PORT goes before every other way to find the port. MXS_INTERFACE names the network interface to listen on.
#include <string_view>

#include "base/environment.hpp"
#include "base/hash.hpp"
#include "base/status.hpp"
#include "bootstrap/bootstrap.hpp"

namespace mxs {

namespace {

constexpr int64_t rank_count_max = 1 << 20;

// Ports that launchers don't name are hashed into this range: below what Linux gives to outgoing connections (from
// 32768 up).
constexpr int hashed_port_first = 20000, hashed_port_count = 12000;

bool is_set(const char *name) { return environment_text(name).has_value(); }

mxs_status required_number(const char *name, int64_t least, int64_t most, int *value) {
  if (!is_set(name)) return set_error(MXS_ENVIRONMENT, "%s is not set", name);
  int64_t number = 0;
  const mxs_status status = environment_number(name, least, most, &number);
  if (status == MXS_OK) *value = static_cast<int>(number);
  return status;
}

mxs_status read_place(const char *rank_name, const char *count_name, const char *local_name, JobEnvironment *job) {
  mxs_status status = required_number(count_name, 1, rank_count_max, &job->rank_count);
  if (status != MXS_OK) return status;
  status = required_number(rank_name, 0, rank_count_max, &job->rank);
  if (status != MXS_OK) return status;
  if (job->rank >= job->rank_count)
    return set_error(MXS_ENVIRONMENT, "%s is %d, but %s is %d: ranks count from 0", rank_name, job->rank, count_name,
                     job->rank_count);
  int64_t local_rank = 0;
  status = environment_number(local_name, 0, rank_count_max, &local_rank);
  job->local_rank = static_cast<int>(local_rank);
  return status;
}

int hashed_port(uint64_t job) { return hashed_port_first + static_cast<int>(job % hashed_port_count); }

// MXS_PORT, else MASTER_PORT or, if torchrun's agent listens there itself, one made from the job. The next one wouldn't
// do: jobs side by side on a machine are given neighbouring ports by hand, and on the other side of the odd ones that
// Linux hands out to listeners are even ones, which go to outgoing connections. *found tells whether any was there.
mxs_status read_port(uint64_t job, int *port, bool *found) {
  *found = true;
  if (is_set("MXS_PORT")) return required_number("MXS_PORT", 1, 65535, port);
  *found = is_set("MASTER_PORT");
  if (!*found) return MXS_OK;
  const mxs_status status = required_number("MASTER_PORT", 1, 65535, port);
  if (status != MXS_OK) return status;
  const std::string agent = environment_text("TORCHELASTIC_USE_AGENT_STORE").value_or("");
  if (agent != "True" && agent != "true" && agent != "1") return MXS_OK;
  const int agents_port = *port;
  *port = hashed_port(job);
  if (*port == agents_port) *port = hashed_port(job + 1);
  return MXS_OK;
}

uint64_t job_hash(std::initializer_list<const char *> names) {
  Fingerprint fingerprint;
  for (const char *name : names) fingerprint.add(std::string_view(environment_text(name).value_or("")));
  return fingerprint.value();
}

mxs_status read_torchrun(JobEnvironment *job) {
  job->launcher = "torchrun";
  mxs_status status = read_place("RANK", "WORLD_SIZE", "LOCAL_RANK", job);
  if (status != MXS_OK) return status;
  // The run's id is "none" for all runs that are given a port instead.
  job->job = job_hash({"TORCHELASTIC_RUN_ID", "MASTER_PORT"});
  if (job->rank_count == 1) return MXS_OK;
  const std::optional<std::string> address = environment_text("MASTER_ADDR");
  if (!address)
    return set_error(MXS_ENVIRONMENT, "MASTER_ADDR is not set: the host name or address of rank 0");
  job->address = *address;
  bool found = false;
  status = read_port(job->job, &job->port, &found);
  if (status == MXS_OK && !found)
    return set_error(MXS_ENVIRONMENT, "MASTER_PORT is not set: the port on which rank 0 listens");
  return status;
}

mxs_status read_openmpi(JobEnvironment *job) {
  job->launcher = "openmpi";
  mxs_status status = read_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", job);
  if (status != MXS_OK) return status;
  job->job = job_hash({"PMIX_NAMESPACE"});
  if (job->rank_count == 1) return MXS_OK;
  int64_t local_count = 0;
  status = environment_number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, rank_count_max, &local_count);
  if (status != MXS_OK) return status;
  const std::optional<std::string> address = environment_text("MASTER_ADDR");
  if (!address && local_count != job->rank_count)
    return set_error(MXS_ENVIRONMENT,
                     "MASTER_ADDR is not set: mpirun runs on several nodes and doesn't tell where rank 0 is; pass "
                     "-x MASTER_ADDR=HOST");
  job->address = address.value_or("127.0.0.1");
  bool found = false;
  status = read_port(job->job, &job->port, &found);
  if (!found) job->port = hashed_port(job->job);
  return status;
}

mxs_status read_slurm(JobEnvironment *job) {
  job->launcher = "slurm";
  mxs_status status = read_place("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", job);
  if (status != MXS_OK) return status;
  job->job = job_hash({"SLURM_JOB_ID", "SLURM_STEP_ID"});
  if (job->rank_count == 1) return MXS_OK;
  if (const std::optional<std::string> address = environment_text("MASTER_ADDR")) {
    job->address = *address;
  } else {
    const char *name = is_set("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
    const std::optional<std::string> nodes = environment_text(name);
    if (!nodes) return set_error(MXS_ENVIRONMENT, "SLURM_STEP_NODELIST is not set, nor MASTER_ADDR");
    job->address = first_host(*nodes);
    if (job->address.empty())
      return set_error(MXS_ENVIRONMENT, "%s is \"%.200s\", whose first host can't be read; set MASTER_ADDR", name,
                       nodes->c_str());
  }
  bool found = false;
  status = read_port(job->job, &job->port, &found);
  if (status != MXS_OK || found) return status;
  if (!is_set("SLURM_JOB_ID"))
    return set_error(MXS_ENVIRONMENT, "SLURM_JOB_ID is not set, from which the port is made; set MXS_PORT");
  job->port = hashed_port(job->job);
  return MXS_OK;
}

}  // namespace

// "node[03-07,9]-ib,other": text before the bracket, the first number with its zeros, text after the bracket.
std::string first_host(const std::string &node_list) {
  std::string host;
  bool in_bracket = false, number_taken = false;
  for (const char letter : node_list) {
    if (letter == '[') {
      if (in_bracket) return "";
      in_bracket = true;
      number_taken = false;
    } else if (letter == ']') {
      if (!in_bracket) return "";
      in_bracket = false;
    } else if (in_bracket) {
      if (letter == '-' || letter == ',') number_taken = true;
      else if (letter < '0' || letter > '9') return "";
      else if (!number_taken) host += letter;
    } else if (letter == ',') {
      break;
    } else if (letter == ' ') {
      return "";
    } else {
      host += letter;
    }
  }
  return in_bracket ? "" : host;
}

mxs_status read_job_environment(JobEnvironment *job) {
  JobEnvironment found;
  mxs_status status = MXS_OK;
  if (is_set("RANK") || is_set("WORLD_SIZE")) status = read_torchrun(&found);
  else if (is_set("OMPI_COMM_WORLD_RANK")) status = read_openmpi(&found);
  else if (is_set("SLURM_PROCID")) status = read_slurm(&found);
  else
    return set_error(MXS_ENVIRONMENT,
                     "RANK is not set, nor OMPI_COMM_WORLD_RANK, nor SLURM_PROCID: start the program by torchrun, "
                     "mpirun, srun or `mxs run -n 4 -- PROGRAM`, or pass options.bootstrap");
  found.interface = environment_text("MXS_INTERFACE").value_or("");
  if (status == MXS_OK) *job = std::move(found);
  return status;
}

}  // namespace mxs
