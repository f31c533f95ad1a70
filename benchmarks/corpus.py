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
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402

from throughline.corpus import reading  # noqa: E402
from throughline.corpus.shards import Parameters, instances, making, row_checks, segment_pairs, text_lookup  # noqa: E402
from throughline.corpus.source import dumps  # noqa: E402
from throughline.corpus.text import sentences, tokens, vocabulary  # noqa: E402

LENGTHS = {128: 20, 512: 80}
COPIES = 5
SEEDS = 20
# NVIDIA's tokenizer imports these modules only for downloads. The stand-ins replace them, so they need no installation.
STAND_INS = {
    "six.py": "PY3 = True\n",
    "boto3.py": "",
    "botocore/__init__.py": "",
    "botocore/exceptions.py": "ClientError = Exception\n",
}
Spent = dict[str, tuple[float, float]]


def spent(command: Sequence[object], environment: dict[str, str] | None = None) -> tuple[float, float]:
    """Return the CPU-seconds of a command and all that it started, and its largest resident memory in MB."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*map(str, command)], env={**os.environ, **(environment or {})}, stdout=said, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"{command} failed:\n{said.read().decode()[-2000:]}")
    seconds, largest = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    named = next(Path(str(word)).stem for word in command[1:] if not str(word).startswith("-"))
    print(f"{named}: {seconds:.2f} CPU-s, {largest:.0f} MB", file=sys.stderr, flush=True)
    return seconds, largest


def script(name: str, **options: object) -> tuple[float, float]:
    """Call one of the workflow's commands; return its CPU-seconds and memory as `spent` does."""
    command: list[object] = [sys.executable, ROOT / "workflow" / "scripts" / f"corpus_{name}.py"]
    for option, value in options.items():
        command += [f"--{option}", *(value if isinstance(value, list) else [value])]
    return spent(command)


def parameters(length: int) -> str:
    return json.dumps({"sequence": length, "predictions": LENGTHS[length], "copies": COPIES})


def ours_create(folder: Path, words: Path, articles: Path, *, lines: bool) -> Spent:
    """Make shards from articles, in `folder`. `lines`: every line of an article is a sentence already."""
    part, tokens = folder / "part.hdf5", folder / "tokens.hdf5"
    options = {"lines": []} if lines else {}
    found = {"tokens": script("tokens", articles=articles, vocabulary=words, output=part, **options)}
    found["gather"] = script("gather", parts=part, split="training", shard=0, training=1, test=0, output=tokens)
    for length in LENGTHS:
        found[f"shard {length}"] = script(
            "shard",
            tokens=tokens,
            vocabulary=words,
            split="training",
            shard=0,
            parameters=parameters(length),
            output=folder / f"{length}" / "training_0000.hdf5",
        )
    return found


def ours_chain(folder: Path, words: Path, dump: Path) -> Spent:
    """Make verified shards and their manifests from a dump."""
    cut, articles = folder / "parts.json", folder / "articles.jsonl"
    found = {"cut": script("cut", dump=dump, parts=1, output=cut)}
    found["extract"] = script("extract", cut=cut, part=0, output=articles, counts=folder / "counts.json")
    found |= ours_create(folder, words, articles, lines=False)
    for length in LENGTHS:
        made, verified = folder / f"{length}", folder / f"{length}" / "verified.json"
        asked = {"vocabulary": words, "parameters": parameters(length)}
        shard = made / "training_0000.hdf5"
        found[f"verify {length}"] = script(
            "verify", shard=shard, tokens=folder / "tokens.hdf5", output=verified, **asked
        )
        found[f"manifest {length}"] = script(
            "manifest", corpus="benchmark", verified=verified, output=made / "manifest.json", **asked
        )
    return found


def theirs_create(folder: Path, words: Path, text: Path, nvidia: Path) -> Spent:
    """Make shards from sentences with NVIDIA's script, in `folder`."""
    for name, content in STAND_INS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    found = {}
    for length, predictions in LENGTHS.items():
        command = [sys.executable, nvidia / "create_pretraining_data.py", "--vocab_file", words, "--input_file", text]
        command += ["--output_file", folder / f"{length}.hdf5", "--max_seq_length", length, "--dupe_factor", COPIES]
        command += ["--max_predictions_per_seq", predictions]
        found[f"create {length}"] = spent(command, {"PYTHONPATH": str(folder)})
    return found


