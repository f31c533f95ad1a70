// Virtual memory: addresses are reserved first, and physical memory is mapped there later (expandable segments).
#include <cuda.h>
#include <sys/mman.h>

#include <map>

#include "counting.h"
#include "devices.h"
#include "errors.h"
#include "memory.h"

using counting::Guard;
using counting::lock;

namespace {

constexpr size_t granularity = 2 << 20;

// Physical memory. It goes back to its card when nobody holds it and it is mapped nowhere.
struct Physical {
  size_t bytes;
  CUmemAllocationProp properties;
  int holders = 1, mappings = 0;
};

std::map<CUmemGenericAllocationHandle, Physical>& physical() {
  static auto* made = new std::map<CUmemGenericAllocationHandle, Physical>;
  return *made;
}

struct Mapping {
  size_t bytes;
  CUmemGenericAllocationHandle of;
};

std::map<CUdeviceptr, Mapping>& mappings() {
  static auto* made = new std::map<CUdeviceptr, Mapping>;
  return *made;
}

void forget_if_free(CUmemGenericAllocationHandle handle) {
  auto& known = physical().at(handle);
  if (known.holders || known.mappings) return;
  if (known.properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    memory::give_back(known.properties.location.id, known.bytes);
  physical().erase(handle);
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = granularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t align, CUdeviceptr, unsigned long long) {
  if (!bytes || bytes % granularity) return CUDA_ERROR_INVALID_VALUE;
  if (align < granularity) align = granularity;
  void* mapped = mmap(nullptr, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  size_t first = size_t(mapped), start = (first + align - 1) / align * align;
  if (start > first) munmap(mapped, start - first);
  if (first + align > start) munmap(reinterpret_cast<void*>(start + bytes), first + align - start);
  *pointer = start;
  counting::note("runtime", "cuMemAddressReserve");
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  return munmap(reinterpret_cast<void*>(pointer), bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long) {
  Guard guard(lock());
  static CUmemGenericAllocationHandle last = 0;
  counting::note("runtime", "cuMemCreate", bytes);
  if (!bytes || bytes % granularity) return CUDA_ERROR_INVALID_VALUE;
  bool on_card = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (on_card && !memory::take(properties->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = ++last;
  physical()[last] = {bytes, *properties};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Guard guard(lock());
  auto found = physical().find(handle);
  if (found == physical().end() || !found->second.holders) return CUDA_ERROR_INVALID_VALUE;
  found->second.holders--;
  forget_if_free(handle);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  Guard guard(lock());
  auto found = physical().find(handle);
  if (found == physical().end() || offset || bytes != found->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  counting::note("runtime", "cuMemMap", bytes);
  found->second.mappings++;
  mappings()[pointer] = {bytes, handle};
  return CUDA_SUCCESS;
}

// Memory can be used, and counts as memory of its card, from the moment that access is set.
CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc*, size_t) {
  Guard guard(lock());
  if (mprotect(reinterpret_cast<void*>(pointer), bytes, PROT_READ | PROT_WRITE)) return CUDA_ERROR_INVALID_VALUE;
  for (auto found = mappings().lower_bound(pointer); found != mappings().end() && found->first < pointer + bytes;
       ++found) {
    auto& location = physical().at(found->second.of).properties.location;
    auto kind = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? memory::Kind::device : memory::Kind::pinned;
    memory::add(found->first, {kind, location.id, size_t(found->first), found->second.bytes});
  }
  return CUDA_SUCCESS;
}

// The pages go back to the system. What was in them is lost, also if the same memory is mapped again.
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  Guard guard(lock());
  counting::note("runtime", "cuMemUnmap", bytes);
  auto found = mappings().lower_bound(pointer);
  if (found == mappings().end() || found->first != pointer) return CUDA_ERROR_INVALID_VALUE;
  while (found != mappings().end() && found->first < pointer + bytes) {
    memory::remove(found->first);
    auto handle = found->second.of;
    physical().at(handle).mappings--;
    forget_if_free(handle);
    found = mappings().erase(found);
  }
  mmap(reinterpret_cast<void*>(pointer), bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  Guard guard(lock());
  auto after = mappings().upper_bound(CUdeviceptr(address));
  if (after == mappings().begin()) return CUDA_ERROR_INVALID_VALUE;
  auto& [start, mapping] = *--after;
  if (CUdeviceptr(address) >= start + mapping.bytes) return CUDA_ERROR_INVALID_VALUE;
  *handle = mapping.of;
  physical().at(mapping.of).holders++;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  Guard guard(lock());
  auto found = physical().find(handle);
  if (found == physical().end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = found->second.properties;
  return CUDA_SUCCESS;
}

// A double lives in one process, so there is nobody to share memory with.
CUresult cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                      unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
}
