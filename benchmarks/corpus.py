"""Compare our corpus with NVIDIA's script: CPU-seconds of both on the same text, in turn, and what they produce.

    python benchmarks/corpus.py DeepLearningExamples                   the sample's dump: create step and whole chain
    python benchmarks/corpus.py DeepLearningExamples --times 8         its pages eight times, with other ids
    python benchmarks/corpus.py DeepLearningExamples --text FILE       a larger text: only the create step. FILE has one
                                                                       sentence a line, an empty line after each article
    python benchmarks/corpus.py DeepLearningExamples --text FILE --ids     compare every sentence's token ids
    python benchmarks/corpus.py --growth 16                            only ours: the cost of 16 parts and 16 shards
    python benchmarks/corpus.py --growth 8 --cores 1 2                 the workflow on so many cores
    python benchmarks/corpus.py --looked-up 16                         the cost of looking up a shard's rows, compared
                                                                       with the cost of making the shard

The first argument is a checkout of https://github.com/NVIDIA/DeepLearningExamples. The create step makes HDF5 files
with 128 and 512 tokens from sentences. Theirs is create_pretraining_data.py, called twice. Ours is four processes: the
tokens of a part, their gathering, and two shards. The start of every process is included. The whole chain begins with a
dump. Theirs is wikiextractor on the unpacked dump, our sentence splitter (nltk's punkt, which they use, is slower) and
the create step. Ours is every step of the workflow. Theirs has no verification and no manifest; we count these two for
ours, and also show the figures without them. One process runs at a time. CPU-seconds are those of a process and of all
processes that it started.
"""

from __future__ import annotations

import argparse
import bz2
import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

import harness
import numpy as np
from corpus_steps import COPIES, LENGTHS, Costs, ours_chain, ours_create, parameters, repeated
from harness import ROOT, Spent, script

from throughline.corpus import reading
from throughline.corpus.shards import Parameters, making, row_checks, segment_pairs, text_lookup
from throughline.corpus.source import dumps
from throughline.corpus.text import sentences, tokens, vocabulary

SEEDS = 20
# NVIDIA's tokenizer imports these modules only for downloads. The stand-ins replace them, so they need no installation.
STAND_INS = {
    "six.py": "PY3 = True\n",
    "boto3.py": "",
    "botocore/__init__.py": "",
    "botocore/exceptions.py": "ClientError = Exception\n",
}


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
    sentences.split_all(["Loads what it needs."])
    before = os.times()
    split = sentences.split_all(texts)
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
    totals = [{who: sum(step.cpu_seconds for step in costs.values()) for who, costs in each.items()} for each in rounds]
    for who in ("theirs", "ours"):
        for step in rounds[0][who]:
            each = [costs[who][step] for costs in rounds]
            largest = max(spent.memory_mb for spent in each)
            table.add(f"{who}: {step}", f"{median(spent.cpu_seconds for spent in each):.2f}", "", f"{largest:.0f}")
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
            shares = row_checks.shares(row_checks.counted(arrays, read))
            found[who] = {"rows": float(len(arrays["input_ids"])), **shares}
            table.add(f"{length}, {who}", *(f"{found[who][name]:.6g}" for name in names))
        drawn = []
        for seed in range(SEEDS):
            given = Parameters(length, predictions, copies=COPIES, seed=seed)
            pairs = segment_pairs.examples(documents, given, "training", 0).pairs
            tokens_of_row = float(pairs.a_length.mean() + pairs.b_length.mean()) + 3
            drawn.append((len(pairs), tokens_of_row, float(pairs.random_next.mean())))
        middle, spread = np.mean(drawn, axis=0), np.std(drawn, axis=0, ddof=1)
        cells = [f"{m:.6g} ± {d:.2g}" for m, d in zip(middle, spread, strict=True)]
        table.add(f"{length}, {SEEDS} seeds", *cells, "", "", "")
        off = [(found["theirs"][name] - m) / d for name, m, d in zip(by_pairs, middle, spread, strict=True)]
        table.add(f"{length}, theirs off by", *(f"{z:+.1f} s. d." for z in off), "", "", "")


