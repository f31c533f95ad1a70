"""Compare our corpus with NVIDIA's script: CPU-seconds of both on the same text, in turn, and what they produce.

    python benchmarks/corpus.py DeepLearningExamples                   the sample's dump: create step and whole chain
    python benchmarks/corpus.py DeepLearningExamples --text FILE       a larger text: only the create step. FILE has one
                                                                       sentence a line, an empty line after each article

The first argument is a checkout of https://github.com/NVIDIA/DeepLearningExamples. The create step makes HDF5 files
with 128 and 512 tokens from sentences. Theirs is create_pretraining_data.py, called twice. Ours is four processes: the
tokens of a part, their gathering, and two shards. The start of every process is included. The whole chain begins with a
dump. Theirs is wikiextractor on the unpacked dump, our sentence splitter (nltk's punkt, which they use, is slower) and
the create step. Ours is every step of the workflow. Theirs has no verification and no manifest; we count these two for
ours, and also show the figures without them. One process runs at a time. CPU-seconds are those of a process and of all
processes that it started.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

import harness
import numpy as np
from harness import Spent, step

from throughline.corpus import reading
from throughline.corpus.shards import Parameters, pairs, verification
from throughline.corpus.source import dumps
from throughline.corpus.text import tokens, vocabulary
from throughline.corpus.text.tokenization import split_sentences

LENGTHS = {128: 20, 512: 80}
"""Tokens of a sequence -> its predictions."""
COPIES = 5
Costs = dict[str, Spent]
"""Step -> what it used."""
SEEDS = 20
# NVIDIA's tokenizer imports these modules only for downloads. The stand-ins replace them, so they need no installation.
STAND_INS = {
    "six.py": "PY3 = True\n",
    "boto3.py": "",
    "botocore/__init__.py": "",
    "botocore/exceptions.py": "ClientError = Exception\n",
}


def parameters(length: int) -> str:
    return json.dumps({"sequence_length": length, "predictions": LENGTHS[length], "dupe_factor": COPIES})


def ours_create(folder: Path, words: Path, articles: Path, *, lines: bool) -> Costs:
    """Make shards from articles, in `folder`. `lines`: every line of an article is a sentence already."""
    part, gathered = folder / "part.hdf5", folder / "tokens.hdf5"
    how = {"tokenizer": [], "lower_case": True, "lines": lines}
    costs = {"tokens": step("corpus.tokenize", articles=articles, vocabulary=words, output=part, **how)}
    costs["gather"] = step("corpus.gather", parts=part, position=0, shards=1, output=gathered)
    for length in LENGTHS:
        shard = {"split": "training", "number": 0, "parameters": parameters(length)}
        made = {"tokens": gathered, "vocabulary": words, "output": folder / f"{length}/training_0000.hdf5"}
        costs[f"shard {length}"] = step("corpus.shard", **shard, **made)
    return costs


def ours_chain(folder: Path, words: Path, dump: Path) -> Costs:
    """Make verified shards and their manifests from a dump."""
    cut, articles = folder / "parts.json", folder / "articles.jsonl"
    costs = {"cut": step("corpus.cut", dump=dump, parts=1, text=False, output=cut)}
    made = {"articles": articles, "counts": folder / "counts.json", "extractor": "wikiextractor"}
    costs["extract"] = step("corpus.extract", cut=cut, part=0, **made)
    costs |= ours_create(folder, words, articles, lines=False)
    for length in LENGTHS:
        here = folder / f"{length}"
        shard, verified = here / "training_0000.hdf5", here / "verified.json"
        given = {"vocabulary": words, "parameters": parameters(length)}
        costs[f"verify {length}"] = step(
            "corpus.verify",
            shard=shard,
            sequence_length=length,
            predictions=LENGTHS[length],
            output=verified,
            **given,
        )
        costs[f"manifest {length}"] = step(
            "corpus.manifest", corpus="benchmark", verified=verified, output=here / "manifest.json", **given
        )
    return costs


def theirs_create(folder: Path, words: Path, text: Path, nvidia: Path) -> Costs:
    """Make shards from sentences with NVIDIA's script, in `folder`."""
    for name, content in STAND_INS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    found = {}
    for length, predictions in LENGTHS.items():
        command = [sys.executable, nvidia / "create_pretraining_data.py", "--vocab_file", words, "--input_file", text]
        command += ["--output_file", folder / f"{length}.hdf5", "--max_seq_length", length, "--dupe_factor", COPIES]
        command += ["--max_predictions_per_seq", predictions]
        found[f"create {length}"] = harness.run(command, PYTHONPATH=str(folder))
    return found


