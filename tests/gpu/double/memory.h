// The memory of the cards and of the host, as the fake driver hands it out.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace memory {

enum class Kind { pageable, pinned, device };

struct Place {
  Kind kind = Kind::pageable;
  int device = 0;
  size_t start = 0, bytes = 0;  // the whole allocation
};

// Where an address is. An address that no call has handed out is the host's pageable memory.
Place place_of(const void* address);

// Remember or forget an address range. `add` is for memory that has been taken from a card already.
void add(size_t start, const Place& place);
void remove(size_t start);

// Take bytes from a card's memory, or give them back. False if the card has not as many left.
bool take(int device, size_t bytes);
void give_back(int device, size_t bytes);

}  // namespace memory
