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

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
import tiktoken  # noqa: E402
from tiktoken_ext.openai_public import r50k_pat_str  # noqa: E402

from throughline.corpus import kernel  # noqa: E402
from throughline.corpus.bpe import encoding, vocabulary  # noqa: E402
from throughline.corpus.bpe.vocabulary import Vocabulary  # noqa: E402
from throughline.corpus.source import dumps  # noqa: E402
from throughline.corpus.text import extraction  # noqa: E402

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
    encode = encoding.Encoder(words).encode
    encode(["é"])  # the first text beyond ASCII builds the encoder for such chunks
    return encode


def plain(words: Vocabulary) -> Encode:
    """Our encoder as it is on a machine without a compiler."""
    load, kernel.load = kernel.load, lambda: None
    try:
        return ours(words)
    finally:
        kernel.load = load


def package(words: Vocabulary) -> Encode:
    tokenizer = encoding._tokenizer(words)
    return lambda texts: [
        np.array(encoded.ids, np.uint16) for encoded in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ]


def openai(words: Vocabulary) -> Encode:
    ranks = {token: i for i, token in enumerate(words.tokens)}
    encoder = tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={})
    return lambda texts: [encoder.encode_to_numpy(text).astype(np.uint16) for text in texts]


CONTESTANTS = {"ours": ours, "ours, without a compiler": plain, "tokenizers": package, "tiktoken": openai}


def spent(encode: Encode, texts: list[str]) -> tuple[float, list[Any]]:
    """Return MB of text per CPU-second, and the ids."""
    began = time.process_time()
    ids = encode(texts)
    return sum(len(text.encode()) for text in texts) / 1e6 / (time.process_time() - began), ids


def measured(make: Callable[[Vocabulary], Encode], words: Vocabulary, texts: list[str]) -> tuple[dict[str, float], Any]:
    """Return the speed of each pass, and the ids of all texts."""
    known, encode = make(words), make(words)
    known(texts[: len(texts) * 3 // 4])
    later, _ = spent(known, texts[len(texts) * 3 // 4 :])
    new, ids = spent(encode, texts)
    again, _ = spent(encode, texts)
    return {"new": new, "later": later, "again": again}, ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("articles", type=Path, nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        vocabulary.build(Path(folder))
        words = vocabulary.read(Path(folder))
        paths = arguments.articles or [sample(Path(folder))]
        texts = [json.loads(line)["text"] for path in paths for line in path.open(encoding="utf-8")]
    print(f"{len(texts)} articles, {sum(len(text.encode()) for text in texts) / 1e6:.2f} MB, {arguments.rounds} rounds")
    rounds: list[dict[str, dict[str, float]]] = []
    for _ in range(arguments.rounds):
        rounds.append({})
        first = None
        for name, make in CONTESTANTS.items():
            rounds[-1][name], ids = measured(make, words, texts)
            first = first or ids
            if not all(map(np.array_equal, first, ids)):
                sys.exit(f"{name} gives other ids than {next(iter(CONTESTANTS))}")
    print(f"the same {sum(map(len, first)):,} ids from all\n")
    print("| MB per CPU-second | " + " | ".join(PASSES) + " |\n|---|" + "--:|" * len(PASSES))
    for name in CONTESTANTS:
        print(f"| {name} | " + " | ".join(f"{median(r[name][p] for r in rounds):.2f}" for p in PASSES) + " |")
    print("\n| ours is faster by | " + " | ".join(PASSES) + " |\n|---|" + "--:|" * len(PASSES))
    for name in CONTESTANTS:
        ratios = {p: sorted(r["ours"][p] / r[name][p] for r in rounds) for p in PASSES}
        cells = (f"{median(ratio):.2f} ({ratio[0]:.2f} to {ratio[-1]:.2f})" for ratio in ratios.values())
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
