"""Read config.yaml into a Config: which files are read, how they are merged, and where the sections are.

Defaults are written only in the models of the sections. `python -m throughline.study.config_reference` generates
docs/configuration.md and resources/config.schema.json from these models.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field, SerializeAsAny, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from throughline import frameworks, versions, workloads
from throughline.files import UserError
from throughline.spec import Options, RunSpec, StepSize, Topology, canonical
from throughline.spec.topology import nearest
from throughline.study.accept_section import Accept
from throughline.study.benchmark import Benchmark, Runs
from throughline.study.clicks_section import Clicks
from throughline.study.compare_section import Compare
from throughline.study.config_errors import allowed, explain, shown
from throughline.study.config_paths import ConfigPaths, FilePath
from throughline.study.corpus_section import Corpus
from throughline.study.goals import Goals, Price
from throughline.study.images_section import Faces, Images, Pictures
from throughline.study.imports_section import Import, state
from throughline.study.section import DataSection, Name, Section

SIZES = ("scaling", "global_batch")
"""Keys of a block that only a model with batches can have."""


class ConfigError(UserError):
    """One or more mistakes in the configuration, one line for each."""


class Config(Section):
    corpus: Corpus = Field(default_factory=Corpus, description="text: from a dump to pre-training data")
    clicks: Clicks = Field(default_factory=Clicks, description="clicks: from logs to shards of rows")
    images: Images = Field(default_factory=Images, description="pictures: from a folder to shards of JPEG files")
    faces: Faces = Field(
        default_factory=Faces, description="aligned faces, whose classes are persons: from a folder to shards"
    )
    runs: Runs = Field(default_factory=Runs, description="how to measure; a benchmark can set any of these keys again")
    goals: Goals = Field(
        default_factory=Goals, description="what every benchmark has to reach; the report says pass or fail"
    )
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description="name of a device: its price. The name is the one that the report prints, or some whole words of "
        "it, such as `A100-SXM4-80GB` or `Xeon` (on a CPU: one worker). resources/gpus.csv has some prices of GPUs",
    )
    benchmarks: dict[Name, SerializeAsAny[Benchmark]] = Field(
        default_factory=dict, description="what to measure, each under `results/<name>/`"
    )
    imports: dict[Name, Import] = Field(
        default_factory=dict,
        description="logs of other programs. `snakemake imports` reads each folder into `results/<name>/`",
    )
    accept: Accept = Field(
        default_factory=Accept, description="an acceptance: is every node and every device as fast as its peers?"
    )
    compare: Compare = Field(default_factory=Compare, description="earlier results, and those of other machines")

    machines: dict[Name, FilePath] = Field(
        default_factory=dict,
        description="name of another machine: its folder `results/`, or a copy of it. The report shows its results "
        "beside those of this machine. The folder is only read",
    )

    def asked_of_machines(self) -> str:
        """Return the folders of other machines and the prices as the JSON that the report's command reads."""
        prices = {name: price.model_dump() for name, price in self.prices.items()}
        return canonical({"folders": self.machines, "prices": prices})

    def state_of_machines(self) -> list[str]:
        """Return digits that change with the results of the other machines, for each of them."""
        return [state(Path(folder).rglob("*.json")) for folder in self.machines.values()]

    def data_sections(self) -> dict[str, DataSection]:
        """Return the sections that describe data, by name."""
        return {name: value for name, value in self if isinstance(value, DataSection)}

    def pictures(self) -> dict[str, Pictures]:
        """Return the sections whose data are pictures, by name."""
        return {name: value for name, value in self if isinstance(value, Pictures)}

    def block(self, benchmark: str) -> Benchmark:
        """Return the block that a benchmark comes from. The benchmark may be derived, such as `bert__aa`."""
        return self.benchmarks[block_name(benchmark)]

    def reads(self, section: str) -> bool:
        """True if the data of a section have to be made: a block reads them, or there are no blocks."""
        return not self.benchmarks or bool(self.folders(section))

    def folders(self, section: str) -> set[str]:
        """Return the folders of a section's data that the blocks read. Blocks whose batches are synthetic read none."""
        blocks = (block for block in self.benchmarks.values() if block.options.data == "real")
        read = ((workloads.of(block.model), block) for block in blocks)
        return {workload.folder(self.parameters_of(block)) for workload, block in read if section == workload.data}

    def parameters_of(self, block: Benchmark) -> Any:
        """Return the Parameters of a block's workload. Raises ValueError if the data lack what the block's keys ask."""
        workload = workloads.of(block.model)
        known = {"model": block.model, **block.own_values}
        return workload.parameters(**block.own_values, **workload.complete(known, self.data_of(block)))

    def model_files(self) -> dict[str, str]:
        """Return the paths of the files that describe models, by SHA-256."""
        models = (block.model for block in self.benchmarks.values())
        return {model.sha256: str(model.file) for model in models if isinstance(model, workloads.Described)}

    def data_of(self, block: Benchmark) -> DataSection | None:
        """Return the section of the data that a block's model reads, or None if its batches are synthetic."""
        name = workloads.of(block.model).data
        section = None if name is None else self.data_sections()[name]
        return None if section is None or section.is_synthetic else section


