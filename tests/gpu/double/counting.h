// What the process asked of the fake driver: every call with a kind, a name, bytes and a detail.
#pragma once
#include <cstddef>
#include <mutex>
#include <string>

namespace counting {

// One lock guards all state of the fake driver. It is recursive, because calls build on each other.
std::recursive_mutex& lock();
using Guard = std::lock_guard<std::recursive_mutex>;

// `detail` tells equal calls apart where that is useful (a shape, a grid). It must not hold an address.
void note(const std::string& kind, const std::string& name, size_t bytes = 0, const std::string& detail = "");

// The text of printf, as a string.
std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace counting
