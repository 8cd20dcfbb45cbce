// SPDX-License-Identifier: Apache-2.0
// FilesWriter: the caller fills buffers and hashes, a thread writes them.
//
//   caller   | fill 0 | fill 1 | fill 2 | fill 3 | (waits until 0 is written) fill 0 |
//   thread            | write 0         | write 1         | write 2 ...
//
// A buffer holds one run of a file. Its first byte stands for a border of blocks, so memory is aligned as the file is;
// a run that goes on after a full buffer goes on at a border. The first failure, the thread's or the caller's, stays:
// what is queued is dropped, so nobody waits for a disk that is full, and every later call returns it.
#include <algorithm>
#include <cassert>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/status.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/hash.hpp"
#include "checkpoint/io_file.hpp"
#include "checkpoint/io_progress.hpp"
#include "checkpoint/io_thread.hpp"

namespace mxs {

namespace {

constexpr uint64_t buffer_count = 4, buffer_bytes = uint64_t{4} << 20;
static_assert(buffer_count * buffer_bytes <= file_io_bytes_max);

// Copied, then hashed while it is in the second-level cache.
constexpr uint64_t stride_bytes = uint64_t{256} << 10;

}  // namespace

struct FilesWriter::Inner {
  struct Run {
    uint64_t base = 0, first = 0, end = 0;  // of the file: of the buffer's first byte, of the run
  };

  std::string folder;
  IoProgress *progress;
  IoFile file;
  IoMemory memory;
  std::thread thread;
  ChunkHasher hasher;
  std::vector<uint64_t> *piece_hashes = nullptr;
  Run filling;

  std::mutex mutex;
  std::condition_variable work, room;
  Run queued[buffer_count];                   // under the mutex, as all that follows
  uint64_t queued_count = 0, done_count = 0;  // ever; buffer = count % buffer_count
  bool stopped = false;
  mxs_status failure = MXS_OK;
  std::string sentence;

  Inner(std::string folder, IoProgress *progress) : folder(std::move(folder)), progress(progress) {}

  ~Inner() {
    {
      const std::lock_guard lock(mutex);
      stopped = true;
    }
    work.notify_one();
    if (thread.joinable()) thread.join();
  }

  std::byte *buffer(uint64_t count) const { return memory.get() + count % buffer_count * buffer_bytes; }

  // What a call does, unless something has failed before; its own failure stays.
  template <class Body>
  mxs_status unless_failed(Body &&body) noexcept {
    mxs_status status = failed();
    if (status != MXS_OK) return status;
    status = fenced(body);
    if (status != MXS_OK) keep_failure(status);
    return status;
  }

  mxs_status failed() {
    const std::lock_guard lock(mutex);
    return failure == MXS_OK ? MXS_OK : set_error(failure, "%s", sentence.c_str());
  }

  void keep_failure(mxs_status status) noexcept {
    const std::lock_guard lock(mutex);
    if (failure != MXS_OK) return;
    failure = status;
    fenced([&] { return sentence = last_error_text(), MXS_OK; });
  }

  mxs_status start() {
    if (thread.joinable()) return MXS_OK;
    memory = io_memory(buffer_count * buffer_bytes);
    return start_io_thread(&thread, "mxs-write", [this] { write_queued(); });
  }

  // The thread.
  void write_queued() {
    std::unique_lock lock(mutex);
    for (;;) {
      work.wait(lock, [&] { return stopped || queued_count > done_count; });
      if (stopped) return;
      const Run run = queued[done_count % buffer_count];
      const std::byte *data = buffer(done_count) + (run.first - run.base);
      const bool drop = failure != MXS_OK;
      lock.unlock();
      const mxs_status status =
          drop ? MXS_OK : fenced([&] { return file.write(run.first, data, run.end - run.first); });
      if (status != MXS_OK) keep_failure(status);
      lock.lock();
      ++done_count;
      room.notify_one();
    }
  }

  // The run that is being filled goes to the thread; comes back when there is an empty buffer.
  mxs_status queue() {
    if (filling.first == filling.end) return MXS_OK;
    std::unique_lock lock(mutex);
    queued[queued_count % buffer_count] = filling;
    ++queued_count;
    work.notify_one();
    filling = {};
    room.wait(lock, [&] { return queued_count - done_count < buffer_count; });
    lock.unlock();
    return failed();
  }

  mxs_status wait_for_all() {
    std::unique_lock lock(mutex);
    room.wait(lock, [&] { return queued_count == done_count; });
    lock.unlock();
    return failed();
  }

  mxs_status add(uint64_t offset, const std::byte *data, uint64_t bytes, std::vector<uint64_t> *hashes) {
    if (bytes > 0 && filling.first != filling.end && offset != filling.end) {
      const mxs_status status = queue();
      if (status != MXS_OK) return status;
    }
    while (bytes > 0) {
      if (filling.first == filling.end) filling = {block_floor(offset), offset, offset};
      const uint64_t part = std::min({bytes, stride_bytes, filling.base + buffer_bytes - offset});
      std::byte *target = buffer(queued_count) + (offset - filling.base);
      std::memcpy(target, data, part);
      if (hashes) hasher.add(target, part, hashes);
      filling.end = offset += part;
      data += part;
      bytes -= part;
      mxs_status status = filling.end == filling.base + buffer_bytes ? queue() : MXS_OK;
      if (status == MXS_OK) status = note_progress(progress, part);
      if (status != MXS_OK) return status;
    }
    return MXS_OK;
  }
};

FilesWriter::FilesWriter(std::string folder, IoProgress *progress)
    : inner_(std::make_unique<Inner>(std::move(folder), progress)) {}

FilesWriter::~FilesWriter() = default;

mxs_status FilesWriter::begin(const std::string &name) {
  return inner_->unless_failed([&] {
    assert(!inner_->file.is_open());
    const mxs_status status = inner_->start();
    return status == MXS_OK ? inner_->file.open_to_write(inner_->folder + "/" + name) : status;
  });
}

mxs_status FilesWriter::write(uint64_t offset, const void *data, uint64_t bytes, std::vector<uint64_t> *hashes) {
  return inner_->unless_failed([&] {
    assert(inner_->file.is_open() && (!hashes || !inner_->piece_hashes || hashes == inner_->piece_hashes));
    if (hashes) inner_->piece_hashes = hashes;
    return inner_->add(offset, static_cast<const std::byte *>(data), bytes, hashes);
  });
}

mxs_status FilesWriter::finish_piece() {
  return inner_->unless_failed([&] {
    if (inner_->piece_hashes) inner_->hasher.finish(inner_->piece_hashes);
    inner_->piece_hashes = nullptr;
    return MXS_OK;
  });
}

mxs_status FilesWriter::finish() {
  return inner_->unless_failed([&] {
    assert(inner_->file.is_open());
    mxs_status status = inner_->queue();
    if (status == MXS_OK) status = inner_->wait_for_all();
    if (status == MXS_OK) status = inner_->file.finish();
    return status == MXS_OK ? tell_progress(inner_->progress) : status;
  });
}

}  // namespace mxs
