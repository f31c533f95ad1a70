"""Which training runs a configuration asks for: RunSpec, their expansion and their paths."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from throughline import size
from throughline.files import UserError
from throughline.study.config import (
    Benchmark,
    Config,
    Corpus,
    FrameworkName,
    Name,
    Optimizer,
    Options,
    PositiveInt,
    Precision,
    Runs,
    Scaling,
    Section,
    ShardFolder,
    Steps,
    TopologyName,
)
from throughline.topology import Layout, Topology

PROTOCOL = 2
"""Raised by a person when the way of measuring changes: every run is then made again."""

CONFIGURATION = "THROUGHLINE_CONFIGURATION"
"""Variable in which the merged configuration travels to a run: as a parameter of a rule it would re-run everything."""

DATA_PROTOCOL = 1
"""Raised by a person when the same text gives other shards: it changes the digest of every corpus."""

CHANGED: dict[str, dict[str, Any]] = {
    "aa": {},
    "synthetic": {"data": "synthetic"},
    "noexchange": {"exchange": False},
}
"""The extras that are runs of their own -> the options in which these differ; `aa` changes nothing."""


class CorpusIdentity(Section):
    """The corpus a run reads, by its parameters: known before any of it is made."""

    name: Name
    digest: str


class RunSpec(Section):
    """All that decides one run. Its canonical JSON leaves defaults out, so that a new option re-runs nothing."""

    benchmark: Name
    framework: FrameworkName
    model: str
    sequence: PositiveInt
    predictions: PositiveInt
    batch_per_device: PositiveInt
    precision: Precision
    topology: TopologyName
    repeat: PositiveInt
    steps: Steps = Field(default_factory=Steps)
    seed: int = Runs.model_fields["seed"].default
    device: str = Runs.model_fields["device"].default
    threads: int = Runs.model_fields["threads"].default
    hosts: Literal["simulated", "ssh"] | None = None
    optimizer: Optimizer = Field(default_factory=Optimizer)
    options: Options = Field(default_factory=Options)
    scaling: Scaling = "weak"
    corpus: CorpusIdentity | None = None
    protocol: int

    @property
    def canonical(self) -> str:
        """The JSON that travels as a rule's parameter: sorted keys, no defaults."""
        return canonical(self.model_dump(exclude_defaults=True))

    @property
    def layout(self) -> Layout:
        return self.options.layout

    @property
    def size(self) -> size.StepSize:
        """How many samples a step takes. UserError where they do not divide over the replicas."""
        topology = Topology.parse(self.topology)
        return size.of(topology, self.layout, self.batch_per_device, self.scaling, self.options.accumulate)

    @property
    def cell(self) -> str:
        """`<benchmark>/bz<b>_<precision>`: the configuration whose repeats and topologies one summary holds."""
        return f"{self.benchmark}/bz{self.batch_per_device}_{self.precision}"

    @property
    def summary(self) -> str:
        return f"results/{self.cell}.json"

    @property
    def record(self) -> str:
        return f"results/{self.cell}/{self.framework}/{self.topology}/run{self.repeat}.json"

    @property
    def log(self) -> str:
        return str(Path(self.record).with_suffix(".log"))


def read_specs(text: str) -> list[RunSpec]:
    """The specifications in a JSON list; UserError where it is empty."""
    specs = [RunSpec.model_validate_json(json.dumps(spec)) for spec in json.loads(text)]
    if not specs:
        raise UserError("the list of run specifications is empty", next_step="give one for every framework")
    return specs


def canonical(value: Any) -> str:
    """JSON with one spelling for one value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def shard_parameters(corpus: Corpus, sequence: int) -> dict[str, Any]:
    """How a length's examples are made of a shard's text."""
    masking = corpus.masking.model_dump(exclude=None if corpus.masking.dynamic else {"dynamic"})
    return {"sequence": sequence, "predictions": corpus.sequences[sequence], **masking}


def is_dump_name(dump: str) -> bool:
    """Whether `dump` is a published dump's name and date, such as enwiki-20261101, and not a path."""
    return re.fullmatch(r"[a-z][a-z0-9_]*-\d{8}", dump) is not None


def corpus_parameters(corpus: Corpus, sequence: int) -> dict[str, Any]:
    """All that decides a length's shards, as far as it is known before any is made; the manifest keeps it.

    A dump's files count by their names (finished shards by their sizes as well), not by where they lie. `parts` is
    left out: into how many pieces the work is cut changes no byte of the result.
    """
    common = {
        "vocabulary": corpus.vocabulary if isinstance(corpus.vocabulary, str) else corpus.vocabulary.sha256,
        "protocol": DATA_PROTOCOL,
        **({"unpacked": True} if corpus.unpacked else {}),
    }
    if isinstance(corpus.dump, ShardFolder):
        lengths = {"sequence": sequence, "predictions": corpus.sequences[sequence]}
        return common | lengths | {"finished": _names_and_sizes(corpus.dump.shards)}
    dump = [corpus.dump] if isinstance(corpus.dump, str) else corpus.dump
    if corpus.extractor != Corpus.model_fields["extractor"].default:
        common["extractor"] = corpus.extractor
    return (
        common
        | shard_parameters(corpus, sequence)
        | {"dump": [Path(name).name for name in dump], "shards": corpus.shards.model_dump()}
    )