def block_name(benchmark: str) -> str:
    """Return the name of the block that a benchmark comes from: `bert` for `bert` and for the derived `bert__aa`."""
    return benchmark.split("__")[0]


def load(
    paths: Sequence[str | Path], overrides: Mapping[str, Any] | None = None, config_paths: ConfigPaths | None = None
) -> Config:
    """Read, merge and check configuration files.

    Maps are merged and lists are replaced. A later file wins over an earlier one, and its null takes a key out.
    `overrides` are the values of Snakemake's --config, as text, or the configuration that another workflow hands over;
    they win over all files. `config_paths` says where relative paths lead; without it, they lead into the working
    directory. Raises ConfigError with one line per mistake.
    """
    raw: dict[str, Any] = {}
    for path in map(str, paths):
        raw = _merge(raw, _read(Path(config_paths.find(path) if config_paths else path)))
    raw = _merge(raw, _from_text(dict(overrides or {})))
    _validate(raw, config_paths)
    blocks = {name: _merge(raw.get("runs", {}), block) for name, block in raw.get("benchmarks", {}).items()}
    config = _validate({**raw, "benchmarks": blocks}, config_paths)
    if mistakes := list(_mistakes(config)):
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
    """Return the two merged: maps key by key, otherwise `above`. A null in `above` takes the key of `below` out.

    So its default holds again. For keys that may be null, this is the same, because null is the default of all of them.
    """
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    taken_out = {key for key, value in above.items() if value is None and key in below}
    merged = {**below, **{key: _merge(below.get(key), value) for key, value in above.items()}}
    return {key: value for key, value in merged.items() if key not in taken_out}


def _from_text(value: Any) -> Any:
    """Read the values and keys that Snakemake passes as text, as the YAML that the user wrote.

    Snakemake passes the values of --config as text, and `1e-4` in its own configuration files, which are YAML 1.1.
    """
    if isinstance(value, Mapping):
        return {_from_text(key): _from_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_text(item) for item in value]
    if isinstance(value, str):
        try:
            read = YAML(typ="safe", pure=True).load(value)
        except YAMLError:
            return value
        return value if isinstance(read, (dict, list, str)) else read
    return value


def _validate(raw: dict[str, Any], config_paths: ConfigPaths | None) -> Config:
    try:
        return Config.model_validate(raw, context=config_paths)
    except ValidationError as error:
        raise _error(explain(raw, error, Config), config_paths.lost() if config_paths else []) from None


def _mistakes(config: Config) -> Iterable[str]:
    """Yield a line for each mistake that involves several places of the configuration."""
    for name, section in config.data_sections().items():
        yield from (f"{name}.{mistake}" for mistake in section.mistakes())
    for name in config.imports.keys() & {block_name(name) for name in config.benchmarks}:
        yield f"imports.{name}: a benchmark has this name and writes into results/{name}/; choose another"
    if config.accept.train is not None and config.accept.train not in config.benchmarks:
        yield f"accept.train = {config.accept.train!r}: {allowed(config.accept.train, list(config.benchmarks))}"
    for name, block in config.benchmarks.items():
        where = f"benchmarks.{name}"
        if "__" in name:
            yield f"{where}: two underscores in a row are kept for derived runs, such as <name>__aa"
        yield from (f"{where}.{mistake}" for mistake in _of_block(config, block))
        yield from (f"{where}.convergence.begin_from{mistake}" for mistake in _of_phases(config, name, block))


