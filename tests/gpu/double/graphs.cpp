// Graphs: how a recording begins and ends, what is in a graph, and its launch, which does its nodes in their order.
#include <algorithm>
#include <memory>
#include <set>

#include "capture.h"
#include "counting.h"
#include "errors.h"
#include "work.h"

using capture::Graph;
using capture::Node;
using counting::Guard;
using counting::lock;

namespace {

// An executable graph keeps its own copy of the nodes, because the graph may be destroyed before it.
using Executable = std::shared_ptr<const std::vector<work::Work>>;

Graph* graph_of(cudaGraph_t handle) { return reinterpret_cast<Graph*>(handle); }
Node* node_of(cudaGraphNode_t handle) { return reinterpret_cast<Node*>(handle); }

std::vector<Node*> nodes_of(const cudaGraphNode_t* handles, size_t count) {
  std::vector<Node*> nodes;
  for (size_t i = 0; i < count; i++) nodes.push_back(node_of(handles[i]));
  return nodes;
}

// Fill the caller's array as the runtime does: without an array tell the number, with one at most as many as fit.
void hand_out(const std::vector<Node*>& nodes, cudaGraphNode_t* to, size_t* count) {
  for (size_t i = 0; to && i < *count; i++)
    to[i] = i < nodes.size() ? reinterpret_cast<cudaGraphNode_t>(nodes[i]) : nullptr;
  *count = to ? std::min(*count, nodes.size()) : nodes.size();
}

void launch(const Executable& nodes) {
  for (auto& piece : *nodes) {
    counting::note("replayed", piece.kind);
    work::perform(piece);
  }
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return capture::begin(stream, mode, nullptr, {});
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* after,
                                          const cudaGraphEdgeData*, size_t count, cudaStreamCaptureMode mode) {
  return capture::begin(stream, mode, graph_of(graph), nodes_of(after, count));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Graph* made;
  auto error = capture::end(stream, &made);
  *graph = reinterpret_cast<cudaGraph_t>(made);
  return error;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  Guard guard(lock());
  auto* stream = capture::stream_of(handle);
  if (!stream) return errors::result(cudaErrorInvalidResourceHandle);
  if (auto error = capture::may_use_legacy(handle)) return error;
  auto* recording = capture::of(stream);
  *status = !recording         ? cudaStreamCaptureStatusNone
            : recording->valid ? cudaStreamCaptureStatusActive
                               : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* number,
                                     cudaGraph_t* graph, const cudaGraphNode_t** after,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  Guard guard(lock());
  if (auto error = cudaStreamIsCapturing(handle, status)) return error;
  auto* recording = capture::of(capture::stream_of(handle));
  if (!recording) return cudaSuccess;
  auto& last = recording->last[capture::stream_of(handle)];
  if (number) *number = recording->number;
  if (graph) *graph = reinterpret_cast<cudaGraph_t>(recording->graph);
  if (after) *after = reinterpret_cast<const cudaGraphNode_t*>(last.data());
  if (edges) *edges = nullptr;
  if (count) *count = last.size();
  return cudaSuccess;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* after, const cudaGraphEdgeData*,
                                                size_t count, unsigned flags) {
  Guard guard(lock());
  auto* stream = capture::stream_of(handle);
  auto* recording = stream ? capture::of(stream) : nullptr;
  if (!recording || !recording->valid) return errors::result(cudaErrorIllegalState);
  auto& last = recording->last[stream];
  if (flags == cudaStreamSetCaptureDependencies) last.clear();
  for (auto* node : nodes_of(after, count)) last.push_back(node);
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  *mode = capture::exchange_mode(*mode);
  return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  *graph = reinterpret_cast<cudaGraph_t>(new Graph);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph_of(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  std::vector<Node*> all;
  for (auto& node : graph_of(graph)->nodes) all.push_back(node.get());
  hand_out(all, nodes, count);
  return cudaSuccess;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = node_of(node)->piece.type;
  return cudaSuccess;
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* after, cudaGraphEdgeData*,
                                         size_t* count) {
  hand_out(node_of(node)->after, after, count);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  auto nodes = std::make_shared<std::vector<work::Work>>();
  for (auto& node : graph_of(graph)->nodes) nodes->push_back(node->piece);
  counting::note("graph", "instantiate");
  *made = reinterpret_cast<cudaGraphExec_t>(new Executable(nodes));
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(made, graph, flags);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete reinterpret_cast<Executable*>(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

// A launch into a recording becomes one node of it, a child graph.
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  Executable nodes = *reinterpret_cast<Executable*>(graph);
  return work::submit(stream, {cudaGraphNodeTypeGraph, "graph", "launch", 0,
                               counting::text("%zu nodes", nodes->size()), [nodes] { launch(nodes); }});
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  *mode = CUstreamCaptureMode(capture::exchange_mode(cudaStreamCaptureMode(*mode)));
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return errors::driver(cudaStreamIsCapturing(stream, reinterpret_cast<cudaStreamCaptureStatus*>(status)));
}
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* number, CUgraph* graph,
                                   const CUgraphNode** after, size_t* count) {
  unsigned long long known = 0;
  auto error = cudaStreamGetCaptureInfo(stream, reinterpret_cast<cudaStreamCaptureStatus*>(status), &known, graph,
                                        after, nullptr, count);
  if (number) *number = known;
  return errors::driver(error);
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return errors::driver(cudaStreamBeginCapture(stream, cudaStreamCaptureMode(mode)));
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return errors::driver(cudaStreamEndCapture(stream, graph));
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long flags) {
  return errors::driver(cudaGraphInstantiateWithFlags(made, graph, flags));
}
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) { return errors::driver(cudaGraphLaunch(graph, stream)); }
CUresult cuGraphDestroy(CUgraph graph) { return errors::driver(cudaGraphDestroy(graph)); }
CUresult cuGraphExecDestroy(CUgraphExec graph) { return errors::driver(cudaGraphExecDestroy(graph)); }
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return errors::driver(cudaGraphGetNodes(graph, nodes, count));
}
}
