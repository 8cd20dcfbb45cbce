// SPDX-License-Identifier: Apache-2.0
// mxs-perf: how fast the collectives are, in the manner of nccl-tests.
//
//   mxs run -n 4 -- mxs-perf --collective gather --layout onehot -b 1M -e 256M -f 4
//
// Every rank runs it; rank 0 prints. Times are of the slowest rank of each iteration; the median is shown. Sizes are
// those of the whole buffer. algbw is size / time. The bound of time/bound is the least number of bytes that the
// busiest rank must receive (mxs_collective_describe), over the rate at which one rank copies while all do, measured
// at start: no algorithm that brings every byte by a copy can be faster than about 1.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.h"

namespace {

constexpr int ranks_max = 64;  // as many values as mxs_comm_sum takes

struct Settings {
  std::string collective = "gather", layout = "even", algorithm, json, transport;
  uint64_t bytes_first = uint64_t{1} << 20, bytes_last = uint64_t{64} << 20;
  double factor = 4;
  int iterations = 20, warmups = 5;
  bool heap = false, rank_order = false, help = false;
};

const char usage[] =
    "usage: mxs run -n N -- mxs-perf [options]   (or under torchrun, srun, mpirun)\n"
    "  --collective gather|reduce   which one (gather)\n"
    "  --layout even|onehot|k:N     all ranks own alike; rank 0 owns all; N owners spread over the ranks (even)\n"
    "  -b SIZE, -e SIZE, -f FACTOR  first and last size, K M G allowed, and the step between them (1M 64M 4)\n"
    "  -n COUNT, -w COUNT           iterations, and warm-ups before them (20 5)\n"
    "  --algorithm NAME             flat, chain, spread, fanout, cooperative (chosen)\n"
    "  --transport NAME             loopback, shm, ucx (chosen)\n"
    "  --heap                       buffers of malloc instead of mxs_comm_allocate: bytes go in messages\n"
    "  --rank-order                 reduce in rank order\n"
    "  --json FILE                  rank 0 writes the table there as well\n";

bool complain(const char *sentence, const char *text) {
  std::fprintf(stderr, "mxs-perf: %s: %s\n%s", sentence, text, usage);
  return false;
}

// 0: not a size.
uint64_t size_from(const char *text) {
  char *end = nullptr;
  const double number = std::strtod(text, &end);
  const std::string unit = end;
  const int shift = unit == "G" ? 30 : unit == "M" ? 20 : unit == "K" ? 10 : unit.empty() ? 0 : -1;
  if (end == text || shift < 0 || !(number > 0) || number > 1e15) return 0;
  return static_cast<uint64_t>(number * static_cast<double>(uint64_t{1} << shift));
}

bool read_settings(int count, char **words, Settings *settings) {
  for (int i = 1; i < count; i++) {
    const std::string word = words[i];
    if (word == "-h" || word == "--help") return settings->help = true;
    if (word == "--heap" || word == "--rank-order") {
      (word == "--heap" ? settings->heap : settings->rank_order) = true;
      continue;
    }
    if (i + 1 == count) return complain("no value, or no such option", words[i]);
    const char *value = words[++i];
    if (word == "--collective") settings->collective = value;
    else if (word == "--layout") settings->layout = value;
    else if (word == "--algorithm") settings->algorithm = value;
    else if (word == "--transport") settings->transport = value;
    else if (word == "--json") settings->json = value;
    else if (word == "-b") settings->bytes_first = size_from(value);
    else if (word == "-e") settings->bytes_last = size_from(value);
    else if (word == "-f") settings->factor = std::atof(value);
    else if (word == "-n") settings->iterations = std::atoi(value);
    else if (word == "-w") settings->warmups = std::atoi(value);
    else return complain("no such option", word.c_str());
  }
  if (settings->collective != "gather" && settings->collective != "reduce")
    return complain("no such collective", settings->collective.c_str());
  if (settings->bytes_first == 0 || settings->bytes_last < settings->bytes_first || !(settings->factor > 1) ||
      settings->iterations < 1 || settings->warmups < 0)
    return complain("sizes, factor or counts make no sense", "see below");
  return true;
}

// Prints why, and ends the program: a measurement has nothing to save.
void need(mxs_status status, const char *what) {
  if (status == MXS_OK) return;
  std::fprintf(stderr, "mxs-perf: %s: %s: %s\n", what, mxs_status_text(status), mxs_last_error());
  std::exit(1);
}

double now_us() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(since).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Owned {
  int owner;
  uint64_t offset, bytes;
};

// Cut on whole floats.
bool cut(const std::string &layout, uint64_t bytes, int rank_count, std::vector<Owned> *owned) {
  int owner_count = rank_count;
  if (layout == "onehot") owner_count = 1;
  else if (layout.rfind("k:", 0) == 0) owner_count = std::atoi(layout.c_str() + 2);
  else if (layout != "even") return complain("no such layout", layout.c_str());
  if (owner_count < 1 || owner_count > rank_count) return complain("from 1 to all ranks can own", layout.c_str());
  const uint64_t elements = bytes / sizeof(float);
  uint64_t begin = 0;
  for (int i = 0; i < owner_count; i++) {
    const uint64_t end = elements * static_cast<uint64_t>(i + 1) / static_cast<uint64_t>(owner_count);
    const int owner = static_cast<int>(int64_t{i} * rank_count / owner_count);
    owned->push_back({owner, begin * sizeof(float), (end - begin) * sizeof(float)});
    begin = end;
  }
  return true;
}

struct Row {
  uint64_t bytes = 0, wrong = 0;
  double time_us = 0, least_us = 0, bandwidth = 0, time_over_bound = 0;
  std::string algorithm;
};

class Perf {
 public:
  explicit Perf(const Settings &settings);
  ~Perf() { mxs_comm_destroy(&comm_); }
  Row measure(uint64_t bytes);
  bool is_first() const { return info_.rank == 0; }
  const mxs_comm_info &info() const { return info_; }
  double copy_rate() const { return copy_rate_; }

