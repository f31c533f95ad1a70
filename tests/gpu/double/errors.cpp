#include "errors.h"

#include <map>
#include <utility>

namespace {

thread_local cudaError_t last = cudaSuccess;

using Words = std::pair<const char*, const char*>;

// Names and sentences as the runtime has them. Programs look for "out of memory" in the sentence.
const Words& words(int error) {
  static auto* known = new std::map<int, Words>{
      {cudaSuccess, {"cudaSuccess", "no error"}},
      {cudaErrorInvalidValue, {"cudaErrorInvalidValue", "invalid argument"}},
      {cudaErrorMemoryAllocation, {"cudaErrorMemoryAllocation", "out of memory"}},
      {cudaErrorInvalidConfiguration, {"cudaErrorInvalidConfiguration", "invalid configuration argument"}},
      {cudaErrorInvalidDeviceFunction, {"cudaErrorInvalidDeviceFunction", "invalid device function"}},
      {cudaErrorNoDevice, {"cudaErrorNoDevice", "no CUDA-capable device is detected"}},
      {cudaErrorInvalidDevice, {"cudaErrorInvalidDevice", "invalid device ordinal"}},
      {cudaErrorIllegalState, {"cudaErrorIllegalState", "the operation cannot be performed in the present state"}},
      {cudaErrorInvalidResourceHandle, {"cudaErrorInvalidResourceHandle", "invalid resource handle"}},
      {cudaErrorNotReady, {"cudaErrorNotReady", "device not ready"}},
      {cudaErrorSymbolNotFound, {"cudaErrorSymbolNotFound", "named symbol not found"}},
      {cudaErrorNotSupported, {"cudaErrorNotSupported", "operation not supported"}},
      {cudaErrorStreamCaptureUnsupported,
       {"cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"}},
      {cudaErrorStreamCaptureInvalidated,
       {"cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"}},
      {cudaErrorStreamCaptureMerge,
       {"cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"}},
      {cudaErrorStreamCaptureUnmatched,
       {"cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"}},
      {cudaErrorStreamCaptureUnjoined,
       {"cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"}},
      {cudaErrorStreamCaptureIsolation,
       {"cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"}},
      {cudaErrorStreamCaptureImplicit,
       {"cudaErrorStreamCaptureImplicit",
        "operation would make the legacy stream depend on a capturing blocking stream"}},
      {cudaErrorCapturedEvent,
       {"cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"}},
      {cudaErrorStreamCaptureWrongThread,
       {"cudaErrorStreamCaptureWrongThread", "attempt to terminate a thread-local capture sequence from another thread"}},
  };
  static const Words none = {"cudaErrorUnknown", "unknown error of the fake CUDA driver"};
  auto found = known->find(error);
  return found == known->end() ? none : found->second;
}

}  // namespace

namespace errors {

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}

CUresult driver(cudaError_t error) { return CUresult(error); }

}  // namespace errors

extern "C" {

const char* cudaGetErrorName(cudaError_t error) { return words(error).first; }
const char* cudaGetErrorString(cudaError_t error) { return words(error).second; }

cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last; }

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = words(error).second;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : words(error).first;
  return CUDA_SUCCESS;
}
}
