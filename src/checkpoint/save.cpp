// SPDX-License-Identifier: Apache-2.0
// The second half of a save: bytes, reports, manifest, commit. See save.hpp for the order.
//
// The partial folder is removed when all ranks have said how it went, for as long as that is open others may write into
// it. Only if the comm itself has failed rank 0 removes what it can; a file that a peer makes after that is swept by
// the next save.
#include "checkpoint/save.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "base/status.hpp"
#include "checkpoint/complete_folder.hpp"
#include "checkpoint/descriptor.hpp"
#include "checkpoint/device_bytes.hpp"
#include "checkpoint/prepared_save.hpp"
#include "checkpoint/save_report.hpp"
#include "machine/machine.hpp"

namespace mxs {

namespace {

constexpr char what[] = "the save";
constexpr size_t report_bytes_max = size_t{1} << 32;

mxs_status unlike_folder(int rank, const std::string &path) {
  return set_error(MXS_SYSTEM, "rank %d wrote into %.300s but rank 0 doesn't see it: all ranks must see one file "
                   "system", rank, path.c_str());
}

// ---- every rank ----

class OwnWrites {
 public:
  OwnWrites(Comm &comm, PreparedSave *save, IoProgress *progress)
      : comm_(comm), save_(*save), told_(progress) {
    watched_.go_on = [this](uint64_t done_bytes) { return go_on(done_bytes); };
  }

  mxs_status run() {
    struct stat found{};
    if (stat(save_.partial_path.c_str(), &found) != 0)
      return set_error(MXS_SYSTEM, "rank %d doesn't see %.300s, which rank 0 has made (%s): all ranks must see one "
                       "file system", comm_.rank, save_.partial_path.c_str(), std::strerror(errno));
    mxs_status status = write_files();
    if (status == MXS_OK && !go_on(watched_.done_bytes)) status = set_error(MXS_CANCELLED, "cancelled as asked for");
    if (status == MXS_OK)
      status = write_synced(save_.partial_path + "/" + report_name(comm_.rank), report_to_json(save_.content));
    if (status == MXS_OK) return MXS_OK;
    const std::string sentence = last_error_text();
    // A folder that has gone because peers gave up is not what failed.
    if (hear_of_peers() != MXS_OK) return set_error(peers_, "%s", peers_sentence_.c_str());
    return set_error(status, "rank %d: %s", comm_.rank, sentence.c_str());
  }

 private:
  mxs_status hear_of_peers() {
    if (peers_ == MXS_OK) peers_ = comm_.heed();
    if (peers_ != MXS_OK && peers_sentence_.empty()) peers_sentence_ = last_error_text();
    return peers_;
  }

  // No more bytes for a save that has failed elsewhere.
  bool go_on(uint64_t done_bytes) {
    if (hear_of_peers() != MXS_OK) return false;
    if (!told_) return true;
    told_->done_bytes = done_bytes;
    return !told_->go_on || told_->go_on(done_bytes);
  }

  mxs_status write_files() {
    FilesWriter writer(save_.partial_path, &watched_);
    for (OwnFile &own : save_.content.files) {
      const mxs_status status = write_file(&writer, &own);
      if (status != MXS_OK) return status;
    }
    return MXS_OK;
  }

  mxs_status write_file(FilesWriter *writer, OwnFile *own) {
    FiledFile &filed = own->filed;
    mxs_status status = writer->begin(filed.name);
    if (status == MXS_OK && filed.first_rank == comm_.rank)
      status = writer->write(0, filed.header.data(), filed.header.size());
    for (const OwnPiece &each : own->pieces) {
      FiledArray &array = filed.arrays[each.array];
      ManifestPiece &piece = array.pieces[each.piece];
      uint64_t offset = filed.data_offset + array.offset + piece.first * array.number_bytes;
      for (const SaveSpan &span : each.spans) {
        if (status == MXS_OK) status = write_span(writer, span, offset, &piece.hashes);
        offset += span.bytes;
      }
      if (status == MXS_OK) status = writer->finish_piece();
    }
    return status == MXS_OK ? writer->finish() : status;
  }

