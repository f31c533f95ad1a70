// The last error of each thread, as the runtime keeps it.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace errors {

// Return `error`, and keep it for cudaGetLastError if it is one. A launch with <<<>>> is checked in no other way.
cudaError_t result(cudaError_t error);

// The error of the driver's interface; the numbers of both are the same.
CUresult driver(cudaError_t error);

}  // namespace errors
