"""What the manifest of a corpus says, as text for a report."""

from collections.abc import Mapping
from typing import Any


def rows(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (name, text) of every fact; KeyError if the manifest is not that of a corpus."""
    facts = [("corpus", str(content["corpus"]))]
    if "tokens" in content:
        unit = "tokens"
        text = f"{content['documents']:,} documents, read in windows at places drawn anew in each epoch"
        facts.append(("text", text))
    else:
        unit = "rows"
        length = f"{content['sequence_length']} tokens, at most {content['predictions']} of them predicted"
        facts.append(("sequence length", length))
        if content["parameters"].get("dynamic"):
            facts.append(("masks", "drawn while reading, anew in each epoch"))
    for split in ("training", "test"):
        shards = [shard for shard in content["shards"] if (shard["split"] == "training") == (split == "training")]
        count = f"{len(shards)} shard{'' if len(shards) == 1 else 's'}"
        facts.append((f"{split} {unit}", f"{sum(shard[unit] for shard in shards):,} in {count}"))
    words = content["vocabulary"]
    facts.append(("vocabulary", f"{words['size']:,} entries, sha256 {words['sha256'][:12]}…"))
    return [*facts, ("content digest", str(content["content_digest"]))]
