// NVML, as far as PyTorch and XLA ask it in a rank: mostly how cards are connected, which it does not know.
//
// It is a library of its own, libnvidia-ml.so.1 beside libcuda.so.1, because programs open it by this name. Without it
// PyTorch ends in a crash as soon as it maps an expandable segment.
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {
constexpr int success = 0, not_supported = 3;
}

extern "C" {

int nvmlInit_v2() { return success; }
int nvmlShutdown() { return success; }
const char* nvmlErrorString(int) { return "an answer of the fake NVML"; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  const char* devices = getenv("NULL_CUDA_DEVICES");
  *count = devices ? unsigned(atoi(devices)) : 1;
  return success;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(size_t(index) + 1);
  return success;
}
// "0000:03:00.0" is the third card, with index 2.
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  *device = reinterpret_cast<void*>(strtoul(id + 5, nullptr, 16));
  return success;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return success;
}

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  snprintf(text, length, "580.65.06");
  return success;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* generation) {
  *generation = 5;
  return success;
}
int nvmlDeviceGetNvLinkState(void*, unsigned, int*) { return not_supported; }

int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return not_supported; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, void*) { return not_supported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return not_supported; }
int nvmlDeviceGetP2PStatus(void*, void*, int, void*) { return not_supported; }
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return success;
}
}