def theirs_chain(folder: Path, words: Path, dump: Path, text: Path, nvidia: Path, splitting: float) -> Spent:
    """Make shards from a dump their way. `splitting`: CPU-seconds of the sentence splitter on the dump's text."""
    plain = folder / "dump.xml"
    found = {"unpack": spent(["sh", "-c", 'bunzip2 -c "$0" > "$1"', dump, plain])}
    extractor = [sys.executable, "-m", "wikiextractor.WikiExtractor", "-q", "--processes", "1", "--no-templates"]
    found["extract"] = spent([*extractor, "-o", folder / "text", plain])
    found["split"] = (splitting, 0)
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


def compare(what: str, rounds: list[tuple[Spent, Spent]], megabytes: float) -> None:
    """Print the table of one comparison: medians of the rounds, and the ratio of the medians."""
    print(f"\n### {what}: {megabytes:.1f} MB of text, {len(rounds)} rounds in turn\n")
    print("| | CPU-seconds | per MB of text | largest process, MB |\n|---|--:|--:|--:|")
    sums = []
    for who, side in (("theirs", 1), ("ours", 0)):
        each = [pair[side] for pair in rounds]
        for step in each[0]:
            print(f"| {who}: {step} | {median(r[step][0] for r in each):.2f} | | {max(r[step][1] for r in each):.0f} |")
        sums.append(median(sum(seconds for seconds, _ in r.values()) for r in each))
        print(f"| **{who}** | **{sums[-1]:.2f}** | {sums[-1] / megabytes:.3f} | |")
    ratios = sorted(sum(s for s, _ in r[1].values()) / sum(s for s, _ in r[0].values()) for r in rounds)
    print(f"\nratio {sums[0] / sums[1]:.1f} (rounds: {', '.join(f'{ratio:.1f}' for ratio in ratios)})")


def statistics(ours: Path, theirs: Path, words: Path) -> None:
    """Print what both made of the same text. The rows `seeds` are mean and standard deviation of ours over SEEDS other
    seeds."""
    read = vocabulary.read(words)
    documents, _ = tokens.read(ours / "tokens.hdf5")
    by_pairs = ["rows", "tokens_per_row", "random_next_share"]
    names = [*by_pairs, "masked_share", "replaced_by_mask_share", "unchanged_share"]
    print("\n| | " + " | ".join(name.replace("_", " ") for name in names) + " |\n|---|" + "--:|" * len(names))
    for length, predictions in LENGTHS.items():
        found = {}
        for who, path in (("theirs", theirs / f"{length}.hdf5"), ("ours", ours / f"{length}" / "training_0000.hdf5")):
            arrays = reading.read_shard(path)
            found[who] = {
                "rows": float(len(arrays["input_ids"])),
                **row_checks.shares(row_checks.counted(arrays, read)),
            }
            print(f"| {length}, {who} | " + " | ".join(f"{found[who][name]:.6g}" for name in names) + " |")
        drawn = []
        for seed in range(SEEDS):
            asked = instances.Parameters(length, predictions, copies=COPIES, seed=seed)
            made = segment_pairs.examples(documents, asked, "training", 0).pairs
            drawn.append(
                (len(made), float(made.a_length.mean() + made.b_length.mean()) + 3, float(made.random_next.mean()))
            )
        middle, spread = np.mean(drawn, axis=0), np.std(drawn, axis=0, ddof=1)
        cells = [f"{m:.6g} ± {d:.2g}" for m, d in zip(middle, spread, strict=True)]
        print(f"| {length}, {SEEDS} seeds | " + " | ".join(cells) + " | | | |")
        off = [(found["theirs"][name] - m) / d for name, m, d in zip(by_pairs, middle, spread, strict=True)]
        print(f"| {length}, theirs off by | " + " | ".join(f"{z:+.1f} s. d." for z in off) + " | | | |")


