"""The section `corpus`: how a dump becomes pre-training data, and which of its keys decide the files."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, NonNegativeInt

from throughline.files import UserError
from throughline.study import tokenizer_file
from throughline.study.section import (
    Contact,
    DataSection,
    FilePath,
    HttpAddress,
    Name,
    PositiveInt,
    Section,
    Shards,
    Share,
    Text,
    lead,
)
from throughline.study.tokenizer_file import TokenizerFile
from throughline.text_files import is_json_lines

DATA_PROTOCOL = 1
"""A developer raises this number when the same text gives different shards. It changes the digest of every corpus."""
BPE_PROTOCOL = 1
"""The same number for GPT-2's tokens."""
BPE = "bpe"
"""The folder of GPT-2's tokens, the same for every length. BERT's pairs of a length are in seq<length>."""

SAMPLE = "sample"
MOST_PARTS = 10_000

SequenceLength = Annotated[int, Field(ge=8, le=32768)]


class Masking(Section):
    probability: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.15, description="share of tokens to predict; corpus.sequences limits their number"
    )
    short_sequences: Share = Field(0.1, description="share of sequences of a random shorter length")
    dupe_factor: PositiveInt = Field(5, description="how often the text is used, each time with new pairs and masks")
    seed: NonNegativeInt = Field(12345, description="seed of every random choice")
    dynamic: bool = Field(
        False,
        description="true: training draws new masks in every epoch (set dupe_factor: 1)",
    )


class ShardFolder(Section):
    shards: FilePath = Field(
        description="a folder of finished shards for BERT: HDF5 in NVIDIA's layout, named `training` or `test`. "
        "corpus.sequences names their lengths; parts, shards and masking are not used"
    )


class TextFiles(Section):
    text: FilePath | Annotated[list[FilePath], Field(min_length=1)] = Field(
        description="files, plain or gzip: UTF-8, one sentence a line with an empty line between documents; or JSON "
        'lines, such as {"text": "..."}, with a document a line'
    )


class VocabularyFile(Section):
    path: Annotated[str, AfterValidator(lead)] | None = Field(
        None, description="a WordPiece vocabulary, one entry a line"
    )
    url: HttpAddress | None = Field(None, description="where it is published, instead of path")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(description="the file's SHA-256")
    lower_case: bool = Field(
        True,
        description="true: text loses its capitals and accents",
    )


Dump = Annotated[Text, AfterValidator(lambda dump, info: dump if is_named(dump) else lead(dump, info))]
"""The name of a dump or the path of its file."""
PartFiles = Annotated[list[Dump], Field(min_length=1)]


@dataclass(frozen=True)
class Source:
    """A dump or a text that the corpus is made of. `files`: its files, or the name of a dump."""

    files: tuple[str, ...]
    is_text: bool = False

    @property
    def name(self) -> str | None:
        """The name of a dump that is not given by its files, such as enwiki-20261101 or the sample."""
        return None if self.is_text or not is_named(self.files[0]) else self.files[0]

    @property
    def has_sentences(self) -> bool:
        """True if every line is a sentence: the files are text, and no JSON lines."""
        return self.is_text and not is_json_lines(self.files[0])


