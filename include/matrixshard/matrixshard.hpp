// SPDX-License-Identifier: Apache-2.0
// matrixshard for C++17: handles that destroy themselves, and failures as exceptions. Header only, over the C functions
// and nothing else, so the binary interface stays that of C. What a call means is said in the C headers.
//
//   mxs::comm comm = mxs::make_comm();
//   mxs::topology topology = mxs::topology_of(comm);
//   mxs::plan plan = mxs::make_plan(tensors, topology);
//   mxs::unit unit = mxs::make_unit(comm, plan, 0);
//   {
//     mxs::whole weights(unit);                          // gathered and waited for; released at the brace
//     const float *w = mxs::data<const float>(weights.tensor(t));
//   }
//   mxs::check(mxs_unit_reduce(unit.get(), nullptr));    // any C call: throws mxs::error if it fails
//
// A handle is a std::unique_ptr. Destroying one that is still in use (MXS_HELD) destroys nothing: declare in the order
// above, so that what was made last goes first.
#ifndef MATRIXSHARD_MATRIXSHARD_HPP
#define MATRIXSHARD_MATRIXSHARD_HPP

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "matrixshard/matrixshard.h"

namespace mxs {

// A call failed: its status, and as what() the sentence of mxs_last_error.
class error : public std::runtime_error {
 public:
  explicit error(mxs_status status) : std::runtime_error(sentence(status)), status_(status) {}
  error(mxs_status status, const std::string &sentence) : std::runtime_error(sentence), status_(status) {}

  mxs_status status() const noexcept { return status_; }

 private:
  static std::string sentence(mxs_status status) {
    const std::string said = mxs_last_error();
    return said.empty() ? mxs_status_text(status) : said;
  }