  mxs_status write_span(FilesWriter *writer, const SaveSpan &span, uint64_t offset, std::vector<uint64_t> *hashes) {
    if (!span.on_device) return writer->write(offset, span.data, span.bytes, hashes);
    mxs_status status = device_bytes_ ? MXS_OK : DeviceBytes::create(&device_bytes_, *save_.content.device);
    if (status != MXS_OK) return status;
    return device_bytes_->read(span.data, span.bytes, [&](const std::byte *data, uint64_t bytes) {
      status = writer->write(offset, data, bytes, hashes);
      offset += bytes;
      return status;
    });
  }

  Comm &comm_;
  PreparedSave &save_;
  std::unique_ptr<DeviceBytes> device_bytes_;
  IoProgress watched_, *told_;
  mxs_status peers_ = MXS_OK;
  std::string peers_sentence_;
};

// ---- rank 0 ----

// Opened, not asked for by name: on network file systems that is what shows what others have written.
mxs_status check_size(const std::string &folder, const ManifestFile &file) {
  const std::string path = folder + "/" + file.name;
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found{};
  if (!descriptor || fstat(descriptor.get(), &found) != 0)
    return set_error(MXS_SYSTEM, "rank 0 can't read %.300s, which has just been written: %s", path.c_str(),
                     std::strerror(errno));
  if (static_cast<uint64_t>(found.st_size) == file.bytes) return MXS_OK;
  return set_error(MXS_SYSTEM, "%.300s has %lld bytes on rank 0, but ranks have written %" PRIu64 ": all ranks must "
                   "see one file system", path.c_str(), static_cast<long long>(found.st_size), file.bytes);
}

mxs_status merge_reports(const std::string &folder, SaveContent *content) {
  ReportMerger merger(&content->manifest);
  for (int rank = 0; rank < content->manifest.rank_count; ++rank) {
    const std::string path = folder + "/" + report_name(rank);
    std::string text;
    struct stat found{};
    if (stat(path.c_str(), &found) != 0 && errno == ENOENT) return unlike_folder(rank, folder);
    mxs_status status = read_file("report of a save", path, report_bytes_max, &text);
    if (status == MXS_OK) status = merger.add(rank, text);
    if (status != MXS_OK) return status;
    if (unlink(path.c_str()) != 0)
      return set_error(MXS_SYSTEM, "can't delete %.300s: %s", path.c_str(), std::strerror(errno));
  }
  mxs_status status = merger.finish(content->common);
  for (const ManifestFile &file : content->manifest.files)
    if (status == MXS_OK) status = check_size(folder, file);
  return status;
}

mxs_status complete(PreparedSave *save, IoProgress *progress) {
  const mxs_status status = merge_reports(save->partial_path, &save->content);
  if (status != MXS_OK) return status;
  return complete_folder(save->content.manifest, save->settings.files_from, progress, &save->folder);
}

}  // namespace

mxs_status failed_on_rank(int rank, mxs_status status) {
  if (status == MXS_OK) return MXS_OK;
  const std::string sentence = last_error_text();
  if (sentence.compare(0, 5, "rank ") == 0) return status;
  return set_error(status, "rank %d: %s", rank, sentence.c_str());
}

mxs_status carry_out_save(Comm &comm, PreparedSave *save, IoProgress *progress) {
  mxs_status own = fenced([&] { return OwnWrites(comm, save, progress).run(); });
  mxs_status status = settle_over_ranks(comm, own, what, save->patience_ns);
  if (status == MXS_OK) {
    own = comm.rank == 0 ? failed_on_rank(0, fenced([&] { return complete(save, progress); })) : MXS_OK;
    status = settle_over_ranks(comm, own, what, save->patience_ns);
    // It is there, whatever became of a peer after that.
    if (comm.rank == 0 && own == MXS_OK) status = MXS_OK;
  }
  if (comm.rank != 0) return status;
  if (status == MXS_OK) {
    keep_newest(save->settings.path, save->settings.keep, save->folder.final_path());
    return MXS_OK;
  }
  const std::string sentence = last_error_text();
  save->folder.remove();
  return set_error(status, "%s", sentence.c_str());
}

mxs_status save_checkpoint(const std::vector<Unit *> &units, Optimizer *optimizer, const SaveSettings &settings,
                           IoProgress *progress, uint64_t *total_bytes) {
  PreparedSave save;
  const mxs_status status = prepare_save(units, optimizer, settings, &save);
  if (status != MXS_OK) return status;
  *total_bytes = save.content.bytes;
  return carry_out_save(units[0]->comm(), &save, progress);
}

}  // namespace mxs
