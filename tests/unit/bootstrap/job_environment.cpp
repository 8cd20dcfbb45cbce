// SPDX-License-Identifier: Apache-2.0
// What launchers' variables mean, and what nonsense in them gets.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "bootstrap/bootstrap.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

using Variables = std::vector<std::pair<const char *, const char *>>;

const char *const all_names[] = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "MXS_PORT", "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID",
    "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"};

mxs_status read_with(const Variables &variables, JobEnvironment *job) {
  for (const char *name : all_names) unsetenv(name);
  for (const auto &[name, value] : variables) setenv(name, value, 1);
  return read_job_environment(job);
}

bool refuses(const Variables &variables, const std::vector<const char *> &words) {
  JobEnvironment job;
  job.rank = 77;
  const mxs_status status = read_with(variables, &job);
  if (status != MXS_ENVIRONMENT) {
    print_error("status %s, wanted ENVIRONMENT naming %s\n", mxs_status_name(status), words[0]);
    return false;
  }
  for (const char *word : words)
    if (std::string(last_error_text()).find(word) == std::string::npos) {
      print_error("\"%s\" doesn't say \"%s\"\n", last_error_text(), word);
      return false;
    }
  return job.rank == 77;
}

bool reads(const Variables &variables, const char *launcher, int rank, int rank_count, int local_rank,
           const char *address, int port) {
  JobEnvironment job;
  const mxs_status status = read_with(variables, &job);
  if (status != MXS_OK) {
    print_error("%s: %s\n", mxs_status_name(status), last_error_text());
    return false;
  }
  const bool fits = job.launcher == std::string(launcher) && job.rank == rank && job.rank_count == rank_count &&
                    job.local_rank == local_rank && job.address == address && (port < 0 || job.port == port);
  if (!fits)
    print_error("%s rank %d of %d, local %d, %s:%d\n", job.launcher, job.rank, job.rank_count, job.local_rank,
                job.address.c_str(), job.port);
  return fits;
}

const Variables torchrun = {
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "host"}, {"MASTER_PORT", "29500"}};

Variables with(Variables variables, const char *name, const char *value) {
  for (auto &entry : variables)
    if (std::string(entry.first) == name) {
      entry.second = value;
      return variables;
    }
  variables.emplace_back(name, value);
  return variables;
}

