// cuDNN's newer interface: a program describes a graph of operations with generic descriptors, asks for engines, and
// executes a plan. A descriptor keeps what it is told, so that an execution can tell its operations.
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "counting.h"
#include "cudnn.h"

namespace {

// Numbers of cudnnBackendDescriptorType_t and cudnnBackendAttributeName_t (cudnn_graph.h)
enum Kind { engine = 2, engine_configuration = 3, operation_graph = 15 };
enum Name {
  heuristic_graph = 201, heuristic_results = 202,
  configuration_engine = 300, configuration_workspace = 303, configuration_shared = 304,
  plan_configuration = 401, plan_workspace = 402, plan_json = 405,
  graph_operations = 801, graph_engines = 802,
  engine_graph = 1300, engine_index = 1301,
};
constexpr int type_descriptor = 15;

struct Attribute {
  int type;
  int64_t count;
  std::vector<char> bytes;
};

struct Descriptor {
  int kind;
  std::map<int, Attribute> attributes;
};

// A program may destroy a descriptor that another one refers to. So a reference is a copy of its attributes, shared.
std::vector<Descriptor*>& kept() {
  static auto* made = new std::vector<Descriptor*>;
  return *made;
}

size_t width(int type) {
  switch (type) {
    case 0: case 3: case 5: case 6: case 15: case 26: return 8;  // handle, int64, double, pointer, descriptor, fraction
    case 2: case 24: return 1;                                    // boolean, char
    default: return 4;
  }
}

Descriptor* child(const Descriptor* of, int name, int64_t index = 0) {
  auto found = of->attributes.find(name);
  if (found == of->attributes.end() || index >= found->second.count) return nullptr;
  Descriptor* made;
  memcpy(&made, found->second.bytes.data() + index * 8, 8);
  return made;
}

void set(Descriptor* descriptor, int name, int type, int64_t count, const void* values) {
  Attribute attribute{type, count, {}};
  auto* from = static_cast<const char*>(values);
  attribute.bytes.assign(from, from + count * width(type));
  if (type == type_descriptor)
    for (int64_t i = 0; i < count; i++) {
      Descriptor* given;
      memcpy(&given, attribute.bytes.data() + i * 8, 8);
      auto* copy = new Descriptor(*given);
      kept().push_back(copy);
      memcpy(attribute.bytes.data() + i * 8, &copy, 8);
    }
  descriptor->attributes[name] = std::move(attribute);
}

const char* operation_name(int kind) {
  switch (kind) {
    case 10: return "convolution forward";
    case 11: return "convolution backward filter";
    case 12: return "convolution backward data";
    case 13: return "pointwise";
    case 19: return "matmul";
    case 22: return "reduction";
    case 25: return "resample forward";
    case 26: return "resample backward";
    case 29: return "norm forward";
    case 30: return "norm backward";
    case 31: return "reshape";
    case 33: return "random numbers";
    case 41: return "attention forward";
    case 43: return "attention backward";
    case 45: return "softmax";
    default: return "another operation";
  }
}

// The graph of a plan, or null. A plan that was made from JSON has none.
const Descriptor* graph_of(const Descriptor* plan) {
  auto* configuration = child(plan, plan_configuration);
  auto* its_engine = configuration ? child(configuration, configuration_engine) : nullptr;
  return its_engine ? child(its_engine, engine_graph) : nullptr;
}

// A graph with two products and a softmax between them is an attention, forward with two and backward with more.
std::string words(const Descriptor* graph) {
  if (!graph) return "unknown";
  std::multiset<std::string> names;
  for (int64_t i = 0; auto* operation = child(graph, graph_operations, i); i++)
    names.insert(operation_name(operation->kind));
  auto products = names.count("matmul");
  if (products == 2) return "attention forward";
  if (products > 2) return "attention backward";
  for (auto& name : names)
    if (name != "pointwise" && name != "reshape") return name;
  return names.empty() ? "unknown" : *names.begin();
}

// The heuristic knows one engine for every graph. It fills the first configuration that it is given.
int64_t answer_heuristic(const Descriptor* heuristic, int64_t asked, void* values) {
  if (asked < 1 || !values) return 1;
  Descriptor* configuration;
  memcpy(&configuration, values, 8);
  Descriptor found{engine, {}};
  int64_t index = 0;
  if (auto* graph = child(heuristic, heuristic_graph)) set(&found, engine_graph, type_descriptor, 1, &graph);
  set(&found, engine_index, 3, 1, &index);
  auto* pointer = &found;
  set(configuration, configuration_engine, type_descriptor, 1, &pointer);
  return 1;
}

// What a descriptor knows without having been told.
int64_t answer_unset(int name, int64_t asked, void* values) {
  switch (name) {
    case configuration_workspace: case configuration_shared: case plan_workspace: case engine_index:
    case graph_engines: {
      int64_t value = name == graph_engines ? 1 : 0;
      if (asked && values) memcpy(values, &value, name == configuration_shared ? 4 : 8);
      return 1;
    }
    case plan_json:
      if (asked && values) *static_cast<char*>(values) = 0;
      return 1;
    default: return 0;  // no notes about numerics or behaviour, no knobs
  }
}

}  // namespace

extern "C" {

int cudnnBackendCreateDescriptor(int kind, void** made) {
  *made = new Descriptor{kind, {}};
  return cudnn::success;
}

int cudnnBackendDestroyDescriptor(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return cudnn::success;
}

int cudnnBackendFinalize(void*) { return cudnn::success; }

int cudnnBackendSetAttribute(void* descriptor, int name, int type, int64_t count, const void* values) {
  counting::Guard guard(counting::lock());
  set(static_cast<Descriptor*>(descriptor), name, type, count, values);
  return cudnn::success;
}

int cudnnBackendGetAttribute(void* handle, int name, int type, int64_t asked, int64_t* count, void* values) {
  counting::Guard guard(counting::lock());
  auto* descriptor = static_cast<Descriptor*>(handle);
  auto found = descriptor->attributes.find(name);
  int64_t known;
  if (name == heuristic_results) {
    known = answer_heuristic(descriptor, asked, values);
  } else if (found == descriptor->attributes.end()) {
    known = answer_unset(name, asked, values);
  } else {
    known = found->second.count;
    for (int64_t i = 0; values && i < asked && i < known; i++) {
      if (type != type_descriptor) {
        memcpy(static_cast<char*>(values) + i * width(type), found->second.bytes.data() + i * width(type), width(type));
        continue;
      }
      Descriptor* to;
      memcpy(&to, static_cast<char*>(values) + i * 8, 8);
      if (to) *to = *child(descriptor, name, i);  // the caller gives descriptors of its own to be filled
    }
  }
  if (count) *count = known;
  return cudnn::success;
}

int cudnnBackendExecute(void* handle, void* plan, void*) {
  auto operation = words(graph_of(static_cast<Descriptor*>(plan)));
  return cudnn::run(handle, ("cudnnBackendExecute " + operation).c_str());
}
}