def growth(folder: Path, words: Path, dump: Path, times: int) -> None:
    """Print what each step of ours costs on a dump `times` times as large, cut into so many parts and shards."""
    plain, cut = folder / "dump.xml", folder / "parts.json"
    repeated(dump, plain, times=times)
    print(f"{times} x {plain.stat().st_size / times / 1e6:.1f} MB of XML, a part and a shard each\n")
    table = harness.Table("step", "first, CPU-s", "median", "last", "largest process, MB")
    cost = script("corpus_cut", dump=plain, parts=times, output=cut)
    table.add("cut, once", f"{cost.cpu_seconds:.2f}", "", "", f"{cost.memory_mb:.0f}")
    costs: dict[str, list[Spent]] = {}
    parts = [folder / f"part_{number:04d}.hdf5" for number in range(times)]
    for number, part in enumerate(parts):
        articles = folder / f"part_{number:04d}.jsonl"
        made = script("corpus_extract", cut=cut, part=number, output=articles, counts=folder / "counts.json")
        costs.setdefault("extract", []).append(made)
        costs.setdefault("tokens", []).append(script("corpus_tokens", articles=articles, vocabulary=words, output=part))
    for number in range(times):
        gathered = folder / f"training_{number:04d}.hdf5"
        of = {"split": "training", "shard": number}
        gather = script("corpus_gather", parts=parts, training=times, test=0, output=gathered, **of)
        costs.setdefault("gather", []).append(gather)
        for length in LENGTHS:
            path = folder / f"{length}" / gathered.name
            given = {"vocabulary": words, "parameters": parameters(length), "tokens": gathered}
            costs.setdefault(f"shard {length}", []).append(script("corpus_shard", output=path, **given, **of))
            verified = path.with_suffix(".json")
            costs.setdefault(f"verify {length}", []).append(
                script("corpus_verify", shard=path, output=verified, **given)
            )
    for step, each in costs.items():
        seconds = [spent.cpu_seconds for spent in each]
        cells = (f"{value:.2f}" for value in (seconds[0], median(seconds), seconds[-1]))
        table.add(step, *cells, f"{max(spent.memory_mb for spent in each):.0f}")
    text = json.loads((folder / "counts.json").read_text())["characters"]
    print(f"\ncharacters of text in the last part: {text / 1e6:.2f} million")


def looked_up(folder: Path, words: Path, dump: Path, times: int) -> None:
    """Print the CPU-seconds of making a shard from a text `times` times as large, and of looking up its rows.

    A repeated text would contain every segment many times. So each repetition replaces every word by another word that
    is about as frequent. Each figure is the least of five.
    """
    ours_chain(folder, words, dump)
    once, _ = tokens.read(folder / "tokens.hdf5")
    by_frequency = np.argsort(-np.bincount(once.tokens), kind="stable")[: len(np.unique(once.tokens))]
    chance = np.random.default_rng(1)
    with tokens.Pile(folder, tokens.MEMORY_BYTES) as pile:
        for turn in range(times):
            other = np.arange(once.tokens.max() + 1, dtype=np.uint16)
            for alike in np.split(by_frequency, range(50, len(by_frequency), 50)):
                other[alike] = chance.permutation(alike)
            pile.add(replace(once, tokens=other[once.tokens], ids=once.ids + turn * 10**8))
        read = vocabulary.read(words)
        tokens._write(folder / "tokens.hdf5", pile, np.arange(len(pile.facts()[0])), read.sha256, len(read))
    text = text_lookup.Text(tokens.read(folder / "tokens.hdf5")[0])
    print(f"\n{len(text.tokens):,} tokens of text\n")
    table = harness.Table("tokens", "rows", "making", "rows looked up", "look-up", "share", left=0)
    for length, predictions in LENGTHS.items():
        asked, path = Parameters(length, predictions, copies=COPIES), folder / f"{length}" / "training_0000.hdf5"
        made = harness.least(lambda: making.make(folder / "tokens.hdf5", words, asked, "training", 0, path))  # noqa: B023
        arrays = reading.read_shard(path)
        rows = len(arrays["input_ids"])
        for numbers in (
            text_lookup.chosen(rows, length, len(text.tokens)),
            np.arange(1),
            np.arange(8192) * rows // 8192,
        ):
            some = {name: array[numbers] for name, array in arrays.items()}
            seconds = harness.least(lambda: text.check(path, some, numbers))  # noqa: B023
            cells = f"{rows:,}", f"{made:.3f}", f"{len(numbers):,}", f"{seconds:.3f}", f"{seconds / made:.1%}"
            table.add(length, *cells)


