// SPDX-License-Identifier: Apache-2.0
#include "bench/model.hpp"

#include <sstream>

#include "cli/layout_words.hpp"
#include "matrixshard/matrixshard.hpp"

namespace bench {

namespace {

constexpr int64_t side_max = int64_t{1} << 24;
constexpr size_t tensors_max = 1'000'000;

[[noreturn]] void refuse(const std::string &word) {
  throw mxs::error(MXS_INVALID_ARGUMENT, "--shapes: \"" + word + "\" is not ROWSxCOLUMNS or N, with sides from 1 to "
                                         "2^24, perhaps f for frozen and *COUNT, such as 256x1024*2 or 64x64f*8");
}

Shape read_shape(const std::string &word) {
  Shape shape;
  const size_t star = word.find('*');
  if (star != std::string::npos &&
      (!mxs_cli::read_number(std::string_view(word).substr(star + 1), &shape.count) || shape.count < 1))
    refuse(word);
  std::string all_sides = word.substr(0, star);
  shape.frozen = !all_sides.empty() && all_sides.back() == 'f';
  if (shape.frozen) all_sides.pop_back();
  std::istringstream sides(all_sides);
  for (std::string side; std::getline(sides, side, 'x');) {
    int64_t number = 0;
    if (!mxs_cli::read_number(side, &number) || number < 1 || number > side_max) refuse(word);
    shape.sides.push_back(number);
  }
  if (all_sides.empty() || all_sides.back() == 'x' || shape.sides.empty() || shape.sides.size() > 3) refuse(word);
  return shape;
}

}  // namespace

std::vector<Shape> read_shapes(const std::string &words) {
  std::vector<Shape> shapes;
  std::istringstream list(words);
  for (std::string word; std::getline(list, word, ',');) shapes.push_back(read_shape(word));
  if (shapes.empty()) refuse(words);
  return shapes;
}

Model make_model(const Options &options) {
  const std::vector<Shape> shapes = read_shapes(options.shapes);
  size_t per_unit = 0;
  for (const Shape &shape : shapes) per_unit += static_cast<size_t>(shape.count);
  if (per_unit * static_cast<size_t>(options.units) > tensors_max)
    throw mxs::error(MXS_INVALID_ARGUMENT, "these are more than 1,000,000 tensors");
  Model model;
  model.unit_count = options.units;
  for (int unit = 0; unit < options.units; unit++) {
    int index = 0;
    for (const Shape &shape : shapes)
      for (int i = 0; i < shape.count; i++) {
        mxs_tensor tensor = MXS_TENSOR_INIT;
        tensor.dtype = options.dtype;
        tensor.unit = unit;
        if (shape.frozen) tensor.rule = MXS_RULE_FROZEN;
        tensor.dimension_count = static_cast<int32_t>(shape.sides.size());
        uint64_t elements = 1;
        for (size_t d = 0; d < shape.sides.size(); d++) {
          tensor.shape[d] = shape.sides[d];
          elements *= static_cast<uint64_t>(shape.sides[d]);
        }
        model.element_count += elements;
        model.tensors.push_back(tensor);
        model.names.push_back("unit " + std::to_string(unit) + " tensor " + std::to_string(index++));
      }
  }
  for (size_t i = 0; i < model.tensors.size(); i++) model.tensors[i].name = model.names[i].c_str();
  return model;
}

}  // namespace bench
