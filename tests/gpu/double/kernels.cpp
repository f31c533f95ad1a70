// The runtime's side of kernels: a program registers them when it is loaded, and launches them by their stubs.
#include "kernels.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "counting.h"
#include "devices.h"
#include "effects.h"
#include "errors.h"
#include "work.h"

using counting::Guard;
using counting::lock;

namespace {

struct Kernel {
  const char* name;
  size_t shared = 49152;
};

std::unordered_map<const void*, Kernel>& known() {
  static auto* made = new std::unordered_map<const void*, Kernel>;
  return *made;
}

// What <<<>>> pushes before it calls the stub, and the stub pops.
struct Configuration {
  kernels::Shape shape;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

cudaError_t refused(const char* name, const std::string& detail, cudaError_t error) {
  counting::note("bad", name, 0, detail);
  return errors::result(error);
}

}  // namespace

namespace kernels {

void add(const void* handle, const char* name) {
  Guard guard(lock());
  known()[handle] = {name};
}

const void* add_named(const char* name) {
  const char* own = strdup(name);
  add(own, own);
  return own;
}

const char* name_of(const void* handle) {
  Guard guard(lock());
  auto found = known().find(handle);
  return found == known().end() ? "?" : found->second.name;
}

cudaError_t launch(const char* kind, const void* handle, const Shape& shape, cudaStream_t stream, void** arguments) {
  auto& [grid, block, shared] = shape;
  const char* name = name_of(handle);
  auto detail = counting::text("grid %u,%u,%u block %u,%u,%u shared %zu", grid.x, grid.y, grid.z, block.x, block.y,
                               block.z, shared);
  size_t threads = size_t(block.x) * block.y * block.z;
  bool fits = grid.x && grid.y && grid.z && threads && threads <= 1024 && block.z <= 64 && grid.x <= 2147483647u &&
              grid.y <= 65535 && grid.z <= 65535;
  if (!fits) return refused(name, detail, cudaErrorInvalidConfiguration);
  {
    Guard guard(lock());
    auto found = known().find(handle);
    if (found == known().end()) return refused(name, detail, cudaErrorInvalidDeviceFunction);
    if (shared > found->second.shared) return refused(name, detail, cudaErrorInvalidValue);
  }
  return work::submit(stream, {cudaGraphNodeTypeKernel, kind, name, 0, detail, effects::of(name, arguments)});
}

cudaError_t allow_shared(const void* handle, int bytes) {
  Guard guard(lock());
  auto found = known().find(handle);
  auto detail = counting::text("shared %d", bytes);
  if (bytes > devices::card().shared_per_block) return refused(name_of(handle), detail, cudaErrorInvalidValue);
  if (found == known().end()) return refused("?", detail, cudaErrorInvalidDeviceFunction);
  found->second.shared = std::max<size_t>(found->second.shared, bytes);
  return cudaSuccess;
}

int blocks_per_processor(int block_size, size_t shared) {
  auto& card = devices::card();
  int blocks = std::min(card.blocks_per_processor, card.threads_per_processor / std::max(block_size, 1));
  if (shared) blocks = std::min<int>(blocks, card.shared_per_processor / shared);
  return blocks;
}

}  // namespace kernels

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* module[4];
  return module;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  kernels::add(stub, name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configurations.push_back({{grid, block, shared}, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  auto [shape, of_stream] = configurations.back();
  configurations.pop_back();
  *grid = shape.grid;
  *block = shape.block;
  *shared = shape.shared;
  *static_cast<cudaStream_t*>(stream) = of_stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
  return kernels::launch("kernel", kernel, {grid, block, shared}, stream, arguments);
}

cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  return kernels::launch("kernel", stub, {grid, block, shared}, stream, arguments);
}

cudaError_t cudaLaunchCooperativeKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared,
                                        cudaStream_t stream) {
  return kernels::launch("kernel", stub, {grid, block, shared}, stream, arguments);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* stub, void** arguments) {
  return kernels::launch("kernel", stub, {how->gridDim, how->blockDim, how->dynamicSmemBytes}, how->stream,
                         arguments);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* to, const void*) {
  *to = {};
  to->maxThreadsPerBlock = 1024;
  to->numRegs = 32;
  to->ptxVersion = to->binaryVersion = devices::capability();
  to->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute attribute, int value) {
  return attribute == cudaFuncAttributeMaxDynamicSharedMemorySize ? kernels::allow_shared(stub, value) : cudaSuccess;
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute, int value, int) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int block_size, size_t shared) {
  *blocks = kernels::blocks_per_processor(block_size, shared);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int block_size,
                                                                   size_t shared, unsigned) {
  *blocks = kernels::blocks_per_processor(block_size, shared);
  return cudaSuccess;
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  *library = reinterpret_cast<cudaLibrary_t>(size_t(1));
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char* name) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(kernels::add_named(name)));
  return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }
}