void torchrun_is_read(void **) {
  assert_true(reads(torchrun, "torchrun", 3, 4, 1, "host", 29500));
  assert_true(reads(with(torchrun, "MXS_PORT", "1234"), "torchrun", 3, 4, 1, "host", 1234));
  assert_true(reads(with(torchrun, "LOCAL_RANK", ""), "torchrun", 3, 4, 0, "host", 29500));
  assert_true(reads({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "torchrun", 0, 1, 0, "", 0));
}

// Jobs side by side on one machine: their agents listen on neighbouring ports, and each job's ranks meet elsewhere.
bool agents_keep_their_ports() {
  const Variables with_agent = with(torchrun, "TORCHELASTIC_USE_AGENT_STORE", "True");
  JobEnvironment job, again, neighbour, other_run;
  if (read_with(with_agent, &job) != MXS_OK || read_with(with_agent, &again) != MXS_OK) return false;
  if (read_with(with(with_agent, "MASTER_PORT", "29501"), &neighbour) != MXS_OK) return false;
  if (read_with(with(with_agent, "TORCHELASTIC_RUN_ID", "other"), &other_run) != MXS_OK) return false;
  for (const JobEnvironment *each : {&job, &neighbour, &other_run})
    if (each->port < 20000 || each->port >= 32000 || each->port == 29500 || each->port == 29501) return false;
  return job.port == again.port && job.job == again.job && job.port != neighbour.port && job.job != neighbour.job &&
         job.port != other_run.port && job.job != other_run.job;
}

// The port that a job's hash gives may be the agent's own.
bool an_agents_port_is_avoided() {
  for (int port = 20000; port < 32000; ++port) {
    const Variables with_agent = with(torchrun, "TORCHELASTIC_USE_AGENT_STORE", "1");
    JobEnvironment job;
    if (read_with(with(with_agent, "MASTER_PORT", std::to_string(port).c_str()), &job) != MXS_OK) return false;
    if (job.port == port) return false;
  }
  return true;
}

void an_agent_of_torchrun_keeps_its_port(void **) {
  assert_true(agents_keep_their_ports());
  assert_true(an_agents_port_is_avoided());
  const Variables with_agent = with(torchrun, "TORCHELASTIC_USE_AGENT_STORE", "True");
  assert_true(reads(with(with_agent, "MXS_PORT", "1234"), "torchrun", 3, 4, 1, "host", 1234));
  assert_true(reads(with(torchrun, "TORCHELASTIC_USE_AGENT_STORE", "False"), "torchrun", 3, 4, 1, "host", 29500));
  assert_true(refuses(with(with_agent, "MASTER_PORT", "0"), {"MASTER_PORT"}));
}

void nonsense_from_torchrun_names_the_variable(void **) {
  assert_true(refuses({}, {"RANK is not set", "mxs run"}));
  assert_true(refuses(with(torchrun, "RANK", ""), {"RANK is not set"}));
  assert_true(refuses(with(torchrun, "WORLD_SIZE", ""), {"WORLD_SIZE is not set"}));
  assert_true(refuses(with(torchrun, "RANK", "x"), {"RANK", "\"x\""}));
  assert_true(refuses(with(torchrun, "RANK", "-1"), {"RANK", "\"-1\""}));
  assert_true(refuses(with(torchrun, "RANK", "1.5"), {"RANK", "\"1.5\""}));
  assert_true(refuses(with(torchrun, "RANK", "4"), {"RANK is 4", "WORLD_SIZE is 4"}));
  assert_true(refuses(with(torchrun, "WORLD_SIZE", "0"), {"WORLD_SIZE", "\"0\""}));
  assert_true(refuses(with(torchrun, "WORLD_SIZE", "99999999999999999999"), {"WORLD_SIZE"}));
  assert_true(refuses(with(torchrun, "LOCAL_RANK", "one"), {"LOCAL_RANK", "\"one\""}));
  assert_true(refuses(with(torchrun, "MASTER_ADDR", ""), {"MASTER_ADDR is not set"}));
  assert_true(refuses(with(torchrun, "MASTER_PORT", ""), {"MASTER_PORT is not set"}));
  assert_true(refuses(with(torchrun, "MASTER_PORT", "0"), {"MASTER_PORT"}));
  assert_true(refuses(with(torchrun, "MASTER_PORT", "70000"), {"MASTER_PORT"}));
  assert_true(refuses(with(torchrun, "MXS_PORT", "http"), {"MXS_PORT"}));
}

const Variables openmpi = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_NAMESPACE", "job-7"}};

bool ports_of_jobs_differ() {
  JobEnvironment a, b, c;
  if (read_with(openmpi, &a) != MXS_OK || read_with(openmpi, &b) != MXS_OK) return false;
  if (read_with(with(openmpi, "PMIX_NAMESPACE", "job-8"), &c) != MXS_OK) return false;
  return a.port == b.port && a.job == b.job && a.port != c.port && a.job != c.job && a.port >= 20000 && a.port < 32000;
}

void open_mpi_is_read(void **) {
  assert_true(reads(openmpi, "openmpi", 1, 2, 1, "127.0.0.1", -1));
  assert_true(ports_of_jobs_differ());
  assert_true(reads(with(openmpi, "MASTER_PORT", "5000"), "openmpi", 1, 2, 1, "127.0.0.1", 5000));
  const Variables spread = with(openmpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1");
  assert_true(refuses(spread, {"MASTER_ADDR", "-x MASTER_ADDR"}));
  assert_true(reads(with(spread, "MASTER_ADDR", "n0"), "openmpi", 1, 2, 1, "n0", -1));
  assert_true(refuses(with(openmpi, "OMPI_COMM_WORLD_RANK", "2"), {"OMPI_COMM_WORLD_RANK is 2"}));
  assert_true(refuses(with(openmpi, "OMPI_COMM_WORLD_SIZE", ""), {"OMPI_COMM_WORLD_SIZE is not set"}));
}

const Variables slurm = {{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"},  {"SLURM_LOCALID", "1"},
                         {"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "node[03-07,9]"}};

void slurm_is_read(void **) {
  assert_true(reads(slurm, "slurm", 5, 8, 1, "node03", -1));
  assert_true(reads(with(slurm, "MXS_PORT", "6000"), "slurm", 5, 8, 1, "node03", 6000));
  assert_true(reads(with(slurm, "MASTER_ADDR", "ib0"), "slurm", 5, 8, 1, "ib0", -1));
  const Variables job_only = with(with(slurm, "SLURM_STEP_NODELIST", ""), "SLURM_JOB_NODELIST", "a1,a2");
  assert_true(reads(job_only, "slurm", 5, 8, 1, "a1", -1));
  assert_true(refuses(with(slurm, "SLURM_STEP_NODELIST", ""), {"SLURM_STEP_NODELIST"}));
  assert_true(refuses(with(slurm, "SLURM_STEP_NODELIST", "node[3"), {"SLURM_STEP_NODELIST", "node[3"}));
  assert_true(refuses(with(slurm, "SLURM_JOB_ID", ""), {"SLURM_JOB_ID", "MXS_PORT"}));
  assert_true(refuses(with(slurm, "SLURM_PROCID", "8"), {"SLURM_PROCID is 8", "SLURM_NTASKS is 8"}));
}

void the_first_host_of_a_node_list_is_found(void **) {
  const struct {
    const char *list, *host;
  } cases[] = {{"node[03-07,9]", "node03"}, {"node7", "node7"},      {"a,b", "a"},   {"n[1-2]-ib,m", "n1-ib"},
               {"r[1-2]n[08-9]", "r1n08"},  {"n[12,3-4],x", "n12"}, {"n[", ""},     {"n]", ""},
               {"n[a]", ""},                {"two words", ""},       {"", ""},       {"n[[1]]", ""}};
  for (const auto &entry : cases) assert_string_equal(first_host(entry.list).c_str(), entry.host);
}

void torchrun_goes_before_mpirun_and_mpirun_before_srun(void **) {
  Variables all = torchrun;
  all.insert(all.end(), openmpi.begin(), openmpi.end());
  all.insert(all.end(), slurm.begin(), slurm.end());
  assert_true(reads(all, "torchrun", 3, 4, 1, "host", 29500));
  Variables two = openmpi;
  two.insert(two.end(), slurm.begin(), slurm.end());
  assert_true(reads(two, "openmpi", 1, 2, 1, "127.0.0.1", -1));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(torchrun_is_read),
      cmocka_unit_test(an_agent_of_torchrun_keeps_its_port),
      cmocka_unit_test(nonsense_from_torchrun_names_the_variable),
      cmocka_unit_test(open_mpi_is_read),
      cmocka_unit_test(slurm_is_read),
      cmocka_unit_test(the_first_host_of_a_node_list_is_found),
      cmocka_unit_test(torchrun_goes_before_mpirun_and_mpirun_before_srun),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