def theirs_chain(folder: Path, words: Path, dump: Path, text: Path, nvidia: Path, splitting: float) -> Costs:
    """Make shards from a dump their way. `splitting`: CPU-seconds of the sentence splitter on the dump's text."""
    plain = folder / "dump.xml"
    found = {"unpack": harness.run(["sh", "-c", 'bunzip2 -c "$0" > "$1"', dump, plain])}
    extractor = [sys.executable, "-m", "wikiextractor.WikiExtractor", "-q", "--processes", "1", "--no-templates"]
    found["extract"] = harness.run([*extractor, "-o", folder / "text", plain])
    found["split"] = Spent(splitting, splitting, 0, "")
    return found | theirs_create(folder, words, text, nvidia)


def as_sentences(articles: Path, text: Path) -> float:
    """Write the articles' sentences, one a line. Return the CPU-seconds of splitting alone."""
    texts = [json.loads(line)["text"] for line in articles.open()]
    split_sentences(["Loads what it needs."])
    before = os.times()
    split = split_sentences(texts)
    after = os.times()
    data, at = split.text.tobytes(), 0
    with text.open("wb") as stream:
        for count in split.counts.tolist():
            for i in range(at, at + count):
                stream.write(b" ".join(data[split.begins[i] : split.ends[i]].split()) + b"\n")
            stream.write(b"\n")
            at += count
    return after.user + after.system - before.user - before.system


def as_articles(text: Path, articles: Path) -> None:
    """Write the articles of a text as JSON lines, each sentence as a paragraph."""
    with articles.open("w") as stream:
        for number, article in enumerate(text.read_text().split("\n\n")):
            stream.write(json.dumps({"id": str(number), "text": article}) + "\n")


def compare(what: str, rounds: list[dict[str, Costs]], megabytes: float) -> None:
    """Print the table of one comparison: medians of the rounds, and the ratio of the medians."""
    print(f"\n### {what}: {megabytes:.1f} MB of text, {len(rounds)} rounds in turn\n")
    table = harness.Table("", "CPU-seconds", "per MB of text", "largest process, MB")
    totals = [{who: sum(cost.cpu_seconds for cost in costs.values()) for who, costs in each.items()} for each in rounds]
    for who in ("theirs", "ours"):
        for name in rounds[0][who]:
            each = [costs[who][name] for costs in rounds]
            largest = max(spent.memory_mb for spent in each)
            table.add(f"{who}: {name}", f"{median(spent.cpu_seconds for spent in each):.2f}", "", f"{largest:.0f}")
        total = harness.middle(totals, who)
        table.add(f"**{who}**", f"**{total:.2f}**", f"{total / megabytes:.3f}", "")
    print(f"\nratio {harness.ratio(totals, 'theirs', 'ours')}")


