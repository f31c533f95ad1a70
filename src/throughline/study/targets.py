"""Look up what stands behind a target: a run, a summary, a proof, a search, a convergence check or a shard.

The wildcards of the target select it. If the configuration does not ask for such a target, a UserError says which
targets it does ask for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from throughline.files import UserError
from throughline.spec import RunSpec, canonical
from throughline.study.clicks_section import SYNTHETIC, Clicks
from throughline.study.config import Config, block_name
from throughline.study.corpus_section import BPE, SAMPLE, Corpus, ShardFolder, TextFiles, files_of, is_named
from throughline.study.images_section import Pictures
from throughline.study.runs import manifest, switch

RUN = "results/{benchmark}/bz{batch}_{precision}/{framework}/{topology}/run{repeat}"
CELL = "results/{benchmark}/bz{batch}_{precision}.json"
SEARCH = "results/{benchmark}/max_{quantity}_{precision}.json"
CHECK = "results/{benchmark}/convergence_bz{batch}_{precision}_{framework}_{topology}"
LISTED_AT_MOST = 8
"""Largest number of lengths, parts or shards that an error lists. Of more, it names only the first and the last."""
T = TypeVar("T")


def pick(table: Mapping[str, T], key: str, what: str = "{}", next_step: str | None = None) -> T:
    """Return `table[key]`. Raises UserError with all keys of the table if there is no such key.

    `what` is the name of the target in the error; its `{}` becomes the key.
    """
    if key not in table:
        raise absent(what.format(key), table, next_step=next_step)
    return table[key]


def absent(target: str, there: Iterable[str], which: str = "", next_step: str | None = None) -> UserError:
    """Return the error for a target that the configuration does not ask for.

    `there` are the targets that it does ask for; `which` is a remark about them.
    """
    names = list(there)
    long = any("/" in name for name in names)
    listed = ("\n  " + "\n  ".join(names)) if long else " " + (", ".join(names) or "none")
    return UserError(f"{target} is not in the configuration. It holds{which}:{listed}", next_step=next_step)


class Targets:
    """Everything that a configuration asks for, by file name.

    `proofs` maps a benchmark to its specifications. `searches` maps a file to its specifications, and `checks` a file
    to its specification. The rooms that make these files provide the three maps.
    """

    def __init__(
        self,
        config: Config,
        specs: Sequence[RunSpec],
        proofs: Mapping[str, Sequence[RunSpec]],
        searches: Mapping[str, Sequence[RunSpec]],
        checks: Mapping[str, RunSpec],
    ) -> None:
        self.config, self.proofs, self.searches, self.checks = config, proofs, searches, checks
        self.specs = {spec.record: spec for spec in specs}
        self.summaries: dict[str, list[str]] = {}
        for spec in specs:
            self.summaries.setdefault(spec.summary, []).append(spec.record)
        self.by_benchmark: dict[str, list[str]] = {}
        for summary in self.summaries:
            self.by_benchmark.setdefault(summary.split("/")[1], []).append(summary)
        self._priorities = dict(zip(self.specs, range(len(self.specs), 0, -1), strict=True))

    def run(self, **wildcards: str) -> RunSpec:
        """Return the specification of a record."""
        record = RUN.format(**wildcards) + ".json"
        if record not in self.specs:
            cells = sorted({spec.record.rpartition("/")[0] for spec in self.specs.values()})
            repeats = max((spec.repeat for spec in self.specs.values()), default=0)
            raise absent(record, cells, f", with run1 to run{repeats}")
        return self.specs[record]

    def priority(self, **wildcards: str) -> int:
        """Return a run's priority, which is higher the earlier the run stands in the order of all runs.

        In this order the runs of one repeat are neighbours, so that a slow hour affects all configurations alike.
        """
        return self._priorities[self.run(**wildcards).record]

    def records(self, **wildcards: str) -> list[str]:
        """Return the records that a summary is made of."""
        return pick(self.summaries, CELL.format(**wildcards))

    def summaries_of(self, benchmark: str) -> list[str]:
        """Return the summaries of a benchmark."""
        return pick(self.by_benchmark, benchmark, "benchmark {}")

    def extras(self, benchmark: str) -> list[str]:
        """Return the summaries of a benchmark's derived runs, which show where the time goes and how large noise is."""
        names = [f"{benchmark}__{extra}" for extra in ("noexchange", "synthetic", "aa")]
        return [summary for name in names for summary in self.by_benchmark.get(name, ())]

    def compared(self, benchmark: str) -> list[str]:
        """Return the other summaries that are needed to judge the pairs of a benchmark.

        These are all summaries of its block. If the benchmark has switched on one option, they are also all summaries
        of the blocks that do not have this option and are otherwise the same.
        """
        mine = self._first(benchmark)
        partners = [name for name in self.by_benchmark if switch(self._first(name), mine)]
        blocks = {block_name(name) for name in (benchmark, *partners)}
        names = [name for name in self.by_benchmark if name != benchmark and block_name(name) in blocks]
        return [summary for name in names for summary in self.by_benchmark[name]]

    def _first(self, benchmark: str) -> RunSpec:
        return self.specs[self.summaries[self.summaries_of(benchmark)[0]][0]]

    def proof(self, benchmark: str) -> Sequence[RunSpec]:
        """Return the specifications that the proof of a benchmark's equivalence runs."""
        target = "a proof for {}, which compares no frameworks and splits no model over ranks,"
        return pick(self.proofs, benchmark, target)

    def search(self, **wildcards: str) -> Sequence[RunSpec]:
        """Return the specifications of a search for the largest batch or another largest quantity.

        There is one specification for each framework.
        """
        extras = f"benchmarks.{wildcards['benchmark']}.extras"
        return pick(self.searches, SEARCH.format(**wildcards), next_step=f"add max_{wildcards['quantity']} to {extras}")

    def check(self, **wildcards: str) -> RunSpec:
        """Return the specification of a convergence check."""
        block = f"benchmarks.{wildcards['benchmark']}"
        return pick(self.checks, CHECK.format(**wildcards) + ".json", next_step=f"set {block}.convergence")

    def begin(self, **wildcards: str) -> list[str]:
        """Return the curve of the check whose last weights this check begins with.

        The list is empty if this check begins with random weights.
        """
        spec = self.check(**wildcards)
        settings = self.config.block(spec.benchmark).convergence
        first = settings and settings.begin_from, spec.framework, spec.precision
        found = [place for place, one in self.checks.items() if (one.benchmark, one.framework, one.precision) == first]
        return [f"{place.removesuffix('.json')}/curve.json" for place in found]

    def manifests(self) -> list[str]:
        """Return the manifests that the runs read."""
        return sorted({made for spec in self.specs.values() if (made := manifest(spec))})

    def summary_options(self, **wildcards: str) -> list[str]:
        """Return the arguments, apart from the records, of the command that makes a summary."""
        spec, benchmark = self.specs[self.records(**wildcards)[0]], wildcards["benchmark"]
        block = self.config.block(benchmark)
        terms = {
            "goals": None if "__" in benchmark else self.config.goals.model_dump(),
            "prices": {name: price.model_dump() for name, price in self.config.prices.items()},
            "task_samples": block.task_samples or (block.job.trained if block.job else None),
        }
        remarks = [f"--remarks={block.remarks}"] if block.remarks else []
        strict = ["--strict"] if block.strict else []
        return ["--spec", spec.canonical, "--asked", str(block.repeats), "--terms", canonical(terms), *remarks, *strict]


