// NCCL: communicators, and the collectives with their bytes and types. No rank hears of another: an all-reduce gives
// back what this rank sent, so a world of any size runs in one process.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "counting.h"
#include "devices.h"
#include "memory.h"
#include "work.h"

struct ncclUniqueId {
  char bytes[128];
};

namespace {

constexpr int success = 0, invalid_argument = 4, unhandled = 1;
constexpr size_t carried_out = 1 << 20;  // bytes; a larger result stays as it was

// `parts` is how many ranks a result has parts of. A split communicator does not know its size, so it takes one.
struct Communicator {
  int ranks, rank, parts, device = devices::current();
};

struct Type {
  const char* name;
  size_t width;
};

Type type_of(int type) {
  static const Type known[] = {{"int8", 1}, {"uint8", 1}, {"int32", 4}, {"uint32", 4}, {"int64", 8},    {"uint64", 8},
                               {"fp16", 2}, {"fp32", 4},  {"fp64", 8},  {"bf16", 2},   {"fp8_e4m3", 1}, {"fp8_e5m2", 1}};
  return type >= 0 && type < 12 ? known[type] : Type{"another type", 0};
}

struct Message {
  const void* from;
  void* to;
  size_t count;
  int type;
  int copies = 1;  // how often the own part stands in the result
};

// Count a call with the bytes that this rank hands in.
int send(const char* call, const Message& message, void* communicator, cudaStream_t stream) {
  if (!communicator) return invalid_argument;
  auto type = type_of(message.type);
  size_t bytes = message.count * type.width;
  auto& of = *static_cast<Communicator*>(communicator);
  auto pass = [=] {
    for (int i = 0; message.from && message.to && bytes <= carried_out && i < message.copies; i++)
      memmove(static_cast<char*>(message.to) + i * bytes, message.from, bytes);
  };
  auto detail = counting::text("%zu %s in a world of %d", message.count, type.name, of.ranks);
  return work::submit(stream, {cudaGraphNodeTypeKernel, "nccl", call, bytes, detail, pass}) ? unhandled : success;
}

int make(void** communicator, int ranks, int rank, const char* call) {
  counting::note("nccl setup", call);
  *communicator = new Communicator{ranks, rank, ranks};
  return success;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22907;
  return success;
}
int ncclGetUniqueId(ncclUniqueId* id) {
  memset(id, 1, sizeof *id);
  return success;
}
const char* ncclGetErrorString(int error) { return error ? "an error of the fake NCCL" : "no error"; }
const char* ncclGetLastError(void*) { return ""; }

int ncclCommInitRank(void** made, int ranks, ncclUniqueId, int rank) {
  return make(made, ranks, rank, "ncclCommInitRank");
}
int ncclCommInitRankConfig(void** made, int ranks, ncclUniqueId, int rank, void*) {
  return make(made, ranks, rank, "ncclCommInitRankConfig");
}
int ncclCommInitRankScalable(void** made, int ranks, int rank, int, void*, void*) {
  return make(made, ranks, rank, "ncclCommInitRankScalable");
}
int ncclCommInitAll(void** made, int ranks, const int*) {
  for (int rank = 0; rank < ranks; rank++) make(&made[rank], ranks, rank, "ncclCommInitAll");
  return success;
}

// Only all ranks together know how many have the same colour. A program that asks hears the parent's size.
int ncclCommSplit(void* parent, int colour, int, void** made, void*) {
  *made = nullptr;
  auto& of = *static_cast<Communicator*>(parent);
  if (colour < 0) return success;
  make(made, of.ranks, of.rank, "ncclCommSplit");
  static_cast<Communicator*>(*made)->parts = 1;
  return success;
}
int ncclCommShrink(void* parent, int*, int excluded, void** made, void*, int) {
  auto& of = *static_cast<Communicator*>(parent);
  return make(made, of.ranks - excluded, 0, "ncclCommShrink");
}
int ncclCommFinalize(void*) { return success; }
int ncclCommDestroy(void* communicator) {
  delete static_cast<Communicator*>(communicator);
  return success;
}
int ncclCommAbort(void* communicator) { return ncclCommDestroy(communicator); }
int ncclCommSuspend(void*, int) { return success; }
int ncclCommResume(void*) { return success; }
int ncclCommGetAsyncError(void*, int* error) {
  *error = success;
  return success;
}
int ncclCommCount(void* communicator, int* ranks) {
  *ranks = static_cast<Communicator*>(communicator)->ranks;
  return success;
}
int ncclCommUserRank(void* communicator, int* rank) {
  *rank = static_cast<Communicator*>(communicator)->rank;
  return success;
}
int ncclCommCuDevice(void* communicator, int* device) {
  *device = static_cast<Communicator*>(communicator)->device;
  return success;
}
int ncclCommMemStats(void*, int, uint64_t* value) {
  *value = 0;
  return success;
}

int ncclCommRegister(void*, void*, size_t, void** handle) {
  *handle = nullptr;
  return success;
}
int ncclCommDeregister(void*, void*) { return success; }
int ncclCommWindowRegister(void*, void*, size_t, void** window, int) {
  *window = nullptr;
  return success;
}
int ncclCommWindowDeregister(void*, void*) { return success; }
int ncclMemAlloc(void** pointer, size_t bytes) { return cudaMalloc(pointer, bytes) ? unhandled : success; }
int ncclMemFree(void* pointer) { return cudaFree(pointer) ? unhandled : success; }
int ncclRedOpCreatePreMulSum(int* operation, void*, int, int, void*) {
  *operation = 5;
  return success;
}
int ncclRedOpDestroy(int, void*) { return success; }

int ncclGroupStart() {
  counting::note("nccl setup", "ncclGroupStart");
  return success;
}
int ncclGroupEnd() { return success; }
int ncclGroupSimulateEnd(void*) { return success; }

int ncclAllReduce(const void* from, void* to, size_t count, int type, int, void* communicator, cudaStream_t stream) {
  return send("ncclAllReduce", {from, to, count, type}, communicator, stream);
}
int ncclReduce(const void* from, void* to, size_t count, int type, int, int, void* communicator,
               cudaStream_t stream) {
  return send("ncclReduce", {from, to, count, type}, communicator, stream);
}
int ncclBroadcast(const void* from, void* to, size_t count, int type, int, void* communicator, cudaStream_t stream) {
  return send("ncclBroadcast", {from, to, count, type}, communicator, stream);
}
int ncclBcast(void* buffer, size_t count, int type, int, void* communicator, cudaStream_t stream) {
  return send("ncclBcast", {buffer, buffer, count, type}, communicator, stream);
}
int ncclAllGather(const void* from, void* to, size_t count, int type, void* communicator, cudaStream_t stream) {
  return send("ncclAllGather", {from, to, count, type, static_cast<Communicator*>(communicator)->parts}, communicator,
              stream);
}
// `count` is what a rank gets; it hands in as much for every rank.
int ncclReduceScatter(const void* from, void*, size_t count, int type, int, void* communicator, cudaStream_t stream) {
  size_t all = count * static_cast<Communicator*>(communicator)->parts;
  return send("ncclReduceScatter", {from, nullptr, all, type}, communicator, stream);
}
int ncclAlltoAll(const void* from, void*, size_t count, int type, void* communicator, cudaStream_t stream) {
  size_t all = count * static_cast<Communicator*>(communicator)->parts;
  return send("ncclAlltoAll", {from, nullptr, all, type}, communicator, stream);
}
int ncclSend(const void* from, size_t count, int type, int, void* communicator, cudaStream_t stream) {
  return send("ncclSend", {from, nullptr, count, type}, communicator, stream);
}
int ncclRecv(void*, size_t count, int type, int, void* communicator, cudaStream_t stream) {
  return send("ncclRecv", {nullptr, nullptr, count, type}, communicator, stream);
}
}
