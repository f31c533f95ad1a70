"""config.yaml -> Config: every key with its type, default and meaning; every mistake with its place.

The models below are the one source of defaults. docs/configuration.md and resources/config.schema.json are
generated from them by `python -m throughline.study.config_reference`.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from throughline import size
from throughline.files import UserError
from throughline.study.config_errors import allowed, explain, shown
from throughline.topology import Layout, Topology

NAME = r"[a-z][a-z0-9_]*"
FRAMEWORK = r"[a-z][a-z0-9-]*"
TOPOLOGY = r"[1-9]\d*n[1-9]\d*g"

Name = Annotated[str, StringConstraints(pattern=rf"^{NAME}$")]
FrameworkName = Annotated[str, StringConstraints(pattern=rf"^{FRAMEWORK}$")]
TopologyName = Annotated[str, StringConstraints(pattern=rf"^{TOPOLOGY}$")]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$")]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Scaling = Literal["weak", "strong"]
Extra = Literal["aa", "synthetic", "noexchange", "max_batch"]
PositiveInt = Annotated[int, Field(ge=1)]
CountingInt = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
HttpAddress = Annotated[str, StringConstraints(pattern=r"^https?://[^\s?#]+$")]
Contact = Annotated[str, StringConstraints(pattern=r"^[!-~]+(@|://)[!-~]+$")]
SequenceLength = Annotated[int, Field(ge=8, le=65536)]


_PATTERNS = {
    rf"^{TOPOLOGY}$": "a topology is <nodes>n<devices per node>g, both from 1 on, such as 1n2g or 4n8g",
    r"^https?://[^\s?#]+$": "an address begins with http:// or https:// and has no blank, ? or #",
    r"^[!-~]+(@|://)[!-~]+$": "an e-mail or web address is needed, such as you@your.org",
    r"^[A-Z]{3}$": "a currency is three capital letters, such as EUR",
    rf"^{NAME}$": "a name has lower-case letters, digits and _, and begins with a letter",
}


class ConfigError(UserError):
    """One or more mistakes in the configuration, a line each."""


class Section(BaseModel):
    """A map of the configuration: types are strict, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Shards(Section):
    training: PositiveInt = Field(8, description="HDF5 files that training reads")
    test: CountingInt = Field(2, description="HDF5 files held back from training")


class Masking(Section):
    probability: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.15, description="share of a sequence's tokens to predict, up to the length's predictions at most"
    )
    short_sequences: Share = Field(0.1, description="share of sequences that aim at a random shorter length")
    copies: PositiveInt = Field(5, description="times the text is used, each time with new pairs and masks")
    seed: CountingInt = Field(12345, description="seed of every random choice in the data")
    dynamic: bool = Field(
        False,
        description="true: shards hold the text once and unmasked (copies: 1); masks are drawn while it is read, anew "
        "in every epoch",
    )

    @model_validator(mode="after")
    def _text_once(self) -> Masking:
        if self.dynamic and self.copies != 1:
            raise ValueError("with dynamic, each epoch has masks of its own and the text is kept once: set copies to 1")
        return self


class ShardFolder(Section):
    shards: Annotated[str, StringConstraints(min_length=1)] = Field(
        description="a folder of finished HDF5 files in NVIDIA's layout, used as they are: `training` or `test` in "
        "each name says its split. corpus.sequences has to name their lengths; parts, shards and masking are not used"
    )


class VocabularyFile(Section):
    path: str | None = Field(None, description="a WordPiece vocabulary, one entry a line")
    url: HttpAddress | None = Field(None, description="where it is published; instead of path")
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="the file's SHA-256, checked before it is used"
    )