def repeated(dump: Path, times: int, path: Path) -> None:
    """Write a dump that repeats the dump's pages `times` times, each time with other ids, uncompressed."""
    head, *pages = bz2.decompress(dump.read_bytes()).split(b"  <page>\n")
    pages[-1], closing = pages[-1].split(b"</mediawiki>")
    with path.open("wb") as stream:
        stream.write(head)
        for turn in range(times):
            for page in pages:
                before, number, after = re.split(rb"<id>(\d+)</id>", page, maxsplit=1)
                stream.write(b"  <page>\n%b<id>%d</id>%b" % (before, int(number) + turn * 10**8, after))
        stream.write(b"</mediawiki>" + closing)


def growth(folder: Path, words: Path, dump: Path, times: int) -> None:
    """Print what each step of ours costs on a dump `times` times as large, cut into so many parts and shards."""
    plain, cut = folder / "dump.xml", folder / "parts.json"
    repeated(dump, times, plain)
    print(f"{times} x {plain.stat().st_size / times / 1e6:.1f} MB of XML, a part and a shard each\n")
    print("| step | first, CPU-s | median | last | largest process, MB |\n|---|--:|--:|--:|--:|")
    cost = script("cut", dump=plain, parts=times, output=cut)
    print(f"| cut, once | {cost[0]:.2f} | | | {cost[1]:.0f} |")
    costs: dict[str, list[tuple[float, float]]] = {}
    parts = [folder / f"part_{number:04d}.hdf5" for number in range(times)]
    for number, part in enumerate(parts):
        articles = folder / f"part_{number:04d}.jsonl"
        made = script("extract", cut=cut, part=number, output=articles, counts=folder / "counts.json")
        costs.setdefault("extract", []).append(made)
        costs.setdefault("tokens", []).append(script("tokens", articles=articles, vocabulary=words, output=part))
    for number in range(times):
        gathered = folder / f"training_{number:04d}.hdf5"
        of = {"split": "training", "shard": number}
        gather = script("gather", parts=parts, training=times, test=0, output=gathered, **of)
        costs.setdefault("gather", []).append(gather)
        for length in LENGTHS:
            path = folder / f"{length}" / gathered.name
            asked = {"vocabulary": words, "parameters": parameters(length), "tokens": gathered}
            costs.setdefault(f"shard {length}", []).append(script("shard", output=path, **asked, **of))
            verified = path.with_suffix(".json")
            costs.setdefault(f"verify {length}", []).append(script("verify", shard=path, output=verified, **asked))
    for step, each in costs.items():
        seconds = [one[0] for one in each]
        largest = max(one[1] for one in each)
        print(f"| {step} | {seconds[0]:.2f} | {median(seconds):.2f} | {seconds[-1]:.2f} | {largest:.0f} |")
    text = sum(json.loads(path.read_text())["characters"] for path in [folder / "counts.json"])
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
    print(f"\n{len(text.tokens):,} tokens of text\n\n| tokens | rows | making | rows looked up | look-up | share |")
    print("|--:|" + "--:|" * 5)
    for length, predictions in LENGTHS.items():
        asked, path = Parameters(length, predictions, copies=COPIES), folder / f"{length}" / "training_0000.hdf5"
        made = least(lambda: making.make(folder / "tokens.hdf5", words, asked, "training", 0, path))  # noqa: B023
        arrays = reading.read_shard(path)
        rows = len(arrays["input_ids"])
        for numbers in (
            text_lookup.chosen(rows, length, len(text.tokens)),
            np.arange(1),
            np.arange(8192) * rows // 8192,
        ):
            some = {name: array[numbers] for name, array in arrays.items()}
            seconds = least(lambda: text.check(path, some, numbers))  # noqa: B023
            cells = f"{rows:,}", f"{made:.3f}", f"{len(numbers):,}", f"{seconds:.3f}", f"{seconds / made:.1%}"
            print(f"| {length} | " + " | ".join(cells) + " |", flush=True)


def least(what: Callable[[], object]) -> float:
    """Return the CPU-seconds of this process for one call of `what`: the least of five calls."""
    found = []
    for _ in range(5):
        begun = time.process_time()
        what()
        found.append(time.process_time() - begun)
    return min(found)


