// The cards that the fake driver answers for.
#pragma once
#include <cstddef>
#include <string>

namespace devices {

struct Card {
  const char* name;
  int major, minor, processors;
  size_t mebibytes;
  int shared_per_processor, shared_per_block, threads_per_processor, blocks_per_processor;
  int l2_mebibytes, bus_bits, memory_khz, clock_khz;
};

int count();
const Card& card();
std::string name();
int capability();            // 90 for 9.0
size_t memory();             // bytes of one card
int current();               // of this thread
bool select(int device);     // false if there is no such device
int attribute(int number);   // CUdevice_attribute and cudaDeviceAttr have the same numbers

}  // namespace devices
