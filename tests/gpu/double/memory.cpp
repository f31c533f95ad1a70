// Memory of a card is address space without pages: the system gives it pages only where the fake driver writes.
#include "memory.h"

#include <cuda.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "capture.h"
#include "counting.h"
#include "devices.h"
#include "errors.h"
#include "work.h"

using counting::Guard;
using counting::lock;
using memory::Kind;
using memory::Place;

namespace {

constexpr size_t alignment = 2 << 20;  // as the driver's pages
size_t used[64], peak[64];

std::map<size_t, Place>& places() {
  static auto* made = new std::map<size_t, Place>;
  return *made;
}

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Map `bytes` of address space at a multiple of `alignment`.
void* address_space(size_t bytes) {
  void* mapped = mmap(nullptr, bytes + alignment, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  size_t first = size_t(mapped), start = rounded(first, alignment), end = start + rounded(bytes, 4096);
  if (start > first) munmap(mapped, start - first);
  if (first + bytes + alignment > end) munmap(reinterpret_cast<void*>(end), first + bytes + alignment - end);
  return reinterpret_cast<void*>(start);
}

cudaError_t allocate(void** pointer, size_t bytes) {
  Guard guard(lock());
  *pointer = nullptr;
  if (!bytes) return cudaSuccess;
  bytes = rounded(bytes, 512);
  if (!memory::take(devices::current(), bytes)) return errors::result(cudaErrorMemoryAllocation);
  *pointer = address_space(bytes);
  if (!*pointer) {
    memory::give_back(devices::current(), bytes);
    return errors::result(cudaErrorMemoryAllocation);
  }
  memory::add(size_t(*pointer), {Kind::device, devices::current(), size_t(*pointer), bytes});
  return cudaSuccess;
}

cudaError_t release(void* pointer) {
  Guard guard(lock());
  auto found = places().find(size_t(pointer));
  if (found == places().end() || found->second.kind != Kind::device) return errors::result(cudaErrorInvalidValue);
  memory::give_back(found->second.device, found->second.bytes);
  munmap(pointer, rounded(found->second.bytes, 4096));
  places().erase(found);
  return cudaSuccess;
}

}  // namespace

namespace memory {

Place place_of(const void* address) {
  Guard guard(lock());
  auto after = places().upper_bound(size_t(address));
  if (after == places().begin()) return {};
  auto& [start, place] = *--after;
  return size_t(address) < start + place.bytes ? place : Place{};
}

void add(size_t start, const Place& place) {
  Guard guard(lock());
  places()[start] = place;
}

void remove(size_t start) {
  Guard guard(lock());
  places().erase(start);
}

bool take(int device, size_t bytes) {
  Guard guard(lock());
  if (bytes > devices::memory() - used[device]) return false;
  used[device] += bytes;
  peak[device] = std::max(peak[device], used[device]);
  return true;
}

void give_back(int device, size_t bytes) {
  Guard guard(lock());
  used[device] -= bytes;
}

}  // namespace memory

extern "C" {

// Bytes that a process has of a card now.
size_t null_cuda_used(int device) { return used[device]; }

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  counting::note("runtime", "cudaMalloc", bytes);
  if (auto error = capture::may_be_unsafe()) return error;
  return allocate(pointer, bytes);
}

cudaError_t cudaFree(void* pointer) {
  counting::note("runtime", "cudaFree");
  if (!pointer) return cudaSuccess;
  if (auto error = capture::may_be_unsafe()) return error;
  return release(pointer);
}

// The memory of an allocation node exists from the recording on, so that its address is known.
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  if (auto error = allocate(pointer, bytes)) return error;
  return work::submit(stream, {cudaGraphNodeTypeMemAlloc, "runtime", "cudaMallocAsync", bytes, "", {}});
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  {
    Guard guard(lock());
    auto* of = capture::stream_of(stream);
    bool recorded = of && capture::of(of);
    if (!recorded)
      if (auto error = release(pointer)) return error;
  }
  return work::submit(stream, {cudaGraphNodeTypeMemFree, "runtime", "cudaFreeAsync", 0, "", {}});
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  counting::note("runtime", "cudaHostAlloc", bytes);
  if (auto error = capture::may_be_unsafe()) return error;
  *pointer = aligned_alloc(4096, rounded(std::max<size_t>(bytes, 1), 4096));
  if (!*pointer) return errors::result(cudaErrorMemoryAllocation);
  memory::add(size_t(*pointer), {Kind::pinned, devices::current(), size_t(*pointer), bytes});
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }

