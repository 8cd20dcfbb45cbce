// SPDX-License-Identifier: Apache-2.0
// Checkpoints know no memory: what units and optimizer in CUDA memory have saved loads into host memory, and the other
// way round, bit for bit, and training goes on alike.
#include <cmath>
#include <string>
#include <vector>

#include "gpu/gpu.hpp"
#include "gpu/optimizer_model.hpp"
#include "support/temporary_folder.hpp"
#include "support/world.hpp"
#include "support/cmocka_all.h"

namespace mxs::test {
namespace {

std::string train(Side *side, void *stream, int first, int end) {
  for (int step = first; step < end; ++step) {
    const std::string complaint = side->reduce(step, stream);
    if (!complaint.empty()) return complaint;
    const std::vector<mxs_group_values> values = values_of(step);
    const mxs_step given = step_of(values, 0.5f, stream);
    const mxs_status status = mxs_optimizer_step(side->optimizer, &given, nullptr);
    if (status != MXS_OK) return told("mxs_optimizer_step", status);
  }
  return "";
}

std::string save(Side *side, const std::string &path, bool beside_training) {
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.name = "it";
  if (!beside_training) {
    const mxs_status status =
        mxs_checkpoint_save(path.c_str(), side->units.data(), side->units.size(), side->optimizer, &options);
    return status == MXS_OK ? "" : told("mxs_checkpoint_save", status);
  }
  mxs_save *save = nullptr;
  mxs_status status =
      mxs_save_start(&save, path.c_str(), side->units.data(), side->units.size(), side->optimizer, &options);
  if (status != MXS_OK) return told("mxs_save_start", status);
  status = mxs_save_wait(save, 0);
  const std::string complaint = status == MXS_OK ? "" : told("mxs_save_wait", status);
  mxs_save_destroy(&save);
  return complaint;
}

std::string load(Side *side, const std::string &path) {
  mxs_checkpoint *checkpoint = nullptr;
  mxs_status status = mxs_checkpoint_open(&checkpoint, (path + "/it").c_str());
  if (status != MXS_OK) return told("mxs_checkpoint_open", status);
  status = mxs_checkpoint_load(checkpoint, side->units.data(), side->units.size(), side->optimizer, nullptr);
  const std::string complaint = status == MXS_OK ? "" : told("mxs_checkpoint_load", status);
  mxs_checkpoint_close(&checkpoint);
  return complaint;
}

// Trains one side and saves it, loads it into the other, which has done something else, and trains both on.
std::string over_to(const Case &given, mxs_memory_kind from, bool beside_training, const std::string &path,
                    mxs_comm *comm) {
  Side first(from), second(from == MXS_CUDA ? MXS_HOST : MXS_CUDA);
  const mxs_optimizer_options options = options_of(given);
  std::string complaint = first.make(comm, *given.model, &options);
  if (complaint.empty()) complaint = second.make(comm, *given.model, &options);
  if (!complaint.empty()) return complaint;
  Stream own(comm);
  void *const first_stream = from == MXS_CUDA ? own.stream : nullptr;
  void *const second_stream = from == MXS_CUDA ? nullptr : own.stream;
  complaint = train(&first, first_stream, 0, 3);
  if (complaint.empty()) complaint = train(&second, second_stream, 5, 6);
  if (complaint.empty()) complaint = save(&first, path, beside_training);
  if (complaint.empty()) complaint = load(&second, path);
  if (complaint.empty()) complaint = compare_sides(&first, &second, 3);
  if (!complaint.empty()) return "loaded: " + complaint;
  if (mxs_optimizer_step_number(second.optimizer) != 3) return "the step number was not loaded";
  complaint = train(&first, first_stream, 3, 5);
  if (complaint.empty()) complaint = train(&second, second_stream, 3, 5);
  return complaint.empty() ? compare_sides(&first, &second, 5) : complaint;
}

void checkpoints_go_from_memory_to_memory(void **) {
  for (const std::vector<SideTensor> *const model : {&muon_model, &factor_model})
    for (const int ranks : {1, 3})
      for (const mxs_memory_kind from : {MXS_CUDA, MXS_HOST}) {
        const bool beside_training = (ranks == 1) == (from == MXS_CUDA);
        const TemporaryFolder folder;
        const std::string complaint = run_world(ranks, [&](int, mxs_comm *comm) {
          return over_to({model}, from, beside_training, folder.path(), comm);
        });
        if (!complaint.empty()) print_error("%d ranks, from %d: %s\n", ranks, from, complaint.c_str());
        assert_string_equal(complaint.c_str(), "");
      }
}

}  // namespace
}  // namespace mxs::test

int main(int, char **arguments) {
  using namespace mxs::test;
  if (!gpu_is_there(arguments)) return 0;
  const CMUnitTest tests[] = {cmocka_unit_test(checkpoints_go_from_memory_to_memory)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
