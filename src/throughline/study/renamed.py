"""The keys of version 0.3 that have another name since 0.4.0, or are gone: what an error says, and
docs/reference/from-0.3-to-0.4.md.

`python -m throughline.study.renamed` writes the page. A test fails if the page is out of date.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from throughline.files import write_text

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "from-0.3-to-0.4.md"
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
    "": {"machines": "compare.against: it takes folders of results as well as archives"},
    BLOCK: {"deadline_hours": "total_samples: the report has hours and price of the whole training on each topology"},
    "clicks": {
        "values": "nothing: synthetic clicks have 20,000 different categories; for others, logs as clicks.source",
        "malformed_at_most": "logs of which at most 1 % of the lines are malformed",
    },
    "corpus": {
        "keep": "nothing: articles and tokens of a finished corpus may be removed (docs/explanation/method-corpus.md)",
        "memory_mb": "nothing: a job holds at most 256 MB of text and tokens",
        "unpacked": "nothing: shards are compressed, and training reads them faster than a GPU needs them",
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

HEADER = """# From 0.3 to 0.4

For those who have configurations or results of version 0.3. Version 0.4 reads neither: it uses the
names that the field uses, and it keeps no second name for anything.

1. Write the new names into your configuration. An old name is an error that says the new one.
2. Take a new folder for results, or remove the old one. A record, a summary or an archive of 0.3 is
   an error too: they have schema 2, and 0.4 reads schema 3. Version 0.3 can still read them.
3. Run again. Shards of text are made again as well, because their parameters have new names. Their
   rows are the same, and so is `content_digest` in their manifests.

This page is generated (`python -m throughline.study.renamed`).

JSON files under `results/` and columns of tables have the new names of keys too.
"""
LIST = """
## {title}

{rows}"""
FOOTER = """
`cuda_graph: step` records the whole step. `graph: true`, which recorded only its passes, is gone.
The results of the extra `no_gradient_sync` lie in `results/<benchmark>__no_gradient_sync/`.

## Names in files

The keys of a summary that DLPerf uses stay: `median_speed`, `average_speed`, `speedup` and
`batch_size_per_device`. So does `bz<batch>` in the names of files.

| 0.3 | 0.4 |
|---|---|
| JSON: `batch_per_device` | `batch` |
| JSON of a run: `window_at_least_s`, `proof` | `min_window_seconds`, `equivalence` |
| JSON of a summary: `mathematics` | `equivalence` |
| `tables/use.*`, `tables/work.*` | `tables/utilization.*`, `tables/flops.*` |
| columns `made_up_data`, `mathematics` | `synthetic_data`, `equivalence` |
| columns `doubts`, `use_share` | `implausible`, `utilization_share` |
| verdict `not told apart` | `inconclusive` |
| the script of doubts | `benchmarks/implausible.py` |

## A new key

`runs.decode_workers` is the number of processes that decode pictures for each worker. In 0.3 it was
`runs.threads`, which is still its default.
"""


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


def page() -> str:
    """Return the page as Markdown."""
    places = {"": "(at the top)", "options": f"{BLOCK}.options", "steps": "runs.steps", "masking": "corpus.masking"}
    keys, gone = ({places.get(section, section): names for section, names in of.items()} for of in (KEYS, GONE))
    return (
        HEADER
        + "".join(
            LIST.format(title=title, rows="".join(_rows(table, quoted)))
            for title, table, quoted in (("Keys", keys, "`"), ("Keys that are gone", gone, ""), ("Values", VALUES, "`"))
        )
        + FOOTER
    )


def _rows(table: Mapping[str, Mapping[Any, str]], quote: str) -> Iterator[str]:
    """Yield a line for each section or key: its old names, each with the new one or with what to use."""
    for where, names in table.items():
        olds = {str(old).lower() if isinstance(old, bool) else old: new for old, new in names.items()}
        text = f"* `{where}`: " + "; ".join(f"`{old}` → {quote}{new}{quote}" for old, new in olds.items())
        yield textwrap.fill(text, 98, subsequent_indent="  ", break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    write_text(PAGE, page())