cudaError_t cudaFreeHost(void* pointer) {
  counting::note("runtime", "cudaFreeHost");
  if (auto error = capture::may_be_unsafe()) return error;
  memory::remove(size_t(pointer));
  free(pointer);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  counting::note("runtime", "cudaHostRegister", bytes);
  if (auto error = capture::may_be_unsafe()) return error;
  memory::add(size_t(pointer), {Kind::pinned, devices::current(), size_t(pointer), bytes});
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  counting::note("runtime", "cudaHostUnregister");
  memory::remove(size_t(pointer));
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** to, void* pointer, unsigned) {
  *to = pointer;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Guard guard(lock());
  *total = devices::memory();
  *free = *total - used[devices::current()];
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* to, const void* pointer) {
  auto place = memory::place_of(pointer);
  auto* address = const_cast<void*>(pointer);
  *to = {};
  to->type = place.kind == Kind::device   ? cudaMemoryTypeDevice
             : place.kind == Kind::pinned ? cudaMemoryTypeHost
                                          : cudaMemoryTypeUnregistered;
  to->device = place.kind == Kind::pageable ? cudaInvalidDeviceId : place.device;
  to->devicePointer = place.kind == Kind::pageable ? nullptr : address;
  to->hostPointer = place.kind == Kind::device ? nullptr : address;
  return cudaSuccess;
}

// A variable of a module has no content in the fake driver, but an address of its own.
cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  Guard guard(lock());
  static auto* known = new std::map<const void*, void*>;
  auto& place = (*known)[symbol];
  if (!place) {
    place = address_space(4096);
    memory::add(size_t(place), {Kind::device, devices::current(), size_t(place), 4096});
  }
  *pointer = place;
  return cudaSuccess;
}

// Memory pools are one for each card, and keep nothing back.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = reinterpret_cast<cudaMemPool_t>(size_t(device + 1));
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  int device = int(size_t(pool)) - 1;
  bool high = attribute == cudaMemPoolAttrReservedMemHigh || attribute == cudaMemPoolAttrUsedMemHigh;
  *static_cast<cuuint64_t*>(value) = high ? peak[device] : used[device];
  return cudaSuccess;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  counting::note("runtime", "cuMemAlloc", bytes);
  if (auto error = capture::may_be_unsafe()) return errors::driver(error);
  return errors::driver(allocate(reinterpret_cast<void**>(pointer), bytes));
}
CUresult cuMemFree_v2(CUdeviceptr pointer) { return errors::driver(cudaFree(reinterpret_cast<void*>(pointer))); }
CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return errors::driver(cudaMallocAsync(reinterpret_cast<void**>(pointer), bytes, stream));
}
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return errors::driver(cudaFreeAsync(reinterpret_cast<void*>(pointer), stream));
}
CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) { return errors::driver(cudaHostAlloc(pointer, bytes, 0)); }
CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return errors::driver(cudaHostAlloc(pointer, bytes, flags));
}
CUresult cuMemFreeHost(void* pointer) { return errors::driver(cudaFreeHost(pointer)); }
CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  return errors::driver(cudaHostRegister(pointer, bytes, flags));
}
CUresult cuMemHostUnregister(void* pointer) { return errors::driver(cudaHostUnregister(pointer)); }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* to, void* pointer, unsigned) {
  *to = CUdeviceptr(pointer);
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) { return errors::driver(cudaMemGetInfo(free, total)); }

CUresult cuMemGetAddressRange_v2(CUdeviceptr* start, size_t* bytes, CUdeviceptr pointer) {
  auto place = memory::place_of(reinterpret_cast<void*>(pointer));
  if (place.kind == Kind::pageable) return CUDA_ERROR_NOT_FOUND;
  if (start) *start = place.start;
  if (bytes) *bytes = place.bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  auto place = memory::place_of(reinterpret_cast<void*>(pointer));
  if (place.kind == Kind::pageable) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *static_cast<size_t*>(value) = place.device + 1; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<int*>(value) = place.kind == Kind::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: *static_cast<CUdeviceptr*>(value) = pointer; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(value) = place.device; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *static_cast<int*>(value) = 0; break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *static_cast<int*>(value) = 1; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<size_t*>(value) = place.start; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<size_t*>(value) = place.bytes; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *static_cast<unsigned long long*>(value) = place.start; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

// An attribute that an address does not have is 0.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr pointer) {
  for (unsigned i = 0; i < count; i++) cuPointerGetAttribute(values[i], attributes[i], pointer);
  return CUDA_SUCCESS;
}
CUresult cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr) { return CUDA_SUCCESS; }
}
