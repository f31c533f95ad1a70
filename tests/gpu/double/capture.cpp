#include "capture.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "counting.h"
#include "devices.h"
#include "errors.h"

using counting::Guard;
using counting::lock;

namespace {

std::set<capture::Stream*>& streams() {
  static auto* made = new std::set<capture::Stream*>;
  return *made;
}

std::vector<std::unique_ptr<capture::Capture>>& recordings() {
  static auto* made = new std::vector<std::unique_ptr<capture::Capture>>;
  return *made;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

int next_number() {
  static int last = 0;
  return ++last;
}

capture::Stream* legacy(int device) {
  static capture::Stream* made[64] = {};
  if (!made[device]) made[device] = new capture::Stream{0, device, true, 0};
  return made[device];
}

capture::Stream* per_thread() {
  thread_local capture::Stream own{next_number(), devices::current(), true, 0};
  return &own;
}

cudaError_t invalidate(capture::Capture& recording, cudaError_t error) {
  recording.valid = false;
  return errors::result(error);
}

// Whether a recording forbids this thread the calls that are unsafe while it runs.
bool forbids(const capture::Capture& recording) {
  bool mine = recording.thread == std::this_thread::get_id();
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  if (mine) return recording.mode != cudaStreamCaptureModeRelaxed;
  return thread_mode == cudaStreamCaptureModeGlobal && recording.mode == cudaStreamCaptureModeGlobal;
}

void join(std::vector<capture::Node*>& nodes, const std::vector<capture::Node*>& more) {
  for (auto* node : more)
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
}

// Whether another stream has work in the recording that the origin does not wait for.
bool has_unjoined(const capture::Capture& recording) {
  std::set<capture::Node*> waited_for(recording.last.at(recording.origin).begin(),
                                      recording.last.at(recording.origin).end());
  for (auto& node : recording.graph->nodes) waited_for.insert(node->after.begin(), node->after.end());
  return std::any_of(recording.last.begin(), recording.last.end(), [&](auto& of_stream) {
    return std::any_of(of_stream.second.begin(), of_stream.second.end(),
                       [&](capture::Node* node) { return !waited_for.count(node); });
  });
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

namespace capture {

Node* Graph::add(work::Work piece, std::vector<Node*> after) {
  nodes.push_back(std::make_unique<Node>(Node{std::move(piece), std::move(after)}));
  return nodes.back().get();
}

bool is_legacy(cudaStream_t handle) { return !handle || handle == cudaStreamLegacy; }

Stream* stream_of(cudaStream_t handle) {
  if (is_legacy(handle)) return legacy(devices::current());
  if (handle == cudaStreamPerThread) return per_thread();
  auto* stream = reinterpret_cast<Stream*>(handle);
  return streams().count(stream) ? stream : nullptr;
}

cudaStream_t create(bool blocking, int priority) {
  Guard guard(lock());
  auto* stream = new Stream{next_number(), devices::current(), blocking, priority};
  streams().insert(stream);
  return reinterpret_cast<cudaStream_t>(stream);
}

bool destroy(cudaStream_t handle) {
  Guard guard(lock());
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (!streams().erase(stream)) return false;
  if (auto* recording = of(stream)) {
    recording->valid = false;
    if (recording->origin != stream) recording->last.erase(stream);
  }
  delete stream;
  return true;
}

Capture* of(Stream* stream) {
  for (auto& recording : recordings())
    if (recording->last.count(stream)) return recording.get();
  return nullptr;
}

Capture* numbered(unsigned long long number) {
  for (auto& recording : recordings())
    if (recording->number == number) return recording.get();
  return nullptr;
}

cudaError_t may_be_unsafe() {
  Guard guard(lock());
  cudaError_t error = cudaSuccess;
  for (auto& recording : recordings())
    if (forbids(*recording)) error = invalidate(*recording, cudaErrorStreamCaptureUnsupported);
  return error;
}

cudaError_t may_wait_for(cudaStream_t handle) {
  Guard guard(lock());
  auto* stream = stream_of(handle);
  if (!stream) return errors::result(cudaErrorInvalidResourceHandle);
  if (auto* recording = of(stream)) return invalidate(*recording, cudaErrorStreamCaptureUnsupported);
  if (auto error = may_use_legacy(handle)) return error;
  return may_be_unsafe();
}

cudaError_t may_wait_for_device() {
  Guard guard(lock());
  for (auto& recording : recordings())
    if (recording->origin->device == devices::current())
      return invalidate(*recording, cudaErrorStreamCaptureUnsupported);
  return may_be_unsafe();
}

cudaError_t may_use_legacy(cudaStream_t handle) {
  Guard guard(lock());
  if (!is_legacy(handle)) return cudaSuccess;
  for (auto& recording : recordings())
    for (auto& [stream, nodes] : recording->last)
      if (stream->blocking && stream->device == devices::current())
        return invalidate(*recording, cudaErrorStreamCaptureImplicit);
  return cudaSuccess;
}

cudaError_t may_be_staged(cudaStream_t handle) {
  Guard guard(lock());
  auto* stream = stream_of(handle);
  if (auto* recording = stream ? of(stream) : nullptr)
    return invalidate(*recording, cudaErrorStreamCaptureUnsupported);
  return cudaSuccess;
}

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode, Graph* into, std::vector<Node*> after) {
  Guard guard(lock());
  static unsigned long long last = 0;
  auto* stream = stream_of(handle);
  if (!stream) return errors::result(cudaErrorInvalidResourceHandle);
  if (is_legacy(handle)) return errors::result(cudaErrorStreamCaptureUnsupported);
  if (of(stream)) return errors::result(cudaErrorIllegalState);
  auto recording = std::make_unique<Capture>();
  recording->number = ++last;
  recording->mode = mode;
  recording->thread = std::this_thread::get_id();
  recording->origin = stream;
  recording->owns_graph = !into;
  recording->graph = into ? into : new Graph;
  recording->last[stream] = std::move(after);
  recordings().push_back(std::move(recording));
  counting::note("graph", "begin");
  return cudaSuccess;
}

cudaError_t end(cudaStream_t handle, Graph** graph) {
  Guard guard(lock());
  *graph = nullptr;
  auto* stream = stream_of(handle);
  auto* recording = stream ? of(stream) : nullptr;
  if (!recording) return errors::result(cudaErrorIllegalState);
  if (recording->origin != stream) return invalidate(*recording, cudaErrorStreamCaptureUnmatched);
  if (recording->mode != cudaStreamCaptureModeRelaxed && recording->thread != std::this_thread::get_id())
    return errors::result(cudaErrorStreamCaptureWrongThread);
  cudaError_t error = !recording->valid           ? cudaErrorStreamCaptureInvalidated
                      : has_unjoined(*recording) ? cudaErrorStreamCaptureUnjoined
                                                 : cudaSuccess;
  if (!error) *graph = recording->graph;
  if (error && recording->owns_graph) delete recording->graph;
  recordings().erase(std::find_if(recordings().begin(), recordings().end(),
                                  [&](auto& one) { return one.get() == recording; }));
  counting::note("graph", "end");
  return errors::result(error);
}

cudaError_t record(Event& event, cudaStream_t handle, bool external) {
  Guard guard(lock());
  auto* stream = stream_of(handle);
  if (!stream) return errors::result(cudaErrorInvalidResourceHandle);
  if (auto error = may_use_legacy(handle)) return error;
  auto* recording = of(stream);
  if (!recording || external) {
    event.captured = 0;
    event.recorded = true;
    event.at = now();
    return work::submit(handle, {cudaGraphNodeTypeEventRecord, "event", "cudaEventRecord", 0,
                                 counting::text("stream %d", stream->number), {}});
  }
  if (!recording->valid) return errors::result(cudaErrorStreamCaptureInvalidated);
  event.recorded = true;
  event.captured = recording->number;
  event.nodes = recording->last[stream];
  return cudaSuccess;
}

cudaError_t wait(cudaStream_t handle, Event& event, bool external) {
  Guard guard(lock());
  auto* stream = stream_of(handle);
  if (!stream) return errors::result(cudaErrorInvalidResourceHandle);
  if (auto error = may_use_legacy(handle)) return error;
  auto* recording = of(stream);
  if (external || (!recording && !event.captured))
    return work::submit(handle, {cudaGraphNodeTypeWaitEvent, "event", "cudaStreamWaitEvent", 0,
                                 counting::text("stream %d", stream->number), {}});
  if (recording && !recording->valid) return errors::result(cudaErrorStreamCaptureInvalidated);
  if (!event.recorded) return cudaSuccess;  // a wait for an event without a record waits for nothing
  if (!event.captured) return invalidate(*recording, cudaErrorStreamCaptureIsolation);
  auto* theirs = numbered(event.captured);
  if (!theirs) return errors::result(cudaErrorCapturedEvent);
  if (!theirs->valid) return errors::result(cudaErrorStreamCaptureInvalidated);
  if (recording && recording != theirs) {
    recording->valid = false;
    return invalidate(*theirs, cudaErrorStreamCaptureMerge);
  }
  if (is_legacy(handle)) return invalidate(*theirs, cudaErrorStreamCaptureImplicit);
  join(theirs->last[stream], event.nodes);
  return cudaSuccess;
}

cudaStreamCaptureMode exchange_mode(cudaStreamCaptureMode mode) { return std::exchange(thread_mode, mode); }

}  // namespace capture

namespace work {

void perform(const Work& piece) {
  counting::note(piece.kind, piece.name, piece.bytes, piece.detail);
  if (piece.effect) piece.effect();
}

cudaError_t submit(cudaStream_t handle, Work piece) {
  {
    Guard guard(lock());
    auto* stream = capture::stream_of(handle);
    if (!stream) return errors::result(cudaErrorInvalidResourceHandle);
    if (auto error = capture::may_use_legacy(handle)) return error;
    if (auto* recording = capture::of(stream)) {
      if (!recording->valid) return errors::result(cudaErrorStreamCaptureInvalidated);
      counting::note("captured", piece.kind);
      auto& last = recording->last[stream];
      last = {recording->graph->add(std::move(piece), last)};
      return cudaSuccess;
    }
  }
  perform(piece);
  return cudaSuccess;
}

}  // namespace work
