"""The files of the corpus, and the arguments of the commands that make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from throughline.datasets.shards import shard_names
from throughline.datasets.targets import Shards, require
from throughline.files import UserError
from throughline.study.corpus_section import BPE, SAMPLE, Corpus, ShardFolder, TextFiles, files_of, is_named
from throughline.study.targets import pick


class CorpusTargets:
    """The files of the corpus, and the arguments of the commands that make them.

    folders: the folders that are made, `seq<length>` or BPE, each with a manifest. finished: shards that somebody else
    made, as {folder: {our name: file}}; None if shards are made here. needed: the folders that runs read; None: all.

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

    def shards(self, folder: str) -> Shards:
        """Return a folder's shards. They have no names if the finished shards have none for the folder."""
        made = shard_names(self.corpus.shards.model_dump())
        names = made if self.finished is None else list(self.finished.get(folder, {}))
        return Shards(f"data/{self.corpus.name}/{folder}", names, [self.ending(folder)])

    def check(self, folder: str = "", **wildcards: str) -> None:
        """Raise UserError if the corpus has no such length, part or shard.

        Give `folder` if the wildcards have no sequence length that names the folder.
        """
        if "split" in wildcards:
            wildcards["shard"] = f"{wildcards['split']}_{wildcards['number']}"
        have = {
            "corpus": [self.corpus.name],
            "sequence_length": [str(length) for length in self.corpus.sequences],
            "part": self.parts,
            "shard": self.shards(folder or f"seq{wildcards.get('sequence_length')}").names,
        }
        for what, names in have.items():
            if what in wildcards:
                require(what, wildcards[what], names)

    def dump(self, source: str = "") -> list[str]:
        """Return a source's files: the user's files, the copied sample, or the file that lists a download."""
        if isinstance(self.corpus.dump, ShardFolder):
            raise UserError("corpus.dump is a folder of finished shards: no part of a dump is extracted")
        chosen = pick(self.cuts, source, f"data/{self.corpus.name}/dump/parts{{}}.json")
        files = files_of(chosen)
        if isinstance(chosen, TextFiles) or len(files) > 1 or not is_named(files[0]):
            return files
        return [f"data/{self.corpus.name}/dump/{files[0]}{'.xml.bz2' if files[0] == SAMPLE else '.json'}"]

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

    def is_text(self, source: str = "") -> bool:
        """Return True if a source's files are plain text or JSON lines, False for a dump."""
        return isinstance(self.cuts[source], TextFiles)

    def lines(self, part: str, **wildcards: str) -> bool:
        """Return True if every line of a part's articles is a sentence."""
        source = self.cuts[self._cut_of(part)]
        return isinstance(source, TextFiles) and source.has_sentences

    def position(self, split: str, number: str, **wildcards: str) -> int:
        """Return the position of a shard among all shards that we make."""
        return shard_names(self.corpus.shards.model_dump()).index(f"{split}_{number}")

    def finished_shard(self, folder: str = "", **wildcards: str) -> str:
        """Return the finished file, made by somebody else, that our name of a shard stands for."""
        self.check(folder, **wildcards)
        assert self.finished is not None
        shards = self.finished[folder or f"seq{wildcards['sequence_length']}"]
        return str(shards[f"{wildcards['split']}_{wildcards['number']}"])

    def verified(self, folder: str = "", **wildcards: str) -> list[str]:
        """Return the verification files of all shards of a folder. Raise UserError if finished shards lack it."""
        self.check(folder, **wildcards)
        folder = folder or f"seq{wildcards['sequence_length']}"
        if self.finished is not None and folder not in self.finished:
            raise UserError(
                f"corpus.dump.shards holds no finished shards for {folder}",
                why="files of a length that no run reads may be missing there",
                next_step="add them to that folder, or ask for another target",
            )
        return self.shards(folder).verified()