class Corpus(Section):
    name: Name = Field("sample", description="folder under data/; unique per dump")
    dump: Annotated[str, StringConstraints(min_length=1)] | Annotated[list[str], Field(min_length=1)] | ShardFolder = (
        Field(
            "sample",
            description="`sample` (a piece of the English Wikipedia that is installed with Throughline), the path of a "
            "dump (.xml or .xml.bz2), a list of its part files, a dump's name and date such as enwiki-20261101, "
            "which is downloaded, or {shards: FOLDER} of finished shards",
        )
    )
    contact: Contact | None = Field(
        None, description="your e-mail or web address, sent with every download; Wikimedia wants one"
    )
    mirrors: list[HttpAddress] = Field(
        default_factory=list,
        description="hosts of Wikimedia's dumps, asked in this order before Wikimedia itself; what they say of their "
        "files is believed",
    )
    vocabulary: Literal["bert-base-uncased"] | VocabularyFile = Field(
        "bert-base-uncased", description="the published vocabulary by name, or {path or url, sha256} of your own"
    )
    parts: Annotated[int, Field(ge=1, le=10000)] = Field(
        4, description="pieces that the dump is cut into, extracted side by side"
    )
    extractor: Literal["wikiextractor", "throughline"] = Field(
        "wikiextractor",
        description="what makes plain text of wikitext: the field's program, or our own, which is several times faster "
        "and keeps lists",
    )
    shards: Shards = Field(default_factory=Shards, description="HDF5 files per sequence length")
    sequences: Annotated[dict[SequenceLength, PositiveInt], Field(min_length=1)] = Field(
        default_factory=lambda: {32: 5, 128: 20},
        description="sequence length: predictions at most (BERT's second phase is 512: 80)",
    )
    masking: Masking = Field(default_factory=Masking, description="next-sentence pairs and masked tokens")
    memory_mb: int = Field(
        256,
        ge=16,
        description="what a job of the corpus holds of text, tokens and examples, in MB, beside about 100 that any "
        "takes; more goes through temporary files, and no byte of the result changes",
    )
    unpacked: bool = Field(
        False,
        description="write shards uncompressed (finished ones once more): four times the disk; training maps them into "
        "its memory, and reads them several times faster",
    )

    @field_validator("sequences")
    @classmethod
    def _predictions_fit(cls, sequences: dict[int, int]) -> dict[int, int]:
        for length, predictions in sequences.items():
            if predictions > length - 3:
                raise ValueError(f"{length}: {predictions} predicts more than the {length - 3} tokens there are")
        return sequences

    @model_validator(mode="after")
    def _finished_masks(self) -> Corpus:
        if self.masking.dynamic and isinstance(self.dump, ShardFolder):
            raise ValueError("finished shards keep the masks they have: leave masking.dynamic out, or give a dump")
        return self


class Steps(Section):
    warmup: CountingInt = Field(20, description="optimizer steps before the clock starts")
    timed: PositiveInt = Field(100, description="optimizer steps inside the timed window")
    at_most_s: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="seconds of training per run at most: warm-up and window get fewer steps on slow devices "
        "(never under 2 and 3), and the record says so",
    )


class Runs(Section):
    device: Literal["auto", "cuda", "cpu"] = Field(
        "auto", description="`auto` takes the GPUs that are found, else the CPU; the record says what it was"
    )
    repeats: Annotated[int, Field(ge=1, le=99)] = Field(5, description="runs of every configuration")
    steps: Steps = Field(default_factory=Steps, description="how long a run trains")
    threads: PositiveInt = Field(1, description="threads per worker on a CPU, the same in every topology")
    hosts: Literal["simulated"] | Annotated[list[HostName], Field(min_length=1)] | None = Field(
        None,
        description="where topologies of several nodes run: null is this machine, or the nodes of a Slurm job; a list "
        "of names is reached through ssh; `simulated` makes the nodes up on one machine, and every table says so",
    )
    seed: CountingInt = Field(42, description="seed of weights, dropout and the order of the data")
    strict: bool = Field(
        False,
        description="true: a busy or changed machine is refused before a run; mixed environments and warnings fail "
        "the summary",
    )


class Optimizer(Section):
    name: Literal["adamw", "adam", "lamb"] = Field("adamw", description="the update rule")
    learning_rate: Annotated[float, Field(gt=0)] = Field(1e-4, description="constant learning rate")
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.01, description="decay per step")
    betas: Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)] = Field(
        default_factory=lambda: [0.9, 0.999], description="decay of the first and the second moment"
    )
    epsilon: Annotated[float, Field(gt=0)] = Field(1e-6, description="added to the root of the second moment")


class Options(Section):
    clip: Literal["none", "value", "norm", "global_norm"] = Field(
        "none", description="gradient clipping at 1.0: by value, by each tensor's norm, by the global norm"
    )
    accumulate: PositiveInt = Field(1, description="micro-batches per optimizer step")
    compile: bool = Field(False, description="compile the model (torch.compile)")
    checkpointing: bool = Field(False, description="recompute activations in the backward pass to save memory")
    unpadded: bool = Field(False, description="compute the real tokens alone, and no padding")
    data: Literal["real", "synthetic"] = Field("real", description="the corpus, or full-length random tokens")
    exchange: bool = Field(
        True, description="false: every rank keeps its own gradients, which shows what exchanging them costs"
    )
    bucket_mb: PositiveInt = Field(25, description="MiB of gradients per all-reduce")
    controller: Literal["gloo", "mpi"] = Field(
        "gloo", description="how Horovod's ranks find each other, and on CPUs how they exchange gradients"
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(0.1, description="dropout of the model")
    memory_limit_mb: PositiveInt | None = Field(
        None, description="MiB of memory per worker on a CPU; beyond it a run ends as out of memory"
    )
    sharding: Literal["none", "optimizer", "optimizer_gradients", "full"] = Field(
        "none",
        description="what replicas split among themselves instead of keeping a copy each: the optimizer's states, "
        "these and the gradients, or the weights as well",
    )
    tensor: PositiveInt = Field(1, description="devices that share one replica of the model (tensor parallelism)")

    @property
    def layout(self) -> Layout:
        """How the model lies on its ranks."""
        return Layout(self.tensor, self.sharding)


class Convergence(Section):
    steps: PositiveInt = Field(50000, description="optimizer steps")
    evaluate_every: PositiveInt = Field(
        1000, description="steps between two looks at held-out text; a checkpoint is written at each"
    )
    samples: PositiveInt = Field(1000, description="held-out samples at most, of the corpus's test shards")
    against: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        None, description="a CSV file with the stated curve: `step` and some of `loss`, `mlm_accuracy`, `nsp_accuracy`"
    )
    tolerance: Share = Field(
        0.05, description="how much worse than stated passes: of the loss a share, of an accuracy the difference"
    )


