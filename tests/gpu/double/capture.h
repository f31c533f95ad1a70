// Streams, events, and the recording of their work into graphs, by the rules of the driver.
//
// Source of the rules: "CUDA Graphs" in the CUDA C++ programming guide, and the reference of cudaStreamBeginCapture,
// cudaStreamWaitEvent and cudaThreadExchangeStreamCaptureMode.
#pragma once
#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "work.h"

namespace capture {

struct Node {
  work::Work piece;
  std::vector<Node*> after;  // the nodes that it waits for
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<void*> owned;  // memory of its allocation nodes
  Node* add(work::Work piece, std::vector<Node*> after);
};

struct Stream {
  int number, device;
  bool blocking;  // it waits for the legacy stream
  int priority;
};

// One recording. `last` has each stream in it, with the nodes that the stream's next node waits for.
struct Capture {
  unsigned long long number;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  Stream* origin;
  Graph* graph;
  bool owns_graph;
  bool valid = true;
  std::map<Stream*, std::vector<Node*>> last;
};

struct Event {
  double at = 0;
  bool recorded = false;
  unsigned long long captured = 0;  // the number of the recording that it was last recorded in, 0 for none
  std::vector<Node*> nodes;
};

// The stream of a handle: 0 and cudaStreamLegacy, cudaStreamPerThread, or a stream of its own. Null if destroyed.
Stream* stream_of(cudaStream_t handle);
bool is_legacy(cudaStream_t handle);
cudaStream_t create(bool blocking, int priority);
bool destroy(cudaStream_t handle);

// The recording that a stream takes part in, or null.
Capture* of(Stream* stream);
Capture* numbered(unsigned long long number);

// What a call must ask before it does something. On an error, the recording that it disturbs is invalid.
cudaError_t may_be_unsafe();                         // cudaMalloc, cudaFree, cudaEventQuery and their like
cudaError_t may_wait_for(cudaStream_t handle);       // a stream, for its query and its synchronization
cudaError_t may_wait_for_device();                   // cudaDeviceSynchronize
cudaError_t may_use_legacy(cudaStream_t handle);     // work for the legacy stream
cudaError_t may_be_staged(cudaStream_t handle);      // what the driver stages or calls: pageable copies, callbacks

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode, Graph* into, std::vector<Node*> after);
cudaError_t end(cudaStream_t handle, Graph** graph);
cudaError_t record(Event& event, cudaStream_t handle, bool external);
cudaError_t wait(cudaStream_t handle, Event& event, bool external);
cudaStreamCaptureMode exchange_mode(cudaStreamCaptureMode mode);

}  // namespace capture
