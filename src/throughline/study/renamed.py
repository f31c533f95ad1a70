"""The keys of version 0.3 that have another name since 0.4.0, or are gone: what an error says.

docs/reference/from-0.3-to-0.4.md lists them too. A test fails if it lacks one of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

BLOCK = "benchmarks.<name>"
NAMED = ("benchmarks", "prices")
"""Sections whose keys are names that the user chooses."""
KEYS: Mapping[str, Mapping[str, str]] = {
    BLOCK: {
        "sequence": "sequence_length",
        "samples_per_step": "global_batch",
        "task_samples": "total_samples",
        "at_least_s": "min_seconds",
    },
    "options": {
        "accumulate": "gradient_accumulation",
        "checkpointing": "activation_checkpointing",
        "decoder": "image_decoder",
        "exchange": "gradient_sync",
        "exchange_dtype": "reduce_dtype",
        "experts": "expert_parallel",
        "graph": "cuda_graph",
        "replicate": "hybrid_shard_groups",
        "tensor": "tensor_parallel",
        "unpadded": "remove_padding",
    },
    "steps": {"at_most_s": "max_total_seconds", "at_least_s": "min_window_seconds"},
    "accept": {"at_least_s": "min_seconds"},
    "goals": {"mean_use": "mean_utilization"},
    "masking": {"copies": "dupe_factor"},
}
"""Map each section, by its own key, to its old keys and their new names."""
GONE: Mapping[str, Mapping[str, str]] = {
    "": {"machines": "compare.against, which takes folders of results too"},
    BLOCK: {"deadline_hours": "total_samples: the report has hours and price"},
    "clicks": {
        "values": "logs as clicks.source",
        "malformed_at_most": "logs of which at most 1 % of the lines are malformed",
    },
    "corpus": {
        "keep": "nothing: you may remove articles and tokens of a finished corpus",
        "memory_mb": "nothing: a job holds at most 256 MB",
        "unpacked": "nothing: shards are compressed",
    },
    "prices.<name>": {"hours_a_year": "per_hour, the price divided by the hours of use"},
}
"""Map each section to its keys that are gone, and what to use."""
VALUES: Mapping[str, Mapping[Any, str]] = {
    "sharding": {"optimizer": "zero1", "optimizer_gradients": "shard_grad_op", "full": "full_shard"},
    "cuda_graph": {False: "none", True: "step"},
    "extras": {"noexchange": "no_gradient_sync"},
}
"""Map each key to its old values and their new names."""


def of_key(keys: Sequence[Any]) -> str | None:
    """Return the new name of the key at the end of a path of keys, such as [benchmarks, b, options, accumulate].

    None if the key was not renamed. For a key that is gone, return what to use.
    """
    above = ["<name>" if number == 1 and keys[0] in NAMED else key for number, key in enumerate(keys[:-1])]
    section = f".{'.'.join(map(str, above))}"
    for table, text in ((KEYS, "{}"), (GONE, "gone; use {}")):
        for name, names in table.items():
            if section.endswith(f".{name}") and keys[-1] in names:
                return text.format(names[keys[-1]])
    return None


def of_value(keys: Sequence[Any], value: Any) -> str | None:
    """Return the new name of a value of the key at the end of a path; None if it was not renamed."""
    key = next((key for key in reversed(keys) if isinstance(key, str)), "")
    return VALUES.get(key, {}).get(value) if isinstance(value, (str, bool)) else None
