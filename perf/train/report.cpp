// SPDX-License-Identifier: Apache-2.0
// What does a run tell, and in which form?
#include "report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace train {
namespace {

struct Column {
  const char *name;
  uint64_t mxs_memory::*bytes;
};
constexpr Column columns[] = {
    {"weights", &mxs_memory::weights}, {"masters", &mxs_memory::masters},
    {"gradients", &mxs_memory::gradients}, {"state", &mxs_memory::state},
    {"slack", &mxs_memory::slack}, {"rest", &mxs_memory::rest},
    {"slots", &mxs_memory::slots}, {"gradient_slots", &mxs_memory::gradient_slots},
    {"workspace", &mxs_memory::workspace}, {"backup", &mxs_memory::backup}, {"peak", &mxs_memory::peak},
};

uint64_t worst(const std::vector<mxs_memory> &ranks, uint64_t mxs_memory::*bytes) {
  uint64_t most = 0;
  for (const mxs_memory &rank : ranks) most = std::max(most, rank.*bytes);
  return most;
}

__attribute__((format(printf, 2, 3))) void append(std::string *text, const char *format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  *text += line;
}

void append_list(std::string *text, const char *name, const std::vector<double> &values) {
  append(text, "  \"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) append(text, "%s%.17g", i ? ", " : "", values[i]);
  *text += "],\n";
}

void append_memory(std::string *text, const char *name, const std::vector<mxs_memory> &ranks, const char *end) {
  append(text, "    \"%s\": {", name);
  for (const Column &column : columns) {
    append(text, "%s\"%s\": [", &column == columns ? "" : ", ", column.name);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      append(text, "%s%" PRIu64, rank ? ", " : "", ranks[rank].*column.bytes);
    *text += "]";
  }
  append(text, "}%s\n", end);
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(middle), values.end());
  return values[middle];
}

void write_json(const std::string &path, const Options &options, const RunFigures &figures) {
  const RankFigures &by_rank = figures.by_rank;
  std::string text = "{\n";
  append(&text, "  \"placement\": \"%s\",\n  \"ranks\": %d,\n  \"steps\": %" PRId64 ",\n", options.placement.c_str(),
         figures.ranks, options.steps);
  append(&text, "  \"first_step\": %" PRIu64 ",\n", figures.first_step);
  text += "  \"restarts\": [";
  for (const Restart &restart : figures.restarts)
    append(&text, "%s{\"step\": %" PRIu64 ", \"ranks\": %d, \"lost\": %d, \"seconds\": %.6f}",
           &restart == figures.restarts.data() ? "" : ", ", restart.step, restart.ranks, restart.lost, restart.seconds);
  text += "],\n";
  append(&text, "  \"parameters\": %" PRIu64 ",\n  \"text_bytes\": %" PRIu64 ",\n  \"skipped_steps\": %" PRIu64 ",\n",
         figures.parameters, figures.text_bytes, figures.skipped_steps);
  append(&text, "  \"matrices\": %" PRIu64 ",\n  \"matrix_parameters\": %" PRIu64 ",\n", figures.matrices,
         figures.matrix_parameters);
  append(&text, "  \"weights_hash\": \"%016" PRIx64 "\",\n", figures.weights_hash);
  append_list(&text, "losses", figures.losses);
  append_list(&text, "all_step_ms", figures.step_ms);
  append_list(&text, "all_optimizer_ms", figures.optimizer_ms);
  append(&text, "  \"step_ms\": %.6g,\n  \"optimizer_ms\": %.6g,\n", median(figures.step_ms),
         median(figures.optimizer_ms));
  append(&text, "  \"optimizer_matrix_bytes\": %.0f,\n",
         *std::max_element(by_rank.step_matrix_bytes.begin(), by_rank.step_matrix_bytes.end()));
  for (size_t cost = 0; cost < cost_count; ++cost) append_list(&text, cost_names[cost], by_rank.costs[cost]);
  append(&text, "  \"dtype\": \"%s\",\n  \"product_dtype\": \"%s\",\n", mxs_dtype_name(options.shape.dtype),
         mxs_dtype_name(figures.product_dtype));
  append(&text, "  \"newton_schulz_steps\": %d,\n", figures.newton_schulz_steps);
  append(&text, "  \"rest_bytes\": %" PRIu64 ",\n", worst(by_rank.counted, &mxs_memory::rest));
  append(&text, "  \"peak_bytes\": %" PRIu64 ",\n", worst(by_rank.counted, &mxs_memory::peak));
  append(&text, "  \"peak_bytes_predicted\": %" PRIu64 ",\n", worst(by_rank.predicted, &mxs_memory::peak));
  append(&text, "  \"activation_bytes\": %" PRIu64 ",\n", figures.activation_bytes);
  append_list(&text, "pss_bytes", by_rank.pss_bytes);
  text += "  \"memory\": {\n";
  append_memory(&text, "predicted", by_rank.predicted, ",");
  append_memory(&text, "counted", by_rank.counted, "");
  text += "  }\n}\n";
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

void print_summary(const Options &options, const RunFigures &figures) {
  std::printf("%s, %d rank%s: loss %.4f -> %.4f, %.1f ms a step, %.1f ms in the optimizer, weights %016" PRIx64 "\n",
              options.placement.c_str(), figures.ranks, figures.ranks == 1 ? "" : "s", figures.losses.front(),
              figures.losses.back(), median(figures.step_ms), median(figures.optimizer_ms), figures.weights_hash);
  if (figures.product_dtype != options.shape.dtype)
    std::puts("products of the network are of f32: oneDNN multiplies bf16 where the CPU has AVX-512");
  if (figures.skipped_steps > 0)
    std::printf("%" PRIu64 " steps were skipped: a gradient was not finite\n", figures.skipped_steps);
}

uint64_t pss_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  uint64_t bytes = 0;
  for (std::string word; file >> word;)
    if (word == "Pss_Anon:" || word == "Pss_Shmem:") {
      uint64_t kib = 0;
      file >> kib;
      bytes += kib * 1024;
    }
  return bytes;
}

Progress::Progress(std::string name, int64_t steps, bool shown)
    : name_(std::move(name)), steps_(steps), shown_(shown), terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::show(int64_t done, double loss) {
  if (!shown_) return;
  constexpr int64_t width = 30;
  const std::string bar = std::string(static_cast<size_t>(done * width / steps_), '#');
  if (terminal_)
    std::fprintf(stderr, "\r%-9s [%-30s] %" PRId64 "/%" PRId64 "  loss %.4f%s", name_.c_str(), bar.c_str(), done,
                 steps_, loss, done == steps_ ? "\n" : "");
  else if (done * 4 / steps_ != (done - 1) * 4 / steps_)
    std::fprintf(stderr, "%-9s %" PRId64 "/%" PRId64 "  loss %.4f\n", name_.c_str(), done, steps_, loss);
}

void Progress::say(const std::string &sentence) {
  if (shown_) std::fprintf(stderr, "%-9s %s\n", name_.c_str(), sentence.c_str());
}

}  // namespace train
