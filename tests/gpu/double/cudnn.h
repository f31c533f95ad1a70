// What both interfaces of cuDNN share.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

namespace cudnn {

constexpr int success = 0, bad_parameter = 2000, not_supported = 3000, execution_failed = 5000;

// Count an operation on the stream of a handle. Return a status.
int run(void* handle, const char* name, const std::string& detail = "");

// Make an empty descriptor or handle.
int create(void** descriptor);

}  // namespace cudnn
