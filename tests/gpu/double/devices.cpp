#include "devices.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "counting.h"
#include "errors.h"

namespace {

// Figures of NVIDIA's data sheets and of the table of compute capabilities in the CUDA C++ programming guide.
const devices::Card cards[] = {
    {"Tesla V100-SXM2-32GB", 7, 0, 80, 32494, 98304, 98304, 2048, 32, 6, 4096, 877000, 1530000},
    {"Tesla T4", 7, 5, 40, 15095, 65536, 65536, 1024, 16, 4, 256, 5001000, 1590000},
    {"NVIDIA A100-SXM4-80GB", 8, 0, 108, 81153, 167936, 166912, 2048, 32, 40, 5120, 1593000, 1410000},
    {"NVIDIA A10G", 8, 6, 80, 22731, 102400, 101376, 1536, 16, 6, 384, 6251000, 1710000},
    {"NVIDIA L4", 8, 9, 58, 22563, 102400, 101376, 1536, 24, 48, 192, 6251000, 2040000},
    {"NVIDIA H100 80GB HBM3", 9, 0, 132, 81559, 233472, 232448, 2048, 32, 50, 5120, 2619000, 1980000},
    {"NVIDIA B200", 10, 0, 148, 182642, 233472, 232448, 2048, 32, 126, 8192, 3996000, 1965000},
    {"NVIDIA GeForce RTX 5090", 12, 0, 170, 32607, 102400, 101376, 1536, 24, 96, 512, 14001000, 2407000},
};

thread_local int selected = 0;

long variable(const char* name, long otherwise) {
  const char* value = getenv(name);
  return value ? atol(value) : otherwise;
}

// The card of the wanted capability, changed by the other variables.
devices::Card chosen() {
  int major = variable("NULL_CUDA_MAJOR", 9), minor = variable("NULL_CUDA_MINOR", 0);
  devices::Card card = cards[5];
  for (auto& known : cards)
    if (known.major == major && known.minor == minor) card = known;
  card.major = major;
  card.minor = minor;
  if (const char* name = getenv("NULL_CUDA_NAME")) card.name = strdup(name);
  card.mebibytes = variable("NULL_CUDA_MIB", card.mebibytes);
  card.processors = variable("NULL_CUDA_SMS", card.processors);
  return card;
}

}  // namespace

namespace devices {

int count() {
  static int known = variable("NULL_CUDA_DEVICES", 1);
  return known;
}

const Card& card() {
  static auto* known = new Card(chosen());
  return *known;
}

std::string name() { return card().name; }
int capability() { return card().major * 10 + card().minor; }
size_t memory() { return card().mebibytes << 20; }
int current() { return selected; }

bool select(int device) {
  if (device < 0 || device >= count()) return false;
  selected = device;
  return true;
}

int attribute(int number) {
  switch (number) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return card().clock_khz;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: return 512;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return card().processors;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return card().memory_khz;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return card().bus_bits;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return card().l2_mebibytes << 20;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return card().threads_per_processor;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return selected + 1;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return card().shared_per_processor;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return card().shared_per_block;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return card().blocks_per_processor;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return capability() >= 80 ? 1024 : 0;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return card().major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return card().minor;
    default: return 0;
  }
}

}  // namespace devices

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices::count();
  return errors::result(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = devices::current();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return errors::result(devices::select(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDA_VERSION / 1000 * 1000;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= devices::count()) return errors::result(cudaErrorInvalidDevice);
  *value = attribute == cudaDevAttrPciBusId ? device + 1 : devices::attribute(attribute);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* to, int device) {
  if (device < 0 || device >= devices::count()) return errors::result(cudaErrorInvalidDevice);
  *to = {};
  auto& card = devices::card();
  strncpy(to->name, card.name, sizeof to->name - 1);
  to->uuid.bytes[0] = char(device + 1);
  to->totalGlobalMem = devices::memory();
  to->sharedMemPerBlock = 49152;
  to->sharedMemPerBlockOptin = card.shared_per_block;
  to->sharedMemPerMultiprocessor = card.shared_per_processor;
  to->reservedSharedMemPerBlock = devices::attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  to->regsPerBlock = to->regsPerMultiprocessor = 65536;
  to->warpSize = 32;
  to->memPitch = 2147483647;
  to->maxThreadsPerBlock = to->maxThreadsDim[0] = to->maxThreadsDim[1] = 1024;
  to->maxThreadsDim[2] = 64;
  to->maxGridSize[0] = 2147483647;
  to->maxGridSize[1] = to->maxGridSize[2] = 65535;
  to->totalConstMem = 65536;
  to->major = card.major;
  to->minor = card.minor;
  to->textureAlignment = 512;
  to->multiProcessorCount = card.processors;
  to->maxThreadsPerMultiProcessor = card.threads_per_processor;
  to->maxBlocksPerMultiProcessor = card.blocks_per_processor;
  to->l2CacheSize = card.l2_mebibytes << 20;
  to->memoryBusWidth = card.bus_bits;
  to->asyncEngineCount = 3;
  to->pciBusID = device + 1;
  to->canMapHostMemory = to->concurrentKernels = to->ECCEnabled = to->unifiedAddressing = 1;
  to->streamPrioritiesSupported = to->cooperativeLaunch = to->memoryPoolsSupported = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceDisablePeerAccess(int) { return cudaSuccess; }
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  snprintf(text, length, "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaProfilerStart() {
  counting::note("profiler", "start");
  return cudaSuccess;
}

cudaError_t cudaProfilerStop() {
  counting::note("profiler", "stop");
  return cudaSuccess;
}
}
