// SPDX-License-Identifier: Apache-2.0
// A library that is loaded when it is first used, so that a build with it runs where it isn't installed.
#pragma once

#include <dlfcn.h>

#include <mutex>
#include <string>

namespace mxs {

// Finds symbols; remembers the first that is missing.
struct Symbols {
  void *library;
  const char *missing = nullptr;

  template <class Function>
  void find(Function *function, const char *name) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    if (!*function && !missing) missing = name;
  }
};

// A table of a library's functions, filled once: load(&table) gives "", or why it can't be had, which stays the answer.
// Threads: any.
template <class Table>
class LoadedOnce {
 public:
  template <class Load>
  const Table *get(Load &&load, std::string *why_not) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!tried_) failure_ = load(&table_);
    tried_ = true;
    if (failure_.empty()) return &table_;
    *why_not = failure_;
    return nullptr;
  }

 private:
  std::mutex mutex_;
  bool tried_ = false;
  Table table_;
  std::string failure_;
};

}  // namespace mxs