class Benchmark(Runs):
    model: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")] = Field(
        "bert-tiny", description="the model that is trained"
    )
    sequence: SequenceLength = Field(128, description="tokens per sample; one of corpus.sequences")
    frameworks: Annotated[list[FrameworkName], Field(min_length=1)] = Field(
        default_factory=lambda: ["torch"], description="what trains it"
    )
    topologies: Annotated[list[TopologyName], Field(min_length=1)] = Field(
        default_factory=lambda: ["1n1g"],
        description="`<nodes>n<devices per node>g`; 1n1g is the baseline of every speedup",
    )
    batch: Annotated[dict[Precision, Annotated[list[PositiveInt], Field(min_length=1)]], Field(min_length=1)] = Field(
        default_factory=lambda: typing.cast("dict[Precision, list[int]]", {"fp32": [32]}),
        description="precision: batch sizes per replica of the model, which is a device unless options.tensor is more",
    )
    scaling: Scaling = Field(
        "weak",
        description="`weak`: a batch size is that of each replica, so more devices take more samples per step; "
        "`strong`: it is the sum over all replicas, so more devices share the same samples",
    )
    optimizer: Optimizer = Field(default_factory=Optimizer, description="the optimizer and its constants")
    options: Options = Field(default_factory=Options, description="switches; the tables' titles name them")
    extras: list[Extra] = Field(
        default_factory=list,
        description="derived runs beside these: `aa` (the same again), `synthetic` (without reading), `noexchange` "
        "(ranks keep their gradients; with `synthetic` it gives the step's split in compute, communication and input), "
        "`max_batch` (the largest batch per device that fits)",
    )
    convergence: Convergence | None = Field(
        None, description="a long run that is held against a stated curve, apart from the measured ones; {} for one"
    )
    task_samples: PositiveInt | None = Field(
        None, description="samples of the whole training that is planned: the report tells its hours and its price"
    )
    remarks: str | None = Field(None, description="text shown under the tables")

    @field_validator("frameworks", "topologies", "extras")
    @classmethod
    def _no_repeats(cls, values: list[str]) -> list[str]:
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ValueError(f"listed twice: {', '.join(twice)}")
        return values

    @field_validator("batch")
    @classmethod
    def _no_repeated_batches(cls, batch: dict[str, list[int]]) -> dict[str, list[int]]:
        for precision, sizes in batch.items():
            if len(set(sizes)) < len(sizes):
                raise ValueError(f"{precision}: a batch size is listed twice in {sizes}")
        return batch


class EfficiencyGoal(Section):
    from_nodes: PositiveInt = Field(20, description="topologies of so many nodes and more are judged")
    at_least: Annotated[float, Field(gt=0, le=1)] = Field(0.8, description="speedup over devices")


class UtilizationGoal(Section):
    at_least: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="mean use of the devices over the timed window; on a CPU, of the workers' threads"
    )


class Goals(Section):
    efficiency: EfficiencyGoal = Field(default_factory=EfficiencyGoal, description="how well it has to scale")
    utilization: UtilizationGoal = Field(default_factory=UtilizationGoal, description="how busy devices have to be")


class Price(Section):
    per_hour: Annotated[float, Field(gt=0)] | None = Field(None, description="price of one device for an hour")
    per_month: Annotated[float, Field(gt=0)] | None = Field(
        None, description="price of a node for a month of 720 hours; instead of per_hour"
    )
    devices: PositiveInt | None = Field(None, description="devices of that node; with per_month")
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = Field(
        description="three capital letters, such as EUR"
    )

    @model_validator(mode="after")
    def _one_way(self) -> Price:
        if (self.per_hour is None) == (self.per_month is None):
            raise ValueError("one of per_hour and per_month is needed, and only one")
        if (self.per_month is None) != (self.devices is None):
            raise ValueError("devices goes with per_month: the devices of that node")
        return self


