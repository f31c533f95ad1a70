"""The files of the corpus, and what its rules look up for their wildcards."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from throughline import files
from throughline.corpus.shards import layout
from throughline.datasets.shards import shard_name, shard_names, split_of
from throughline.datasets.targets import Shards, require, there
from throughline.files import UserError
from throughline.study.corpus_section import BPE, SAMPLE, Corpus, ShardFolder, shard_files
from throughline.study.targets import pick


class CorpusTargets:
    """The files of the corpus. A look-up gets the wildcards of a rule by their names, and says which files it needs.

    folders: the folders that are made, `seq<length>` or BPE, each with a manifest. finished: finished shards that are
    used as they are, as {folder: {our name: file}}; None if shards are made here. needed: the folders that runs read;
    None: all.

    `cuts` maps a suffix to each source of the text. The suffix belongs to the name of the file that says where the
    source is cut into parts. `parts` are the numbers of all parts. Every source has the same number of parts, and the
    parts of the first source come first.
    """

    def __init__(
        self,
        corpus: Corpus,
        folders: Iterable[str],
        finished: Mapping[str, Mapping[str, Path]] | None,
        needed: Iterable[str] | None = None,
    ) -> None:
        self.corpus, self.folders, self.finished = corpus, list(folders), finished
        self.needed = self.folders if needed is None else list(needed)
        sources = corpus.sources
        self.cuts = {f"_{number}" if len(sources) > 1 else "": source for number, source in enumerate(sources)}
        self.parts = [f"{part:04d}" for part in range(corpus.parts * max(len(sources), 1))]

    def files(self) -> list[str]:
        """Return everything that `snakemake corpus` makes."""
        return [file for folder in self.folders for file in self.shards(folder).files()]

    def files_of_runs(self) -> list[str]:
        """Return those of these files that runs read."""
        return [file for folder in self.needed for file in self.shards(folder).files()]

    def shards(self, folder: str) -> Shards:
        """Return a folder's shards. They have no names if the finished shards have none for the folder."""
        made = shard_names(self.corpus.shards.model_dump())
        names = made if self.finished is None else list(self.finished.get(folder, {}))
        return Shards(f"data/{self.corpus.name}/{folder}", names)

    def check(self, **wildcards: str) -> None:
        """Raise UserError if the corpus has no such length, part or shard."""
        if "split" in wildcards:
            wildcards["shard"] = f"{wildcards['split']}_{wildcards['number']}"
        have = {
            "corpus": [self.corpus.name],
            "sequence_length": [str(length) for length in self.corpus.sequences],
            "part": self.parts,
            "shard": self.shards(_folder(wildcards)).names,
        }
        for what, names in have.items():
            if what in wildcards:
                require(what, wildcards[what], names)

    def dump(self, number: str = "") -> list[str]:
        """Return a source's files: the user's files, the copied sample, or the file that lists a download."""
        if not self.cuts:
            raise UserError("corpus.dump is a folder of finished shards: no part of a dump is extracted")
        source = pick(self.cuts, number, f"data/{self.corpus.name}/dump/parts{{}}.json")
        if source.name is None:
            return [there(file, "corpus.dump") for file in source.files]
        return [f"data/{self.corpus.name}/dump/{source.name}{'.xml.bz2' if source.name == SAMPLE else '.json'}"]

    def cut(self, part: str, **wildcards: str) -> str:
        """Return the file that says where the source of a part is cut into parts."""
        self.check(part=part, **wildcards)
        return f"data/{self.corpus.name}/dump/parts{self._cut_of(part)}.json"

    def _cut_of(self, part: str) -> str:
        return [*self.cuts, ""][int(part) // self.corpus.parts]

    def vocabulary(self) -> dict[str, Any]:
        """Return the source of the vocabulary: its name, the user's own tokenizer, or a file with its SHA-256."""
        vocabulary, tokenizer = self.corpus.vocabulary, self.corpus.own_tokenizer
        if tokenizer:
            return {"tokenizer": tokenizer.path, "sha256": tokenizer.sha256}
        return {"name": vocabulary} if isinstance(vocabulary, str) else vocabulary.model_dump(exclude_none=True)

    @property
    def tokenizer(self) -> str:
        """The corpus's copy of the user's own tokenizer; empty without one."""
        return f"data/{self.corpus.name}/tokenizer.json" if self.corpus.tokenizer else ""

    def is_text(self, number: str = "") -> bool:
        """Return True if a source's files are plain text or JSON lines, False for a dump."""
        return self.cuts[number].is_text

    def lines(self, part: str, **wildcards: str) -> bool:
        """Return True if every line of a part's articles is a sentence."""
        return self.cuts[self._cut_of(part)].has_sentences

    def position(self, split: str, number: str, **wildcards: str) -> int:
        """Return the position of a shard among all shards that we make."""
        return shard_names(self.corpus.shards.model_dump()).index(f"{split}_{number}")

    def finished_shard(self, **wildcards: str) -> str:
        """Return the finished shard that our name of a shard stands for."""
        self.check(**wildcards)
        assert self.finished is not None
        return str(self.finished[_folder(wildcards)][f"{wildcards['split']}_{wildcards['number']}"])

    def verified(self, **wildcards: str) -> list[str]:
        """Return the verification files of all shards of a folder; UserError if finished shards lack it."""
        self.check(**wildcards)
        folder = _folder(wildcards)
        if self.finished is not None and folder not in self.finished:
            raise UserError(
                f"corpus.dump.shards holds no finished shards for {folder}",
                why="files of a length that no run reads may be missing there",
                next_step="add them to that folder, or ask for another target",
            )
        return self.shards(folder).verified()


def _folder(wildcards: Mapping[str, str]) -> str:
    """Return the folder that wildcards belong to: that of a sequence length, or else of running text."""
    return f"seq{wildcards['sequence_length']}" if "sequence_length" in wildcards else BPE


def finished_shards(corpus: Corpus, needed: Collection[str]) -> dict[str, dict[str, Path]] | None:
    """Map each folder of the corpus, such as `seq128`, to its finished shards: our name of each and its file.

    Returns None if the corpus makes its own shards. The user's folder may hold several lengths, each in a folder of its
    own, as NVIDIA's data script writes them. We open one file of each; verification opens the others.
    UserError if a folder that runs need (`needed`) has other predictions or no training shard, or if a file's name does
    not tell its split. Other lengths of the corpus may be absent.
    """
    if not isinstance(corpus.dump, ShardFolder):
        return None
    if BPE in needed:
        raise UserError(
            "corpus.dump.shards holds pairs of sentences for BERT, and a benchmark reads running text",
            next_step="give the text as corpus.dump; or leave that benchmark out: benchmarks: {NAME: null}, in a "
            "second configuration file",
        )
    shards: dict[str, dict[str, Path]] = {}
    seen: Counter[tuple[int, int]] = Counter()
    for _, folder in groupby(sorted(shard_files(corpus.dump.shards), key=files.natural), lambda path: path.parent):
        paths = list(folder)
        _, length, predictions = layout.size(paths[0])
        seen[length, predictions] += len(paths)
        if corpus.sequences.get(length) == predictions:
            named = shards.setdefault(f"seq{length}", {})
            for path in paths:
                split = split_of(path.name)
                named[shard_name(split, sum(name.startswith(split) for name in named))] = path
    for length, predictions in corpus.sequences.items():
        if f"seq{length}" in needed and "training_0000" not in shards.get(f"seq{length}", {}):
            listed = ", ".join(f"{size[0]}: {size[1]} in {count} files" for size, count in seen.items())
            raise UserError(
                f"{corpus.dump.shards} holds no training shards of {length} tokens with {predictions} predictions",
                why=f"it holds (length: predictions) {listed}",
                next_step="write into corpus.sequences what the shards have; name the folder that has these; or leave "
                "out the benchmarks that read them: benchmarks: {NAME: null}, in a second configuration file",
            )
    return shards
