"""The workflow's steps from a dump to shards, called one after the other, and dumps that repeat the sample's pages."""

from __future__ import annotations

import bz2
import json
import re
from collections.abc import Iterator
from pathlib import Path

from harness import Spent, script

LENGTHS = {128: 20, 512: 80}
"""Tokens of a sequence -> its predictions."""
COPIES = 5
Costs = dict[str, Spent]
"""Step -> what it used."""


def parameters(length: int) -> str:
    return json.dumps({"sequence": length, "predictions": LENGTHS[length], "copies": COPIES})


def ours_create(folder: Path, words: Path, articles: Path, *, lines: bool) -> Costs:
    """Make shards from articles, in `folder`. `lines`: every line of an article is a sentence already."""
    part, tokens = folder / "part.hdf5", folder / "tokens.hdf5"
    options: dict[str, object] = {"lines": []} if lines else {}
    shard = {"split": "training", "shard": 0}
    costs = {"tokens": script("corpus_tokens", articles=articles, vocabulary=words, output=part, **options)}
    costs["gather"] = script("corpus_gather", parts=part, training=1, test=0, output=tokens, **shard)
    for length in LENGTHS:
        made = {"parameters": parameters(length), "output": folder / f"{length}/training_0000.hdf5"}
        costs[f"shard {length}"] = script("corpus_shard", tokens=tokens, vocabulary=words, **shard, **made)
    return costs


def ours_chain(folder: Path, words: Path, dump: Path) -> Costs:
    """Make verified shards and their manifests from a dump."""
    cut, articles, tokens = folder / "parts.json", folder / "articles.jsonl", folder / "tokens.hdf5"
    costs = {"cut": script("corpus_cut", dump=dump, parts=1, output=cut)}
    costs["extract"] = script("corpus_extract", cut=cut, part=0, output=articles, counts=folder / "counts.json")
    costs |= ours_create(folder, words, articles, lines=False)
    for length in LENGTHS:
        here = folder / f"{length}"
        shard, verified = here / "training_0000.hdf5", here / "verified.json"
        given = {"vocabulary": words, "parameters": parameters(length)}
        costs[f"verify {length}"] = script("corpus_verify", shard=shard, tokens=tokens, output=verified, **given)
        costs[f"manifest {length}"] = script(
            "corpus_manifest", corpus="benchmark", verified=verified, output=here / "manifest.json", **given
        )
    return costs


def repeated(dump: Path, path: Path, *, times: int | None = None, megabytes: float = 0) -> None:
    """Write a dump, uncompressed, that repeats the pages of another one, each time with other ids and titles.

    It repeats them so many times, or until it has so many MB.
    """
    head, *pages = bz2.decompress(dump.read_bytes()).split(b"  <page>\n")
    pages[-1], closing = pages[-1].split(b"</mediawiki>")
    turn = 0
    with path.open("wb") as stream:
        stream.write(head)
        while turn < times if times else stream.tell() < megabytes * 1e6:
            stream.writelines(_renamed(pages, turn))
            turn += 1
        stream.write(b"</mediawiki>" + closing)


def _renamed(pages: list[bytes], turn: int) -> Iterator[bytes]:
    for page in pages:
        if turn:
            page = re.sub(rb"<title>(.*?)</title>", rb"<title>\1 (%d)</title>" % turn, page, count=1)
        before, number, after = re.split(rb"<id>(\d+)</id>", page, maxsplit=1)
        yield b"  <page>\n%b<id>%d</id>%b" % (before, int(number) + turn * 10**8, after)
