"""Compare our encoder of GPT-2's tokens with `tokenizers` and tiktoken: MB of text per CPU-second. All ids must agree.

    python benchmarks/tokenizing.py                    the sample's articles
    python benchmarks/tokenizing.py ARTICLES...        articles as JSON lines: data/<corpus>/articles/part_*.jsonl
    python benchmarks/tokenizing.py --rounds 7         so many rounds in turn

Each encodes all articles in one call (tiktoken: one after the other) to arrays of u2, on one thread. `new` is the first
pass of a new encoder, whose cache is empty at first and fills. `later` is the last quarter of the articles after the
first three quarters. `again` is a second pass over all articles. The time to make an encoder is not included. Other
work on the machine raises the CPU-seconds of all of them, so read the ratios.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
import tiktoken
from tiktoken_ext.openai_public import r50k_pat_str

from throughline.corpus.bpe import shards, vocabulary
from throughline.corpus.bpe.vocabulary import Vocabulary
from throughline.corpus.source import dumps
from throughline.corpus.text import extraction

Encode = Callable[[list[str]], list[Any]]
PASSES = ("new", "later", "again")


def sample(folder: Path) -> Path:
    """Extract the sample's articles with our extractor; return their file."""
    articles = folder / "articles.jsonl"
    extraction.extract(
        dumps.cut([dumps.find_sample()], 1), 0, articles, folder / "counts.json", extractor="throughline"
    )
    return articles


def ours(words: Vocabulary) -> Encode:
    encode = shards.Encoder(words).encode
    encode(["é"])  # the first text beyond ASCII builds the encoder for such chunks
    return encode


def package(words: Vocabulary) -> Encode:
    tokenizer = shards._tokenizer(words)
    return lambda texts: [
        np.array(encoded.ids, np.uint16) for encoded in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ]


def openai(words: Vocabulary) -> Encode:
    ranks = {token: i for i, token in enumerate(words.tokens)}
    encoder = tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={})
    return lambda texts: [encoder.encode_to_numpy(text).astype(np.uint16) for text in texts]


CONTESTANTS = {"ours": ours, "tokenizers": package, "tiktoken": openai}


def measured(make: Callable[[Vocabulary], Encode], words: Vocabulary, texts: list[str]) -> tuple[dict[str, float], Any]:
    """Return the MB of text per CPU-second of each pass, and the ids of all texts."""
    known, new = make(words), make(words)
    last = len(texts) * 3 // 4
    known(texts[:last])
    ids: list[Any] = []

    def speed(encode: Encode, some: list[str]) -> float:
        seconds = harness.timed(lambda: ids.append(encode(some)))
        return sum(len(text.encode()) for text in some) / 1e6 / seconds

    speeds = {"later": speed(known, texts[last:]), "new": speed(new, texts), "again": speed(new, texts)}
    return {name: speeds[name] for name in PASSES}, ids[1]


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parser = harness.options(__doc__, rounds=5)
    parser.add_argument("articles", type=Path, nargs="*")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        vocabulary.build(Path(folder))
        words = vocabulary.read(Path(folder))
        paths = given.articles or [sample(Path(folder))]
        texts = [json.loads(line)["text"] for path in paths for line in path.open(encoding="utf-8")]
    print(f"{len(texts)} articles, {sum(len(text.encode()) for text in texts) / 1e6:.2f} MB, {given.rounds} rounds")
    ways = {name: partial(measured, make, words, texts) for name, make in CONTESTANTS.items()}
    made = harness.in_turn(ways, given.rounds)
    ids = made[0]["ours"][1]
    for each in made:
        for name, (_, others) in each.items():
            if not all(map(np.array_equal, ids, others)):
                sys.exit(f"{name} gives other ids than ours")
    rounds = {kind: [{name: speeds[kind] for name, (speeds, _) in each.items()} for each in made] for kind in PASSES}
    print(f"the same {sum(map(len, ids)):,} ids from all\n")
    table = harness.Table("MB per CPU-second", *PASSES)
    for name in CONTESTANTS:
        table.add(name, *(f"{harness.middle(rounds[kind], name):.2f}" for kind in PASSES))
    print()
    table = harness.Table("ours is faster by", *PASSES)
    for name in CONTESTANTS:
        table.add(name, *(harness.ratio(rounds[kind], "ours", name) for kind in PASSES))
    harness.write(given.json, rounds)


if __name__ == "__main__":
    main()