class CorpusTargets:
    """The files of the corpus, and the arguments of the commands that make them.

    folders: the folders that are made, `seq<length>` or BPE, each with a manifest. finished: shards that somebody else
    made, as {folder: {our name: file}}; None if shards are made here.

    `cuts` maps a suffix to each source of the text. The suffix belongs to the name of the file that says where the
    source is cut into parts. `parts` are the numbers of all parts. Every source has the same number of parts, and the
    parts of the first source come first.
    """

    def __init__(
        self, corpus: Corpus, folders: Iterable[str], finished: Mapping[str, Mapping[str, Path]] | None
    ) -> None:
        self.corpus, self.folders, self.finished = corpus, list(folders), finished
        sources = corpus.sources
        self.cuts = {f"_{number}" if len(sources) > 1 else "": source for number, source in enumerate(sources)}
        self.parts = [f"{part:04d}" for part in range(corpus.parts * max(len(sources), 1))]

    def files(self) -> list[str]:
        """Return everything that `snakemake corpus` makes: the manifests and the shards.

        The shards are named too, so that a missing shard is made again.
        """
        names = [f"{folder}/manifest.json" for folder in self.folders]
        names += [f"{folder}/{shard}{self.ending(folder)}" for folder in self.folders for shard in self.shards(folder)]
        return [f"data/{self.corpus.name}/{name}" for name in names]

    def check_kept(self, pending: Iterable[str], root: Path = Path()) -> None:
        """Raise UserError if a pending file needs articles that were removed after the corpus was finished.

        `corpus.keep: shards` removes them.
        """
        folder = f"data/{self.corpus.name}"
        files = sorted(name for name in pending if name.startswith(f"{folder}/"))
        again = [name for name in files if name.startswith(f"{folder}/articles/")]
        if self.corpus.keep == "shards" and again and any(root.glob(f"{folder}/*/manifest.json")):
            lost = [name for name in files if "/seq" in name and not (root / name).exists()]
            needs = lost[0] if lost else again[0]
            raise UserError(
                f"{needs} is made of articles that this corpus has not kept",
                why=f"corpus.keep is shards: articles and tokens were removed when {folder} was finished",
                next_step="set corpus.keep: all, and run snakemake again: it makes the whole corpus from its dump once "
                "more. Or set another corpus.name",
            )

    def ending(self, folder: str) -> str:
        """Return the file name ending of a folder's shards."""
        return ".bin" if folder == BPE and self.finished is not None else ".hdf5"

    def shards(self, folder: str) -> list[str]:
        """Return our names of a folder's shards. The list is empty if the finished shards have none for the folder."""
        if self.finished is not None:
            return list(self.finished.get(folder, {}))
        counts = {"training": self.corpus.shards.training, "test": self.corpus.shards.test}
        return [f"{split}_{number:04d}" for split, count in counts.items() for number in range(count)]

    def check(self, folder: str = "", **wildcards: str) -> None:
        """Raise UserError if the corpus has no such length, part or shard.

        Give `folder` if the wildcards have no sequence length that names the folder.
        """
        if "split" in wildcards:
            wildcards["shard"] = f"{wildcards['split']}_{wildcards['number']}"
        have = {
            "corpus": [self.corpus.name],
            "sequence": [str(length) for length in self.corpus.sequences],
            "part": self.parts,
            "shard": self.shards(folder or f"seq{wildcards.get('sequence')}"),
        }
        for name, there in have.items():
            if name in wildcards and wildcards[name] not in there:
                named = there if len(there) <= LISTED_AT_MOST else [there[0], "...", there[-1]]
                raise absent(f"{name} {wildcards[name]}", named)

    def dump(self, source: str = "") -> list[str]:
        """Return a source's files: the user's files, the copied sample, or the file that lists a download."""
        if isinstance(self.corpus.dump, ShardFolder):
            raise UserError("corpus.dump is a folder of finished shards: no part of a dump is extracted")
        found = pick(self.cuts, source, f"data/{self.corpus.name}/dump/parts{{}}.json")
        files = files_of(found)
        if isinstance(found, TextFiles) or len(files) > 1 or not is_named(files[0]):
            return files
        return [f"data/{self.corpus.name}/dump/{files[0]}{'.xml.bz2' if files[0] == SAMPLE else '.json'}"]

    def cut(self, part: str, **wildcards: str) -> str:
        """Return the file that says where the source of a part is cut into parts."""
        self.check(part=part, **wildcards)
        return f"data/{self.corpus.name}/dump/parts{self._cut_of(part)}.json"

    def _cut_of(self, part: str) -> str:
        return [*self.cuts, ""][int(part) // self.corpus.parts]

    def vocabulary(self) -> list[str]:
        """Return the vocabulary as arguments of the command that makes it."""
        vocabulary = self.corpus.vocabulary
        if isinstance(vocabulary, str):
            return ["--name", vocabulary]
        place = ["--path", vocabulary.path] if vocabulary.path else ["--url", str(vocabulary.url)]
        return [*place, "--sha256", vocabulary.sha256, *self.case()]

    def case(self) -> list[str]:
        """Return the argument that says that text keeps its capitals.

        For the default there is no argument, so that finished files stay valid.
        """
        return [] if self.corpus.lower_case else ["--cased"]

    def form(self, source: str = "") -> list[str]:
        """Return the argument that says that a source's files are plain text; none for a dump."""
        return ["--text"] if isinstance(self.cuts[source], TextFiles) else []

    def lines(self) -> list[Callable[[Any], str]]:
        """Return a function that maps a part to the argument that says whether every line is a sentence.

        The list is empty if no source has one sentence per line.
        """
        by_line = {cut: isinstance(of, TextFiles) and of.has_sentences for cut, of in self.cuts.items()}
        argument = {cut: "--lines" if lines else "" for cut, lines in by_line.items()}
        return [lambda wildcards: argument[self._cut_of(wildcards.part)]] if any(by_line.values()) else []

    def extractor(self) -> list[str]:
        """Return the extractor as arguments of its command.

        For the default there are none, so that parts that were made before this option existed stay valid.
        """
        return [] if self.corpus.extractor == "wikiextractor" else ["--extractor", self.corpus.extractor]

    def finished_shard(self, folder: str = "", **wildcards: str) -> str:
        """Return the finished file, made by somebody else, that our name of a shard stands for."""
        self.check(folder, **wildcards)
        assert self.finished is not None
        shards = self.finished[folder or f"seq{wildcards['sequence']}"]
        return str(shards[f"{wildcards['split']}_{wildcards['number']}"])

    def verified(self, folder: str = "", **wildcards: str) -> list[str]:
        """Return the verification files of all shards of a folder."""
        self.check(folder, **wildcards)
        folder = folder or f"seq{wildcards['sequence']}"
        return [f"data/{self.corpus.name}/{folder}/verified/{shard}.json" for shard in self.shards(folder)]

    def parameters(self, sequence: str) -> str:
        """Return as canonical JSON everything that decides a shard apart from text and vocabulary."""
        return canonical(self.corpus.shard_parameters(int(sequence)))

    def verified_against(self, sequence: str, tokens: str) -> list[str]:
        """Return the arguments that say what a shard is verified against.

        For a finished shard that somebody else made, these are only its length and its number of predictions.
        """
        if self.finished is not None:
            return ["--size", sequence, str(self.corpus.sequences[int(sequence)])]
        return ["--tokens", tokens, "--parameters", self.parameters(sequence)]

    def tokens_against(self) -> list[str]:
        """Return the arguments that say what a shard of GPT-2's tokens is verified against.

        For a finished shard that somebody else made, there are none.
        """
        if self.finished is not None:
            return []
        return ["--vocabulary", f"data/{self.corpus.name}/{BPE}/vocabulary", "--digest", self.corpus.digest(BPE)]


class PicturesTargets:
    """The files of the pictures of a section. `room` is the section's name and the name of the pictures' folder."""

    def __init__(self, pictures: Pictures, room: str) -> None:
        self.room, self.folder, self.name = room, f"data/{pictures.name}/{room}", pictures.name
        self.pictures = pictures
        counts = pictures.shards.model_dump().items()
        self.shards = [f"{split}_{number:04d}" for split, count in counts for number in range(count)]

    def files(self) -> list[str]:
        """Return everything that `snakemake images` makes: the manifest and the shards.

        The shards are named too, so that a missing shard is made again.
        """
        if self.pictures.is_made_up:
            return []
        shards = [f"{self.folder}/{shard}{ending}" for shard in self.shards for ending in (".tar", ".idx")]
        return [f"{self.folder}/manifest.json", *shards]

    def check(self, **wildcards: str) -> None:
        """Raise UserError if there are no such pictures, or if they have no such shard."""
        there = [] if self.pictures.is_made_up else [self.name]
        if wildcards["images"] not in there:
            next_step = f"name a folder as {self.room}.source" if not there else None
            raise absent(f"{self.room} {wildcards['images']}", there, next_step=next_step)
        shard = f"{wildcards['split']}_{wildcards['number']}" if "split" in wildcards else self.shards[0]
        if shard not in self.shards:
            there = self.shards if len(self.shards) <= LISTED_AT_MOST else [self.shards[0], "...", self.shards[-1]]
            raise absent(f"shard {shard}", there)

    def verified(self, **wildcards: str) -> list[str]:
        """Return the verification files of all shards."""
        self.check(**wildcards)
        return [f"{self.folder}/verified/{shard}.json" for shard in self.shards]


class ClicksTargets:
    """The files of the clicks, and the arguments of the commands that make them."""

    def __init__(self, clicks: Clicks) -> None:
        self.clicks, self.folder = clicks, f"data/{clicks.name}/clicks"
        counts = clicks.shards.model_dump().items()
        self.shards = [f"{split}_{number:04d}" for split, count in counts for number in range(count)]

    def files(self) -> list[str]:
        """Return everything that `snakemake clicks` makes: the manifest and the shards.

        The shards are named too, so that a missing shard is made again.
        """
        return [f"{self.folder}/manifest.json", *(f"{self.folder}/{shard}.hdf5" for shard in self.shards)]

    def check(self, clicks: str) -> None:
        """Raise UserError if there are no such clicks."""
        if clicks != self.clicks.name:
            raise absent(f"clicks {clicks}", [self.clicks.name])

    def shard(self, clicks: str, split: str, number: str) -> int:
        """Return the position of a shard among all shards."""
        self.check(clicks)
        shard = f"{split}_{number}"
        if shard not in self.shards:
            there = self.shards if len(self.shards) <= LISTED_AT_MOST else [self.shards[0], "...", self.shards[-1]]
            raise absent(f"shard {shard}", there)
        return self.shards.index(shard)

    def parts(self, clicks: str, **shard: str) -> list[str]:
        """Return the parts that the shards are gathered from."""
        self.check(clicks)
        return [f"{self.folder}/parts/part_{part:04d}.hdf5" for part in range(len(self.clicks.logs))]

    def log(self, clicks: str, part: str) -> str:
        """Return the log that a part is parsed from."""
        self.check(clicks)
        if int(part) >= len(self.clicks.logs):
            raise absent(f"part {part}", self.parts(clicks))
        return self.clicks.logs[int(part)]

    def made_up(self, clicks: str, log: str) -> list[str]:
        """Return what decides a made-up log, as arguments. All made-up logs have the same share of the rows."""
        self.check(clicks)
        if self.clicks.source != SYNTHETIC or int(log) >= len(self.clicks.logs):
            raise absent(f"log day_{log}.tsv", self.clicks.logs)
        number, count = int(log), len(self.clicks.logs)
        rows = self.clicks.rows * (number + 1) // count - self.clicks.rows * number // count
        return ["--part", log, "--rows", str(rows), "--values", str(self.clicks.values)]

    def verified(self, clicks: str) -> list[str]:
        """Return the verification files of all shards."""
        self.check(clicks)
        return [f"{self.folder}/verified/{shard}.json" for shard in self.shards]