class Config(Section):
    corpus: Corpus = Field(default_factory=Corpus, description="from a dump to pre-training data")
    runs: Runs = Field(
        default_factory=Runs, description="how to measure; any of it can be set again inside a benchmark"
    )
    goals: Goals = Field(default_factory=Goals, description="what every benchmark is judged by, pass or fail")
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description="a device's name as the report prints it, or a part of it in whole words, such as `A100-SXM4-80GB` "
        "or `Xeon`: what it costs (on a CPU, one worker); resources/gpus.csv has some prices of GPUs",
    )
    benchmarks: dict[Name, Benchmark] = Field(
        default_factory=dict, description="what to measure, each under `results/<name>/`"
    )


def load(
    paths: Sequence[str | Path],
    overrides: Mapping[str, Any] | None = None,
    *,
    frameworks: Iterable[str] = (),
    models: Iterable[str] = (),
) -> Config:
    """Read, merge and check configuration files.

    Maps merge, lists are replaced, later files win; `overrides` (what --config hands over, as text) come last.
    `frameworks` and `models` are the names there are. Raises ConfigError with one line per mistake.
    """
    raw: dict[str, Any] = {}
    for path in paths:
        raw = _merge(raw, _read(Path(path)))
    raw = _merge(raw, _from_text(dict(overrides or {})))
    _validate(raw)
    merged = dict(raw)
    if isinstance(raw.get("benchmarks"), dict):
        merged["benchmarks"] = {
            name: _merge(raw.get("runs") or {}, block or {}) for name, block in raw["benchmarks"].items()
        }
    config = _validate(merged)
    mistakes = list(_cross_checks(config, list(frameworks), list(models)))
    if mistakes:
        raise _error(mistakes)
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        document = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"configuration {path} does not exist", next_step="check the path after --configfile"
        ) from None
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        problem = str(error.problem).splitlines()[0]
        raise ConfigError(f"{path}, line {line}: {problem}", next_step="keep one of the two") from None
    except (YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{path} is not valid YAML", why=" ".join(str(error).split())) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds {shown(document)}, not a map of keys to values")
    return document


def _merge(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: _merge(below.get(key), value) for key, value in above.items()}}
    return above


def _from_text(value: Any) -> Any:
    """What --config hands over as text, keys as well, read as the YAML it was."""
    if isinstance(value, Mapping):
        return {_from_text(key): _from_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_text(item) for item in value]
    if isinstance(value, str):
        try:
            read = YAML(typ="safe", pure=True).load(value)
        except YAMLError:
            return value
        return value if isinstance(read, (dict, list)) else read
    return value


def _validate(raw: dict[str, Any]) -> Config:
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise _error(explain(raw, error, Config, _PATTERNS)) from None


def _error(mistakes: Sequence[str]) -> ConfigError:
    count = "one mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    return ConfigError(
        f"the configuration has {count}:\n  " + "\n  ".join(mistakes),
        next_step="correct it; docs/configuration.md describes every key",
    )


def _cross_checks(config: Config, frameworks: list[str], models: list[str]) -> Iterable[str]:
    """Mistakes that only two places together show."""
    lengths = sorted(config.corpus.sequences)
    vocabulary = config.corpus.vocabulary
    if isinstance(vocabulary, VocabularyFile) and (vocabulary.path is None) == (vocabulary.url is None):
        yield "corpus.vocabulary: one of path and url is needed, and only one"
    for name, block in config.benchmarks.items():
        where = f"benchmarks.{name}"
        if "__" in name:
            yield f"{where}: two underscores in a row are kept for derived runs, such as bert__aa"
        if block.sequence not in config.corpus.sequences:
            yield f"{where}.sequence = {block.sequence}: allowed: {lengths}, the lengths of corpus.sequences"
        if block.convergence and (block.options.data != "real" or not block.options.exchange):
            yield f"{where}.convergence: it trains on real data and exchanges gradients, and options say otherwise"
        if block.convergence and isinstance(config.corpus.dump, str | list) and not config.corpus.shards.test:
            yield f"{where}.convergence: it looks at held-out text, and corpus.shards.test is 0"
        for position, framework in enumerate(block.frameworks):
            if frameworks and framework not in frameworks:
                yield f"{where}.frameworks.{position} = {framework!r}: {allowed(framework, frameworks)}"
        if models and block.model not in models:
            yield f"{where}.model = {block.model!r}: {allowed(block.model, models)}"
        yield from (f"{where}.{mistake}" for mistake in _indivisible(block))


def _indivisible(block: Benchmark) -> Iterable[str]:
    """Topologies and batch sizes that do not divide into replicas."""
    for topology in block.topologies:
        for precision, batches in block.batch.items():
            for batch in batches:
                try:
                    size.of(Topology.parse(topology), block.options.layout, batch, block.scaling)
                except UserError as error:
                    yield f"batch.{precision}: {error.what}; {error.next_step}"
