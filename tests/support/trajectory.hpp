// SPDX-License-Identifier: Apache-2.0
// Trajectories: what 50 steps of a rule make of weights, in fp64, as tests/kernels/trajectories/trajectories.py wrote
// them. Weights and gradients aren't stored: they are made here as inputs.py makes them, exact in fp32.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace mxs::test {

constexpr int trajectory_steps = 50;

struct Trajectory {
  std::string name;
  std::map<std::string, std::string> fields;
  std::map<int, std::vector<double>> weights;  // by step; one number of `stride`
  std::map<std::string, std::vector<double>> states;

  bool has(const std::string &field) const { return fields.count(field) > 0; }
  std::string text(const std::string &field, const std::string &otherwise = "") const {
    const auto found = fields.find(field);
    return found == fields.end() ? otherwise : found->second;
  }
  double number(const std::string &field, double otherwise = 0) const {
    const auto found = fields.find(field);
    return found == fields.end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
  }
  int64_t whole(const std::string &field, int64_t otherwise = 0) const {
    return static_cast<int64_t>(number(field, static_cast<double>(otherwise)));
  }
  int64_t rows() const { return whole("rows"); }
  int64_t columns() const { return whole("columns"); }
  int64_t count() const { return whole("count", 1); }
  size_t elements() const { return static_cast<size_t>(rows() * columns() * count()); }
  size_t stride() const { return static_cast<size_t>(whole("stride", 1)); }
  std::vector<int64_t> blocks() const {
    std::vector<int64_t> rows;
    std::istringstream words(text("blocks"));
    for (int64_t row_count; words >> row_count;) rows.push_back(row_count);
    return rows;
  }
  float lr(int step) const { return static_cast<float>(number("lr") * (4 + step % 4) / 4); }
  float weight_decay(int step) const { return static_cast<float>(number("weight_decay") * (step % 3)); }

  std::vector<float> first_weights() const { return scaled(table(0, rows() * count(), columns()), 0x1p-11); }

  std::vector<float> gradient(int step) const {
    const std::string kind = text("gradient");
    const std::vector<double> plain = table(static_cast<uint64_t>(step), rows() * count(), columns());
    if (kind == "tiny") return scaled(plain, 0x1p-35);
    if (kind == "late") return scaled(plain, step > 2 ? 0x1p-11 : 0.0);
    if (kind == "rank2") return of_rank_two(step);
    if (kind == "plain") return scaled(plain, 0x1p-11);
    const bool turned = kind == "crossing" && step > 24;
    std::vector<double> spread_out = plain;
    for (int64_t row = 0; row < rows() * count(); ++row)
      for (int64_t j = 0; j < columns(); ++j) {
        const int64_t i = row % rows();
        spread_out[static_cast<size_t>(row * columns() + j)] *= spread(turned ? rows() - 1 - i : i) * spread(j);
      }
    return scaled(spread_out, 0x1p-19);
  }

 private:
  static uint64_t mixed(uint64_t x) {  // splitmix64
    uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  static double bell(uint64_t stream, uint64_t index) {
    const uint64_t z = mixed((stream << 32) + index);
    uint64_t sum = 0;
    for (int shift : {0, 16, 32, 48}) sum += (z >> shift) & 2047;
    return static_cast<double>(static_cast<int64_t>(sum) - 4094);
  }
  static double spread(int64_t index) { return static_cast<double>(3 + index * 7 % 29); }
  std::vector<double> table(uint64_t stream, int64_t table_rows, int64_t table_columns) const {
    std::vector<double> values(static_cast<size_t>(table_rows * table_columns));
    const uint64_t seed = static_cast<uint64_t>(whole("seed")) * 1000;
    for (size_t i = 0; i < values.size(); ++i) values[i] = bell(seed + stream, i);
    return values;
  }
  static std::vector<float> scaled(const std::vector<double> &values, double factor) {
    std::vector<float> result(values.size());
    for (size_t i = 0; i < values.size(); ++i) result[i] = static_cast<float>(values[i] * factor);
    return result;
  }
  std::vector<float> of_rank_two(int step) const {
    const std::vector<double> left = table(999, rows(), 2), right = table(static_cast<uint64_t>(step), 2, columns());
    std::vector<double> product(elements());
    const size_t width = static_cast<size_t>(columns());
    for (size_t i = 0; i < product.size(); ++i)
      for (size_t k = 0; k < 2; ++k)
        product[i] += std::trunc(left[i / width * 2 + k] / 4) * std::trunc(right[k * width + i % width] / 4);
    return scaled(product, 0x1p-18);
  }
};

inline std::vector<double> numbers_of(std::istringstream &words) {
  std::vector<double> numbers;
  for (std::string word; words >> word;) numbers.push_back(std::strtod(word.c_str(), nullptr));
  return numbers;
}

// None if the file can't be read.
inline std::vector<Trajectory> read_trajectories(const std::string &path) {
  std::vector<Trajectory> all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "case") {
      all.emplace_back();
      words >> all.back().name;
    } else if (!all.empty() && key == "weights") {
      int step = 0;
      words >> step;
      all.back().weights[step] = numbers_of(words);
    } else if (!all.empty() && key == "state") {
      std::string name;
      words >> name;
      all.back().states[name] = numbers_of(words);
    } else if (!all.empty() && key != "end") {
      std::getline(words >> std::ws, all.back().fields[key]);
    }
  }
  return all;
}

}  // namespace mxs::test