def statistics(ours: Path, theirs: Path, words: Path) -> None:
    """Print what both made of the same text. The rows `seeds` are mean and standard deviation of ours over SEEDS other
    seeds."""
    read = vocabulary.read(words)
    documents, _ = tokens.read(ours / "tokens.hdf5")
    by_pairs = ["rows", "tokens_per_row", "random_next_share"]
    names = [*by_pairs, "masked_share", "replaced_by_mask_share", "unchanged_share"]
    print()
    table = harness.Table("", *(name.replace("_", " ") for name in names))
    for length, predictions in LENGTHS.items():
        found = {}
        for who, path in (("theirs", theirs / f"{length}.hdf5"), ("ours", ours / f"{length}" / "training_0000.hdf5")):
            arrays = reading.read_shard(path)
            shares = verification.shares(verification.check(path, arrays, read))
            found[who] = {"rows": float(len(arrays["input_ids"])), **shares}
            table.add(f"{length}, {who}", *(f"{found[who][name]:.6g}" for name in names))
        drawn = []
        for seed in range(SEEDS):
            given = Parameters(length, predictions, dupe_factor=COPIES, seed=seed)
            made = pairs.shuffled(documents, given, "training", 0).pairs
            tokens_of_row = float(made.a_length.mean() + made.b_length.mean()) + 3
            drawn.append((len(made), tokens_of_row, float(made.random_next.mean())))
        middle, spread = np.mean(drawn, axis=0), np.std(drawn, axis=0, ddof=1)
        cells = [f"{m:.6g} ± {d:.2g}" for m, d in zip(middle, spread, strict=True)]
        table.add(f"{length}, {SEEDS} seeds", *cells, "", "", "")
        off = [(found["theirs"][name] - m) / d for name, m, d in zip(by_pairs, middle, spread, strict=True)]
        table.add(f"{length}, theirs off by", *(f"{z:+.1f} s. d." for z in off), "", "", "")


def main() -> None:
    """Compare our corpus with NVIDIA's script, on the same text."""
    parser = harness.options(__doc__, rounds=3)
    parser.add_argument("nvidia", type=Path, help="a checkout of DeepLearningExamples")
    parser.add_argument("--text", type=Path, help="a text instead of the sample's dump")
    given = parser.parse_args()
    nvidia, dump = given.nvidia.resolve() / "PyTorch" / "LanguageModeling" / "BERT", dumps.find_sample()
    create, chain = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words, text, articles = folder / "vocabulary.txt", folder / "text.txt", folder / "articles.jsonl"
        vocabulary.write_bert_base_uncased(words)
        if given.text:
            text = given.text.resolve()
        else:
            (folder / "first").mkdir()
            ours_chain(folder / "first", words, dump)
            splitting = as_sentences(folder / "first" / "articles.jsonl", text)
        as_articles(text, articles)
        megabytes = text.stat().st_size / 1e6
        for number in range(given.rounds):
            ours, theirs = folder / f"ours{number}", folder / f"theirs{number}"
            ours.mkdir()
            theirs.mkdir()
            if given.text:
                costs = theirs_create(theirs, words, text, nvidia)
            else:
                costs = theirs_chain(theirs, words, dump, text, nvidia, splitting)
                chain.append({"ours": ours_chain(ours, words, dump), "theirs": costs})
            costs = {step: spent for step, spent in costs.items() if step.startswith("create")}
            create.append({"ours": ours_create(ours, words, articles, lines=True), "theirs": costs})
        if chain:
            compare("Whole chain", chain, megabytes)
            later = without(chain, "cut", "unpack", "extract")
            compare("After extraction", later, megabytes)
            made = without(later, "verify", "manifest")
            compare("After extraction, verification and manifest left out", made, megabytes)
        compare("Create step: sentences in, shards out", create, megabytes)
        statistics(ours, theirs, words)
    harness.write(given.json, {"create": create, "chain": chain})


def without(rounds: list[dict[str, Costs]], *steps: str) -> list[dict[str, Costs]]:
    """Leave out these steps; `verify` is that of every length."""

    def kept(costs: Costs) -> Costs:
        return {step: spent for step, spent in costs.items() if step.split()[0] not in steps}

    return [{who: kept(costs) for who, costs in each.items()} for each in rounds]


if __name__ == "__main__":
    main()
