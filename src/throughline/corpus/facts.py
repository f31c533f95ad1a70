"""The facts in the manifest of a corpus, as text for a report."""

from collections.abc import Mapping, Sequence
from typing import Any


def of(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (name, text) of every fact; KeyError if the manifest is not that of a corpus."""
    shards, words = content["shards"], content["vocabulary"]
    unit, form = ("tokens", _of_tokens(content)) if "tokens" in content else ("rows", _of_pairs(content))
    return [
        ("corpus", str(content["corpus"])),
        *form,
        (f"training {unit}", _sum([shard for shard in shards if shard["split"] == "training"], unit)),
        (f"test {unit}", _sum([shard for shard in shards if shard["split"] != "training"], unit)),
        ("vocabulary", f"{words['size']:,} entries, sha256 {words['sha256'][:12]}…"),
        ("content digest", str(content["content_digest"])),
    ]


def _of_pairs(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    masks = [("masks", "drawn while reading, anew in each epoch")] if content["parameters"].get("dynamic") else []
    length = f"{content['sequence_length']} tokens, at most {content['predictions']} of them predicted"
    return [("sequence length", length), *masks]


def _of_tokens(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [("text", f"{content['documents']:,} documents, read in windows at places drawn anew in each epoch")]


def _sum(shards: Sequence[Mapping[str, Any]], unit: str) -> str:
    return f"{sum(shard[unit] for shard in shards):,} in {len(shards)} shard{'' if len(shards) == 1 else 's'}"
