// cuDNN: handles, descriptors, and the older interface with one function for each operation. Operations are counted;
// descriptors of this interface are empty. cudnn_graphs.cpp has the newer interface.
#include "cudnn.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "counting.h"
#include "work.h"

namespace cudnn {

cudaStream_t stream_of(void* handle) { return *static_cast<cudaStream_t*>(handle); }

int run(void* handle, const char* name, const std::string& detail) {
  bool failed = work::submit(stream_of(handle), {cudaGraphNodeTypeKernel, "cudnn", name, 0, detail, {}});
  return failed ? execution_failed : success;
}

int create(void** descriptor) {
  *descriptor = calloc(1, 64);
  return success;
}

}  // namespace cudnn

namespace {

// cudnnConvolutionFwdAlgoPerf_t and its siblings
struct Measured {
  int algorithm, status;
  float milliseconds;
  size_t workspace;
  int determinism, math_type, reserved[3];
};

int one_algorithm(int* count, Measured* results) {
  results[0] = {};
  results[0].milliseconds = 1;
  *count = 1;
  return cudnn::success;
}

int nothing_needed(size_t* bytes) {
  *bytes = 0;
  return cudnn::success;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return 92000; }
size_t cudnnGetCudartVersion() { return 13000; }
const char* cudnnGetErrorString(int status) { return status ? "CUDNN_STATUS of the fake CUDA driver" : "success"; }
void cudnnGetLastErrorString(char* text, size_t length) { snprintf(text, length, "an error of the fake CUDA driver"); }
int cudnnGetProperty(int which, int* value) {
  *value = which == 0 ? 9 : which == 1 ? 20 : 0;
  return cudnn::success;
}

int cudnnCreate(void** handle) { return cudnn::create(handle); }
int cudnnDestroy(void* handle) {
  free(handle);
  return cudnn::success;
}
int cudnnSetStream(void* handle, cudaStream_t stream) {
  *static_cast<cudaStream_t*>(handle) = stream;
  return cudnn::success;
}
int cudnnGetStream(void* handle, cudaStream_t* stream) {
  *stream = cudnn::stream_of(handle);
  return cudnn::success;
}

int cudnnCreateTensorDescriptor(void** made) { return cudnn::create(made); }
int cudnnCreateFilterDescriptor(void** made) { return cudnn::create(made); }
int cudnnCreateConvolutionDescriptor(void** made) { return cudnn::create(made); }
int cudnnCreateActivationDescriptor(void** made) { return cudnn::create(made); }
int cudnnCreatePoolingDescriptor(void** made) { return cudnn::create(made); }
int cudnnCreateDropoutDescriptor(void** made) { return cudnn::create(made); }

int cudnnConvolutionForward(void* handle, ...) { return cudnn::run(handle, "cudnnConvolutionForward"); }
int cudnnConvolutionBackwardData(void* handle, ...) { return cudnn::run(handle, "cudnnConvolutionBackwardData"); }
int cudnnConvolutionBackwardFilter(void* handle, ...) { return cudnn::run(handle, "cudnnConvolutionBackwardFilter"); }
int cudnnConvolutionBiasActivationForward(void* handle, ...) {
  return cudnn::run(handle, "cudnnConvolutionBiasActivationForward");
}
int cudnnPoolingForward(void* handle, ...) { return cudnn::run(handle, "cudnnPoolingForward"); }
int cudnnBatchNormalizationForwardTrainingEx(void* handle, ...) {
  return cudnn::run(handle, "cudnnBatchNormalizationForwardTrainingEx");
}
int cudnnBatchNormalizationBackwardEx(void* handle, ...) {
  return cudnn::run(handle, "cudnnBatchNormalizationBackwardEx");
}
int cudnnBatchNormalizationForwardInference(void* handle, ...) {
  return cudnn::run(handle, "cudnnBatchNormalizationForwardInference");
}

int cudnnFindConvolutionForwardAlgorithmEx(void* handle, void*, const void*, void*, const void*, void*, void*, void*,
                                           int, int* count, Measured* results, void*, size_t) {
  cudnn::run(handle, "cudnnFindConvolutionForwardAlgorithmEx");
  return one_algorithm(count, results);
}
int cudnnFindConvolutionBackwardDataAlgorithmEx(void* handle, void*, const void*, void*, const void*, void*, void*,
                                                void*, int, int* count, Measured* results, void*, size_t) {
  cudnn::run(handle, "cudnnFindConvolutionBackwardDataAlgorithmEx");
  return one_algorithm(count, results);
}
int cudnnFindConvolutionBackwardFilterAlgorithmEx(void* handle, void*, const void*, void*, const void*, void*, void*,
                                                  void*, int, int* count, Measured* results, void*, size_t) {
  cudnn::run(handle, "cudnnFindConvolutionBackwardFilterAlgorithmEx");
  return one_algorithm(count, results);
}
int cudnnGetConvolutionForwardAlgorithm_v7(void*, void*, void*, void*, void*, int, int* count, Measured* results) {
  return one_algorithm(count, results);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void*, void*, void*, void*, void*, int, int* count,
                                                Measured* results) {
  return one_algorithm(count, results);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void*, void*, void*, void*, void*, int, int* count,
                                                  Measured* results) {
  return one_algorithm(count, results);
}

int cudnnGetConvolutionForwardWorkspaceSize(void*, void*, void*, void*, void*, int, size_t* bytes) {
  return nothing_needed(bytes);
}
int cudnnGetConvolutionBackwardDataWorkspaceSize(void*, void*, void*, void*, void*, int, size_t* bytes) {
  return nothing_needed(bytes);
}
int cudnnGetConvolutionBackwardFilterWorkspaceSize(void*, void*, void*, void*, void*, int, size_t* bytes) {
  return nothing_needed(bytes);
}
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*,
                                                             size_t* bytes) {
  return nothing_needed(bytes);
}
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, void*, void*, void*, void*, void*, void*,
                                                      void*, size_t* bytes) {
  return nothing_needed(bytes);
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*, size_t* bytes) {
  return nothing_needed(bytes);
}
int cudnnDropoutGetStatesSize(void*, size_t* bytes) { return nothing_needed(bytes); }
}
