"""Read config.yaml into a Config: which files are read, how they are merged, and where the sections are.

Defaults are written only in the models of the sections. `python -m throughline.study.config_reference` generates
docs/reference/configuration.md and resources/config.schema.json from these models.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, SerializeAsAny, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from throughline import workloads
from throughline.files import UserError
from throughline.spec.program import DECIDES
from throughline.study import config_checks
from throughline.study.accept_section import Accept
from throughline.study.benchmark import Benchmark, ProgramName, Runs
from throughline.study.config_errors import explain, shown
from throughline.study.corpus_section import Corpus
from throughline.study.data_sections import Clicks, Faces, Images, Pictures
from throughline.study.program_section import ProgramSection
from throughline.study.result_sections import Compare, Goals, Import, Price
from throughline.study.section import ConfigPaths, DataSection, Name, Section


class ConfigError(UserError):
    """One or more mistakes in the configuration, one line for each."""


class Config(Section):
    corpus: Corpus = Field(default_factory=Corpus, description="text for pre-training")
    clicks: Clicks = Field(default_factory=Clicks, description="rows of clicks")
    images: Images = Field(default_factory=Images, description="pictures")
    faces: Faces = Field(default_factory=Faces, description="aligned faces, whose classes are persons")
    runs: Runs = Field(default_factory=Runs, description="how to measure; a benchmark can set these keys again")
    goals: Goals = Field(default_factory=Goals, description="what every benchmark has to reach")
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description="name of a device, or whole words of it (`A100-SXM4-80GB`, `Xeon`): its price. "
        "resources/gpus.csv has some",
    )
    benchmarks: dict[Name, SerializeAsAny[Benchmark]] = Field(
        default_factory=dict, description="what to measure, each under `results/<name>/`"
    )
    programs: dict[ProgramName, ProgramSection] = Field(
        default_factory=dict,
        description="training programs of your own; `benchmarks.<name>.programs` names those to measure",
    )
    imports: dict[Name, Import] = Field(
        default_factory=dict,
        description="logs of other programs, read into `results/<name>/` by `snakemake imports`",
    )
    accept: Accept = Field(default_factory=Accept, description="is every node and every device as fast as its peers?")
    compare: Compare = Field(default_factory=Compare, description="earlier results, and those of other machines")

    @classmethod
    def hint(cls, keys: Sequence[Any], raw: Mapping[str, Any]) -> str | None:
        return Benchmark.hint(keys[2:], raw["benchmarks"][keys[1]]) if keys[0] == "benchmarks" else None

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
        every = self.benchmarks.values()
        blocks = (block for block in every if block.options.data != "synthetic" or "reading" in block.extras)
        read = ((workloads.of(block.model), block) for block in blocks)
        return {workload.folder(self.parameters_of(block)) for workload, block in read if section == workload.data}

    def parameters_of(self, block: Benchmark) -> Any:
        """Return the Parameters of a block's workload. Raises ValueError if the data lack what the block's keys ask."""
        workload = workloads.of(block.model)
        known = {"model": block.model, **block.own_values}
        if block.model == DECIDES:
            known["counts"] = self.programs[block.programs[0]].unit
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
    paths: Sequence[str | Path],
    overrides: Mapping[str, Any] | None = None,
    config_paths: ConfigPaths | None = None,
    auto_topologies: Callable[[Benchmark], list[str]] = lambda _: ["1n1g"],
    skipped: Callable[[Mapping[str, Benchmark]], Collection[str]] = lambda _: (),
) -> Config:
    """Read, merge and check configuration files.

    Maps are merged and lists are replaced. A later file wins over an earlier one, and its null takes a key out.
    `overrides` are the values of Snakemake's --config, as text, or the configuration that another workflow hands over;
    they win over all files. `config_paths` says where relative paths lead; without it, they lead into the working
    directory. `auto_topologies` says what `auto` means in a block's `topologies`; the last one is `all`. `skipped`
    says which blocks are not for this machine: they are checked and left out. Raises ConfigError with one line per
    mistake.
    """
    raw: dict[str, Any] = {}
    for path in map(str, paths):
        raw = _merge(raw, _read(Path(config_paths.find(path) if config_paths else path)))
    raw = _merge(raw, _from_text(dict(overrides or {})))
    _validate(raw, config_paths)
    blocks = {name: _merge(raw.get("runs", {}), block) for name, block in raw.get("benchmarks", {}).items()}
    config = _validate({**raw, "benchmarks": blocks}, config_paths)
    others = skipped(config.benchmarks)
    settled = {
        name: block.model_copy(update={"topologies": _settled(block, auto_topologies, name in others)})
        for name, block in config.benchmarks.items()
    }
    config = config.model_copy(update={"benchmarks": settled})
    if mistakes := list(config_checks.mistakes(config)):
        raise _error(mistakes)
    return config.model_copy(
        update={"benchmarks": {name: block for name, block in settled.items() if name not in others}}
    )


def _settled(block: Benchmark, auto_topologies: Callable[[Benchmark], list[str]], skipped: bool) -> list[str]:
    """Return the topologies of a block without the words `auto` and `all`; of a block that is skipped, only 1n1g."""
    if "all" not in block.topologies and block.topologies != "auto":
        return list(block.topologies)
    found = ["1n1g"] if skipped else auto_topologies(block)
    if block.topologies == "auto":
        return found
    return list(dict.fromkeys(found[-1] if name == "all" else name for name in block.topologies))


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


def _error(mistakes: Sequence[str], lost: Sequence[str] = ()) -> ConfigError:
    count = "one mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    return ConfigError(
        f"the configuration has {count}:\n  " + "\n  ".join(mistakes),
        why="; ".join(lost) or None,
        next_step="correct it; docs/reference/configuration.md describes every key",
    )