class Corpus(DataSection):
    contents: ClassVar[str] = "text"
    name: Name = Field("sample", description="name of the folder under data/")
    dump: Dump | Annotated[list[Dump | PartFiles | TextFiles], Field(min_length=1)] | ShardFolder | TextFiles = Field(
        "sample",
        description="`sample` (a piece of the English Wikipedia, installed with Throughline); a dump: its path (.xml "
        "or .xml.bz2), a list of its part files, or its name and date to download (enwiki-20261101, "
        "enwiki-latest). A list mixes several of these",
    )
    contact: Contact | None = Field(
        None, description="your e-mail or web address, sent with every download, as Wikimedia asks"
    )
    mirrors: list[HttpAddress] = Field(
        default_factory=list,
        description="hosts of Wikimedia's dumps, tried before Wikimedia itself. Their checksums are trusted",
    )
    vocabulary: Literal["bert-base-uncased"] | VocabularyFile = Field(
        "bert-base-uncased",
        description="BERT's published English vocabulary, or your own",
    )
    tokenizer: Annotated[FilePath, AfterValidator(lambda path: tokenizer_file.read(path).path)] | None = Field(
        None,
        description="a `tokenizer.json` of Hugging Face's tokenizers, in place of `vocabulary` and of GPT-2's. BERT "
        "needs [PAD] (id 0), [UNK], [CLS], [SEP] and [MASK] in it, running text a token that ends a document, such as "
        "<|endoftext|>",
    )
    parts: Annotated[int, Field(ge=1, le=MOST_PARTS)] = Field(
        4, description="pieces that each dump or text is cut into, extracted in parallel"
    )
    extractor: Literal["wikiextractor", "throughline"] = Field(
        "wikiextractor",
        description="turns wikitext into text. `wikiextractor`, the common one, loses 97 of 100 list items; "
        "`throughline` keeps 93 and is several times faster",
    )
    shards: Shards = Field(
        default_factory=Shards,
        description="number of HDF5 files, per sequence length and for GPT-2's tokens",
    )
    sequences: Annotated[dict[SequenceLength, PositiveInt], Field(min_length=1)] = Field(
        default_factory=lambda: {32: 5, 128: 20},
        description="for BERT, sequence length (8 to 32,768): most predictions (second phase: 512: 80)",
    )
    masking: Masking = Field(default_factory=Masking, description="next-sentence pairs and masked tokens")

    @property
    def sources(self) -> list[Source]:
        """The dumps and texts that the corpus is made of. The list is empty if the shards are finished."""
        if isinstance(self.dump, ShardFolder):
            return []
        entries = self.dump if isinstance(self.dump, list) else [self.dump]
        paths = [entry for entry in entries if isinstance(entry, str) and not is_named(entry)]
        if len(paths) == len(entries):
            return [Source(tuple(paths))]  # all entries are files of the same dump
        return [
            Source(_listed(entry.text), is_text=True) if isinstance(entry, TextFiles) else Source(_listed(entry))
            for entry in entries
        ]

    def made(self, read: Set[str]) -> list[str]:
        """Return the folders that `snakemake corpus` makes if models read the folders `read`.

        GPT-2's tokens are made only if they are read. The folders of all lengths are made, unless GPT-2's tokens are
        all that is read. A job with runs makes only what they read (`needed`).
        """
        lengths = [f"seq{length}" for length in self.sequences]
        return [*(lengths if read != {BPE} else []), *sorted(read & {BPE})]

    def needed(self, read: Set[str]) -> list[str]:
        """Return the folders that a job makes if its models read the folders `read`: these, or without any all."""
        return [folder for folder in self.made(read) if folder in read or not read]

    @property
    def own_tokenizer(self) -> TokenizerFile | None:
        """The user's own tokenizer, if there is one."""
        return tokenizer_file.read(self.tokenizer) if self.tokenizer else None

    @property
    def lower_case(self) -> bool:
        """True if the vocabulary is for lower-case text, as the published one is."""
        return isinstance(self.vocabulary, str) or self.vocabulary.lower_case

    def decided_by(self, folder: str) -> dict[str, Any]:
        """Return everything that decides a folder's shards and is known before they are made.

        The manifest stores it. A dump's files count by their names, and finished shards by their names and sizes;
        their folders do not matter. `parts` is left out, because the number of pieces changes no byte of the result.
        """
        finished, own = isinstance(self.dump, ShardFolder), self.own_tokenizer
        if folder == BPE:
            how: dict[str, Any] = {"vocabulary": "gpt2", "protocol": BPE_PROTOCOL}
        else:
            length = int(folder.removeprefix("seq"))
            lengths = {"sequence_length": length, "predictions": self.sequences[length]}
            how = {
                "vocabulary": self.vocabulary if isinstance(self.vocabulary, str) else self.vocabulary.sha256,
                "protocol": DATA_PROTOCOL,
                **({} if self.lower_case else {"lower_case": False}),
                **(lengths if finished else self.shard_parameters(length)),
            }
        if own:
            how = {"tokenizer": own.sha256} | {name: value for name, value in how.items() if name != "vocabulary"}
        if isinstance(self.dump, ShardFolder):
            return how | {"finished": _names_and_sizes(self.dump.shards)}
        if self.extractor != Corpus.model_fields["extractor"].default:
            how["extractor"] = self.extractor
        sources = [
            {"text" if source.is_text else "dump": [Path(name).name for name in source.files]}
            for source in self.sources
        ]
        return how | (sources[0] if len(sources) == 1 else {"sources": sources}) | {"shards": self.shards.model_dump()}

    def shard_parameters(self, length: int) -> dict[str, Any]:
        """Return the parameters that turn a shard's text into the examples of a sequence length."""
        masking = self.masking.model_dump(exclude=None if self.masking.dynamic else {"dynamic"})
        return {"sequence_length": length, "predictions": self.sequences[length], **masking}

    def mistakes(self) -> Iterable[str]:
        vocabulary, sources = self.vocabulary, self.sources
        if isinstance(vocabulary, VocabularyFile) and (vocabulary.path is None) == (vocabulary.url is None):
            yield "vocabulary: one of path and url is needed, and only one"
        if self.tokenizer and "vocabulary" in self.model_fields_set:
            yield "tokenizer: it has a vocabulary of its own; remove corpus.vocabulary"
        if self.tokenizer and not sources:
            yield "tokenizer: finished shards hold tokens already; remove the key"
        for length, predictions in self.sequences.items():
            if predictions > length - 3:
                yield f"sequences.{length} = {predictions} predicts more than the {length - 3} tokens there are"
        if self.masking.dynamic and not sources:
            yield "masking.dynamic: finished shards keep the masks they have; remove the key, or give a dump"
        if self.masking.dynamic and self.masking.dupe_factor != 1:
            yield "masking.dupe_factor: with dynamic, each epoch draws masks and the text is kept once; set it to 1"
        files = Counter(os.path.realpath(name) for source in sources for name in source.files)
        for file in (Path(name).name for name, times in files.items() if times > 1):
            yield f"dump{'.text' if isinstance(self.dump, TextFiles) else ''}: a file is listed twice: {file}"
        dumps = {source.name for source in sources if source.name}
        for wiki, times in Counter("enwiki" if name == SAMPLE else name.rpartition("-")[0] for name in dumps).items():
            if times > 1:
                yield f"dump: {times} dumps of {wiki}, which have the same articles; name one"
        texts = [source for source in sources if source.is_text]
        if any(len(set(map(is_json_lines, text.files))) > 1 for text in texts):
            yield "dump.text: some files are JSON lines and some are not; bring all into one of the two forms"
        for name in (file for source in sources if not source.is_text and not source.name for file in source.files):
            if re.search(r"\.(jsonl?|ndjson|txt)(\.gz)?$", name):
                yield f"dump: {name} is no .xml or .xml.bz2; a text is named as {{text: {name}}}"
        if texts and len(texts) == len(sources) and self.extractor != "wikiextractor":
            yield "extractor: text files hold no wikitext; remove the key"
        if self.parts * len(sources) > MOST_PARTS:
            yield f"parts: {len(sources)} sources of {self.parts} parts are more than {MOST_PARTS:,} parts"

    def held_out_mistakes(self, section: str) -> Iterable[str]:
        return () if isinstance(self.dump, ShardFolder) else super().held_out_mistakes(section)

    def without_places(self) -> dict[str, Any]:
        mirrors = f"{len(self.mirrors)} hosts" if self.mirrors else []
        return super().without_places() | {"contact": None, "mirrors": mirrors}


def is_named(dump: str) -> bool:
    """True if `dump` is the name of a dump, such as enwiki-20261101 or the sample, and not a path."""
    return dump == SAMPLE or re.fullmatch(r"[a-z][a-z0-9_]*-(\d{8}|latest)", dump) is not None


def _listed(files: str | list[str]) -> tuple[str, ...]:
    return (files,) if isinstance(files, str) else tuple(files)


@cache
def shard_files(folder: str) -> tuple[Path, ...]:
    """Return the HDF5 files in a folder and its sub-folders, sorted by path; UserError if there are none."""
    found = sorted(
        Path(parent) / name
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
        if name.endswith((".hdf5", ".h5")) and not name.startswith(".")
    )
    if not found:
        there = Path(folder).is_dir()
        raise UserError(
            f"the folder {folder} holds no shards" if there else f"there is no folder {folder}",
            why="shards are named *.hdf5 or *.h5, in this folder or below it",
            next_step="correct corpus.dump.shards in config.yaml",
        )
    return tuple(found)


@cache
def _names_and_sizes(folder: str) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((path.name, path.stat().st_size) for path in shard_files(folder)))