@cache
def finished_shards(folder: str) -> tuple[Path, ...]:
    """The HDF5 files in a folder and below it, in the order of their paths. UserError where there is none."""
    found = sorted(
        Path(parent) / name
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
        if name.endswith((".hdf5", ".h5")) and not name.startswith(".")
    )
    if not found:
        raise UserError(
            f"the folder {folder} holds no shards" if Path(folder).is_dir() else f"there is no folder {folder}",
            why="a shard is a file *.hdf5 or *.h5, in this folder or below it",
            next_step="correct corpus.dump.shards in config.yaml",
        )
    return tuple(found)


@cache
def _names_and_sizes(folder: str) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((path.name, path.stat().st_size) for path in finished_shards(folder)))


def corpus_identity(corpus: Corpus, sequence: int) -> CorpusIdentity:
    """The corpus by its name and the beginning of its manifest's `parameters_digest`."""
    digest = hashlib.sha256(canonical(corpus_parameters(corpus, sequence)).encode()).hexdigest()
    return CorpusIdentity(name=corpus.name, digest=digest[:12])


def expand(config: Config) -> list[RunSpec]:
    """Every run that the configuration asks for, in the order in which they are best made: the first repeat of
    everything, then the second ...; within a repeat, a run and those that leave one thing of it out are neighbours."""
    specs = [spec for name, block in config.benchmarks.items() for spec in _with_extras(config, name, block)]
    return sorted(specs, key=lambda spec: spec.repeat)


def _with_extras(config: Config, name: str, block: Benchmark) -> Iterable[RunSpec]:
    """The runs of a block, each before its derived ones; `aa` comes last, as far off as two configurations are."""
    derived = {
        extra: _expand(config, f"{name}__{extra}", _changed(block, CHANGED[extra]))
        for extra in block.extras
        if extra in CHANGED
    }
    again = derived.pop("aa", ())
    for neighbours in zip(_expand(config, name, block), *derived.values(), strict=True):
        yield from neighbours
    yield from again


def _changed(block: Benchmark, options: dict[str, Any]) -> Benchmark:
    return block.model_copy(update={"options": block.options.model_copy(update=options)})


def _expand(config: Config, name: str, block: Benchmark) -> Iterable[RunSpec]:
    corpus = corpus_identity(config.corpus, block.sequence) if block.options.data == "real" else None
    for precision, batches in block.batch.items():
        for batch in batches:
            for framework in block.frameworks:
                for topology in block.topologies:
                    for repeat in range(1, block.repeats + 1):
                        yield RunSpec(
                            benchmark=name,
                            framework=framework,
                            model=block.model,
                            sequence=block.sequence,
                            predictions=config.corpus.sequences[block.sequence],
                            batch_per_device=batch,
                            precision=precision,
                            topology=topology,
                            repeat=repeat,
                            steps=block.steps,
                            seed=block.seed,
                            device=block.device,
                            threads=block.threads,
                            hosts=kind_of_hosts(block, topology),
                            optimizer=block.optimizer,
                            options=block.options,
                            scaling=block.scaling,
                            corpus=corpus,
                            protocol=PROTOCOL,
                        )


def by_summary(specs: Iterable[RunSpec]) -> dict[str, list[str]]:
    """Each summary's records, by their paths."""
    records: dict[str, list[str]] = {}
    for spec in specs:
        records.setdefault(spec.summary, []).append(spec.record)
    return records


def kind_of_hosts(block: Benchmark, topology: str) -> Literal["simulated", "ssh"] | None:
    """What of `runs.hosts` decides a run. No name: no record holds one, and a renamed host re-runs nothing."""
    if block.hosts == "simulated":
        return "simulated" if Topology.parse(topology).nodes > 1 else None
    return "ssh" if block.hosts else None


def packed(config: Config) -> str:
    """The merged configuration as a text for CONFIGURATION, without the names of hosts and the paths in it."""
    value = json.loads(config.model_dump_json())
    corpus = value["corpus"]
    for name in ("dump", "vocabulary"):
        corpus[name] = _without_folders(corpus[name])
    corpus.update(contact=None, mirrors=f"{len(config.corpus.mirrors)} hosts" if config.corpus.mirrors else [])
    for part in (value["runs"], *value["benchmarks"].values()):
        if isinstance(part["hosts"], list):
            part["hosts"] = f"{len(part['hosts'])} hosts"
    return base64.b64encode(zlib.compress(canonical(value).encode())).decode()


def unpacked(text: str | None, benchmark: str) -> dict[str, Any] | None:
    """The part of a packed configuration that a benchmark's run came from; None without one."""
    if not text:
        return None
    value: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    blocks, name = value["benchmarks"], benchmark.split("__")[0]
    return {**value, "benchmarks": {name: blocks[name]}} if name in blocks else None


def _without_folders(value: Any) -> Any:
    if isinstance(value, str):
        return Path(value).name if "/" in value and "://" not in value else value
    if isinstance(value, list):
        return [_without_folders(entry) for entry in value]
    if isinstance(value, dict):
        return {
            key: Path(entry).name if key in ("shards", "path") and isinstance(entry, str) else entry
            for key, entry in value.items()
        }
    return value


def benchmark_block(config: Config, name: str) -> Benchmark:
    """The block that a benchmark's name, derived or not, comes from."""
    return config.benchmarks[name.split("__")[0]]
