// SPDX-License-Identifier: Apache-2.0
#include "bench/report.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace bench {

namespace {

// GB/s
double bandwidth(double bytes, double time_us) { return time_us > 0 ? bytes / time_us * 1e-3 : 0; }

std::string columns(const std::optional<Times> &times, const Row &row) {
  if (!times) return fmt::format("{:>10} {:>7} {:>7} {:>6}", "n/a", "n/a", "n/a", "n/a");
  return fmt::format(
      "{:>10.2f} {:>7.2f} {:>7.2f} {:>6}", times->median, bandwidth(static_cast<double>(row.bytes), times->median),
      bandwidth(row.busiest_bytes, times->median), times->wrong ? std::to_string(*times->wrong) : "n/a");
}

double efficiency(const Row &row, const Times &times) { return times.median > 0 ? row.bound_us / times.median : 0; }

std::string more_columns(const Row &row) {
  std::string text;
  for (const auto &times : {row.out_of_place, row.in_place})
    if (times)
      text += fmt::format("  {:.2f}/{:.2f} {:.2f}/{:.2f}/{:.2f}", times->least, times->most, times->rank_least,
                          times->rank_mean, times->rank_most);
  return text + fmt::format("  {} {} {} {}  {} ({})", row.info.bytes_out, row.info.bytes_in, row.info.message_count,
                            row.info.chunk_bytes, row.reason, row.routes);
}

}  // namespace

JsonFile::JsonFile(const std::string &name) : name_(name) {
  if (name.empty()) return;
  file_ = std::fopen(name.c_str(), "w");
  if (!file_) throw mxs::error(MXS_SYSTEM, name + " can't be written: " + std::strerror(errno));
}

JsonFile::~JsonFile() {
  if (file_) std::fclose(file_);
}

void JsonFile::write_line(const std::string &object) {
  if (!file_) return;
  if (std::fputs((object + "\n").c_str(), file_) < 0 || std::fflush(file_) != 0)
    throw mxs::error(MXS_SYSTEM, name_ + " can't be written: " + std::strerror(errno));
}

void print_titles(const Setting &setting) {
  fmt::print("#\n#{:>11} {:>11} {:>5} {:<13} | {:^33} | {:^33} |\n", "", "", "", "", "out of place", "in place");
  const std::string form = fmt::format("{:>10} {:>7} {:>7} {:>6}", "time", "algbw", "busbw", "#wrong");
  const std::string units = fmt::format("{:>10} {:>7} {:>7} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
  fmt::print("#{:>11} {:>11} {:>5} {:<13} | {} | {} | {:>10} {:>10} {:>5}{}\n", "size", "count", "type", "algorithm",
             form, form, "bound", "predicted", "effic",
             setting.options.verbose
                 ? "  (least/most of turns, least/mean/most of ranks: us)... out in messages chunk  why (routes)"
                 : "");
  fmt::print("#{:>11} {:>11} {:>5} {:<13} | {} | {} | {:>10} {:>10} {:>5}\n", "(B)", "(elements)", "", "", units, units,
             "(us)", "(us)", "");
}

// Efficiency is that of the faster form.
void print_row(const Setting &setting, const Row &row) {
  double best = 0;
  for (const auto &times : {row.out_of_place, row.in_place})
    if (times) best = std::max(best, efficiency(row, *times));
  fmt::print(
      "{:>12} {:>11} {:>5} {:<13} | {} | {} | {:>10} {:>10} {:>5}{}\n", row.bytes, row.count,
      mxs_dtype_name(setting.options.dtype), row.algorithm + (row.chosen ? "*" : ""), columns(row.out_of_place, row),
      columns(row.in_place, row), row.peer ? "n/a" : fmt::format("{:.2f}", row.bound_us),
      row.predicted_us > 0 ? fmt::format("{:.2f}", row.predicted_us) : "n/a",
      row.peer ? "n/a" : fmt::format("{:.2f}", best), setting.options.verbose && !row.peer ? more_columns(row) : "");
  std::fflush(stdout);
}

namespace {

std::string object_of(const Setting &setting, const Row &row, const Times &times, bool in_place) {
  const Options &options = setting.options;
  std::string text = fmt::format(
      "{{\"operation\": {}, \"bytes\": {}, \"count\": {}, \"layout\": {}, \"owners\": {}, \"ranks\": {}, \"nodes\": "
      "{}, "
      "\"transports\": {}, \"dtype\": {}, \"memory\": {}, \"algorithm\": {}, \"chosen\": {}, \"peer\": {}, "
      "\"inplace\": {}, ",
      quoted(command_name(options.command)), row.bytes, row.count, quoted(options.layout), row.owners, setting.ranks,
      setting.nodes, quoted(setting.transports), quoted(mxs_dtype_name(options.dtype)),
      quoted(options.heap ? "heap" : "mapped"), quoted(row.algorithm), row.chosen, row.peer, in_place);
  text += fmt::format(
      "\"time_us\": {{\"min\": {:.3f}, \"median\": {:.3f}, \"max\": {:.3f}}}, "
      "\"rank_us\": {{\"min\": {:.3f}, \"avg\": {:.3f}, \"max\": {:.3f}}}, \"algbw\": {:.4f}, \"busbw\": {:.4f}, ",
      times.least, times.median, times.most, times.rank_least, times.rank_mean, times.rank_most,
      bandwidth(static_cast<double>(row.bytes), times.median), bandwidth(row.busiest_bytes, times.median));
  text += row.peer ? "\"bound_us\": null, \"efficiency\": null, \"predicted_us\": null, "
                   : fmt::format("\"bound_us\": {:.3f}, \"efficiency\": {:.4f}, \"predicted_us\": {}, ", row.bound_us,
                                 efficiency(row, times),
                                 row.predicted_us > 0 ? fmt::format("{:.3f}", row.predicted_us) : "null");
  return text + fmt::format(
                    "\"bytes_out\": {}, \"bytes_in\": {}, \"messages\": {}, \"chunk_bytes\": {}, "
                    "\"window\": {}, \"routes\": {}, \"reason\": {}, \"copy_rate\": {:.4f}, \"wrong\": {}}}",
                    row.info.bytes_out, row.info.bytes_in, row.info.message_count, row.info.chunk_bytes,
                    row.info.window, quoted(row.routes), quoted(row.reason), setting.copy_rate * 1e-3,
                    times.wrong ? std::to_string(*times.wrong) : "null");
}

}  // namespace

void write_row(const Setting &setting, const Row &row, JsonFile *file) {
  if (row.out_of_place) file->write_line(object_of(setting, row, *row.out_of_place, false));
  if (row.in_place) file->write_line(object_of(setting, row, *row.in_place, true));
}

}  // namespace bench
