// SPDX-License-Identifier: Apache-2.0
// The matrix of roles and phases: all ranks do one thing again and again, and one of them, by its role in it, is
// killed or stopped on the way.
//
//     role      of a gather by chain         phase
//     owner     has all bytes                bootstrap    a comm is created
//     relay     hands on what it receives    gather, reduce, step, checkpoint
//     leaf      only receives
//     rank0     is asked by the others when something is amiss
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "soak/layouts.hpp"
#include "soak/soaking.hpp"
#include "soak/trainee.hpp"

namespace soak {

namespace {

constexpr uint64_t payload_bytes = uint64_t{1} << 20;
constexpr int turns_before = 2;         // what is hit is no first time
constexpr double patience_seconds = 20;  // beyond the comm's deadline nothing lasts

class Matrix {
 public:
  Matrix(const Options &options, const Place &place)
      : options_(options), place_(place), choices_(mix(options.seed, 0x3a7)) {}

  int run();

 private:
  void warm_up();
  void create();
  std::vector<int32_t> players();
  int32_t victim();
  void act(const std::string &phase);
  void collect(int32_t kind);
  void train(bool saves);
  template <class Turn>
  void repeat(const Turn &turn);
  void meet_fault(int turn);
  int hear(const mxs::error &error);
  int go_on();
  int leave();
  int owner() const { return place_.rank_count > 2 ? 2 : place_.rank_count - 1; }

