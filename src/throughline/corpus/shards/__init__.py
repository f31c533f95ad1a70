"""From tokens to shards: pairs of segments, examples with or without masks, files, their verification and manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from throughline.files import UserError


@dataclass(frozen=True)
class Parameters:
    """How examples of one sequence length are made.

    `sequence_length` and `predictions` are numbers of tokens, `probability` and `short_sequences` shares from 0 to 1.
    """

    sequence_length: int
    predictions: int
    probability: float = 0.15
    short_sequences: float = 0.1
    dupe_factor: int = 5
    seed: int = 12345
    dynamic: bool = False  # the examples are stored without masks; masks.py masks them while they are read

    def __post_init__(self) -> None:
        whole = 5 <= self.sequence_length <= 1 << 15 and 1 <= self.predictions <= self.sequence_length - 3
        if not (whole and 0 < self.probability < 1 and 0 <= self.short_sequences <= 1 <= self.dupe_factor):
            raise UserError(
                f"no shard can be made with these parameters: {self}",
                why="sequence_length is 5 to 32768, predictions 1 to sequence_length - 3, dupe_factor at least 1, "
                "probability and short_sequences are shares",
                next_step="correct corpus.sequences or corpus.masking in config.yaml",
            )

    def described(self) -> dict[str, Any]:
        """Return the parameters by name, without `dynamic` if it is off."""
        return {name: value for name, value in asdict(self).items() if name != "dynamic" or value}

    def recorded(self, vocabulary_sha256: str) -> dict[str, Any]:
        """Return the content of a shard's attribute `parameters`."""
        return {**self.described(), "vocabulary_sha256": vocabulary_sha256}
