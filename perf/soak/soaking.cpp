// SPDX-License-Identifier: Apache-2.0
#include "soak/soaking.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>
#include <thread>

namespace soak {

namespace {

constexpr uint64_t cases_of_round = 6;
constexpr int64_t second_ns = 1'000'000'000;
constexpr uint64_t group_work_ns = 5'000'000'000;  // no more than judge_death of episodes.py allows
constexpr int worlds_to_settle = 2;  // libraries keep some things for ever from their first use on

std::vector<int> everybody(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  for (int rank = 0; rank < count; rank++) ranks[static_cast<size_t>(rank)] = rank;
  return ranks;
}

// One rank's way through all worlds.
class Soaking {
 public:
  Soaking(const Options &options, const Place &place)
      : options_(options), place_(place), end_ns_(now_ns() + static_cast<int64_t>(options.seconds * 1e9)),
        members_(everybody(place.rank_count)) {}
  ~Soaking() { join_saboteur(); }

  int run();

 private:
  bool live_in_world();  // false: the last one
  bool agree_to_go_on();
  void run_round();
  void destroy(mxs::comm *comm);
  mxs::comm split_for_round(Choices *choices, Group *group);
  void run_cases(Group *group, uint64_t salt);
  void meet_fault(mxs_comm *comm, uint64_t number);
  void join_saboteur();
  int hear(const mxs::error &error);
  void shrink();
  int go_on_smaller();
  void tell_wrong(const std::string &sentence);
  void tell_heard(const mxs::error &error, const char *where, const std::vector<int> &origins);
  int look_for_leaks();
  void report(const std::string &event, const std::string &more);