 private:
  double slowest(double value);
  double measure_copy_rate();
  float *allocate(uint64_t bytes);
  void release(float *memory);
  void fill(float *buffer, const std::vector<Owned> &owned, uint64_t bytes) const;
  uint64_t count_wrong(const float *buffer, const float *sums, const std::vector<Owned> &owned) const;

  const Settings &settings_;
  bool gathers_;
  mxs_comm *comm_ = nullptr;
  mxs_comm_info info_ = MXS_COMM_INFO_INIT;
  double copy_rate_ = 0;  // bytes per microsecond
};

Perf::Perf(const Settings &settings) : settings_(settings), gathers_(settings.collective == "gather") {
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.transport = settings.transport.empty() ? nullptr : settings.transport.c_str();
  need(mxs_comm_create(&comm_, &options), "joining");
  need(mxs_comm_query(comm_, &info_), "comm");
  if (info_.rank_count > ranks_max) {
    std::fprintf(stderr, "mxs-perf: %d ranks; at most %d can be measured\n", info_.rank_count, ranks_max);
    std::exit(1);
  }
  copy_rate_ = measure_copy_rate();
}

// Sums with zeros are exact, so a sum carries every rank's value to all.
double Perf::slowest(double value) {
  double values[ranks_max] = {};
  values[info_.rank] = value;
  need(mxs_comm_sum(comm_, values, static_cast<uint64_t>(info_.rank_count), nullptr), "comparing times");
  return *std::max_element(values, values + info_.rank_count);
}

double Perf::measure_copy_rate() {
  const size_t bytes = size_t{32} << 20;
  std::vector<char> source(bytes, 1), target(bytes, 2);
  std::vector<double> times;
  for (int turn = 0; turn < 5; turn++) {
    need(mxs_comm_barrier(comm_, nullptr), "barrier");
    const double start = now_us();
    std::memcpy(target.data(), source.data(), bytes);
    times.push_back(slowest(now_us() - start));
    source[static_cast<size_t>(turn)] = target[bytes - 1];
  }
  return static_cast<double>(bytes) / median(times);
}

float *Perf::allocate(uint64_t bytes) {
  void *memory = nullptr;
  if (!settings_.heap) {
    need(mxs_comm_allocate(comm_, std::max<uint64_t>(bytes, 64), MXS_HOST, &memory), "allocating");
  } else {
    memory = std::aligned_alloc(4096, (bytes + 4096) / 4096 * 4096);
    if (!memory) need(MXS_OUT_OF_MEMORY, "allocating");
    std::memset(memory, 0, bytes);
  }
  return static_cast<float *>(memory);
}

void Perf::release(float *memory) {
  if (settings_.heap) std::free(memory);
  else need(mxs_comm_free(comm_, memory), "freeing");
}

float owners_value(int owner, uint64_t element) {
  return static_cast<float>(owner * 1000 + static_cast<int>(element % 997));
}
float ranks_value(int rank, uint64_t element) { return static_cast<float>(rank + static_cast<int>(element % 97)); }

void Perf::fill(float *buffer, const std::vector<Owned> &owned, uint64_t bytes) const {
  for (uint64_t i = 0; i < bytes / sizeof(float); i++) buffer[i] = gathers_ ? -1.0f : ranks_value(info_.rank, i);
  for (const Owned &part : owned)
    for (uint64_t i = part.offset / 4; gathers_ && part.owner == info_.rank && i < (part.offset + part.bytes) / 4; i++)
      buffer[i] = owners_value(part.owner, i);
}

uint64_t Perf::count_wrong(const float *buffer, const float *sums, const std::vector<Owned> &owned) const {
  const int ranks = info_.rank_count;
  uint64_t wrong = 0, packed = 0;
  for (const Owned &part : owned)
    for (uint64_t i = part.offset / 4; i < (part.offset + part.bytes) / 4; i++) {
      if (gathers_) wrong += buffer[i] != owners_value(part.owner, i);
      else if (part.owner == info_.rank)
        wrong += sums[packed++] !=
                 static_cast<float>(ranks) * ranks_value(0, i) + static_cast<float>(ranks * (ranks - 1) / 2);
    }
  return wrong;
}

Row Perf::measure(uint64_t bytes) {
  std::vector<Owned> owned;
  bytes = bytes / sizeof(float) * sizeof(float);
  if (!cut(settings_.layout, bytes, info_.rank_count, &owned)) std::exit(2);
  std::vector<mxs_segment> segments;
  uint64_t mine = 0;
  for (const Owned &part : owned) {
    mxs_segment segment = MXS_SEGMENT_INIT;
    segment.owner = part.owner;
    segment.offset = part.offset;
    segment.bytes = part.bytes;
    segments.push_back(segment);
    if (part.owner == info_.rank) mine += part.bytes;
  }
  mxs_layout *layout = nullptr;
  need(mxs_layout_create(&layout, segments.data(), segments.size(), info_.rank_count, 1), "layout");
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = gathers_ ? MXS_GATHER : MXS_REDUCE;
  options.layout = layout;
  options.dtype = MXS_F32;
  options.flags = settings_.rank_order ? MXS_RANK_ORDER : 0;
  options.algorithm = settings_.algorithm.empty() ? nullptr : settings_.algorithm.c_str();
  mxs_collective *collective = nullptr;
  need(mxs_collective_create(&collective, comm_, &options), "collective");

  float *buffer = allocate(bytes);
  // Every rank shares the same bytes, so that of the largest owner.
  float *sums = gathers_ ? nullptr : allocate(static_cast<uint64_t>(slowest(static_cast<double>(mine))));
  fill(buffer, owned, bytes);
  std::vector<double> times;
  for (int turn = -settings_.warmups; turn < settings_.iterations; turn++) {
    need(mxs_comm_barrier(comm_, nullptr), "barrier");
    const double start = now_us();
    need(mxs_collective_start(collective, gathers_ ? nullptr : buffer, gathers_ ? buffer : sums, nullptr), "start");
    need(mxs_collective_wait(collective, nullptr), "wait");
    const double time = slowest(now_us() - start);
    if (turn >= 0) times.push_back(time);
  }

  mxs_collective_info described = MXS_COLLECTIVE_INFO_INIT;
  need(mxs_collective_describe(collective, &described), "describe");
  Row row;
  row.bytes = bytes;
  row.time_us = median(times);
  row.least_us = *std::min_element(times.begin(), times.end());
  row.bandwidth = static_cast<double>(bytes) / row.time_us * 1e-3;
  const double bound_us = slowest(static_cast<double>(described.bytes_in_least)) / copy_rate_;
  row.time_over_bound = bound_us > 0 ? row.time_us / bound_us : 0;
  row.algorithm = described.algorithm;
  row.wrong = static_cast<uint64_t>(slowest(static_cast<double>(count_wrong(buffer, sums, owned))));
  need(mxs_collective_destroy(&collective), "collective");
  mxs_layout_destroy(&layout);
  need(mxs_comm_barrier(comm_, nullptr), "barrier");  // nobody checks any more
  release(buffer);
  if (sums) release(sums);
  return row;
}

void print_row(const Row &row) {
  std::printf("%12" PRIu64 " %12.2f %12.2f %9.3f %10.2f  %-12s %6" PRIu64 "\n", row.bytes, row.time_us, row.least_us,
              row.bandwidth, row.time_over_bound, row.algorithm.c_str(), row.wrong);
  std::fflush(stdout);
}

std::FILE *open_json(const std::string &name, const char *mode) {
  std::FILE *file = std::fopen(name.c_str(), mode);
  if (!file) std::fprintf(stderr, "mxs-perf: %s can't be written: %s\n", name.c_str(), std::strerror(errno));
  return file;
}

bool write_json(const std::string &name, const Settings &settings, const Perf &perf, const std::vector<Row> &rows) {
  std::FILE *file = open_json(name, "w");
  if (!file) return false;
  std::fprintf(file, "{\"collective\": \"%s\", \"layout\": \"%s\", \"ranks\": %d, \"transports\": \"%s\", \"rows\": [",
               settings.collective.c_str(), settings.layout.c_str(), perf.info().rank_count, perf.info().transports);
  for (size_t i = 0; i < rows.size(); i++)
    std::fprintf(file,
                 "%s\n  {\"bytes\": %" PRIu64 ", \"time_us\": %.3f, \"least_us\": %.3f, \"algbw_gbs\": %.4f, "
                 "\"time_over_bound\": %.3f, \"algorithm\": \"%s\", \"wrong\": %" PRIu64 "}",
                 i ? "," : "", rows[i].bytes, rows[i].time_us, rows[i].least_us, rows[i].bandwidth,
                 rows[i].time_over_bound, rows[i].algorithm.c_str(), rows[i].wrong);
  std::fprintf(file, "\n]}\n");
  return std::fclose(file) == 0;
}

}  // namespace

