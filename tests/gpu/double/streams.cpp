// The runtime's calls for streams and events. All work is done when it is submitted, so nothing is ever waited for.
#include <memory>
#include <set>

#include "capture.h"
#include "counting.h"
#include "errors.h"
#include "work.h"

using capture::Event;
using counting::Guard;
using counting::lock;

namespace {

std::set<Event*>& events() {
  static auto* made = new std::set<Event*>;
  return *made;
}

Event* event_of(cudaEvent_t handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  return events().count(event) ? event : nullptr;
}

// Whether the host may ask for the state of this event.
cudaError_t may_look_at(cudaEvent_t handle) {
  Guard guard(lock());
  auto* event = event_of(handle);
  if (!event) return errors::result(cudaErrorInvalidResourceHandle);
  if (event->captured) {
    if (auto* recording = capture::numbered(event->captured)) recording->valid = false;
    return errors::result(cudaErrorCapturedEvent);
  }
  return capture::may_be_unsafe();
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  *stream = capture::create(!(flags & cudaStreamNonBlocking), priority);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return errors::result(capture::destroy(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  Guard guard(lock());
  auto* stream = capture::stream_of(handle);
  if (!stream) return errors::result(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  Guard guard(lock());
  auto* stream = capture::stream_of(handle);
  if (!stream) return errors::result(cudaErrorInvalidResourceHandle);
  *flags = stream->blocking ? cudaStreamDefault : cudaStreamNonBlocking;
  return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  Guard guard(lock());
  auto* stream = capture::stream_of(handle);
  if (!stream) return errors::result(cudaErrorInvalidResourceHandle);
  *device = stream->device;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return capture::may_wait_for(stream); }

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  counting::note("sync", "cudaStreamSynchronize");
  return capture::may_wait_for(stream);
}

cudaError_t cudaDeviceSynchronize() {
  counting::note("sync", "cudaDeviceSynchronize");
  return capture::may_wait_for_device();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return work::submit(stream, {cudaGraphNodeTypeHost, "host", "cudaLaunchHostFunc", 0, "", [=] { function(data); }});
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function, void* data, unsigned) {
  if (auto error = capture::may_be_staged(handle)) return error;
  auto call = [=] { function(handle, cudaSuccess, data); };
  return work::submit(handle, {cudaGraphNodeTypeHost, "host", "cudaStreamAddCallback", 0, "", call});
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned flags) {
  Guard guard(lock());
  auto* event = event_of(handle);
  if (!event) return errors::result(cudaErrorInvalidResourceHandle);
  return capture::wait(stream, *event, flags & cudaEventWaitExternal);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  Guard guard(lock());
  auto* event = new Event;
  events().insert(event);
  *handle = reinterpret_cast<cudaEvent_t>(event);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  Guard guard(lock());
  auto* event = event_of(handle);
  if (!event) return errors::result(cudaErrorInvalidResourceHandle);
  events().erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned flags) {
  Guard guard(lock());
  auto* event = event_of(handle);
  if (!event) return errors::result(cudaErrorInvalidResourceHandle);
  return capture::record(*event, stream, flags & cudaEventRecordExternal);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return may_look_at(event); }

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  counting::note("sync", "cudaEventSynchronize");
  return may_look_at(event);
}

// The time between two records is the host's, so it says nothing about a GPU.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  Guard guard(lock());
  if (auto error = may_look_at(from)) return error;
  if (auto error = may_look_at(to)) return error;
  auto *first = event_of(from), *second = event_of(to);
  if (!first->recorded || !second->recorded) return errors::result(cudaErrorInvalidResourceHandle);
  *milliseconds = float(1e3 * (second->at - first->at));
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return errors::result(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return errors::result(cudaErrorNotSupported);
}
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaSuccess; }
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) {
  return errors::result(cudaErrorNotSupported);
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return errors::result(cudaErrorNotSupported);
}

// The driver's calls for the same things. Its handles are the runtime's.
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return errors::driver(cudaStreamCreateWithFlags(stream, flags));
}
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return errors::driver(cudaStreamCreateWithPriority(stream, flags, priority));
}
CUresult cuStreamDestroy_v2(CUstream stream) { return errors::driver(cudaStreamDestroy(stream)); }
CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  return errors::driver(cudaStreamGetPriority(stream, priority));
}
CUresult cuStreamQuery(CUstream stream) { return errors::driver(cudaStreamQuery(stream)); }
CUresult cuStreamSynchronize(CUstream stream) {
  counting::note("sync", "cuStreamSynchronize");
  return errors::driver(capture::may_wait_for(stream));
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return errors::driver(cudaStreamWaitEvent(stream, event, flags));
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return errors::driver(cudaLaunchHostFunc(stream, function, data));
}
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* data, unsigned) {
  auto call = [=] { function(stream, CUDA_SUCCESS, data); };
  return errors::driver(work::submit(stream, {cudaGraphNodeTypeHost, "host", "cuStreamAddCallback", 0, "", call}));
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return errors::driver(cudaEventCreateWithFlags(event, flags));
}
CUresult cuEventDestroy_v2(CUevent event) { return errors::driver(cudaEventDestroy(event)); }
CUresult cuEventRecord(CUevent event, CUstream stream) { return errors::driver(cudaEventRecord(event, stream)); }
CUresult cuEventQuery(CUevent event) { return errors::driver(cudaEventQuery(event)); }
CUresult cuEventSynchronize(CUevent event) { return errors::driver(cudaEventSynchronize(event)); }
// The header gives cuEventElapsedTime the name cuEventElapsedTime_v2.
CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  return errors::driver(cudaEventElapsedTime(milliseconds, from, to));
}
}
