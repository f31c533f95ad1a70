// The few kernels that the fake driver carries out, because a program reads their results and would stop or loop without.
#pragma once
#include <functional>

namespace effects {

// What a launch of this kernel does, with its arguments copied; nothing for every other kernel.
std::function<void()> of(const char* mangled, void** arguments);

}  // namespace effects
