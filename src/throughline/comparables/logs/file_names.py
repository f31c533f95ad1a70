"""Read facts in the names of a file and its folders, such as `bz32/4n8g/bert_b32_fp32_1.log`.

We use them if the log itself does not state the fact.
"""

import re
from typing import Any

PATTERNS = {
    "model": r"(resnet50|bert[_-](?:base|large)|gpt2[_-](?:small|medium|large|xl))",
    "precision": r"(?<![a-z0-9])(fp32|tf32|bf16|fp16|amp|fp8)(?![a-z0-9])",
    "batch_size_per_device": r"(?<![a-z0-9])b(?:s|z)?(\d+)(?![a-z0-9])",
    "devices": r"gpus?(\d+)(?![a-z0-9])|(?<![a-z0-9])(\d+)gpus?(?![a-z])",
    "topology": r"(?<![a-z0-9])n?(\d+)[nc](\d+)g?(?![a-z0-9])",
}


def facts(name: str) -> dict[str, Any]:
    """Return the facts in the path of a file, with the keys of imported.json."""
    name = name.lower()
    matches = {key: re.search(pattern, name) for key, pattern in PATTERNS.items()}
    words = {key: next(filter(None, match.groups())) for key, match in matches.items() if match and key != "topology"}
    values: dict[str, Any] = {key: int(word) for key, word in words.items() if word.isdigit() and int(word)}
    if "model" in words:
        values["model"] = words["model"].replace("_", "-")
    if "precision" in words:
        values["precision"] = words["precision"].replace("amp", "fp16")
    if re.search(r"without_grad_?acc", name):
        values["gradient_accumulation"] = 1
    if (match := matches["topology"]) and int(match[1]) and int(match[2]):
        nodes, each = int(match[1]), int(match[2])
        values |= {"nodes": nodes, "devices": each if match[0].startswith("n") else nodes * each}
    return values