  mxs_status status_;
};

// Throws if the call failed, on the thread that made it. Returns the status: MXS_OK or MXS_IN_PROGRESS.
inline mxs_status check(mxs_status status) {
  if (status < 0) throw error(status);
  return status;
}

template <class Handle, auto destroy>
struct destroyer {
  void operator()(Handle *handle) const noexcept { destroy(&handle); }
};
template <class Handle, auto destroy>
using owned = std::unique_ptr<Handle, destroyer<Handle, destroy>>;

using topology = owned<mxs_topology, mxs_topology_destroy>;
using model = owned<mxs_model, mxs_model_destroy>;
using plan = owned<mxs_plan, mxs_plan_destroy>;
using layout = owned<mxs_layout, mxs_layout_destroy>;
using comm = owned<mxs_comm, mxs_comm_destroy>;
using collective = owned<mxs_collective, mxs_collective_destroy>;
using unit = owned<mxs_unit, mxs_unit_destroy>;
using optimizer = owned<mxs_optimizer, mxs_optimizer_destroy>;
using orthogonalizer = owned<mxs_orthogonalizer, mxs_orthogonalizer_destroy>;
using stepper = owned<mxs_stepper, mxs_stepper_destroy>;
using checkpoint = owned<mxs_checkpoint, mxs_checkpoint_close>;
using save = owned<mxs_save, mxs_save_destroy>;

inline topology make_topology(const char *text) {
  mxs_topology *made = nullptr;
  check(mxs_topology_create(&made, text));
  return topology(made);
}

inline topology load_topology(const char *path) {
  mxs_topology *made = nullptr;
  check(mxs_topology_load(&made, path));
  return topology(made);
}

// A copy with other speeds; 0 keeps one.
inline topology with_speeds(const topology &given, const mxs_speeds &speeds) {
  mxs_topology *changed = nullptr;
  check(mxs_topology_with_speeds(&changed, given.get(), &speeds));
  return topology(changed);
}

// Of some of its ranks, numbered anew in this order: a shard group of replicas.
inline topology topology_of(const topology &whole, const std::vector<int32_t> &ranks) {
  mxs_topology *made = nullptr;
  check(mxs_topology_of_ranks(&made, whole.get(), ranks.data(), static_cast<int32_t>(ranks.size())));
  return topology(made);
}

inline topology topology_of(const comm &comm) {
  mxs_topology *made = nullptr;
  check(mxs_comm_topology(comm.get(), &made));
  return topology(made);
}

inline model load_model(const char *path, const mxs_model_options *options = nullptr) {
  mxs_model *made = nullptr;
  check(mxs_model_load(&made, path, options));
  return model(made);
}

inline model make_model(const std::vector<mxs_tensor> &tensors, const mxs_model_options *options = nullptr) {
  mxs_model *made = nullptr;
  check(mxs_model_create(&made, tensors.data(), tensors.size(), options));
  return model(made);
}

// Copies of the structs: they point into the model.
inline std::vector<mxs_tensor> tensors_of(const model &model) {
  const mxs_tensor *tensors = nullptr;
  uint64_t count = 0;
  check(mxs_model_tensors(model.get(), &tensors, &count));
  return std::vector<mxs_tensor>(tensors, tensors + count);
}

inline plan make_plan(const std::vector<mxs_tensor> &tensors, const topology &topology,
                      const mxs_plan_options *options = nullptr) {
  mxs_plan *made = nullptr;
  check(mxs_plan_create(&made, tensors.data(), tensors.size(), topology.get(), options));
  return plan(made);
}

inline plan load_plan(const char *path) {
  mxs_plan *made = nullptr;
  check(mxs_plan_load(&made, path));
  return plan(made);
}

inline layout make_layout(const std::vector<mxs_segment> &segments, int32_t rank_count, uint64_t alignment = 0) {
  mxs_layout *made = nullptr;
  check(mxs_layout_create(&made, segments.data(), segments.size(), rank_count, alignment));
  return layout(made);
}

inline layout make_even_layout(uint64_t bytes, uint64_t element_bytes, int32_t rank_count) {
  mxs_layout *made = nullptr;
  check(mxs_layout_create_even(&made, bytes, element_bytes, rank_count));
  return layout(made);
}

// which: MXS_WEIGHTS or MXS_GRADIENTS.
inline layout layout_of(const plan &plan, int32_t unit, int32_t which) {
  mxs_layout *made = nullptr;
  check(mxs_plan_layout(plan.get(), unit, which, &made));
  return layout(made);
}

inline comm make_comm(const mxs_comm_options *options = nullptr) {
  mxs_comm *made = nullptr;
  check(mxs_comm_create(&made, options));
  return comm(made);
}

// Empty for MXS_NO_COLOR.
inline comm split_comm(const comm &parent, int32_t color, int32_t key = 0, const mxs_comm_options *options = nullptr) {
  mxs_comm *made = nullptr;
  check(mxs_comm_split(&made, parent.get(), color, key, options));
  return comm(made);
}

inline collective make_collective(const comm &comm, const mxs_collective_options &options) {
  mxs_collective *made = nullptr;
  check(mxs_collective_create(&made, comm.get(), &options));
  return collective(made);
}

inline unit make_unit(const comm &comm, const plan &plan, int32_t index, const mxs_unit_options *options = nullptr) {
  mxs_unit *made = nullptr;
  check(mxs_unit_create(&made, comm.get(), plan.get(), index, options));
  return unit(made);
}

inline optimizer make_optimizer(const std::vector<unit> &units, const mxs_optimizer_options *options = nullptr) {
  std::vector<mxs_unit *> handles;
  for (const unit &unit : units) handles.push_back(unit.get());
  mxs_optimizer *made = nullptr;
  check(mxs_optimizer_create(&made, handles.data(), handles.size(), options));
  return optimizer(made);
}

inline orthogonalizer make_orthogonalizer(int64_t rows, int64_t columns,
                                          const mxs_newton_schulz *options = nullptr) {
  mxs_orthogonalizer *made = nullptr;
  check(mxs_orthogonalizer_create(&made, rows, columns, options));
  return orthogonalizer(made);
}

inline stepper make_muon(const mxs_matrices &matrices, const mxs_muon_options *options = nullptr) {
  mxs_stepper *made = nullptr;
  check(mxs_muon_create(&made, &matrices, options));
  return stepper(made);
}

inline stepper make_shampoo(const mxs_matrices &matrices, const mxs_shampoo_options *options = nullptr) {
  mxs_stepper *made = nullptr;
  check(mxs_shampoo_create(&made, &matrices, options));
  return stepper(made);
}

inline stepper make_soap(const mxs_matrices &matrices, const mxs_soap_options *options = nullptr) {
  mxs_stepper *made = nullptr;
  check(mxs_soap_create(&made, &matrices, options));
  return stepper(made);
}

inline stepper make_adamw(const mxs_matrices &matrices, const mxs_adamw_options *options = nullptr) {
  mxs_stepper *made = nullptr;
  check(mxs_adamw_create(&made, &matrices, options));
  return stepper(made);
}

// The named parts of a stepper's state. Names belong to the stepper.
inline std::vector<mxs_state_part> state_parts(const stepper &stepper) {
  std::vector<mxs_state_part> parts(mxs_stepper_state_count(stepper.get()), mxs_state_part MXS_STATE_PART_INIT);
  for (std::size_t index = 0; index < parts.size(); ++index)
    check(mxs_stepper_state(stepper.get(), index, &parts[index]));
  return parts;
}

inline checkpoint open_checkpoint(const char *path) {
  mxs_checkpoint *made = nullptr;
  check(mxs_checkpoint_open(&made, path));
  return checkpoint(made);
}

// The plan that it was saved under.
inline plan plan_of(const checkpoint &checkpoint) {
  mxs_plan *made = nullptr;
  check(mxs_checkpoint_plan(checkpoint.get(), &made));
  return plan(made);
}

// The routing report of a plan.
inline std::string report(const plan &plan) {
  size_t bytes = 0;
  check(mxs_plan_report(plan.get(), nullptr, 0, &bytes));
  std::string text(bytes, '\0');
  check(mxs_plan_report(plan.get(), text.data(), text.size(), &bytes));
  text.resize(bytes > 0 ? bytes - 1 : 0);
  return text;
}

// What must go where when one plan, or one layout, takes the place of another.
inline std::vector<mxs_plan_move> moves(const plan &source, const plan &target) {
  uint64_t count = 0;
  check(mxs_plan_moves(source.get(), target.get(), nullptr, 0, &count));
  std::vector<mxs_plan_move> found(count, mxs_plan_move MXS_PLAN_MOVE_INIT);
  check(mxs_plan_moves(source.get(), target.get(), found.data(), found.size(), &count));
  return found;
}

inline std::vector<mxs_layout_move> moves(const layout &source, const layout &target) {
  uint64_t count = 0;
  check(mxs_layout_moves(source.get(), target.get(), nullptr, 0, &count));
  std::vector<mxs_layout_move> found(count, mxs_layout_move MXS_LAYOUT_MOVE_INIT);
  check(mxs_layout_moves(source.get(), target.get(), found.data(), found.size(), &count));
  return found;
}

// The elements of a view; nullptr if it is empty. Element: float, double, uint8_t, or uint16_t for bf16 and f16.
template <class Element>
Element *data(const mxs_view &view) {
  using Plain = std::remove_const_t<Element>;
  static_assert(std::is_same_v<Plain, float> || std::is_same_v<Plain, double> || std::is_same_v<Plain, uint8_t> ||
                    std::is_same_v<Plain, uint16_t>,
                "no dtype has this element");
  const bool fits = std::is_same_v<Plain, float>     ? view.dtype == MXS_F32
                    : std::is_same_v<Plain, double>  ? view.dtype == MXS_F64
                    : std::is_same_v<Plain, uint8_t> ? view.dtype == MXS_U8
                                                     : view.dtype == MXS_BF16 || view.dtype == MXS_F16;
  if (!fits && view.bytes > 0)
    throw error(MXS_INVALID_ARGUMENT,
                std::string("the view holds ") + mxs_dtype_name(view.dtype) + ", not the element asked for");
  return static_cast<Element *>(view.data);
}

// A unit's weights while this object lives: gathers and waits, releases in the end. A step must not come between.
class whole {
 public:
  explicit whole(const unit &unit, int32_t release_mode = MXS_FREE, const mxs_call *call = nullptr)
      : unit_(unit.get()), release_mode_(release_mode) {
    check(mxs_unit_gather(unit_, call));
    const mxs_status status = mxs_unit_wait(unit_, call);
    if (status >= 0) return;
    const error failure(status);
    mxs_unit_release(unit_, release_mode_, nullptr);
    throw failure;
  }
  whole(const whole &) = delete;
  whole &operator=(const whole &) = delete;
  ~whole() { mxs_unit_release(unit_, release_mode_, nullptr); }

  mxs_view tensor(int32_t index) const {
    mxs_view view = MXS_VIEW_INIT;
    check(mxs_unit_tensor(unit_, index, &view));
    return view;
  }

 private:
  mxs_unit *unit_;
  int32_t release_mode_;
};

}  // namespace mxs

#endif  // MATRIXSHARD_MATRIXSHARD_HPP
