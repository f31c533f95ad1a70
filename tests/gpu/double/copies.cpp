// Copies and fills: their direction, the memory at both ends, their bytes. The smaller ones are carried out, so that
// what goes to a card comes back from it. Larger ones would fill the host's memory: a card's pages cost nothing until
// somebody writes them.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "capture.h"
#include "counting.h"
#include "errors.h"
#include "memory.h"
#include "work.h"

using memory::Kind;

namespace {

constexpr size_t largest_copy = 32 << 20;   // between host and card: a batch
constexpr size_t largest_on_card = 1 << 20;  // on a card: counters, scales, offsets

// A copy with rows, as cudaMemcpy2D has them; a plain copy is one row.
struct Copy {
  char* to;
  const char* from;
  size_t width, rows = 1, to_pitch = 0, from_pitch = 0;
};

// The direction by the addresses, whatever the caller says: "HtoD pinned", "DtoH pageable", "DtoD", "HtoH".
std::string direction(Kind to, Kind from) {
  if (to == Kind::device && from == Kind::device) return "DtoD";
  if (to != Kind::device && from != Kind::device) return "HtoH";
  auto host = to == Kind::device ? from : to;
  return std::string(to == Kind::device ? "HtoD" : "DtoH") + (host == Kind::pinned ? " pinned" : " pageable");
}

void carry_out(const Copy& copy, Kind to, Kind from) {
  bool on_card = to == Kind::device && from == Kind::device;
  bool small = copy.width * copy.rows <= (on_card ? largest_on_card : largest_copy);
  for (size_t row = 0; row < copy.rows; row++) {
    if (small)
      memmove(copy.to + row * copy.to_pitch, copy.from + row * copy.from_pitch, copy.width);
    else if (to != Kind::device)
      memset(copy.to + row * copy.to_pitch, 0, copy.width);
  }
}

cudaError_t copy_on(cudaStream_t stream, const char* call, const Copy& copy) {
  auto to = memory::place_of(copy.to).kind, from = memory::place_of(copy.from).kind;
  auto way = direction(to, from);
  if (way.find("pageable") != std::string::npos)
    if (auto error = capture::may_be_staged(stream)) return error;
  return work::submit(stream, {cudaGraphNodeTypeMemcpy, "copy", std::string(call) + " " + way,
                               copy.width * copy.rows, "", [=] { carry_out(copy, to, from); }});
}

// A copy that blocks uses the legacy stream and waits for it.
cudaError_t blocking_copy(const char* call, const Copy& copy) {
  if (auto error = capture::may_wait_for(cudaStreamLegacy)) return error;
  return copy_on(cudaStreamLegacy, call, copy);
}

Copy plain(void* to, const void* from, size_t bytes) {
  return {static_cast<char*>(to), static_cast<const char*>(from), bytes};
}

Copy plain(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return plain(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}

// Fill `count` values of `width` bytes.
cudaError_t fill_on(cudaStream_t stream, const char* call, void* to, unsigned value, size_t width, size_t count) {
  auto fill = [=] {
    if (count * width > largest_on_card) return;
    for (size_t i = 0; i < count; i++) memcpy(static_cast<char*>(to) + i * width, &value, width);
  };
  return work::submit(stream, {cudaGraphNodeTypeMemset, "memset", call, count * width, "", fill});
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return blocking_copy("cudaMemcpy", plain(to, from, bytes));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy_on(stream, "cudaMemcpyAsync", plain(to, from, bytes));
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return copy_on(stream, "cudaMemcpyPeerAsync", plain(to, from, bytes));
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t rows, cudaMemcpyKind, cudaStream_t stream) {
  return copy_on(stream, "cudaMemcpy2DAsync",
                 {static_cast<char*>(to), static_cast<const char*>(from), width, rows, to_pitch, from_pitch});
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind) {
  void* place;
  cudaGetSymbolAddress(&place, symbol);
  if (offset + bytes > 4096) return cudaSuccess;  // symbols have no more room in the fake driver
  return blocking_copy("cudaMemcpyToSymbol", plain(static_cast<char*>(place) + offset, from, bytes));
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return fill_on(cudaStreamLegacy, "cudaMemset", to, unsigned(value), 1, bytes);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return fill_on(stream, "cudaMemsetAsync", to, unsigned(value), 1, bytes);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return errors::driver(blocking_copy("cuMemcpyHtoD", plain(to, CUdeviceptr(from), bytes)));
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return errors::driver(blocking_copy("cuMemcpyDtoH", plain(CUdeviceptr(to), from, bytes)));
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return errors::driver(blocking_copy("cuMemcpyDtoD", plain(to, from, bytes)));
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return errors::driver(copy_on(stream, "cuMemcpyHtoDAsync", plain(to, CUdeviceptr(from), bytes)));
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return errors::driver(copy_on(stream, "cuMemcpyDtoHAsync", plain(CUdeviceptr(to), from, bytes)));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return errors::driver(copy_on(stream, "cuMemcpyDtoDAsync", plain(to, from, bytes)));
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return errors::driver(copy_on(stream, "cuMemcpyAsync", plain(to, from, bytes)));
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream) {
  return errors::driver(copy_on(stream, "cuMemcpyPeerAsync", plain(to, from, bytes)));
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return errors::driver(fill_on(cudaStreamLegacy, "cuMemsetD8", reinterpret_cast<void*>(to), value, 1, count));
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return errors::driver(fill_on(cudaStreamLegacy, "cuMemsetD32", reinterpret_cast<void*>(to), value, 4, count));
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return errors::driver(fill_on(stream, "cuMemsetD8Async", reinterpret_cast<void*>(to), value, 1, count));
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return errors::driver(fill_on(stream, "cuMemsetD16Async", reinterpret_cast<void*>(to), value, 2, count));
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return errors::driver(fill_on(stream, "cuMemsetD32Async", reinterpret_cast<void*>(to), value, 4, count));
}
}
