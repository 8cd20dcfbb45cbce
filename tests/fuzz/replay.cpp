// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer.
//
//   replay_X                seeds and mutations, as TAP
//   replay_X FILE...        these inputs, such as those that libFuzzer leaves behind
//   replay_X --write DIR    writes the seeds, for libFuzzer to begin with
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "fuzz.hpp"

namespace {

constexpr int input_count = 20000;
constexpr size_t input_bytes_max = 1 << 16;

const std::string *current = nullptr;

// The input that a reader doesn't survive is what one wants to know.
void show_input(int number) {
  static const char said[] = "# this input ended the program:\n";
  if (current && write(2, said, sizeof said - 1) > 0 && write(2, current->data(), current->size()) < 0) _exit(1);
  signal(number, SIG_DFL);
  raise(number);
}

void run(const std::string &input) {
  current = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(input.data()), input.size());
  current = nullptr;
}

class Mutations {
 public:
  explicit Mutations(const std::vector<std::string> &seeds) : seeds_(seeds), random_(20260101) {}

  std::string next() {
    std::string input = seeds_[below(seeds_.size())];
    for (size_t count = 1 + below(4); count > 0; --count) mutate(&input);
    return input.substr(0, input_bytes_max);
  }

 private:
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void mutate(std::string *input) {
    static const char *const words[] = {"0", "-1", "1", "9223372036854775807", "18446744073709551615", "1e999", "\"",
                                        "[", "]", "{", "}", ",", ":", "null", "true", "\\u0000", "\n", "\r\n", "x", ".",
                                        "1048576", "4294967296", "4611686018427387904", "*", "?"};
    const size_t place = below(input->size() + 1), length = below(input->size() - place + 1);
    const std::string &other = seeds_[below(seeds_.size())];
    const size_t other_place = below(other.size() + 1);
    switch (below(8)) {
      case 0: input->resize(place); break;
      case 1: input->erase(place, std::min<size_t>(length, 16)); break;
      case 2: input->insert(place, words[below(std::size(words))]); break;
      case 3: input->insert(place, input->substr(place, std::min<size_t>(length, 64))); break;
      case 4: input->replace(place, length, other.substr(other_place, below(64))); break;
      case 5: replace_number(input, place, words[below(std::size(words))]); break;
      case 6: input->insert(place, 1, static_cast<char>(random_())); break;
      default:
        if (place < input->size()) (*input)[place] = static_cast<char>((*input)[place] ^ (1 << below(8)));
    }
  }
  static void replace_number(std::string *input, size_t place, const char *word) {
    const size_t begin = input->find_first_of("0123456789", place);
    if (begin == std::string::npos) return;
    const size_t end = std::min(input->find_first_not_of("0123456789", begin), input->size());
    input->replace(begin, end - begin, word);
  }

  const std::vector<std::string> &seeds_;
  std::mt19937_64 random_;
};

int write_seeds(const char *folder) {
  int number = 0;
  for (const std::string &seed : fuzz_seeds()) {
    std::ofstream file(std::string(folder).append("/seed-").append(std::to_string(number++)), std::ios::binary);
    if (!(file << seed)) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGABRT, SIGFPE}) signal(number, show_input);
  if (argc == 3 && std::strcmp(argv[1], "--write") == 0) return write_seeds(argv[2]);
  for (int file = 1; file < argc; ++file) {
    std::stringstream text;
    text << std::ifstream(argv[file], std::ios::binary).rdbuf();
    run(text.str());
  }
  if (argc > 1) return 0;
  const std::vector<std::string> seeds = fuzz_seeds();
  for (const std::string &seed : seeds) run(seed);
  Mutations mutations(seeds);
  for (int number = 0; number < input_count; ++number) run(mutations.next());
  std::printf("1..1\nok 1 - %zu seeds and %d mutations end well\n", seeds.size(), input_count);
  return 0;
}
