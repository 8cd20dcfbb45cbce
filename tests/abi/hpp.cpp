// SPDX-License-Identifier: Apache-2.0
// matrixshard.hpp as a program of C++17 uses it, linked with the shared library alone.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "matrixshard/matrixshard.hpp"

#include "support/cmocka_all.h"

namespace {

bool failures_are_thrown_with_status_and_sentence() {
  try {
    mxs::make_topology("ranks:none");
    return false;
  } catch (const mxs::error &failure) {
    return failure.status() == MXS_INVALID_ARGUMENT && std::strstr(failure.what(), "none") &&
           failure.what() == std::string(mxs_last_error());
  }
}

bool good_statuses_pass() {
  return mxs::check(MXS_OK) == MXS_OK && mxs::check(MXS_IN_PROGRESS) == MXS_IN_PROGRESS;
}

bool handles_own_and_move() {
  static_assert(sizeof(mxs::topology) == sizeof(void *), "a handle is a pointer");
  static_assert(!std::is_copy_constructible_v<mxs::plan>, "one owner");
  mxs::topology topology = mxs::make_topology("nodes:2 ranks:4");
  const mxs::topology moved = std::move(topology);
  return !topology && mxs_topology_rank_count(moved.get()) == 8;
}

bool topologies_are_changed_saved_and_loaded() {
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  speeds.network_bytes_per_second = 123'456;
  const mxs::topology changed = mxs::with_speeds(mxs::make_topology("nodes:2 ranks:4"), speeds);
  const char *path = "hpp_topology.json";
  mxs::check(mxs_topology_save(changed.get(), path));
  const mxs::topology loaded = mxs::load_topology(path);
  std::remove(path);
  if (mxs_topology_node_count(mxs::topology_of(loaded, {4, 5, 6, 7}).get()) != 1) return false;
  mxs::check(mxs_topology_speeds(loaded.get(), &speeds));
  try {
    mxs::load_topology(path);
    return false;
  } catch (const mxs::error &failure) {
    return failure.status() == MXS_SYSTEM && speeds.network_bytes_per_second == 123'456 &&
           mxs_topology_node_count(loaded.get()) == 2;
  }
}

bool models_are_loaded_and_planned() {
  const char *path = "hpp_model.json";
  std::FILE *file = std::fopen(path, "w");
  if (!file) return false;
  std::fputs("{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": 48,"
             " \"num_hidden_layers\": 2, \"num_attention_heads\": 4}", file);
  std::fclose(file);
  const mxs::model model = mxs::load_model(path);
  std::remove(path);
  const mxs::model same = mxs::make_model(mxs::tensors_of(model));
  const mxs::plan plan = mxs::make_plan(mxs::tensors_of(same), mxs::make_topology("ranks:2"));
  try {
    mxs::load_model(path);
    return false;
  } catch (const mxs::error &failure) {
    return failure.status() == MXS_SYSTEM && mxs_plan_unit_count(plan.get()) == mxs_model_unit_count(model.get());
  }
}

std::vector<mxs_tensor> two_matrices() {
  std::vector<mxs_tensor> tensors(2, mxs_tensor MXS_TENSOR_INIT);
  tensors[0].name = "a";
  tensors[1].name = "b";
  for (mxs_tensor &tensor : tensors) {
    tensor.dimension_count = 2;
    tensor.shape[0] = tensor.shape[1] = 64;
  }
  return tensors;
}

bool plans_are_saved_loaded_and_used() {
  const char *path = "hpp_plan.json";
  const mxs::plan plan = mxs::make_plan(two_matrices(), mxs::make_topology("ranks:1"));
  mxs::check(mxs_plan_save(plan.get(), path));
  const mxs::plan loaded = mxs::load_plan(path);
  std::remove(path);
  const mxs::comm comm = mxs::make_comm();
  const mxs::unit unit = mxs::make_unit(comm, loaded, 0);
  const mxs::whole weights(unit);
  try {
    mxs::load_plan(path);
    return false;
  } catch (const mxs::error &failure) {
    return failure.status() == MXS_SYSTEM && mxs_plan_fingerprint(loaded.get()) == mxs_plan_fingerprint(plan.get()) &&
           weights.tensor(1).bytes == 64 * 64 * 4;
  }
}

bool moves_are_told_between_worlds() {
  const mxs::plan one = mxs::make_plan(two_matrices(), mxs::make_topology("ranks:1"));
  const mxs::plan two = mxs::make_plan(two_matrices(), mxs::make_topology("ranks:2"));
  const std::vector<mxs_plan_move> moves = mxs::moves(one, two);
  const std::vector<mxs_layout_move> bytes =
      mxs::moves(mxs::make_even_layout(80, 4, 1), mxs::make_even_layout(80, 4, 2));
  return moves.size() == 1 && moves[0].source_rank == 0 && moves[0].target_rank == 1 &&
         moves[0].bytes == 64 * 64 * 4 && bytes.size() == 2 && bytes[1].target_rank == 1 && bytes[1].bytes == 40;
}

bool layouts_are_made_from_vectors() {
  std::vector<mxs_segment> segments(2, mxs_segment MXS_SEGMENT_INIT);
  segments[0].bytes = 100;
  segments[1].owner = 1;
  segments[1].offset = 128;
  segments[1].bytes = 28;
  const mxs::layout layout = mxs::make_layout(segments, 2, 64);
  const mxs::layout even = mxs::make_even_layout(40, 4, 3);
  return mxs_layout_bytes(layout.get()) == 156 && mxs_layout_owned_bytes(even.get(), 0) == 16;
}

bool views_know_their_element() {
  float values[2] = {1, 2};
  mxs_view view = MXS_VIEW_INIT;
  if (mxs::data<float>(view) != nullptr) return false;  // an empty one is nothing of any dtype
  view.dtype = MXS_F32;
  view.data = values;
  view.bytes = sizeof values;
  if (mxs::data<const float>(view)[1] != 2) return false;
  try {
    mxs::data<uint16_t>(view);
    return false;
  } catch (const mxs::error &failure) {
    return failure.status() == MXS_INVALID_ARGUMENT && std::strstr(failure.what(), "f32");
  }
}

bool a_matrix_is_orthogonalized() {
  const mxs::orthogonalizer orthogonalizer = mxs::make_orthogonalizer(1, 4);
  const float source[4] = {3, 0, 4, 0};
  float target[4] = {};
  mxs::check(mxs_orthogonalize(orthogonalizer.get(), source, target));
  // Five steps bring one singular value near 1; the direction stays.
  return target[1] == 0 && target[0] > 0.5f && target[2] > target[0] && target[2] < 1.2f;
}

bool a_matrix_is_stepped() {
  mxs_matrices matrices = MXS_MATRICES_INIT;
  matrices.rows = 2;
  matrices.columns = 3;
  const mxs::stepper steppers[] = {mxs::make_muon(matrices), mxs::make_shampoo(matrices), mxs::make_soap(matrices),
                                   mxs::make_adamw(matrices)};
  const char *const first_parts[] = {"momentum", "exp_avg", "exp_avg", "exp_avg"};
  const float gradient[6] = {1, 2, 3, -4, 5, 6};
  for (std::size_t i = 0; i < 4; ++i) {
    const mxs_stepper *const stepper = steppers[i].get();
    const std::vector<mxs_state_part> parts = mxs::state_parts(steppers[i]);
    if (parts.empty() || std::strcmp(parts[0].name, first_parts[i]) != 0 || parts[0].offset != 64) return false;
    // Borders of 64 bytes within.
    std::vector<char> memory(mxs_stepper_state_bytes(stepper) + mxs_stepper_workspace_bytes(stepper) + 128);
    void *place = memory.data();
    std::size_t room = memory.size();
    if (!std::align(64, room - 64, place, room)) return false;
    float weights[6] = {};
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    mxs_step_call call = MXS_STEP_CALL_INIT;
    call.values = &values;
    call.gradient = gradient;
    call.weights = weights;
    call.state = place;
    call.workspace = static_cast<char *>(place) + mxs_stepper_state_bytes(stepper);
    call.workspace_bytes = mxs_stepper_workspace_bytes(stepper);
    mxs::check(mxs_stepper_init(stepper, call.state));
    mxs_step_result result = MXS_STEP_RESULT_INIT;
    for (int step = 0; step < 2; ++step) mxs::check(mxs_stepper_step(stepper, &call, &result));
    if (result.step_number != 2 || !(weights[0] < 0) || !(weights[3] > 0)) return false;
  }
  matrices.rows = 0;
  try {
    mxs::make_muon(matrices);
    return false;
  } catch (const mxs::error &failure) {
    return failure.status() == MXS_INVALID_ARGUMENT;
  }
}

void a_failure_is_an_exception(void **) { assert_true(failures_are_thrown_with_status_and_sentence()); }
void a_success_is_none(void **) { assert_true(good_statuses_pass()); }
void a_handle_has_one_owner(void **) { assert_true(handles_own_and_move()); }
void topologies_keep_their_speeds(void **) { assert_true(topologies_are_changed_saved_and_loaded()); }
void models_come_from_files(void **) { assert_true(models_are_loaded_and_planned()); }
void plans_come_back_from_files(void **) { assert_true(plans_are_saved_loaded_and_used()); }
void moves_lead_to_another_world(void **) { assert_true(moves_are_told_between_worlds()); }
void layouts_come_from_segments(void **) { assert_true(layouts_are_made_from_vectors()); }
void a_view_gives_its_elements_only(void **) { assert_true(views_know_their_element()); }
void kernels_work_alone(void **) { assert_true(a_matrix_is_orthogonalized()); }
void steppers_work_alone(void **) { assert_true(a_matrix_is_stepped()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_failure_is_an_exception),      cmocka_unit_test(a_success_is_none),
      cmocka_unit_test(a_handle_has_one_owner),         cmocka_unit_test(layouts_come_from_segments),
      cmocka_unit_test(a_view_gives_its_elements_only), cmocka_unit_test(kernels_work_alone),
      cmocka_unit_test(topologies_keep_their_speeds),   cmocka_unit_test(models_come_from_files),
      cmocka_unit_test(plans_come_back_from_files),     cmocka_unit_test(moves_lead_to_another_world),
      cmocka_unit_test(steppers_work_alone),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