def same_ids(text: Path, words: Path, nvidia: Path) -> None:
    """Compare the ids of every sentence by both tokenizers, and print the sentences whose ids differ."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in STAND_INS.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_text(content)
        sys.path[:0] = [str(nvidia), folder]
        from tokenization import BertTokenizer
    from throughline.corpus.text.wordpiece import WordPiece

    theirs = BertTokenizer(str(words))
    lines = [line for line in text.read_text().split("\n") if line]
    ids, lengths = WordPiece(vocabulary.read(words)).encode(sentences.Sentences.of([lines]))
    other = []
    for line, ours in zip(lines, np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
        if theirs.convert_tokens_to_ids(theirs.tokenize(line)) != ours.tolist():
            other.append(line)
    print(f"\nids of {len(lines)} sentences: {len(lines) - len(other)} the same, {len(other)} not")
    for line in other[:20]:
        print(f"  {line[:200]!r}")


def scaling(folder: Path, dump: Path, times: int, cores: list[int]) -> None:
    """Print the wall-clock seconds of `snakemake corpus` on a dump `times` times as large, for each number of cores."""
    plain = folder / "dump.xml"
    repeated(dump, plain, times=times)
    print(f"{times} x {plain.stat().st_size / times / 1e6:.1f} MB of XML, {times} parts and shards, snakemake corpus\n")
    table = harness.Table("cores", "wall-clock s", "speedup", left=0)
    first = 0.0
    for number in cores:
        name = f"benchmark{number}"
        keys = {"name": name, "dump": str(plain), "parts": times, "shards": {"training": times - 1, "test": 1}}
        corpus = json.dumps({**keys, "sequences": LENGTHS})
        took = harness.snakemake(ROOT, "corpus", "--cores", number, "--config", f"corpus={corpus}").seconds
        first = first or took
        table.add(number, f"{took:.1f}", f"{first / took:.2f}")
        shutil.rmtree(ROOT / "data" / name)
        shutil.rmtree(ROOT / "logs" / name)


def main() -> None:
    """Make all comparisons that the command line asks for."""
    parser = harness.options(__doc__, rounds=3)
    parser.add_argument("nvidia", type=Path, nargs="?", help="a checkout of DeepLearningExamples")
    parser.add_argument("--times", type=int, default=1, help="repeat the sample's pages so many times")
    parser.add_argument("--growth", type=int, help="measure only ours, on the sample's pages repeated so many times")
    parser.add_argument("--cores", type=int, nargs="+", help="with --growth: the whole workflow, on so many cores")
    parser.add_argument(
        "--looked-up",
        type=int,
        help="measure only ours: look-ups of rows, on the sample's pages repeated so many times",
    )
    parser.add_argument("--text", type=Path, help="a text instead of the sample's dump")
    parser.add_argument("--ids", action="store_true", help="compare every sentence's token ids, and nothing else")
    given = parser.parse_args()
    if not (given.nvidia or given.growth or given.looked_up):
        parser.error("the path of a checkout of DeepLearningExamples is needed")
    dump = dumps.find_sample()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = folder / "vocabulary.txt"
        vocabulary.write_bert_base_uncased(words)
        if given.growth and given.cores:
            scaling(folder, dump, given.growth, given.cores)
        elif given.looked_up:
            looked_up(folder, words, dump, given.looked_up)
        elif given.growth:
            growth(folder, words, dump, given.growth)
        else:
            beside_nvidia(folder, words, dump, given)


def beside_nvidia(folder: Path, words: Path, dump: Path, given: argparse.Namespace) -> None:
    """Compare our corpus with NVIDIA's script, on the same text."""
    nvidia = given.nvidia.resolve() / "PyTorch" / "LanguageModeling" / "BERT"
    text, articles, plain = folder / "text.txt", folder / "articles.jsonl", folder / "dump.xml"
    if given.text:
        text = given.text.resolve()
    else:
        repeated(dump, plain, times=given.times)
        dump = folder / "dump.xml.bz2"
        dump.write_bytes(bz2.compress(plain.read_bytes()))
        (folder / "first").mkdir()
        ours_chain(folder / "first", words, dump)
        splitting = as_sentences(folder / "first" / "articles.jsonl", text)
    as_articles(text, articles)
    if given.ids:
        same_ids(text, words, nvidia)
        return
    megabytes = text.stat().st_size / 1e6
    create, chain = [], []
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
        compare(f"Whole chain, {plain.stat().st_size / 1e6:.1f} MB of XML", chain, megabytes)
        later = without(chain, "cut", "unpack", "extract")
        compare("After extraction", later, megabytes)
        made = without(later, "verify", "manifest")
        compare("After extraction, verification and manifest left out", made, megabytes)
    compare("Create step: sentences in, shards out", create, megabytes)
    statistics(ours, theirs, words)
    harness.write(given.json, {"create": create, "chain": chain})


def without(rounds: list[dict[str, Costs]], *steps: str) -> list[dict[str, Costs]]:
    """Leave out these steps; `verify` is that of every length."""
    return [
        {
            who: {step: spent for step, spent in costs.items() if step.split()[0] not in steps}
            for who, costs in each.items()
        }
        for each in rounds
    ]


if __name__ == "__main__":
    main()
