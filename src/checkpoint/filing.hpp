// SPDX-License-Identifier: Apache-2.0
// Filing: which array goes into which file, where. Pure.
//
//   arrays that one rank writes      into that rank's file
//   arrays that several ranks write  into one shared file, each its range
//
// Within a file longer numbers come first, else the order is kept; the header is filled up with blanks to 4 KiB. So
// every array begins at a border of its numbers, and reads of whole files are aligned.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace mxs {

// One of a model's or an optimizer's arrays: as in the manifest; file and offset are found here, and pieces have no
// hashes yet. An array without numbers has one piece of count 0, whose rank says whose file it goes into.
using FiledArray = ManifestArray;

struct FiledFile {
  std::string name;
  int first_rank = 0;              // writes the header
  std::string header;              // the file's first data_offset bytes, with the 8 that tell its length
  std::vector<FiledArray> arrays;  // by offset
  uint64_t data_offset = 0, bytes = 0;
};

// "model-00001-of-0000N.safetensors": in the order of ranks, the shared one last.
std::vector<FiledFile> file_model(std::vector<FiledArray> arrays);
// "optimizer/rank-00003.safetensors" for each rank that has arrays, and "optimizer/shared.safetensors". Of the result a
// rank can trust its own file and the shared one if `arrays` has its own and all that are shared.
std::vector<FiledFile> file_optimizer(std::vector<FiledArray> arrays);

// Numbers of an array of which a piece of its tensor has a share: state by elements or rows lies as the pieces do.
// tensor_elements: of the whole tensor, not 0.
uint64_t numbers_of_elements(uint64_t array_numbers, uint64_t elements, uint64_t tensor_elements);

}  // namespace mxs
