// SPDX-License-Identifier: Apache-2.0
// A CUDA graph captured from a stream, by the driver's own calls.
#pragma once

#include <dlfcn.h>

#include <string>

#include <cuda.h>

namespace mxs::test {

class Graph {
 public:
  // Makes the device's primary context current on this thread, which graphs want.
  explicit Graph(int device) {
    library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library_) return;
    find("cuStreamBeginCapture_v2", &begin_);
    find("cuStreamEndCapture", &end_);
    find("cuGraphInstantiateWithFlags", &instantiate_);
    find("cuGraphLaunch", &launch_);
    find("cuGraphExecDestroy", &destroy_executable_);
    find("cuGraphDestroy", &destroy_graph_);
    CUresult (*retain)(CUcontext *, CUdevice) = nullptr;
    CUresult (*set_current)(CUcontext) = nullptr;
    find("cuDevicePrimaryCtxRetain", &retain);
    find("cuCtxSetCurrent", &set_current);
    CUcontext context = nullptr;
    if (!retain || !set_current || retain(&context, device) != CUDA_SUCCESS || set_current(context) != CUDA_SUCCESS)
      begin_ = nullptr;
  }
  Graph(const Graph &) = delete;
  ~Graph() {
    if (executable_) destroy_executable_(executable_);
    if (graph_) destroy_graph_(graph_);
  }

  // "" or the call that was refused. Thread-local: other ranks of this process go on.
  std::string begin(void *stream) {
    if (!begin_ || !end_ || !instantiate_ || !launch_) return "the driver has no graphs";
    return told("cuStreamBeginCapture",
                begin_(static_cast<CUstream>(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  }
  std::string end(void *stream) {
    const std::string complaint = told("cuStreamEndCapture", end_(static_cast<CUstream>(stream), &graph_));
    return complaint.empty() ? told("cuGraphInstantiate", instantiate_(&executable_, graph_, 0)) : complaint;
  }
  // A capture that nobody wants.
  void forget(void *stream) {
    CUgraph graph = nullptr;
    if (end_(static_cast<CUstream>(stream), &graph) == CUDA_SUCCESS && graph) destroy_graph_(graph);
  }
  std::string launch(void *stream) {
    return told("cuGraphLaunch", launch_(executable_, static_cast<CUstream>(stream)));
  }

 private:
  template <class Function>
  void find(const char *name, Function *function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
  }
  static std::string told(const char *call, CUresult result) {
    return result == CUDA_SUCCESS ? "" : std::string(call) + " gave " + std::to_string(result);
  }

  void *library_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
  CUresult (*begin_)(CUstream, CUstreamCaptureMode) = nullptr;
  CUresult (*end_)(CUstream, CUgraph *) = nullptr;
  CUresult (*instantiate_)(CUgraphExec *, CUgraph, unsigned long long) = nullptr;
  CUresult (*launch_)(CUgraphExec, CUstream) = nullptr;
  CUresult (*destroy_executable_)(CUgraphExec) = nullptr;
  CUresult (*destroy_graph_)(CUgraph) = nullptr;
};

}  // namespace mxs::test
