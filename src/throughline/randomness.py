"""Random numbers that are the same on every machine and with every version of numpy.

numpy guarantees the raw words of its counter-based generator Philox, but not the numbers that its class Generator
computes from them. We compute our numbers from the raw words ourselves, with arithmetic that every language has.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class Stream:
    """A stream of 64-bit words. Each list of names (seed, shard, copy, purpose ...) has its own stream."""

    def __init__(self, *names: str | int) -> None:
        key = hashlib.sha256("/".join(map(str, names)).encode()).digest()[:16]
        self._bits = np.random.Philox(key=int.from_bytes(key, "little"))

    def words(self, *shape: int) -> Words:
        """Return the next words of the stream: uint64[shape]."""
        return self._bits.random_raw(int(np.prod(shape))).reshape(shape)


def below(words: Words, bound: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return integers in [0, bound), bound < 2**32, from each word's upper half (a bias of at most bound / 2**32)."""
    scaled = (words >> np.uint64(32)) * bound.astype(np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def uniform(words: Words) -> NDArray[np.float64]:
    """Return numbers in [0, 1) in steps of 2**-32, from each word's upper half."""
    return (words >> np.uint64(32)).astype(np.float64) * 2.0**-32


def splitmix64(words: Words) -> Words:
    """Return the output of a splitmix64 generator for each state in `words`."""
    z = words + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
