// A piece of work for a stream, and what happens to it: it is counted and done at once, or recorded into a graph.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <string>

namespace work {

struct Work {
  cudaGraphNodeType type;          // what the node of a graph would be
  std::string kind, name;          // as it is counted
  size_t bytes = 0;
  std::string detail;
  std::function<void()> effect;    // what the fake driver does for it; mostly nothing
};

// Take a piece of work for a stream. Return an error if the stream's capture is broken or forbids it.
cudaError_t submit(cudaStream_t stream, Work piece);

// Count a piece and do it. The lock must not be held: a host function may wait for another thread.
void perform(const Work& piece);

}  // namespace work
