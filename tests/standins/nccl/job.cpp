// SPDX-License-Identifier: Apache-2.0
#include "job.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "sums.hpp"

namespace standin {

namespace {

class Planner {
 public:
  Planner(Job &job, int rank, int rank_count) : job_(job), rank_(rank), rank_count_(rank_count) {}

  void add(const Operation &operation) {
    operation_ = &operation;
    bytes_ = operation.count * bytes_of(operation.type);
    call_ = static_cast<uint64_t>(operation.call) | static_cast<uint64_t>(operation.root) << 8;
    if (bytes_ == 0) return;
    switch (operation.call) {
      case Call::broadcast: return broadcast();
      case Call::reduce: return reduce();
      case Call::all_reduce: return all_reduce();
      case Call::all_gather: return all_gather();
      case Call::reduce_scatter: return reduce_scatter();
      case Call::message: return operation.is_send ? send() : receive();
    }
  }

  // Messages to oneself, in the order of the calls.
  void close() {
    for (size_t i = 0; i < std::min(own_sends_.size(), own_receives_.size()); ++i)
      job_.locals.push_back({own_sends_[i], own_receives_[i].first, own_receives_[i].second});
  }

 private:
  uint64_t room(uint64_t bytes) {
    const uint64_t place = job_.bytes;
    job_.bytes += (bytes + 63) / 64 * 64;
    return place;
  }
  uint64_t copy_in(uint64_t bytes) {
    const uint64_t place = room(bytes);
    job_.copies_in.push_back({const_cast<void *>(operation_->source), place, bytes});
    return place;
  }
  void copy_out(uint64_t place, uint64_t offset, uint64_t bytes) {
    job_.copies_out.push_back({static_cast<std::byte *>(operation_->target) + offset, place, bytes});
  }
  void send_all(uint64_t place, uint64_t stride) {
    for (int peer = 0; peer < rank_count_; ++peer)
      if (peer != rank_) job_.sends.push_back({peer, place + static_cast<uint64_t>(peer) * stride, bytes_, call_});
  }
  // Places by rank: own is where this rank's lies.
  std::vector<uint64_t> receive_all(uint64_t own) {
    std::vector<uint64_t> places;
    for (int peer = 0; peer < rank_count_; ++peer) {
      places.push_back(peer == rank_ ? own : room(bytes_));
      if (peer != rank_) job_.receives.push_back({peer, places.back(), bytes_, call_});
    }
    return places;
  }
  void sum(std::vector<uint64_t> sources) {
    const uint64_t target = room(bytes_);
    job_.sums.push_back({target, std::move(sources), operation_->count, operation_->type, operation_->operation});
    copy_out(target, 0, bytes_);
  }

  void broadcast() {
    if (rank_ == operation_->root) {
      const uint64_t place = copy_in(bytes_);
      send_all(place, 0);
      if (operation_->target != operation_->source) copy_out(place, 0, bytes_);
      return;
    }
    const uint64_t place = room(bytes_);
    job_.receives.push_back({operation_->root, place, bytes_, call_});
    copy_out(place, 0, bytes_);
  }
  void reduce() {
    const uint64_t own = copy_in(bytes_);
    if (rank_ == operation_->root) sum(receive_all(own));
    else job_.sends.push_back({operation_->root, own, bytes_, call_});
  }
  void all_reduce() {
    const uint64_t own = copy_in(bytes_);
    send_all(own, 0);
    sum(receive_all(own));
  }
  void all_gather() {
    const uint64_t own = copy_in(bytes_);
    send_all(own, 0);
    const std::vector<uint64_t> places = receive_all(own);
    for (size_t peer = 0; peer < places.size(); ++peer) copy_out(places[peer], peer * bytes_, bytes_);
  }
  void reduce_scatter() {
    const uint64_t all = copy_in(bytes_ * static_cast<uint64_t>(rank_count_));
    send_all(all, bytes_);
    sum(receive_all(all + static_cast<uint64_t>(rank_) * bytes_));
  }
  void send() {
    const uint64_t place = copy_in(bytes_);
    if (operation_->root == rank_) own_sends_.push_back(place);
    else job_.sends.push_back({operation_->root, place, bytes_, static_cast<uint64_t>(Call::message)});
  }
  void receive() {
    const uint64_t place = room(bytes_);
    if (operation_->root == rank_) own_receives_.emplace_back(place, bytes_);
    else job_.receives.push_back({operation_->root, place, bytes_, static_cast<uint64_t>(Call::message)});
    copy_out(place, 0, bytes_);
  }

  Job &job_;
  const int rank_, rank_count_;
  const Operation *operation_ = nullptr;
  uint64_t bytes_ = 0, call_ = 0;
  std::vector<uint64_t> own_sends_;
  std::vector<std::pair<uint64_t, uint64_t>> own_receives_;
};

// Pinned memory is never given back: cuMemHostUnregister may wait for a stream that hangs.
struct Piece {
  std::byte *memory;
  uint64_t bytes;
  CUevent event;
  int device;
};

struct Pool {
  std::mutex mutex;
  std::vector<Piece> pieces;
};

Pool &pool() {
  static Pool *const only = new Pool;
  return *only;
}

bool take_free(Job &job, int device) {
  Pool &all = pool();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (size_t i = 0; i < all.pieces.size(); ++i) {
    const Piece piece = all.pieces[i];
    if (piece.device != device || piece.bytes < job.bytes || piece.bytes > 4 * job.bytes + 65536) continue;
    if (driver()->event_query(piece.event) != CUDA_SUCCESS) continue;
    all.pieces.erase(all.pieces.begin() + static_cast<std::ptrdiff_t>(i));
    job.memory = piece.memory;
    job.memory_bytes = piece.bytes;
    job.event = piece.event;
    return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<Job> make_job(const std::vector<Operation> &operations, int rank, int rank_count) {
  auto job = std::make_shared<Job>();
  job->operations = operations.size();
  Planner planner(*job, rank, rank_count);
  for (const Operation &operation : operations) planner.add(operation);
  planner.close();
  return job;
}

// Queries and allocations are nothing that a capture would record: neither may end it.
class Relaxed {
 public:
  Relaxed() { driver()->exchange_capture_mode(&mode_); }
  ~Relaxed() { driver()->exchange_capture_mode(&mode_); }
  Relaxed(const Relaxed &) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

bool equip(Job &job, int device) {
  const Relaxed relaxed;
  if (take_free(job, device)) return true;
  uint64_t bytes = 4096;
  while (bytes < job.bytes) bytes *= 2;
  // Not cuMemHostAlloc: tests count its calls, and make it fail.
  void *const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  const bool is_good = driver()->host_register(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS &&
                       driver()->event_create(&job.event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
  job.memory = static_cast<std::byte *>(memory);
  job.memory_bytes = bytes;
  return is_good;
}

void give_back(Job &job, int device) {
  Pool &all = pool();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.pieces.push_back({job.memory, job.memory_bytes, job.event, device});
  job.memory = nullptr;
}

}  // namespace standin
