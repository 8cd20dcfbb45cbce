// SPDX-License-Identifier: Apache-2.0
// Verify: all bytes read again, and the header and size of each file looked at once more.
//
// A fault ends the reading of its array only, if somebody listens to faults; the others are read on.
#include <algorithm>

#include "base/status.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/opened_checks.hpp"

namespace mxs {
namespace {

// Read at a time, so that a file of which all arrays are faulty isn't listed anew for each of them.
constexpr size_t batch_arrays_max = 1024;

class Verification {
 public:
  Verification(const OpenedCheckpoint &opened, const mxs_verify_options &options) : opened_(opened),
                                                                                     options_(options) {
    if (!options.progress) return;
    progress_.go_on = [this](uint64_t done_bytes) {
      return options_.progress(options_.progress_context, done_bytes, opened_.bytes) == 0;
    };
  }

  mxs_status run() {
    if (opened_.has_manifest)
      if (const mxs_status status = note(check_index(opened_)); status != MXS_OK) return status;
    const mxs_status status = for_each_file(opened_.manifest, [&](size_t file, size_t first, size_t end) {
      return check_all(file, first, end);
    });
    if (status != MXS_OK || first_status_ == MXS_OK) return status;
    return set_error(first_status_, "%s", first_sentence_.c_str());
  }

 private:
  // Whether to go on after what a check has found.
  mxs_status note(mxs_status status) {
    const bool is_fault = status == MXS_DAMAGED || status == MXS_SYSTEM;
    if (!is_fault || !options_.fault) return status;
    const std::string sentence = last_error_text();
    options_.fault(options_.fault_context, sentence.c_str());
    if (first_status_ == MXS_OK) {
      first_status_ = status;
      first_sentence_ = sentence;
    }
    return MXS_OK;
  }

  // Arrays [first, end) are the file's.
  mxs_status check_all(size_t file, size_t first, size_t end) {
    const mxs_status found = check_file(opened_, file, first, end);
    if (found != MXS_OK) {
      for (size_t array = first; array < end; ++array) progress_.done_bytes += opened_.manifest.arrays[array].bytes;
      return note(found);  // without its header nobody knows what lies where
    }
    while (first < end) {
      const mxs_status status = note(read_from(file, &first, end));
      if (status != MXS_OK) return status;
    }
    return MXS_OK;
  }

  // Reads arrays from *first on, up to a batch of them; then *first is where to go on.
  mxs_status read_from(size_t file, size_t *first, size_t end) {
    const std::vector<ManifestArray> &arrays = opened_.manifest.arrays;
    end = std::min(end, *first + batch_arrays_max);
    size_t at = *first;  // its bytes come next,
    uint64_t done = 0;   // behind these of them
    const auto leave_whole_ones = [&] {
      for (; at < end && done == arrays[at].bytes; ++at) done = 0;
    };
    const ByteSink sink = [&](const std::byte *, uint64_t bytes) {
      leave_whole_ones();
      done += bytes;
      return MXS_OK;
    };
    std::vector<ReadRange> ranges;
    for (size_t index = *first; index < end; ++index)
      if (arrays[index].bytes != 0)
        ranges.push_back({&opened_.manifest.files[file], &arrays[index], 0, arrays[index].bytes, sink});
    const mxs_status status = ranges.empty() ? MXS_OK : read_ranges(opened_.path, ranges, true, &progress_);
    leave_whole_ones();
    *first = at;
    if (status == MXS_OK || at == end) return status;
    progress_.done_bytes += arrays[at].bytes - done;  // they are left out
    ++*first;
    return status;
  }

  const OpenedCheckpoint &opened_;
  const mxs_verify_options &options_;
  IoProgress progress_;
  mxs_status first_status_ = MXS_OK;
  std::string first_sentence_;
};

}  // namespace

mxs_status verify_checkpoint(const OpenedCheckpoint &opened, const mxs_verify_options &options) {
  return Verification(opened, options).run();
}

}  // namespace mxs