  const Options &options_;
  const Place &place_;
  const int64_t end_ns_;
  Tally tally_;
  Buffers buffers_;
  uint64_t round_ = 0;
  uint64_t world_number_ = 0;
  mxs::comm world_, round_comm_;
  std::vector<int> members_;  // by rank of the world: its rank at the beginning
  std::vector<int> round_origins_;
  bool fault_ordered_ = false;
  int64_t fault_until_ns_ = 0;
  bool fault_pending_ = false;  // somewhere
  uint64_t least_round_ = 0;  // after a shrink: two rounds more, also when the time is over
  std::optional<Holdings> settled_;
  std::thread saboteur_;
};

// The first rank's clock decides, but not against a fault that is about to happen; round numbers are compared.
bool Soaking::agree_to_go_on() {
  const bool over = (now_ns() > end_ns_ && round_ >= least_round_) ||
                    round_ >= options_.first_round + options_.round_count;
  int64_t words[4] = {place_.rank == members_[0] && !over ? 1 : 0, fault_until_ns_ > now_ns() ? 1 : 0,
                      static_cast<int64_t>(round_), static_cast<int64_t>(round_ * round_)};
  // Those who are in no group of this round wait here for the cases of those who are.
  mxs_call call = MXS_CALL_INIT;
  call.timeout_ns = static_cast<uint64_t>(options_.timeout * 1e9) + group_work_ns;
  mxs::check(mxs_comm_sum_words(world_.get(), words, 4, &call));
  if (words[2] * words[2] != words[3] * static_cast<int64_t>(members_.size()))
    throw Wrong("ranks are at different rounds");
  fault_pending_ = words[1] > 0;
  return words[0] + words[1] > 0;
}

void Soaking::join_saboteur() {
  if (saboteur_.joinable()) saboteur_.join();
}

// Its moment is the first case of that number or a later one in which the victim takes part.
void Soaking::meet_fault(mxs_comm *comm, uint64_t number) {
  const Fault &fault = options_.fault;
  if (fault.kind == FaultKind::none || fault_ordered_ || number < fault.case_number() || fault.rank() != place_.rank)
    return;
  fault_ordered_ = true;
  fault_until_ns_ = now_ns() + fault.delay_us * 1000 + fault.pause_ms * 1'000'000 + second_ns / 10;
  const std::string in = "\"in\": " + json_text(comm == world_.get() ? "world" : "group");
  if (fault.kind != FaultKind::abort) {
    tell(place_.rank, "ordered", in);
    place_.nurse.order(fault);
    return;
  }
  saboteur_ = std::thread([this, comm, fault, in] {
    std::this_thread::sleep_for(std::chrono::microseconds(fault.delay_us));
    tell(place_.rank, "fault", "\"at\": " + std::to_string(now_ns()) + ", " + in);
    mxs_comm_abort(comm, "as the soak wants it");
  });
}

void Soaking::run_cases(Group *group, uint64_t salt) {
  for (uint64_t i = 0; i < cases_of_round; i++) {
    const uint64_t number = round_ * cases_of_round + i;
    const uint64_t key = mix(mix(options_.seed, number), salt);
    meet_fault(group->comm, number);
    run_case(*group, key);
    if (options_.verbose)
      tell(place_.rank, "case", "\"number\": " + std::to_string(number) + ", \"what\": " + json_text(tally_.doing));
  }
}

// Colors and keys of all ranks are drawn by each, so that each knows who is in its group.
mxs::comm Soaking::split_for_round(Choices *choices, Group *group) {
  const int64_t colors = choices->between(1, 3);
  const bool some_stay_away = choices->one_in(3);
  std::vector<std::pair<int32_t, int32_t>> all;  // color, key
  for (size_t i = 0; i < members_.size(); i++) {
    const auto color = static_cast<int32_t>(choices->between(some_stay_away ? -1 : 0, colors - 1));
    all.emplace_back(color, static_cast<int32_t>(choices->between(0, 3)));
  }
  const auto own = std::find(members_.begin(), members_.end(), place_.rank) - members_.begin();
  const auto [color, key] = all[static_cast<size_t>(own)];
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.progress = choices->one_in(2) ? MXS_PROGRESS_THREAD : MXS_PROGRESS_MANUAL;
  tally_.doing = "split";
  mxs::comm comm = mxs::split_comm(world_, color, key, &options);
  std::vector<size_t> ranks;
  for (size_t i = 0; i < all.size(); i++)
    if (all[i].first == color) ranks.push_back(i);
  std::stable_sort(ranks.begin(), ranks.end(), [&](size_t a, size_t b) { return all[a].second < all[b].second; });
  for (const size_t i : ranks) group->origins.push_back(members_[i]);
  return comm;
}

void Soaking::run_round() {
  Choices choices(mix(mix(options_.seed, 0x700d), round_));
  Group group;
  group.folder = options_.folder;
  group.bytes_max = options_.bytes_max;
  group.buffers = &buffers_;
  group.tally = &tally_;
  group.plant_fault = options_.plant_fault;
  const bool splits = members_.size() > 1 && choices.one_in(3);
  if (splits) {
    round_comm_ = split_for_round(&choices, &group);
    tally_.groups++;
    if (!round_comm_) return;
    group.comm = round_comm_.get();
    round_origins_ = group.origins;
  } else {
    group.comm = world_.get();
    group.origins = members_;
  }
  mxs::check(mxs_comm_query(group.comm, &group.info));
  if (splits && group.origins[static_cast<size_t>(group.rank())] != place_.rank)
    throw Wrong("split has given the ranks another order");
  try {
    run_cases(&group, splits ? static_cast<uint64_t>(group.origins[0]) + 1 : 0);
  } catch (const mxs::error &error) {
    // It is the group's alone: the world goes on, until it finds by itself that a rank is missing.
    if (!splits || options_.fault.kind == FaultKind::none || !has_failed(round_comm_.get())) throw;
    tell_heard(error, "group", group.origins);
  } catch (const SaveFailed &failed) {
    if (options_.fault.kind == FaultKind::none) throw Wrong("a save has failed in a world without a fault");
    if (failed.here) tell_heard(*failed.here, "save", group.origins);
  }
  join_saboteur();
  destroy(&round_comm_);
  buffers_.clear();
}

void Soaking::destroy(mxs::comm *comm) {
  mxs_comm *handle = comm->release();
  if (mxs_comm_destroy(&handle) != MXS_OK) throw Wrong(std::string("a comm can't be destroyed: ") + mxs_last_error());
}

bool Soaking::live_in_world() {
  Choices choices(mix(mix(options_.seed, 0x3031d), world_number_++));
  tally_.doing = "creating world " + std::to_string(world_number_);
  world_ = make_world(options_, place_, &choices);
  tally_.worlds++;
  const int64_t rounds = choices.between(1, 6);
  for (int64_t i = 0;; i++) {
    tally_.doing = "agreeing to go on";
    if (!agree_to_go_on()) return false;
    if (i >= rounds && !fault_pending_) return true;  // a world that is to be hit stays
    if (round_ == options_.first_round) tell(place_.rank, "begun", "");  // from here on cables may be pulled
    run_round();
    round_++;
  }
}

// What worlds later is held beyond what was after the first two.
int Soaking::look_for_leaks() {
  if (place_.threads) place_.threads->arrive_and_wait();  // nobody has a comm now
  std::string leak;
  if (!place_.threads || place_.rank == 0) {
    if (tally_.worlds == worlds_to_settle) settled_ = Holdings::count();
    else if (settled_) leak = Holdings::count().more_than(*settled_);
    // A thread that has been joined stays in /proc for a moment.
    for (int looks = 0; looks < 50 && !leak.empty(); ++looks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      leak = Holdings::count().more_than(*settled_);
    }
  }
  if (place_.threads) place_.threads->arrive_and_wait();
  if (leak.empty()) return 0;
  tell(place_.rank, "leak", "\"worlds\": " + std::to_string(tally_.worlds) + ", \"sentence\": " + json_text(leak));
  return status_leak;
}

void Soaking::report(const std::string &event, const std::string &more) {
  std::string kinds;
  for (const auto &[name, count] : tally_.kinds)
    kinds += (kinds.empty() ? "" : ", ") + json_text(name) + ": " + std::to_string(count);
  tell(place_.rank, event,
       "\"cases\": " + std::to_string(tally_.cases) + ", \"bytes\": " + std::to_string(tally_.bytes) +
           ", \"worlds\": " + std::to_string(tally_.worlds) + ", \"groups\": " + std::to_string(tally_.groups) +
           ", \"steps\": " + std::to_string(tally_.steps) +
           ", \"checkpoints\": " + std::to_string(tally_.checkpoints) +
           ", \"shrinks\": " + std::to_string(tally_.shrinks) +
           ", \"resident\": " + std::to_string(Holdings::count().resident_bytes) + ", \"kinds\": {" + kinds + "}" +
           more);
}

void Soaking::tell_heard(const mxs::error &error, const char *where, const std::vector<int> &origins) {
  const int64_t at = now_ns();
  const Fault &fault = options_.fault;
  bool named = false;
  for (size_t rank = 0; rank < origins.size(); rank++)
    named = named || (origins[rank] == fault.rank() && names_rank(error.what(), static_cast<int>(rank)));
  tell(place_.rank, "heard",
       "\"at\": " + std::to_string(at) + ", \"status\": " + json_text(mxs_status_name(error.status())) +
           ", \"named\": " + (named ? "true" : "false") + ", \"in\": " + json_text(where) +
           ", \"doing\": " + json_text(tally_.doing) + ", \"sentence\": " + json_text(error.what()));
}

int Soaking::hear(const mxs::error &error) {
  const Fault &fault = options_.fault;
  const bool in_group = round_comm_ && has_failed(round_comm_.get());
  const bool in_world = !round_comm_ && (!world_ || has_failed(world_.get()));
  if (!in_group && !in_world) {
    tell_wrong(std::string(mxs_status_name(error.status())) + ": " + error.what() + " (the comm has not failed)");
    return status_wrong;
  }
  tell_heard(error, in_group ? "group" : world_ ? "world" : "creation", in_group ? round_origins_ : members_);
  if (fault.kind == FaultKind::none) return options_.failure_expected ? 0 : status_failed;
  join_saboteur();
  return 0;
}

// The living ranks of the failed world go on in one of their own, with the round that the first of them is at.
void Soaking::shrink() {
  tally_.doing = "shrinking";
  mxs_comm *made = nullptr;
  mxs::check(mxs_comm_shrink(&made, world_.get(), nullptr));
  mxs::comm shrunk(made);
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs::check(mxs_comm_query(shrunk.get(), &info));
  std::vector<int> living;
  std::string text;
  for (int32_t rank = 0; rank < info.rank_count; rank++) {
    int32_t origin = -1;
    mxs::check(mxs_comm_origin(shrunk.get(), rank, &origin));
    living.push_back(members_[static_cast<size_t>(origin)]);
    text += (rank == 0 ? "" : ", ") + std::to_string(living.back());
  }
  if (living[static_cast<size_t>(info.rank)] != place_.rank) throw Wrong("a shrunk comm has another order of ranks");
  tell(place_.rank, "shrunk", "\"at\": " + std::to_string(now_ns()) + ", \"members\": [" + text + "]");
  members_ = living;
  destroy(&world_);
  world_ = std::move(shrunk);
  tally_.shrinks++;
  std::vector<int64_t> rounds(living.size(), 0);
  rounds[static_cast<size_t>(info.rank)] = static_cast<int64_t>(round_);
  mxs::check(mxs_comm_sum_words(world_.get(), rounds.data(), rounds.size(), nullptr));
  round_ = static_cast<uint64_t>(*std::max_element(rounds.begin(), rounds.end()));
  least_round_ = round_ + 2;
}

int Soaking::go_on_smaller() {
  try {
    shrink();
  } catch (const mxs::error &error) {
    tell(place_.rank, "alone", "\"at\": " + std::to_string(now_ns()) + ", \"status\": " +
                                   json_text(mxs_status_name(error.status())) + ", \"sentence\": " +
                                   json_text(error.what()));
    return 0;
  }
  try {
    for (; agree_to_go_on(); round_++) run_round();
  } catch (const mxs::error &error) {
    tell_wrong(std::string("after a shrink: ") + mxs_status_name(error.status()) + ": " + error.what());
    return status_wrong;
  }
  return 0;
}

void Soaking::tell_wrong(const std::string &sentence) {
  tell(place_.rank, "wrong", "\"doing\": " + json_text(tally_.doing) + ", \"round\": " + std::to_string(round_) +
                                 ", \"sentence\": " + json_text(sentence));
  if (world_) mxs_comm_abort(world_.get(), sentence.c_str());
  if (round_comm_) mxs_comm_abort(round_comm_.get(), sentence.c_str());
}

// What has been made from a comm is gone by now: the stack was unwound.
int Soaking::run() {
  round_ = options_.first_round;
  int status = 0;
  bool goes_on = true;
  while (goes_on && status == 0) {
    try {
      try {
        goes_on = live_in_world();
      } catch (const mxs::error &error) {
        goes_on = false;
        status = hear(error);
        destroy(&round_comm_);
        if (status == 0 && world_ && options_.fault.kind != FaultKind::none) status = go_on_smaller();
      }
      join_saboteur();
      destroy(&round_comm_);
      destroy(&world_);
    } catch (const std::exception &wrong) {
      tell_wrong(wrong.what());
      status = status_wrong;
      round_comm_.reset();
      world_.reset();
    }
    buffers_.clear();
    if (status == 0) status = look_for_leaks();
  }
  report("done", "");
  return status;
}

}  // namespace

mxs::comm make_world(const Options &options, const Place &place, Choices *choices) {
  mxs_comm_options comm = MXS_COMM_OPTIONS_INIT;
  comm.bootstrap = place.bootstrap;
  comm.transport = options.transport.empty() ? nullptr : options.transport.c_str();
  comm.timeout_ns = static_cast<uint64_t>(options.timeout * 1e9);
  comm.thread_count = 1;
  comm.progress = choices->one_in(2) ? MXS_PROGRESS_THREAD : MXS_PROGRESS_MANUAL;
  return mxs::make_comm(&comm);
}

// Request 0 was never begun, which a comm that lives says.
bool has_failed(mxs_comm *comm) {
  const mxs_status status = mxs_comm_test(comm, 0);
  return status != MXS_OK && status != MXS_INVALID_ARGUMENT;
}

bool names_rank(const std::string &sentence, int rank) {
  const std::string number = std::to_string(rank);
  for (size_t at = sentence.find("rank"); at != std::string::npos; at = sentence.find("rank", at + 4)) {
    size_t i = at + 4;
    i += sentence.compare(i, 1, "s") == 0;
    // "ranks 1, 2 and 3": numbers and what stands between them.
    while (i < sentence.size()) {
      while (i < sentence.size() && (sentence[i] == ' ' || sentence[i] == ',')) i++;
      if (sentence.compare(i, 4, "and ") == 0) i += 4;
      size_t end = i;
      while (end < sentence.size() && std::isdigit(static_cast<unsigned char>(sentence[end]))) end++;
      if (end == i) break;
      if (sentence.compare(i, end - i, number) == 0) return true;
      i = end;
    }
  }
  return false;
}

int soak(const Options &options, const Place &place) { return Soaking(options, place).run(); }

}  // namespace soak