int main(int count, char **words) {
  Settings settings;
  if (!read_settings(count, words, &settings)) return 2;
  if (settings.help) {
    std::fputs(usage, stdout);
    return 0;
  }
  Perf perf(settings);
  if (perf.is_first() && !settings.json.empty()) {  // told now, not after the measurement
    std::FILE *file = open_json(settings.json, "a");
    if (!file) return 1;
    std::fclose(file);
  }
  if (perf.is_first()) {
    const mxs_comm_info &info = perf.info();
    std::printf("# %s, layout %s, %d rank%s on %d node%s, %s, all ranks copy %.1f GB/s each\n",
                settings.collective.c_str(), settings.layout.c_str(), info.rank_count, info.rank_count == 1 ? "" : "s",
                info.node_count, info.node_count == 1 ? "" : "s", info.transports, perf.copy_rate() * 1e-3);
    std::printf("#%11s %12s %12s %9s %10s  %-12s %6s\n", "size", "time(us)", "least(us)", "algbw", "time/bound",
                "algorithm", "#wrong");
  }
  std::vector<Row> rows;
  for (double bytes = static_cast<double>(settings.bytes_first); bytes <= static_cast<double>(settings.bytes_last);
       bytes *= settings.factor) {
    rows.push_back(perf.measure(static_cast<uint64_t>(bytes)));
    if (perf.is_first()) print_row(rows.back());
  }
  if (perf.is_first() && !settings.json.empty() && !write_json(settings.json, settings, perf, rows)) return 1;
  const bool right = std::all_of(rows.begin(), rows.end(), [](const Row &row) { return row.wrong == 0; });
  return right ? 0 : 1;
}
