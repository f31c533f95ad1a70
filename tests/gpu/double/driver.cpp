// The driver's own side: devices, contexts, and the search for its functions by name.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "capture.h"
#include "counting.h"
#include "devices.h"
#include "errors.h"

namespace {

// A context is its device's number plus one.
CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(size_t(device + 1)); }
int device_of(CUcontext context) { return int(size_t(context)) - 1; }

// This library, also where it has been loaded under another name.
void* own_library() {
  static void* handle = [] {
    Dl_info where{};
    dladdr(reinterpret_cast<void*>(&cuInit), &where);
    return dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  return handle;
}

// Programs ask for cuMemAlloc and mean the newest version, cuMemAlloc_v2.
void* function_of(const std::string& name) {
  for (const char* version : {"_v3", "_v2", ""})
    if (void* found = dlsym(own_library(), (name + version).c_str())) return found;
  counting::note("unknown", name);
  return nullptr;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = function_of(name);
  if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(name, function, CUDA_VERSION, flags, result);
}

CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                             CUdriverProcAddressQueryResult* result) {
  *function = function_of(name);
  if (result) *result = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuInit(unsigned) { return devices::count() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }

CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION / 1000 * 1000;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = devices::count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int number) {
  if (number < 0 || number >= devices::count()) return CUDA_ERROR_INVALID_DEVICE;
  *device = number;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* text, int length, CUdevice) {
  snprintf(text, length, "%s", devices::name().c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  *uuid = {};
  uuid->bytes[0] = char(device + 1);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return errors::driver(cudaDeviceGetAttribute(value, cudaDeviceAttr(attribute), device));
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = devices::memory();
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice) {
  *major = devices::card().major;
  *minor = devices::card().minor;
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  *can = device != peer;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice, CUdevice) {
  *value = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return errors::driver(cudaDeviceGetPCIBusId(text, length, device));
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return errors::driver(cudaDeviceGetDefaultMemPool(pool, device));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  if (flags) *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned) { return CUDA_SUCCESS; }

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = context_of(devices::current());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return !context || devices::select(device_of(context)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

thread_local CUcontext pushed[64];
thread_local int depth = 0;

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (depth == 64) return CUDA_ERROR_OUT_OF_MEMORY;
  pushed[depth++] = context_of(devices::current());
  return cuCtxSetCurrent(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = context_of(devices::current());
  return cuCtxSetCurrent(pushed[--depth]);
}

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = devices::current();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext, unsigned* version) {
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t* value, CUlimit) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_SUCCESS; }
CUresult cuCtxSetCacheConfig(CUfunc_cache) { return CUDA_SUCCESS; }

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return errors::driver(cudaDeviceGetStreamPriorityRange(least, greatest));
}

CUresult cuCtxSynchronize() {
  counting::note("sync", "cuCtxSynchronize");
  return errors::driver(capture::may_wait_for_device());
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  counting::Guard guard(counting::lock());
  auto* stream = capture::stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  *context = context_of(stream->device);
  return CUDA_SUCCESS;
}

CUresult cuProfilerStart() {
  counting::note("profiler", "start");
  return CUDA_SUCCESS;
}

CUresult cuProfilerStop() {
  counting::note("profiler", "stop");
  return CUDA_SUCCESS;
}
}
