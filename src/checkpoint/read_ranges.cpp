// SPDX-License-Identifier: Apache-2.0
// read_ranges: a thread reads ahead, the caller looks at hashes and hands on.
//
//   thread   | read 0 | read 1 | read 2 | (waits until 0 is handed on) read 3 |
//   caller            | hash 0, sink |    | hash 1, sink |
//
// What fits into one buffer is read by the caller, without a thread.
#include <array>
#include <cassert>
#include <cinttypes>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/status.hpp"
#include "checkpoint/fetch.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/io_file.hpp"
#include "checkpoint/io_progress.hpp"
#include "checkpoint/io_thread.hpp"

namespace mxs {

namespace {

constexpr uint64_t buffer_count = 3;
static_assert(buffer_count * fetch_bytes_max <= file_io_bytes_max);

struct Buffer {
  Fetch fetch;
  std::byte *data = nullptr;
  mxs_status status = MXS_OK;
  std::string sentence;
};

class Reader {
 public:
  Reader(const std::string &folder, const std::vector<ReadRange> &ranges, bool verified, IoProgress *progress)
      : folder_(folder), ranges_(ranges), planner_(ranges, verified), progress_(progress) {}
  ~Reader();
  mxs_status run();

 private:
  mxs_status read(Buffer *buffer);
  mxs_status read_alone();
  mxs_status hand_on(const Buffer &buffer) const;
  mxs_status check(const Buffer &buffer, const FetchedChunk &chunk) const;
  void read_ahead();

  const std::string &folder_;
  const std::vector<ReadRange> &ranges_;
  FetchPlanner planner_;  // of the thread, once there is one; as is the file
  IoProgress *progress_;
  IoFile file_;
  const ManifestFile *open_file_ = nullptr;
  IoMemory memory_;
  std::array<Buffer, buffer_count> buffers_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable filled_, emptied_;
  uint64_t filled_count_ = 0, emptied_count_ = 0;  // ever; buffer = count % buffer_count
  bool all_read_ = false, stopped_ = false;
};

Reader::~Reader() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  emptied_.notify_one();
  if (thread_.joinable()) thread_.join();
}

mxs_status Reader::read(Buffer *buffer) {
  const Fetch &fetch = buffer->fetch;
  if (open_file_ != fetch.file) {
    file_.close();
    open_file_ = nullptr;
    const mxs_status status = file_.open_to_read(folder_ + "/" + fetch.file->name, fetch.file->bytes,
                                                 ranges_[fetch.parts[0].range].array->name);
    if (status != MXS_OK) return status;
    open_file_ = fetch.file;
  }
  return file_.read(fetch.first, fetch.end, buffer->data);
}

mxs_status Reader::check(const Buffer &buffer, const FetchedChunk &chunk) const {
  if (!chunk.hash || hash_chunk(buffer.data + (chunk.offset - buffer.fetch.first), chunk.bytes) == *chunk.hash)
    return MXS_OK;
  return set_error(MXS_DAMAGED, "%s/%s: bytes %" PRIu64 " to %" PRIu64 ", of %s, aren't what was saved: their hash is "
                   "another", folder_.c_str(), buffer.fetch.file->name.c_str(), chunk.offset,
                   chunk.offset + chunk.bytes - 1, ranges_[chunk.range].array->name.c_str());
}

mxs_status Reader::hand_on(const Buffer &buffer) const {
  size_t checked_count = 0;  // of chunks
  for (const FetchedPart &part : buffer.fetch.parts) {
    for (; checked_count <= part.chunk; ++checked_count) {
      const mxs_status status = check(buffer, buffer.fetch.chunks[checked_count]);
      if (status != MXS_OK) return status;
    }
    mxs_status status = ranges_[part.range].sink(buffer.data + (part.offset - buffer.fetch.first), part.bytes);
    if (status == MXS_OK) status = note_progress(progress_, part.bytes);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

mxs_status Reader::read_alone() {
  memory_ = io_memory(block_ceiling(buffers_[0].fetch.end) - buffers_[0].fetch.first);
  buffers_[0].data = memory_.get();
  const mxs_status status = read(&buffers_[0]);
  return status == MXS_OK ? hand_on(buffers_[0]) : status;
}

// The thread. The first fetch is planned already. What fails comes out when its turn has come.
void Reader::read_ahead() {
  for (bool planned = true;; planned = false) {
    std::unique_lock lock(mutex_);
    emptied_.wait(lock, [&] { return stopped_ || filled_count_ - emptied_count_ < buffer_count; });
    if (stopped_) return;
    lock.unlock();
    Buffer &buffer = buffers_[filled_count_ % buffer_count];
    bool any = true;
    buffer.status = fenced([&] {
      any = planned || planner_.next(&buffer.fetch);
      return any ? read(&buffer) : MXS_OK;
    });
    if (buffer.status != MXS_OK) fenced([&] { return buffer.sentence = last_error_text(), MXS_OK; });
    lock.lock();
    if (any) ++filled_count_;
    all_read_ = !any || buffer.status != MXS_OK;
    filled_.notify_one();
    if (all_read_) return;
  }
}

mxs_status Reader::run() {
  if (!planner_.next(&buffers_[0].fetch)) return MXS_OK;
  if (planner_.at_end()) return read_alone();
  memory_ = io_memory(buffer_count * fetch_bytes_max);
  for (uint64_t i = 0; i < buffer_count; ++i) buffers_[i].data = memory_.get() + i * fetch_bytes_max;
  mxs_status status = start_io_thread(&thread_, "mxs-read", [this] { read_ahead(); });
  while (status == MXS_OK) {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return filled_count_ > emptied_count_ || all_read_; });
    if (filled_count_ == emptied_count_) break;
    lock.unlock();
    const Buffer &buffer = buffers_[emptied_count_ % buffer_count];
    status = buffer.status == MXS_OK ? hand_on(buffer) : set_error(buffer.status, "%s", buffer.sentence.c_str());
    lock.lock();
    ++emptied_count_;
    emptied_.notify_one();
  }
  return status;
}

}  // namespace

mxs_status read_ranges(const std::string &folder, const std::vector<ReadRange> &ranges, bool verified,
                       IoProgress *progress) {
  return fenced([&] {
    Reader reader(folder, ranges, verified, progress);
    const mxs_status status = reader.run();
    return status == MXS_OK ? tell_progress(progress) : status;
  });
}

}  // namespace mxs
