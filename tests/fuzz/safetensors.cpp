// SPDX-License-Identifier: Apache-2.0
// Whole safetensors files, read as files are. Data may be named by its size alone: what follows the header counts.
#include <sys/mman.h>
#include <unistd.h>

#include "model/weights.hpp"
#include "models.hpp"

using namespace mxs;

namespace {

// A file in memory, opened again by its name under /proc.
class File {
 public:
  explicit File(std::string_view text) : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    fuzz::promise(descriptor_ >= 0 && write(descriptor_, text.data(), text.size())
        == static_cast<ssize_t>(text.size()));
  }
  ~File() { close(descriptor_); }
  File(const File &) = delete;
  std::string path() const { return std::string("/proc/self/fd/").append(std::to_string(descriptor_)); }

 private:
  int descriptor_;
};

std::string file_of(const std::string &header, size_t data_bytes) {
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text.push_back(static_cast<char>(header.size() >> (8 * byte)));
  return text.append(header).append(data_bytes, '\0');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const File file(fuzz::text_of(data, size));
  SafetensorsHeader header;
  if (read_safetensors_header(file.path(), &header) != MXS_OK) {
    fuzz::promise(header.entries.empty());
    return 0;
  }
  uint64_t end = 0;
  for (const SafetensorsEntry &entry : header.entries) {
    fuzz::promise(entry.begin == end && entry.end >= entry.begin);
    end = entry.end;
  }
  fuzz::promise(header.data_offset + end == size);
  LoadedModel model;
  if (add_weights(std::move(header), true, &model) != MXS_OK) return 0;
  arrange_weights("gpt2", &model);
  fuzz::check_model(&model);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {file_of(R"({"__metadata__":{"format":"pt"},"l.10.w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                  R"("l.9.w":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},)"
                  R"("wte":{"dtype":"U8","shape":[2,0],"data_offsets":[20,20]}}  )", 20),
          file_of(R"({"h.0.attn.c_attn.weight":{"dtype":"F16","shape":[2,6],"data_offsets":[0,24]},)"
                  R"("h.0.attn.bias":{"dtype":"BOOL","shape":[1,1,2,2],"data_offsets":[24,28]}})", 28),
          file_of(R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", 8), file_of("{}", 0)};
}