def same_ids(text: Path, words: Path, nvidia: Path) -> None:
    """Compare the ids of every sentence by both tokenizers, and print the sentences whose ids differ."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in STAND_INS.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_text(content)
        sys.path[:0] = [str(nvidia), folder]
        from tokenization import BertTokenizer  # type: ignore[import-not-found]
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
    repeated(dump, times, plain)
    print(f"{times} x {plain.stat().st_size / times / 1e6:.1f} MB of XML, {times} parts and shards, snakemake corpus\n")
    print("| cores | wall-clock s | speedup |\n|--:|--:|--:|")
    first = 0.0
    for number in cores:
        name = f"benchmark{number}"
        asked = {"name": name, "dump": str(plain), "parts": times, "shards": {"training": times - 1, "test": 1}}
        corpus = json.dumps({**asked, "sequences": LENGTHS})
        command = [sys.executable, "-m", "snakemake", "corpus", "--cores", str(number), "--config", f"corpus={corpus}"]
        begun = time.monotonic()
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        took = time.monotonic() - begun
        first = first or took
        print(f"| {number} | {took:.1f} | {first / took:.2f} |", flush=True)
        shutil.rmtree(ROOT / "data" / name)
        shutil.rmtree(ROOT / "logs" / name)


def main() -> None:
    """Make all comparisons that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ids", action="store_true", help="compare every sentence's token ids, and nothing else")
    arguments = parser.parse_args()
    if not (arguments.nvidia or arguments.growth or arguments.looked_up):
        parser.error("the path of a checkout of DeepLearningExamples is needed")
    dump = dumps.find_sample()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words, text, articles = folder / "vocabulary.txt", folder / "text.txt", folder / "articles.jsonl"
        vocabulary.write_bert_base_uncased(words)
        if arguments.growth and arguments.cores:
            scaling(folder, dump, arguments.growth, arguments.cores)
            return
        if arguments.looked_up:
            looked_up(folder, words, dump, arguments.looked_up)
            return
        if arguments.growth:
            growth(folder, words, dump, arguments.growth)
            return
        nvidia = arguments.nvidia.resolve() / "PyTorch" / "LanguageModeling" / "BERT"
        if arguments.text:
            text = arguments.text.resolve()
        else:
            repeated(dump, arguments.times, folder / "dump.xml")
            dump = folder / "dump.xml.bz2"
            dump.write_bytes(bz2.compress((folder / "dump.xml").read_bytes()))
            (folder / "first").mkdir()
            ours_chain(folder / "first", words, dump)
            splitting = as_sentences(folder / "first" / "articles.jsonl", text)
        as_articles(text, articles)
        if arguments.ids:
            same_ids(text, words, nvidia)
            return
        megabytes = text.stat().st_size / 1e6
        create, chain = [], []
        for number in range(arguments.rounds):
            one, other = folder / f"ours{number}", folder / f"theirs{number}"
            one.mkdir()
            other.mkdir()
            if arguments.text:
                theirs = theirs_create(other, words, text, nvidia)
            else:
                theirs = theirs_chain(other, words, dump, text, nvidia, splitting)
                chain.append((ours_chain(one, words, dump), theirs))
            theirs = {step: theirs[step] for step in theirs if step.startswith("create")}
            create.append((ours_create(one, words, articles, lines=True), theirs))
        if chain:
            xml = (folder / "dump.xml").stat().st_size / 1e6
            compare(f"Whole chain, {xml:.1f} MB of XML", chain, megabytes)
            later = [({k: v for k, v in one.items() if k not in ("cut", "extract")}, other) for one, other in chain]
            later = [(one, {k: v for k, v in o.items() if k not in ("unpack", "extract")}) for one, o in later]
            compare("After extraction", later, megabytes)
            made = [({k: v for k, v in one.items() if k[:3] not in ("ver", "man")}, other) for one, other in later]
            compare("After extraction, verification and manifest left out", made, megabytes)
        compare("Create step: sentences in, shards out", create, megabytes)
        statistics(one, other, words)


if __name__ == "__main__":
    main()
