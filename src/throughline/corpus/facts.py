"""What a corpus's manifest says, in words for a report."""

from collections.abc import Mapping, Sequence
from typing import Any


def of(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, text) of every fact; KeyError where the manifest is not that of a corpus."""
    shards, words, parameters = content["shards"], content["vocabulary"], content["parameters"]
    return [
        ("corpus", str(content["corpus"])),
        ("sequence length", f"{content['sequence']} tokens, at most {content['predictions']} of them predicted"),
        *([("masks", "drawn while reading, anew in each epoch")] if parameters.get("dynamic") else []),
        ("training rows", _rows([shard for shard in shards if shard["split"] == "training"])),
        ("test rows", _rows([shard for shard in shards if shard["split"] != "training"])),
        ("vocabulary", f"{words['size']:,} entries, sha256 {words['sha256'][:12]}…"),
        ("content digest", str(content["content_digest"])),
    ]


def _rows(shards: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(shard['rows'] for shard in shards):,} in {len(shards)} shard{'' if len(shards) == 1 else 's'}"
