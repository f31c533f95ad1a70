"""From tokens to shards: pairs of segments, examples with or without masks, their files, and the proof of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from throughline.files import UserError


@dataclass(frozen=True)
class Parameters:
    """How examples of a length are made: `sequence` and `predictions` count tokens, the next two are shares."""

    sequence: int
    predictions: int
    probability: float = 0.15
    short_sequences: float = 0.1
    copies: int = 5
    seed: int = 12345
    dynamic: bool = False  # the examples are not masked; masks.py does that while they are read

    def __post_init__(self) -> None:
        sequence, predictions = self.sequence, self.predictions
        for fine, what in (
            (5 <= sequence <= 1 << 15, f"sequence {sequence} is not between 5 and 32768"),
            (1 <= predictions <= sequence - 3, f"predictions {predictions} is not between 1 and sequence - 3"),
            (0 < self.probability < 1, f"masking probability {self.probability} is not between 0 and 1"),
            (0 <= self.short_sequences <= 1, f"short_sequences {self.short_sequences} is not between 0 and 1"),
            (self.copies >= 1, f"copies {self.copies} is less than 1"),
        ):
            if not fine:
                raise UserError(what, next_step="correct corpus.sequences or corpus.masking in config.yaml")

    def described(self) -> dict[str, Any]:
        """The parameters by name; what was added later and is off is left out, and changes no file."""
        return {name: value for name, value in asdict(self).items() if name != "dynamic" or value}

    def recorded(self, vocabulary_sha256: str) -> dict[str, Any]:
        """What a shard's attribute `parameters` holds."""
        return {**self.described(), "vocabulary_sha256": vocabulary_sha256}

    @classmethod
    def from_json(cls, text: str) -> Parameters:
        """Parameters from a JSON object; UserError for a name that is unknown or missing."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise UserError(
                f"not the parameters of a shard: {text}",
                why=str(error).replace("Parameters.__init__() ", ""),
                next_step=f"give a JSON object of {', '.join(field.name for field in fields(cls))}",
            ) from None
