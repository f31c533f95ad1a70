#include "counting.h"

#include <cstdarg>
#include <cstdio>
#include <map>
#include <tuple>

namespace {

struct Total {
  long count = 0;
  size_t bytes = 0;
};

// PyTorch registers its kernels in static constructors, which may run before ours, and frees memory in destructors,
// which may run after ours. So state is made at its first use and never destroyed. This holds in every file.
struct Ledger {
  std::map<std::tuple<std::string, std::string, std::string>, Total> totals;
  FILE* trace = nullptr;
};

Ledger& ledger() {
  static auto* made = new Ledger;
  return *made;
}

// Add up the totals of equal kind and name.
std::map<std::pair<std::string, std::string>, Total> by_name() {
  std::map<std::pair<std::string, std::string>, Total> sums;
  for (auto& [key, total] : ledger().totals) {
    auto& sum = sums[{std::get<0>(key), std::get<1>(key)}];
    sum.count += total.count;
    sum.bytes += total.bytes;
  }
  return sums;
}

}  // namespace

namespace counting {

std::recursive_mutex& lock() {
  static auto* made = new std::recursive_mutex;
  return *made;
}

void note(const std::string& kind, const std::string& name, size_t bytes, const std::string& detail) {
  Guard guard(lock());
  auto& total = ledger().totals[{kind, name, detail}];
  total.count++;
  total.bytes += bytes;
  if (ledger().trace) {
    fprintf(ledger().trace, "%s\t%s\t%zu\t%s\n", kind.c_str(), name.c_str(), bytes, detail.c_str());
    fflush(ledger().trace);  // a process that is killed leaves a complete trace
  }
}

std::string text(const char* format, ...) {
  char made[512];
  va_list values;
  va_start(values, format);
  vsnprintf(made, sizeof made, format, values);
  va_end(values);
  return made;
}

}  // namespace counting

extern "C" {

// A process that finds this symbol has a double and no GPU. The product asks for it in every rank.
const char* null_cuda_present() { return "a fake CUDA driver that computes nothing"; }

void null_cuda_reset() {
  counting::Guard guard(counting::lock());
  ledger().totals.clear();
}

int null_cuda_dump(const char* path) {
  counting::Guard guard(counting::lock());
  FILE* file = fopen(path, "w");
  if (!file) return -1;
  for (auto& [key, total] : by_name())
    fprintf(file, "%ld\t%s\t%s\n", total.count, key.first.c_str(), key.second.c_str());
  return fclose(file);
}

int null_cuda_dump_bytes(const char* path) {
  counting::Guard guard(counting::lock());
  FILE* file = fopen(path, "w");
  if (!file) return -1;
  for (auto& [key, total] : by_name())
    fprintf(file, "%ld\t%zu\t%s\t%s\n", total.count, total.bytes, key.first.c_str(), key.second.c_str());
  return fclose(file);
}

int null_cuda_dump_details(const char* path) {
  counting::Guard guard(counting::lock());
  FILE* file = fopen(path, "w");
  if (!file) return -1;
  for (auto& [key, total] : ledger().totals)
    fprintf(file, "%ld\t%zu\t%s\t%s\t%s\n", total.count, total.bytes, std::get<0>(key).c_str(),
            std::get<1>(key).c_str(), std::get<2>(key).c_str());
  return fclose(file);
}

// Write every call from now on, in its order. A null pointer ends the trace.
int null_cuda_trace(const char* path) {
  counting::Guard guard(counting::lock());
  if (ledger().trace) fclose(ledger().trace);
  ledger().trace = path ? fopen(path, "w") : nullptr;
  return path && !ledger().trace ? -1 : 0;
}

// What a test writes into the trace between calls of its own.
void null_cuda_note(const char* name) { counting::note("mark", name); }
}
