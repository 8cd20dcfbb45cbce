// SPDX-License-Identifier: Apache-2.0
#include "communicator.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "job.hpp"
#include "meeting.hpp"
#include "sums.hpp"

namespace standin {

namespace {

constexpr auto patience = std::chrono::seconds(120);  // nothing here waits longer

long number(const char *name, long otherwise) {
  const char *const text = std::getenv(name);
  return text && *text ? std::strtol(text, nullptr, 10) : otherwise;
}

std::mutex sentence_mutex;
std::string &sentence() {
  static std::string *const only = new std::string;
  return *only;
}

// Jobs that graphs may run again after their communicator has gone, and those of aborted ones that streams still hold.
std::vector<std::shared_ptr<Job>> &kept_jobs() {
  static auto *const only = new std::vector<std::shared_ptr<Job>>;
  return *only;
}
std::mutex kept_mutex;

void keep(const std::shared_ptr<Job> &job) {
  const std::lock_guard<std::mutex> lock(kept_mutex);
  kept_jobs().push_back(job);
}

ncclResult_t failed(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS) return ncclSuccess;
  set_last_error(std::string(call) + " failed with CUDA error " + std::to_string(static_cast<int>(result)));
  return ncclUnhandledCudaError;
}

void hand_over_job(void *job) { static_cast<Job *>(job)->communicator->hand_over(*static_cast<Job *>(job)); }

}  // namespace

void set_last_error(const std::string &words) {
  const std::lock_guard<std::mutex> lock(sentence_mutex);
  sentence() = words;
}

std::string last_error() {
  const std::lock_guard<std::mutex> lock(sentence_mutex);
  return sentence();
}

Settings read_settings() {
  Settings settings;
  settings.in_progress_ms = static_cast<int>(number("MXS_STANDIN_NCCL_IN_PROGRESS_MS", 0));
  settings.error_after = number("MXS_STANDIN_NCCL_ASYNC_ERROR_AFTER", -1);
  settings.error_rank = static_cast<int>(number("MXS_STANDIN_NCCL_ASYNC_ERROR_RANK", -1));
  settings.checks = number("MXS_STANDIN_NCCL_CHECK", 0) != 0;
  if (number("MXS_STANDIN_NCCL_SHARE_GPU", 0) != 0) settings.ranks_per_device = 1 << 30;
  // NCCL's own switch, since 2.30.
  else if (claimed_version() >= 23000 && number("NCCL_MULTI_RANK_GPU_ENABLE", 0) != 0) settings.ranks_per_device = 2;
  return settings;
}

const char *name_of(Call call) {
  switch (call) {
    case Call::broadcast: return "ncclBroadcast";
    case Call::reduce: return "ncclReduce";
    case Call::all_reduce: return "ncclAllReduce";
    case Call::all_gather: return "ncclAllGather";
    case Call::reduce_scatter: return "ncclReduceScatter";
    case Call::message: return "ncclSend";
  }
  return "?";
}

Communicator::Communicator(int rank, int rank_count, bool is_blocking)
    : rank_(rank), rank_count_(rank_count), is_blocking_(is_blocking), settings_(read_settings()) {}

Communicator::~Communicator() {
  if (worker_.joinable()) worker_.join();
  if (memory_) munmap(memory_, Channels::bytes(rank_count_));
}

ncclResult_t Communicator::choose_device() {
  if (!driver()) {
    set_last_error("there is no CUDA driver");
    return ncclUnhandledCudaError;
  }
  CUdevice device = 0;
  CUcontext current = nullptr;
  driver()->context_get_current(&current);
  CUresult result = current ? driver()->context_get_device(&device) : driver()->device_get(&device, 0);
  if (result == CUDA_SUCCESS) result = driver()->primary_context_retain(&context_, device);
  int can_wait = 0;
  if (result == CUDA_SUCCESS)
    result = driver()->device_get_attribute(&can_wait, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device);
  waits_values_ = can_wait != 0;
  char address[64] = "";
  if (result == CUDA_SUCCESS) result = driver()->device_get_pci_bus_id(address, sizeof address, device);
  device_ = device;
  device_name_ = address;
  return failed(result, "cuDevicePrimaryCtxRetain");
}

// ---- what goes on in a thread ------------------------------------------------------------------------------------

void Communicator::work(const std::function<ncclResult_t()> &body) {
  if (worker_.joinable()) worker_.join();
  state_ = ncclInProgress;
  worker_ = std::thread([this, body] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(settings_.in_progress_ms);
    while (!is_blocking_ && !stopped_ && std::chrono::steady_clock::now() < end) usleep(1000);
    const ncclResult_t result = stopped_ ? ncclInvalidUsage : body();
    int expected = ncclInProgress;  // what a job has found meanwhile stays
    state_.compare_exchange_strong(expected, result);
  });
}

