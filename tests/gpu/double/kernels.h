// Kernels by the handles that a program has for them: the address of its stub, or what a module gave it.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

namespace kernels {

// Remember the name of a function of a program; return a handle for a function of a module.
void add(const void* handle, const char* name);
const void* add_named(const char* name);

const char* name_of(const void* handle);

struct Shape {
  dim3 grid, block;
  size_t shared;
};

// Check a launch by the limits of the card, and submit it.
cudaError_t launch(const char* kind, const void* handle, const Shape& shape, cudaStream_t stream, void** arguments);

// The most shared memory per block that a launch of this function may ask for. The default is 48 KiB on every card.
cudaError_t allow_shared(const void* handle, int bytes);

int blocks_per_processor(int block_size, size_t shared);

}  // namespace kernels
