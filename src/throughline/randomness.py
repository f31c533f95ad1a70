"""Random numbers that are the same everywhere and for ever: raw words of a counter-based generator.

numpy promises these, not what its Generator makes of them. That stands here, in arithmetic that any language has.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class Stream:
    """A stream of 64-bit words of its own for every list of names (seed, shard, copy, purpose ...)."""

    def __init__(self, *names: str | int) -> None:
        key = hashlib.sha256("/".join(map(str, names)).encode()).digest()[:16]
        self._bits = np.random.Philox(key=int.from_bytes(key, "little"))

    def words(self, *shape: int) -> Words:
        """The next words of the stream, u8[shape]."""
        return self._bits.random_raw(int(np.prod(shape))).reshape(shape)


def below(words: Words, bound: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integers in [0, bound), bound < 2**32, from each word's upper half (a bias of at most bound / 2**32)."""
    scaled = (words >> np.uint64(32)) * bound.astype(np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def uniform(words: Words) -> NDArray[np.float64]:
    """Numbers in [0, 1) in steps of 2**-32, from each word's upper half."""
    return (words >> np.uint64(32)).astype(np.float64) * 2.0**-32


def heads(words: Words, tosses: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of `tosses` fair coins show heads: set bits of the word, and of words mixed from it beyond 64."""
    count = np.zeros(len(words), dtype=np.int64)
    left, word, rows = tosses.copy(), words.copy(), np.flatnonzero(tosses > 0)
    while len(rows):
        used = np.minimum(left[rows], 64).astype(np.uint64)
        count[rows] += np.bitwise_count(word[rows] >> (np.uint64(64) - used))
        left[rows] -= 64
        rows = rows[left[rows] > 0]
        word[rows] = splitmix64(word[rows])
    return count


def splitmix64(words: Words) -> Words:
    """The next state of a splitmix64 generator, mixed."""
    z = words + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