def _of_block(config: Config, block: Benchmark) -> Iterable[str]:
    workload = workloads.of(block.model)
    section = config.data_of(block)
    try:
        config.parameters_of(block)
    except ValueError as error:
        yield str(error)
    if section is not None and block.convergence:
        yield from section.held_out_mistakes(str(workload.data))
    if block.convergence and (block.options.data != "real" or not block.options.gradient_sync):
        yield "convergence: it needs options.data: real and options.gradient_sync: true, their defaults"
    if block.job and block.convergence:
        yield "job: a convergence check has steps of its own; give it a block without job"
    yield from (f"optimizer.{mistake}" for mistake in block.optimizer.mistakes())
    yield from (f"options.{mistake}" for mistake in block.options.mistakes())
    yield from (f"steps.{mistake}" for mistake in block.steps.mistakes())
    if block.options.image_decoder != "pillow" and workload.data != "images":
        yield f"options.image_decoder: {block.model} reads no pictures; remove the key"
    if block.convergence and not workload.held_out:
        yield f"convergence: {block.model} has no figures of held-out data"
    yield from _of_tensor(block.model, block.options.tensor_parallel)
    yield from _of_experts(block.model, block.options.expert_parallel)
    if "fp8" in block.batch and not _any_has("fp8", workload):
        can = ", ".join(model for model in workloads.models() if _any_has("fp8", workloads.of(model)))
        yield f"batch.fp8: {block.model} has no fp8; these have: {can}"
    if block.options.fp8_scaling != Options.fp8_scaling and "fp8" not in block.batch:
        yield f"options.fp8_scaling = {block.options.fp8_scaling}: `batch` has no fp8; remove the key"
    if not workload.has_batch and any(batches != [1] for batches in block.batch.values()):
        precisions = ", ".join(f"{precision}: [1]" for precision in block.batch)
        yield f"batch: a call of {block.model} has no batch; write batch: {{{precisions}}}"
    for position, framework in enumerate(block.frameworks):
        if versions.base(framework) not in frameworks.NAMES:
            yield f"frameworks.{position} = {framework!r}: {allowed(framework, frameworks.NAMES)}"
            continue
        try:
            versions.pins(framework)
        except UserError as error:
            yield f"frameworks.{position} = {framework!r}: {error.what}; {error.next_step}"
    if not workload.has_batch and (given := [key for key in SIZES if getattr(block, key) != getattr(RunSpec, key)]):
        yield from (
            f"{key}: a call of {block.model} has no batch that devices could share; remove the key" for key in given
        )
    else:
        yield from _of_sizes(block)
        yield from _of_predictions(block)
    if block.deadline_hours is not None and block.task is None:
        yield "deadline_hours: it is the time for total_samples, the samples of the whole training; set that key too"


def _of_sizes(block: Benchmark) -> Iterable[str]:
    """Yield the reasons why the steps of a block cannot have their sizes."""
    at_once: list[tuple[str, StepSize]] = []
    options = block.options
    for topology, precision in product(map(Topology.parse, block.topologies), block.batch):
        for batch in block.batch[precision]:
            try:
                size = StepSize.of(topology, options.layout, batch, block.scaling, options.gradient_accumulation)
            except UserError as error:
                yield f"batch.{precision}: {error.what}; {error.next_step}"
                continue
            at_once.append((f"{precision} batch {batch} on {topology}", size))
            taken = block.global_batch or size.global_batch
            if block.job and block.job.samples % taken:
                yield (
                    f"job.samples = {block.job.samples}: a step of batch {batch} on {topology} takes {taken} samples; "
                    "choose a multiple of that, so that all steps are alike"
                )
    if block.global_batch is not None:
        yield from _of_global_batch(block, block.global_batch, at_once)


