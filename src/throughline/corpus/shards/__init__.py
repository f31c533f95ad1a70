"""From tokens to shards: pairs of segments, examples with or without masks, files, their verification and manifest."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Parameters:
    """How examples of one sequence length are made.

    `sequence_length` and `predictions` are numbers of tokens, `probability` and `short_sequences` shares from 0 to 1.
    study/corpus_section.py has the limits; kernel.c takes sequences of at most 32,768 tokens.
    """

    sequence_length: int
    predictions: int
    probability: float = 0.15
    short_sequences: float = 0.1
    dupe_factor: int = 5
    seed: int = 12345
    dynamic: bool = False  # the examples are stored without masks; masks.py masks them while they are read

    def described(self) -> dict[str, Any]:
        """Return the parameters by name, without `dynamic` if it is off."""
        return {name: value for name, value in asdict(self).items() if name != "dynamic" or value}

    def recorded(self, vocabulary_sha256: str) -> dict[str, Any]:
        """Return the content of a shard's attribute `parameters`."""
        return {**self.described(), "vocabulary_sha256": vocabulary_sha256}
