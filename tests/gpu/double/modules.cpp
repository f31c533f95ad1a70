// The driver's side of kernels: modules that a compiler has made at run time (Triton, NVRTC, XLA), and their launch.
#include <cuda.h>

#include <cstring>
#include <string>

#include "counting.h"
#include "devices.h"
#include "errors.h"
#include "kernels.h"

namespace {

CUresult load(CUmodule* module) {
  static size_t last = 0;
  counting::Guard guard(counting::lock());
  counting::note("module", "load");
  *module = reinterpret_cast<CUmodule>(++last);
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, const kernels::Shape& shape, CUstream stream, void** arguments) {
  return errors::driver(kernels::launch("triton", function, shape, stream, arguments));
}

}  // namespace

extern "C" {

CUresult cuModuleLoad(CUmodule* module, const char*) { return load(module); }
CUresult cuModuleLoadData(CUmodule* module, const void*) { return load(module); }
CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) { return load(module); }
CUresult cuModuleLoadFatBinary(CUmodule* module, const void*) { return load(module); }
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = static_cast<CUfunction>(const_cast<void*>(kernels::add_named(name)));
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* pointer, size_t* bytes, CUmodule module, const char* name) {
  void* place;
  auto symbol = std::string(name) + counting::text(" of module %zu", size_t(module));
  cudaGetSymbolAddress(&place, strdup(symbol.c_str()));
  if (pointer) *pointer = CUdeviceptr(place);
  if (bytes) *bytes = 4096;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                           unsigned) {
  return load(reinterpret_cast<CUmodule*>(library));
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  return cuModuleGetFunction(reinterpret_cast<CUfunction*>(kernel), nullptr, name);
}
CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice) {
  return cuFuncSetAttribute(reinterpret_cast<CUfunction>(kernel), attribute, value);
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
           : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 32
                                                                : 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  return errors::driver(kernels::allow_shared(function, value));
}

CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

CUresult cuFuncGetName(const char** name, CUfunction function) {
  *name = kernels::name_of(function);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int block_size, size_t shared) {
  *blocks = kernels::blocks_per_processor(block_size, shared);
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction, int block_size, size_t shared,
                                                              unsigned) {
  *blocks = kernels::blocks_per_processor(block_size, shared);
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  *clusters = devices::card().processors / 2;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** arguments,
                        void**) {
  return launch(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared}, stream, arguments);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* how, CUfunction function, void** arguments, void**) {
  dim3 grid(how->gridDimX, how->gridDimY, how->gridDimZ), block(how->blockDimX, how->blockDimY, how->blockDimZ);
  return launch(function, {grid, block, how->sharedMemBytes}, how->hStream, arguments);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                   CUstream stream, void** arguments) {
  return launch(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared}, stream, arguments);
}

// A map describes a tensor to the card's copy unit. Nobody reads it here.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  *map = {};
  return devices::capability() >= 90 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const int*, const int*, cuuint32_t, cuuint32_t,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  *map = {};
  return devices::capability() >= 90 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// A value in memory that a stream writes, or waits for. Everything before it is done, so the wait is over.
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr pointer, cuuint32_t value, unsigned) {
  *reinterpret_cast<cuuint32_t*>(pointer) = value;
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, cuuint32_t, unsigned) { return CUDA_SUCCESS; }
}