ncclResult_t Communicator::wait_for_worker() {
  if (worker_.joinable()) worker_.join();
  return state();
}

void Communicator::join_ranks(const std::string &name) {
  work([this, name] { return join_now(name); });
}

ncclResult_t Communicator::join_now(const std::string &name) {
  name_ = name;
  Guest guest;
  guest.name = name;
  guest.rank = rank_;
  guest.rank_count = rank_count_;
  guest.device = device_name_;
  guest.ranks_per_device = settings_.ranks_per_device;
  guest.memory_bytes = Channels::bytes(rank_count_);
  std::string why;
  const Meeting meeting = meet(guest, [this] { return stopped_.load(); }, &memory_, &why);
  if (meeting == Meeting::good) {
    channels_.open(memory_, rank_, rank_count_);
    return ncclSuccess;
  }
  set_last_error(meeting == Meeting::refused ? why : "the ranks of the communicator did not meet");
  return meeting == Meeting::refused ? ncclInvalidUsage : ncclRemoteError;
}

void Communicator::split(const std::shared_ptr<Communicator> &parent, int color, int key) {
  work([this, parent, color, key] {
    std::string name;
    const ncclResult_t result = exchange_split(*parent, color, key, &name);
    return result == ncclSuccess && rank_count_ > 0 ? join_now(name) : result;
  });
}

ncclResult_t Communicator::exchange_split(Communicator &parent, int color, int key, std::string *name) {
  const uint32_t round = ++parent.split_count_;
  const size_t slot = round % 2;
  RankBoard &own = parent.channels_.board(parent.rank_);
  own.split_color[slot] = color;
  own.split_key[slot] = key;
  own.split_round[slot] = round;
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < parent.rank_count_; ++rank) {
    const RankBoard &board = parent.channels_.board(rank);
    const auto end = std::chrono::steady_clock::now() + patience;
    while (board.split_round[slot] != round) {
      if (stopped_ || parent.stopped_ || std::chrono::steady_clock::now() > end) return ncclRemoteError;
      usleep(1000);
    }
    if (board.split_color[slot] == color) members.emplace_back(board.split_key[slot], rank);
  }
  std::stable_sort(members.begin(), members.end());
  rank_count_ = color == NCCL_SPLIT_NOCOLOR ? 0 : static_cast<int>(members.size());
  for (int rank = 0; rank < rank_count_; ++rank)
    if (members[static_cast<size_t>(rank)].second == parent.rank_) rank_ = rank;
  *name = parent.name_ + "/" + std::to_string(round) + "." + std::to_string(color);
  return ncclSuccess;
}

// ---- calls ---------------------------------------------------------------------------------------------------------

ncclResult_t Communicator::ready() {
  const ncclResult_t now = state();
  if (stopped_) {
    set_last_error("the communicator was aborted or revoked");
    return ncclInvalidUsage;
  }
  if (now == ncclSuccess) return now;
  set_last_error("Attempt to use communicator before the previous operation returned ncclSuccess");
  return now == ncclInProgress ? ncclInvalidArgument : now;
}

// Memory that this device does not reach would end in a fault of the kernel.
static bool is_reachable(const void *pointer) {
  unsigned kind = 0;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void *place = &kind;
  return driver()->pointer_get_attributes(1, &attribute, &place, reinterpret_cast<CUdeviceptr>(pointer)) ==
             CUDA_SUCCESS && kind != 0;
}

ncclResult_t Communicator::check(const Operation &operation) {
  const auto refuse = [&](const char *what) {
    set_last_error(std::string(name_of(operation.call)) + ": " + what);
    return ncclInvalidArgument;
  };
  if (operation.root < 0 || operation.root >= rank_count_) return refuse("invalid root or peer");
  if (bytes_of(operation.type) == 0) return refuse("invalid type");
  if (!is_known(operation.operation)) return refuse("this operation is not in the stand-in");
  if (operation.count == 0) return ncclSuccess;
  const bool is_rooted = operation.call == Call::broadcast || operation.call == Call::reduce;
  const bool reads = operation.call == Call::message ? operation.is_send
                                                     : operation.call != Call::broadcast || rank_ == operation.root;
  const bool writes = operation.call == Call::message ? !operation.is_send
                      : is_rooted && operation.call == Call::reduce ? rank_ == operation.root : true;
  const Current current(context_);
  if (reads && !is_reachable(operation.source)) return refuse("sendbuff is not memory of a device");
  if (writes && !is_reachable(operation.target)) return refuse("recvbuff is not memory of a device");
  return ncclSuccess;
}

