"""The whole corpus, made by the commands that the workflow calls: its content does not depend on how it is cut."""

from __future__ import annotations

import bz2
import gc
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from corpus_helpers import CLOSING, HEADER, content, page
from throughline import command
from throughline.corpus.source import IDS, dumps
from throughline.corpus.text import tokens

PARAMETERS = {"sequence_length": 32, "predictions": 5, "dupe_factor": 2}
TEXTS = (".txt", ".jsonl")
SHARDS = [("training", 0), ("training", 1), ("training", 2), ("test", 0)]


def call(monkeypatch: pytest.MonkeyPatch, step: str, *, status: int = 0, **options: object) -> None:
    """Run a step in this process, because starting Python for every command would take most of the time."""
    # A step ends its process and switches things off in it. This process must go on, with all of them.
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(gc, "disable", lambda: None)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    words: list[str] = []
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    with pytest.raises(SystemExit) as left:
        command.run(command.step(f"corpus.{step}"), words, single=True)
    assert left.value.code == status


def chain(monkeypatch: pytest.MonkeyPatch, data: Path, sources: Sequence[Path], parts: int, *, shuffled: bool) -> Path:
    """Make shards from these sources; return their folder. A source is a dump or a text, cut into `parts` parts."""
    step, order = partial(call, monkeypatch), list(range(parts * len(sources)))
    if shuffled:
        random.Random(1).shuffle(order)
    words, sequence, made = data / "vocabulary.txt", data / "seq32", {"parameters": json.dumps(PARAMETERS)}
    step("vocabulary", source='{"name": "bert-base-uncased"}', output=words)
    cuts = [data / "dump" / f"parts_{number}.json" for number in range(len(sources))]
    for source, cut in zip(sources, cuts, strict=True):
        step("cut", dump=source, text=source.suffix in TEXTS, parts=parts, output=cut)
    tokens = [data / "tokens" / f"part_{part:04d}.hdf5" for part in sorted(order)]
    for part in order:
        cut, lines = cuts[part // parts], sources[part // parts].suffix == ".txt"
        articles, counts = (data / "articles" / f"part_{part:04d}{end}" for end in (".jsonl", ".counts.json"))
        step("extract", cut=cut, part=part, articles=articles, counts=counts, extractor="wikiextractor")
        how = {"tokenizer": [], "lower_case": True, "lines": lines}
        step("tokenize", articles=articles, vocabulary=words, **how, output=tokens[part])
    verified = [sequence / "verified" / f"{split}_{number:04d}.json" for split, number in SHARDS]
    for split, number in SHARDS[::-1] if shuffled else SHARDS:
        gathered, shard = (folder / f"{split}_{number:04d}.hdf5" for folder in (data / "tokens", sequence))
        step("gather", parts=tokens, position=number if split == "training" else 3, shards=4, output=gathered)
        made_from = {"vocabulary": words, "tokens": gathered, "split": split, "number": number}
        step("shard", **made_from, **made, output=shard)
        output = sequence / "verified" / f"{shard.stem}.json"
        step("verify", shard=shard, vocabulary=words, **made, sequence_length=32, predictions=5, output=output)
    output = sequence / "manifest.json"
    step("manifest", corpus="sample", verified=verified, vocabulary=words, **made, output=output)
    return sequence


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): content(path) for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_the_same_content_from_any_parts_in_any_order_and_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sample = tmp_path / "sample.xml.bz2"
    call(monkeypatch, "sample", output=sample)
    assert sample.read_bytes() == dumps.find_sample().read_bytes()
    plain = tmp_path / "plain.xml"
    plain.write_bytes(bz2.decompress(sample.read_bytes()))
    one = contents(chain(monkeypatch, tmp_path / "one", [sample], 1, shuffled=False))
    other = contents(chain(monkeypatch, tmp_path / "other" / "place", [plain], 3, shuffled=True))
    assert one == other
    found = json.loads(one["manifest.json"])
    assert len(found["shards"]) == 4 and found["rows"] > 20_000
    assert all(str(tmp_path) not in text.decode(errors="replace") for text in one.values())


@pytest.mark.slow
def test_several_sources_are_mixed_and_no_ids_clash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The sources are a piece of the sample, a second wiki, and texts in two forms. The page ids of the second wiki are
    the numbers of the texts' documents."""
    english, other, books, web = (tmp_path / name for name in ("en.xml", "de.xml", "books.txt", "web.jsonl"))
    some = list(dumps.pages(dumps.cut([dumps.find_sample()], 1), 0))[60:90]
    english.write_bytes(HEADER.encode() + b"\n".join(some) + CLOSING.encode())
    sentences = [[f"The {one} book has {line} pages. Read it." for line in range(2, 12)] for one in range(1, 31)]
    pages = "".join(page(number, "\n\n".join(lines)) for number, lines in enumerate(sentences, start=1))
    other.write_text(HEADER.replace("enwiki", "dewiki") + pages + CLOSING)
    books.write_text("\n\n".join(map("\n".join, sentences)))
    web.write_text("".join(json.dumps({"text": " ".join(lines)}) + "\n" for lines in sentences))
    made = [english, other, books, web]
    one = chain(monkeypatch, tmp_path / "one", made, 1, shuffled=False)
    assert contents(one) == contents(chain(monkeypatch, tmp_path / "two", made, 2, shuffled=True))
    found: dict[int, int] = {}
    for split, number in SHARDS:
        gathered, _ = tokens.read(one.parent / "tokens" / f"{split}_{number:04d}.hdf5")
        found.update(zip(gathered.ids.tolist(), np.diff(gathered.documents).tolist(), strict=True))
    articles = json.loads((one.parent / "articles" / "part_0000.counts.json").read_text())["articles"]
    assert articles > 5 and Counter(number // IDS for number in found) == {0: articles, 1: 30, 2: 30, 3: 30}
    assert {(found[2 * IDS + one], found[3 * IDS + one]) for one in range(1, 31)} == {(10, 20)}  # lines are sentences
    assert {number % IDS for number in found if number > IDS} == set(range(1, 31))


def test_a_user_error_has_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "dump.xml").write_text("<html>")
    words = ["--dump", "dump.xml", "--text", "False", "--parts", "2", "--output", "parts.json"]
    command = [sys.executable, "-m", "throughline.command", "corpus.cut", *words]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1
    assert run.stderr.startswith("error: dump.xml is not from a pages-articles dump") and "next:" in run.stderr
    assert not (tmp_path / "parts.json").exists()