  const Options &options_;
  const Place &place_;
  Choices choices_;
  Tally tally_;
  Buffers buffers_;
  Holdings before_;
  mxs::comm comm_;
  int32_t victim_ = -1;
  std::string algorithm_;
};

// Three matrices of one owner.
Model model_of(int owner) {
  Model model;
  model.unit_count = 1;
  for (int i = 0; i < 3; i++) {
    mxs_tensor tensor = MXS_TENSOR_INIT;
    tensor.dimension_count = 2;
    tensor.shape[0] = tensor.shape[1] = 96;
    tensor.fixed_owner = MXS_FIXED_OWNER(owner);
    model.names.push_back({'w', static_cast<char>('0' + i)});
    model.tensors.push_back(tensor);
  }
  for (size_t i = 0; i < model.tensors.size(); i++) model.tensors[i].name = model.names[i].c_str();
  return model;
}

void train_once(const Trainee &trainee, float gradient) {
  for (const int tensor : trainee.model().trained(0)) {
    mxs_view view = MXS_VIEW_INIT;
    mxs::check(mxs_unit_gradient(trainee.unit(0), tensor, MXS_WRITE, &view));
    std::fill_n(static_cast<float *>(view.data), view.bytes / sizeof(float), gradient);
  }
  mxs::check(mxs_unit_reduce(trainee.unit(0), nullptr));
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step step = MXS_STEP_INIT;
  step.group_count = 1;
  step.groups = &values;
  mxs::check(mxs_optimizer_step(trainee.optimizer(), &step, nullptr));
}

void step_alone(mxs_comm *comm) {
  const Model model = model_of(0);
  const mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  const Trainee trainee(comm, model, options);
  train_once(trainee, 1);
}

// What libraries keep for ever is taken by the first comm of a process.
void Matrix::warm_up() {
  const mxs::comm alone = comm_of_one();
  step_alone(alone.get());
  const mxs::comm comm = make_world(options_, place_, &choices_);
  mxs::check(mxs_comm_barrier(comm.get(), nullptr));
}

void Matrix::create() {
  if (options_.fault.when == "bootstrap") {
    const std::string &role = options_.fault.who;
    victim_ = role == "rank0" ? 0 : role == "owner" ? owner() : role == "leaf" ? 1 : place_.rank_count - 1;
    if (victim_ == place_.rank) place_.nurse.order(options_.fault);
  }
  comm_ = make_world(options_, place_, &choices_);
}

Layout all_of(int owner) {
  Layout layout;
  layout.name = "one owner";
  layout.add(owner, payload_bytes);
  return layout;
}

// Who, but rank 0, plays the role in a gather from the owner by algorithm_.
std::vector<int32_t> Matrix::players() {
  const mxs::layout layout = made(all_of(owner()), place_.rank_count);
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = MXS_GATHER;
  options.layout = layout.get();
  options.algorithm = algorithm_.c_str();
  mxs_collective *made_one = nullptr;
  mxs::check(mxs_collective_create(&made_one, comm_.get(), &options));
  const mxs::collective collective(made_one);
  mxs_collective_info described = MXS_COLLECTIVE_INFO_INIT;
  mxs::check(mxs_collective_describe(collective.get(), &described));
  std::vector<double> roles(static_cast<size_t>(place_.rank_count), 0.0);
  const bool is_owner = place_.rank == owner(), relays = !is_owner && described.bytes_out > 0;
  roles[static_cast<size_t>(place_.rank)] = is_owner ? 1 : relays ? 2 : 3;
  mxs::check(mxs_comm_sum(comm_.get(), roles.data(), roles.size(), nullptr));
  const std::string &role = options_.fault.who;
  const double wanted = role == "owner" ? 1 : role == "relay" ? 2 : 3;
  std::vector<int32_t> found;
  for (int32_t rank = 1; rank < place_.rank_count; rank++)
    if (roles[static_cast<size_t>(rank)] == wanted) found.push_back(rank);
  return found;
}

// Of several one is drawn. By chain there is always one, since it begins at the owner and rank 0 is on the way.
int32_t Matrix::victim() {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs::check(mxs_comm_query(comm_.get(), &info));
  algorithm_ = info.node_count > 1 && choices_.one_in(2) ? "two-level-chain" : "chain";
  if (options_.fault.who == "rank0") return 0;
  std::vector<int32_t> found = players();
  if (found.empty()) {
    algorithm_ = "chain";
    found = players();
  }
  if (found.empty()) throw Wrong("no rank but 0 is " + options_.fault.who + " in a gather by " + algorithm_);
  return choices_.of(found);
}

void Matrix::meet_fault(int turn) {
  if (turn != turns_before || options_.fault.when == "bootstrap") return;
  if (place_.rank == victim_) place_.nurse.order(options_.fault);
}

template <class Turn>
void Matrix::repeat(const Turn &turn) {
  const int64_t end = now_ns() + static_cast<int64_t>((options_.timeout + patience_seconds) * 1e9);
  for (int i = 0; now_ns() < end; i++) {
    meet_fault(i);
    turn(i);
  }
  throw Wrong("nobody noticed the fault");
}

// In messages by the algorithm of the roles, or in memory that local peers map.
void Matrix::collect(int32_t kind) {
  const Layout layout = all_of(owner());
  const mxs::layout handle = made(layout, place_.rank_count);
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = kind;
  options.layout = handle.get();
  options.dtype = kind == MXS_REDUCE ? MXS_F32 : 0;
  options.algorithm = algorithm_.c_str();
  const bool is_shared = choices_.one_in(3);
  std::optional<Shared> whole, sums;
  if (is_shared) options.algorithm = nullptr, whole.emplace(comm_.get(), layout.bytes);
  if (is_shared && kind == MXS_REDUCE) sums.emplace(comm_.get(), layout.bytes);
  std::byte *const buffer = is_shared ? whole->data() : buffers_.take(layout.bytes);
  std::byte *const sum = kind == MXS_GATHER ? nullptr : is_shared ? sums->data() : buffers_.take(layout.bytes);
  mxs_collective *made_one = nullptr;
  mxs::check(mxs_collective_create(&made_one, comm_.get(), &options));
  const mxs::collective collective(made_one);
  repeat([&](int turn) {
    const auto salt = static_cast<uint64_t>(turn);
    std::memset(buffer, 0, layout.bytes);  // zeros are whole numbers of fp32, too
    if (kind == MXS_GATHER && place_.rank == owner()) fill_bytes(buffer, 0, layout.bytes, salt);
    mxs::check(mxs_collective_start(collective.get(), kind == MXS_GATHER ? nullptr : buffer,
                                    kind == MXS_GATHER ? buffer : sum, nullptr));
    mxs::check(mxs_collective_wait(collective.get(), nullptr));
    if (kind == MXS_GATHER && first_wrong_byte(buffer, 0, layout.bytes, salt) != layout.bytes)
      throw Wrong("bytes of a gather are wrong");
    tally_.bytes += layout.bytes;
  });
}

void Matrix::train(bool saves) {
  const Model model = model_of(owner());
  mxs_unit_options unit_options = MXS_UNIT_OPTIONS_INIT;
  unit_options.algorithm = algorithm_.c_str();
  const Trainee trainee(comm_.get(), model, unit_options);
  const std::vector<mxs_unit *> units = trainee.handles();
  const std::string path = options_.folder + "/matrix";
  mxs_checkpoint_options saving = MXS_CHECKPOINT_OPTIONS_INIT;
  mxs_load_options loading = MXS_LOAD_OPTIONS_INIT;
  saving.timeout_ns = loading.timeout_ns = static_cast<uint64_t>(options_.timeout * 1e9);  // else an hour
  repeat([&](int turn) {
    train_once(trainee, static_cast<float>(place_.rank + turn));
    if (!saves) return;
    mxs::check(mxs_checkpoint_save(path.c_str(), units.data(), units.size(), trainee.optimizer(), &saving));
    const mxs::checkpoint opened = mxs::open_checkpoint(path.c_str());
    mxs::check(mxs_checkpoint_load(opened.get(), units.data(), units.size(), trainee.optimizer(), &loading));
    mxs::check(mxs_comm_barrier(comm_.get(), nullptr));
  });
}

void Matrix::act(const std::string &phase) {
  if (phase == "gather") collect(MXS_GATHER);
  else if (phase == "reduce") collect(MXS_REDUCE);
  else if (phase == "step" || phase == "checkpoint") train(phase == "checkpoint");
  else repeat([&](int) { mxs::check(mxs_comm_barrier(comm_.get(), nullptr)); });
}

// Those who are left make a comm of their own, and it works. A stopped one that wakes in time comes along.
int Matrix::go_on() {
  mxs_comm *made_one = nullptr;
  const mxs_status status = mxs_comm_shrink(&made_one, comm_.get(), nullptr);
  if (status != MXS_OK) {
    tell(place_.rank, "alone", "\"at\": " + std::to_string(now_ns()) + ", \"status\": " +
                                   json_text(mxs_status_name(status)) + ", \"sentence\": " +
                                   json_text(mxs_last_error()));
    return 0;
  }
  const mxs::comm shrunk(made_one);
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs::check(mxs_comm_query(shrunk.get(), &info));
  std::string text;
  double sum = 0;
  for (int32_t rank = 0; rank < info.rank_count; rank++) {
    int32_t origin = -1;
    mxs::check(mxs_comm_origin(shrunk.get(), rank, &origin));
    text += (rank == 0 ? "" : ", ") + std::to_string(origin);
    sum += origin;
  }
  double mine = place_.rank;
  mxs::check(mxs_comm_sum(shrunk.get(), &mine, 1, nullptr));
  if (mine != sum) throw Wrong("a sum over the living is wrong");
  tell(place_.rank, "shrunk", "\"at\": " + std::to_string(now_ns()) + ", \"members\": [" + text + "]");
  return 0;
}

int Matrix::hear(const mxs::error &error) {
  const int64_t at = now_ns();
  tell(place_.rank, "heard",
       "\"at\": " + std::to_string(at) + ", \"victim\": " + std::to_string(victim_) +
           ", \"status\": " + json_text(mxs_status_name(error.status())) +
           ", \"named\": " + (names_rank(error.what(), victim_) ? "true" : "false") + ", \"in\": " +
           json_text(comm_ ? "world" : "creation") +
           ", \"doing\": " + json_text(tally_.doing) + ", \"sentence\": " + json_text(error.what()));
  if (!comm_ || !has_failed(comm_.get())) return comm_ ? status_wrong : 0;
  try {
    return go_on();
  } catch (const std::exception &wrong) {
    tell(place_.rank, "wrong", "\"doing\": \"going on\", \"sentence\": " + json_text(wrong.what()));
    return status_wrong;
  }
}

int Matrix::leave() {
  mxs_comm *handle = comm_.release();
  if (mxs_comm_destroy(&handle) != MXS_OK) {
    tell(place_.rank, "wrong", "\"doing\": \"destroying the comm\", \"sentence\": " + json_text(mxs_last_error()));
    return status_wrong;
  }
  buffers_.clear();
  const std::string leak = Holdings::count().more_than(before_);
  if (leak.empty()) return 0;
  tell(place_.rank, "leak", "\"worlds\": 1, \"sentence\": " + json_text(leak));
  return status_leak;
}

int Matrix::run() {
  int status = 0;
  try {
    tally_.doing = "warming up";
    warm_up();
    before_ = Holdings::count();
    tally_.doing = "bootstrap";
    create();
    if (victim_ < 0) victim_ = victim();
    tally_.doing = options_.fault.when + " by " + algorithm_;
    act(options_.fault.when);
  } catch (const mxs::error &error) {
    status = hear(error);
  } catch (const std::exception &wrong) {
    tell(place_.rank, "wrong", "\"doing\": " + json_text(tally_.doing) + ", \"sentence\": " + json_text(wrong.what()));
    if (comm_) mxs_comm_abort(comm_.get(), wrong.what());
    status = status_wrong;
  }
  const int left = leave();
  return status ? status : left;
}

}  // namespace

int run_matrix(const Options &options, const Place &place) { return Matrix(options, place).run(); }

}  // namespace soak