ncclResult_t Communicator::launch(std::vector<Operation> operations) {
  operations.erase(std::remove_if(operations.begin(), operations.end(),
                                  [](const Operation &operation) { return operation.count == 0; }),
                   operations.end());
  if (operations.empty()) return ncclSuccess;
  if (is_blocking_ || settings_.in_progress_ms == 0) {
    const ncclResult_t result = launch_now(operations);
    if (result != ncclSuccess) state_ = result;
    return result;
  }
  // The caller goes on while nothing is on its stream yet: whoever does not poll gets the wrong order.
  work([this, operations = std::move(operations)] { return launch_now(operations); });
  return ncclInProgress;
}

ncclResult_t Communicator::launch_now(const std::vector<Operation> &operations) {
  const Current current(context_);
  std::vector<CUstream> streams;
  for (const Operation &operation : operations)
    if (std::find(streams.begin(), streams.end(), operation.stream) == streams.end())
      streams.push_back(operation.stream);
  reap();
  const std::shared_ptr<Job> job = make_job(operations, rank_, rank_count_);
  job->communicator = shared_from_this();
  if (!equip(*job, device_)) {
    set_last_error("out of pinned memory");
    return ncclUnhandledCudaError;
  }
  return enqueue(job, streams);
}

// The first stream carries the job. It begins after what the others have so far, and after the job before.
ncclResult_t Communicator::order_streams(const std::vector<CUstream> &streams, bool is_captured) {
  const Driver &cuda = *driver();
  if (!is_captured && !jobs_.empty())
    if (const CUresult result = cuda.stream_wait_event(streams[0], jobs_.back()->event, 0); result != CUDA_SUCCESS)
      return failed(result, "cuStreamWaitEvent");
  for (size_t i = 1; i < streams.size(); ++i) {
    CUevent event = nullptr;
    CUresult result = cuda.event_create(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = cuda.event_record(event, streams[i]);
    if (result == CUDA_SUCCESS) result = cuda.stream_wait_event(streams[0], event, 0);
    cuda.event_destroy(event);
    if (result != CUDA_SUCCESS) return failed(result, "cuStreamWaitEvent");
  }
  return ncclSuccess;
}

ncclResult_t Communicator::enqueue(const std::shared_ptr<Job> &job, const std::vector<CUstream> &streams) {
  const Driver &cuda = *driver();
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (const CUresult result = cuda.stream_is_capturing(streams[0], &capture); result != CUDA_SUCCESS)
    return failed(result, "cuStreamIsCapturing");
  const bool is_captured = capture != CU_STREAM_CAPTURE_STATUS_NONE;
  const ncclResult_t ordered = order_streams(streams, is_captured);
  if (ordered != ncclSuccess) return ordered;
  if (is_captured) keep(job);
  else jobs_.push_back(job);
  CUresult result = CUDA_SUCCESS;
  const auto pinned = [&job](uint64_t place) { return reinterpret_cast<CUdeviceptr>(job->memory + place); };
  for (const Copy &copy : job->copies_in)
    if (result == CUDA_SUCCESS)
      result = cuda.copy_async(pinned(copy.place), reinterpret_cast<CUdeviceptr>(copy.device), copy.bytes, streams[0]);
  if (result == CUDA_SUCCESS) result = cuda.launch_host_function(streams[0], hand_over_job, job.get());
  if (result == CUDA_SUCCESS && waits_values_)
    result = cuda.stream_wait_value(streams[0], pinned(0), 1, CU_STREAM_WAIT_VALUE_GEQ);
  for (const Copy &copy : job->copies_out)
    if (result == CUDA_SUCCESS)
      result = cuda.copy_async(reinterpret_cast<CUdeviceptr>(copy.device), pinned(copy.place), copy.bytes, streams[0]);
  if (result == CUDA_SUCCESS && (!is_captured || streams.size() > 1))
    result = cuda.event_record(job->event, streams[0]);
  for (size_t i = 1; i < streams.size(); ++i)
    if (result == CUDA_SUCCESS) result = cuda.stream_wait_event(streams[i], job->event, 0);
  return failed(result, "the copies of a job");
}

void Communicator::reap() {
  // Not the last one, whose event the next job waits for.
  while (jobs_.size() > 1 && driver()->event_query(jobs_.front()->event) == CUDA_SUCCESS) {
    give_back(*jobs_.front(), device_);
    jobs_.erase(jobs_.begin());
  }
}

// ---- on the stream --------------------------------------------------------------------------------------------------

bool Communicator::fails_now(size_t operations) {
  const bool counts = settings_.error_after >= 0 && (settings_.error_rank < 0 || settings_.error_rank == rank_);
  operations_run_ += static_cast<long>(operations);
  if (!counts || operations_run_ <= settings_.error_after) return false;
  set_last_error("the stand-in was asked to fail after " + std::to_string(settings_.error_after) + " calls");
  state_ = ncclRemoteError;
  return true;
}

void Communicator::hang() {
  while (!stopped_) channels_.sleep(channels_.listen());
}

void Communicator::hand_over(Job &job) {
  const std::lock_guard<std::mutex> lock(running_);
  if (!waits_values_) return run(job);
  job.flag() = stopped_ ? 1 : 0;
  if (stopped_) return;
  queue_.push_back(&job);
  if (!runner_.joinable()) runner_ = std::thread([this] { run_jobs(); });
  has_work_.notify_one();
}

// Until it is stopped; streams that still wait then go on.
void Communicator::run_jobs() {
  std::unique_lock<std::mutex> lock(running_);
  while (!stopped_) {
    if (queue_.empty()) {
      has_work_.wait_for(lock, std::chrono::milliseconds(20));
      continue;
    }
    Job *const job = queue_.front();
    queue_.pop_front();
    lock.unlock();
    run(*job);
    job->flag() = 1;
    lock.lock();
  }
  for (Job *const job : queue_) job->flag() = 1;
  queue_.clear();
}

void Communicator::run(Job &job) {
  if (stopped_) return;
  if (fails_now(job.operations)) return hang();
  const auto transfers = [&job](const std::vector<Move> &moves) {
    std::vector<Transfer> list;
    for (const Move &move : moves) list.push_back({move.peer, job.memory + move.place, move.bytes, move.call});
    return list;
  };
  const auto complain = [this](const Transfer &wanted, uint64_t bytes, uint64_t call) {
    if (!settings_.checks) return;
    std::fprintf(stderr, "NCCL's stand-in: rank %d waits for %" PRIu64 " bytes of rank %d's %s, root %" PRIu64
                 ", but rank %d has called %s, root %" PRIu64 ", with %" PRIu64 " bytes: both hang\n", rank_,
                 wanted.bytes, wanted.peer, name_of(static_cast<Call>(wanted.call & 255)), wanted.call >> 8,
                 wanted.peer, name_of(static_cast<Call>(call & 255)), call >> 8, bytes);
  };
  if (!channels_.carry(transfers(job.sends), transfers(job.receives), [this] { return stopped_.load(); }, complain))
    return;
  for (const Local &local : job.locals)
    std::memcpy(job.memory + local.target, job.memory + local.source, local.bytes);
  for (const Sum &sum : job.sums) {
    const uint64_t bytes = sum.count * bytes_of(sum.type);
    std::memcpy(job.memory + sum.target, job.memory + sum.sources[0], bytes);
    for (size_t i = 1; i < sum.sources.size(); ++i)
      combine(job.memory + sum.target, job.memory + sum.sources[i], sum.count, sum.type, sum.operation);
  }
}

// ---- ends ----------------------------------------------------------------------------------------------------------

void Communicator::finish() {
  const auto end = std::chrono::steady_clock::now() + patience;
  const Current current(context_);
  for (const std::shared_ptr<Job> &job : jobs_)
    while (!stopped_ && driver()->event_query(job->event) == CUDA_ERROR_NOT_READY &&
           std::chrono::steady_clock::now() < end)
      usleep(500);
}

// Blocking ones are finalized one after the other by programs of one thread, so they wait for nobody; the others are in
// progress until all ranks have come this far.
ncclResult_t Communicator::finalize() {
  const auto body = [this] {
    finish();
    channels_.board(rank_).has_left = 1;
    const auto end = std::chrono::steady_clock::now() + patience;
    for (int rank = 0; !is_blocking_ && rank < rank_count_; ++rank)
      while (!stopped_ && !channels_.board(rank).has_left && std::chrono::steady_clock::now() < end) usleep(1000);
    return ncclSuccess;
  };
  work(body);
  return is_blocking_ ? wait_for_worker() : ncclInProgress;
}

// Whoever sleeps looks again every 20 ms.
void Communicator::stop() { stopped_ = true; }

void Communicator::close() {
  if (worker_.joinable()) worker_.join();
  std::thread runner;
  {
    const std::lock_guard<std::mutex> lock(running_);
    runner.swap(runner_);
  }
  if (runner.joinable()) runner.join();
  if (memory_) channels_.board(rank_).has_left = 1;
  // The context stays retained: pinned memory of it is kept for the next communicator.
  const Current current(context_);
  for (const std::shared_ptr<Job> &job : jobs_) {
    if (driver()->event_query(job->event) == CUDA_SUCCESS) give_back(*job, device_);
    else keep(job);
  }
  jobs_.clear();
}

}  // namespace standin
