"""A model's config.json: the shapes that ship with Throughline, and files on the user's disk.

We read a file only as numbers and names. We never import, run or download anything that it names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from throughline import handover
from throughline.files import UserError, resource
from throughline.workloads import Described
from throughline.workloads.hugging_face import library

KEY = "transformers"
"""The key of a map that a block has as its `model`. The names of such models begin with this key and a colon."""
TASKS = ("mlm", "clm")
RESOURCES = resource("shapes")


class NotOurs(ValueError):
    """Our own step does not train this model. The text names what it lacks."""


class Model(Described):
    """A model's name, with its config.json, the file's SHA-256, and the task for which it is trained."""

    task: str

    @classmethod
    def of(cls, name: str, file: Path, task: str) -> Model:
        model = cls(name)
        model.file, model.task = file, task
        model.sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        return model


@dataclass(frozen=True)
class Shape:
    """A published model: its task, its number of parameters, and its place on huggingface.co."""

    task: str
    parameters: int
    source: str


SHAPES = {
    "llama-3.1-8b": Shape("clm", 8_030_261_248, "meta-llama/Llama-3.1-8B"),
    "llama-3.1-70b": Shape("clm", 70_553_706_496, "meta-llama/Llama-3.1-70B"),
    "llama-3.2-1b": Shape("clm", 1_235_814_400, "meta-llama/Llama-3.2-1B"),
    "llama-3.2-3b": Shape("clm", 3_212_749_824, "meta-llama/Llama-3.2-3B"),
    "qwen3-0.6b": Shape("clm", 596_049_920, "Qwen/Qwen3-0.6B"),
    "qwen3-1.7b": Shape("clm", 1_720_574_976, "Qwen/Qwen3-1.7B"),
    "qwen3-4b": Shape("clm", 4_022_468_096, "Qwen/Qwen3-4B"),
    "qwen3-8b": Shape("clm", 8_190_735_360, "Qwen/Qwen3-8B"),
    "qwen3-30b-a3b": Shape("clm", 30_532_122_624, "Qwen/Qwen3-30B-A3B"),
    "mistral-7b-v0.1": Shape("clm", 7_241_732_096, "mistralai/Mistral-7B-v0.1"),
    "gemma-3-1b": Shape("clm", 999_885_952, "google/gemma-3-1b-pt"),
    "smollm2-135m": Shape("clm", 134_515_008, "HuggingFaceTB/SmolLM2-135M"),
    "gpt2-124m": Shape("clm", 124_439_808, "openai-community/gpt2"),
    "gpt2-355m": Shape("clm", 354_823_168, "openai-community/gpt2-medium"),
    "gpt2-774m": Shape("clm", 774_030_080, "openai-community/gpt2-large"),
    "gpt2-1.5b": Shape("clm", 1_557_611_200, "openai-community/gpt2-xl"),
    "modernbert-base": Shape("mlm", 149_655_232, "answerdotai/ModernBERT-base"),
    "deberta-v3-base": Shape("mlm", 184_551_780, "microsoft/deberta-v3-base"),
}
"""The models whose config.json ships in resources/shapes/."""


def of_shape(name: str) -> Model:
    return Model.of(name, RESOURCES / f"{name}.json", SHAPES[name].task)


def of_map(values: Mapping[str, Any]) -> Model:
    """Return the model of `{transformers: FILE, task: mlm | clm}`; ValueError if the map or the file is not usable."""
    if values.keys() != {KEY, "task"} or not isinstance(values[KEY], str) or values["task"] not in TASKS:
        raise ValueError(f"a model's name is needed, or {{{KEY}: FILE, task: mlm | clm}} with a config.json")
    path = Path(values[KEY])
    try:
        read(path)
        stem = path.stem if path.stem != "config" else path.resolve().parent.name
        return Model.of(f"{KEY}:{re.sub(r'[^A-Za-z0-9_.-]+', '-', stem)}", path, values["task"])
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}; give the path of a model's config.json") from None


def read(path: Path) -> dict[str, Any]:
    """Return the content of a config.json; ValueError if it is not that of a language model that we can train."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise ValueError(f"{path} names no model_type: it is no config.json of a model")
    _refuse_code(path, content)
    if mistake := library.mistake(content):
        raise ValueError(f"{path}: {mistake}")
    if vocabulary(content) is None:
        raise ValueError(f"{path} has no vocab_size: it is no language model's")
    return content


def _refuse_code(path: Path, content: Mapping[str, Any]) -> None:
    """Raise ValueError if the file names code that the training would need or run. `auto_map` is left out where
    transformers has the architecture itself."""
    kind, named = content["model_type"], _code(content)
    in_library = library.architecture(kind) is not None
    if refused := sorted(named - {"auto_map"} if in_library else named):
        has = "this architecture: take the key out" if in_library else f"no architecture {kind!r}"
        raise ValueError(
            f"{path} has {refused[0]}, which names code beside the library's own; such code is never run. "
            f"transformers {library.version()} has {has}"
        )


def _code(value: Any) -> set[str]:
    """Return the keys, at any depth, that name code: classes of a repository, or a kernel to download."""
    if isinstance(value, list):
        return set().union(*map(_code, value))
    if not isinstance(value, dict):
        return set()
    here = {key for key, inner in value.items() if key == "auto_map" or ("attn_impl" in key and "/" in str(inner))}
    return here.union(*map(_code, value.values()))


def vocabulary(content: Mapping[str, Any]) -> int | None:
    """Return the size of the model's vocabulary; None if it is no language model."""
    size = library.language_model(content).get("vocab_size")
    return size if isinstance(size, int) else None


def positions(content: Mapping[str, Any]) -> int | None:
    """Return the longest sample for which the model is made; None if nothing states it."""
    given = library.language_model(content)
    most = given.get("max_position_embeddings", given.get("n_positions"))
    return most if isinstance(most, int) else None


def content(model: str, digest: str) -> dict[str, Any]:
    """Read the config.json of a model. Raise UserError if the file is unknown or no longer has this SHA-256."""
    paths = {digest: of_shape(model).file} if model in SHAPES else handover.get("models", {})
    if digest not in paths:
        raise UserError(
            f"the config.json of {model} is not known here",
            why="a specification holds its name and its SHA-256; the path comes from the configuration",
            next_step="start the run through snakemake",
        )
    path = Path(paths[digest])
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise UserError(
            f"{path} is not the file with which the run was planned",
            why=f"it is missing, or its SHA-256 is not {digest}",
            next_step="run snakemake again: a changed file is another model",
        )
    return read(path)