def _of_predictions(block: Benchmark) -> Iterable[str]:
    """Yield the topologies that cannot be predicted, because a step there cannot have its size."""
    for topology in block.predicted:
        for batch in dict.fromkeys(batch for batches in block.batch.values() for batch in batches):
            try:
                block.size(Topology.parse(topology), batch)
            except UserError as error:
                yield f"predict: {topology}: {error.what}; {error.next_step}"


def _of_global_batch(block: Benchmark, samples: int, at_once: Sequence[tuple[str, StepSize]]) -> Iterable[str]:
    """Yield the reasons why the steps of a block cannot take `samples` samples each."""
    if block.options.gradient_accumulation != Options.gradient_accumulation:
        yield (
            f"options.gradient_accumulation = {block.options.gradient_accumulation}: global_batch = {samples} decides "
            "how many micro-batches a step has; remove one of the two keys"
        )
        return
    wrong = [f"{where} takes {size.samples_at_once}" for where, size in at_once if samples % size.samples_at_once]
    if wrong:
        rest = f", and {len(wrong) - 1} more do not either" if len(wrong) > 1 else ""
        yield (
            f"global_batch = {samples}: {wrong[0]} samples at once, which does not divide it{rest}; the nearest "
            f"that every batch and topology of this block divides: {nearest([size for _, size in at_once], samples)}"
        )


def _of_phases(config: Config, name: str, block: Benchmark) -> Iterable[str]:
    """Yield the reasons why a convergence check cannot begin with the weights of the check that it names."""
    first = block.convergence and block.convergence.begin_from
    if not first:
        return
    if first not in config.benchmarks:
        yield f" = {first!r}: {allowed(first, [other for other in config.benchmarks if other != name])}"
        return
    other, passed = config.benchmarks[first], {name}
    if other.convergence is None:
        yield f" = {first!r}: it has no check whose weights could be taken; set benchmarks.{first}.convergence"
    if other.model != block.model:
        yield f" = {first!r}: it trains {other.model}, and this one {block.model}; weights fit only the same model"
    for key in ("frameworks", "batch"):
        missing = [name for name in getattr(block, key) if name not in getattr(other, key)]
        if missing:
            yield f" = {first!r}: it is not checked with {', '.join(missing)}; add that to benchmarks.{first}.{key}"
    while first in config.benchmarks and (before := config.benchmarks[first].convergence):
        if first in passed:
            yield f": {name} would begin with its own weights"
            return
        passed.add(first)
        first = before.begin_from or ""


def _any_has(feature: str, workload: workloads.Workload[Any]) -> bool:
    """True if the workload has the feature in at least one library."""
    return any(feature in features for features in workload.libraries.values())


def _of_tensor(model: str, tensor: int) -> Iterable[str]:
    """Yield a mistake if a replica cannot be divided among `tensor` devices.

    A workload without tensor parallelism is no mistake here: its run ends as `unsupported` and says why.
    """
    workload = workloads.of(model)
    if tensor == 1 or not _any_has("tensor_parallel", workload):
        return
    parts = workload.splits(model)
    if any(count % tensor for count in parts.values()):
        most = math.gcd(*parts.values())
        has = " and ".join(f"{count:,} {name}" for name, count in parts.items())
        possible = ", ".join(str(number) for number in range(1, most + 1) if most % number == 0)
        yield f"options.tensor_parallel = {tensor}: {model} has {has}, which divide by {possible}"


def _of_experts(model: str, ranks: int) -> Iterable[str]:
    """Yield a mistake if ranks cannot hold equal parts of a model's experts. A run without experts is no mistake: it
    ends as `unsupported` and says why."""
    count = workloads.of(model).experts(model) if ranks > 1 else 0
    if count % ranks:
        possible = ", ".join(str(number) for number in range(1, count + 1) if count % number == 0)
        yield f"options.expert_parallel = {ranks}: {model} has {count} experts, which divide by {possible}"


def _error(mistakes: Sequence[str], lost: Sequence[str] = ()) -> ConfigError:
    count = "one mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    return ConfigError(
        f"the configuration has {count}:\n  " + "\n  ".join(mistakes),
        why="; ".join(lost) or None,
        next_step="correct it; docs/configuration.md describes every key",
    )
