"""From a target's wildcards to the files of the corpus, and to the arguments of the commands that make them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from throughline.files import UserError
from throughline.study.corpus_section import Corpus, ShardFolder, is_dump_name
from throughline.study.section import canonical
from throughline.study.targets import absent

LISTED_AT_MOST = 8
"""How many of a kind are named; of more, the first and the last."""


class CorpusTargets:
    """`finished` are another maker's shards, {length: {our name: file}}; None where shards are made here."""

    def __init__(self, corpus: Corpus, finished: Mapping[int, Mapping[str, Path]] | None) -> None:
        self.corpus, self.finished = corpus, finished
        self.parts = [f"{part:04d}" for part in range(corpus.parts)]

    def shards(self, sequence: str | int) -> list[str]:
        """Our names of a length's shards; none where the length is not configured."""
        if self.finished is not None:
            return list(self.finished.get(int(sequence), {}))
        counts = {"training": self.corpus.shards.training, "test": self.corpus.shards.test}
        return [f"{split}_{number:04d}" for split, count in counts.items() for number in range(count)]

    def check(self, **wildcards: str) -> None:
        """UserError where the corpus has no such length, part or shard."""
        if "split" in wildcards:
            wildcards["shard"] = f"{wildcards['split']}_{wildcards['number']}"
        have = {
            "corpus": [self.corpus.name],
            "sequence": [str(length) for length in self.corpus.sequences],
            "part": self.parts,
            "shard": self.shards(wildcards.get("sequence", min(self.corpus.sequences))),
        }
        for name, there in have.items():
            if name in wildcards and wildcards[name] not in there:
                named = there if len(there) <= LISTED_AT_MOST else [there[0], "...", there[-1]]
                raise absent(f"{name} {wildcards[name]}", named)

    def dump(self) -> list[str]:
        """The dump's files: the user's own, the sample that is copied, or the listing of a download."""
        dump, folder = self.corpus.dump, f"data/{self.corpus.name}/dump"
        if isinstance(dump, list):
            return dump
        if isinstance(dump, ShardFolder):
            raise UserError("corpus.dump is a folder of finished shards: no part of a dump is extracted")
        if dump == "sample":
            return [f"{folder}/sample.xml.bz2"]
        return [f"{folder}/{dump}.json" if is_dump_name(dump) else dump]

    def vocabulary(self) -> list[str]:
        """The vocabulary as arguments of its command."""
        vocabulary = self.corpus.vocabulary
        if isinstance(vocabulary, str):
            return ["--name", vocabulary]
        place = ["--path", vocabulary.path] if vocabulary.path else ["--url", str(vocabulary.url)]
        return [*place, "--sha256", vocabulary.sha256]

    def extractor(self) -> list[str]:
        """The extractor as arguments of its command; none for the default, whose parts of before this option stay."""
        return [] if self.corpus.extractor == "wikiextractor" else ["--extractor", self.corpus.extractor]

    def finished_shard(self, **wildcards: str) -> str:
        """The file of another maker that stands behind our name of a shard."""
        self.check(**wildcards)
        assert self.finished is not None
        return str(self.finished[int(wildcards["sequence"])][f"{wildcards['split']}_{wildcards['number']}"])

    def verified(self, **wildcards: str) -> list[str]:
        """The verifications of all shards of a length."""
        self.check(**wildcards)
        folder = f"data/{self.corpus.name}/seq{wildcards['sequence']}/verified"
        return [f"{folder}/{shard}.json" for shard in self.shards(wildcards["sequence"])]

    def parameters(self, sequence: str) -> str:
        """What decides a shard beside text and vocabulary, as canonical JSON."""
        return canonical(self.corpus.shard_parameters(int(sequence)))

    def verified_against(self, sequence: str, tokens: str) -> list[str]:
        """What a shard is verified against: all that we know of it."""
        if self.finished is not None:
            return ["--size", sequence, str(self.corpus.sequences[int(sequence)])]
        return ["--tokens", tokens, "--parameters", self.parameters(sequence)]
