"""The corpus against NVIDIA's script: CPU-seconds of both on the same text, in turn, and what they made of it.

    python benchmarks/corpus.py DeepLearningExamples                   the sample's dump: create step and whole chain
    python benchmarks/corpus.py DeepLearningExamples --text FILE       a larger text, one sentence a line, an empty
                                                                       line after each article: create step alone

The first argument is a checkout of https://github.com/NVIDIA/DeepLearningExamples. The create step is sentences in,
HDF5 at 128 and 512 tokens out: there create_pretraining_data.py twice, here the tokens of a part, their gathering and
two shards, each a process of its own, its start included. The whole chain is a dump in: there wikiextractor on the
unpacked dump, our sentence splitter (nltk's punkt, which they use, is slower) and the create step; here every step of
the workflow. Verification and manifest, which they have not, are counted with ours, and shown without as well.
One process at a time; CPU-seconds are those of a process and all it started.
"""

from __future__ import annotations

import argparse
import bz2
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402

from throughline.corpus import dumps, sentences, shards, verification, vocabulary  # noqa: E402

LENGTHS = {128: 20, 512: 80}
COPIES = 5
# What NVIDIA's tokenizer imports for its downloads alone, where it is not installed.
STAND_INS = {
    "six.py": "PY3 = True\n",
    "boto3.py": "",
    "botocore/__init__.py": "",
    "botocore/exceptions.py": "ClientError = Exception\n",
}
Spent = dict[str, tuple[float, float]]


def spent(command: Sequence[object], environment: dict[str, str] | None = None) -> tuple[float, float]:
    """CPU-seconds of a command and all it started, and its largest resident memory in MB."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*map(str, command)], env={**os.environ, **(environment or {})}, stdout=said, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"{command} failed:\n{said.read().decode()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def script(name: str, **options: object) -> tuple[float, float]:
    """One of the workflow's command lines."""
    command: list[object] = [sys.executable, ROOT / "workflow" / "scripts" / f"corpus_{name}.py"]
    for option, value in options.items():
        command += [f"--{option}", *(value if isinstance(value, list) else [value])]
    return spent(command, {"PYTHONPATH": str(ROOT / "src")})


def parameters(length: int) -> str:
    return json.dumps({"sequence": length, "predictions": LENGTHS[length], "copies": COPIES})


def ours_create(folder: Path, words: Path, articles: Path) -> Spent:
    """Articles to shards, in `folder`."""
    part, tokens = folder / "part.hdf5", folder / "tokens.hdf5"
    found = {"tokens": script("tokens", articles=articles, vocabulary=words, output=part)}
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
    """A dump to verified shards and their manifests."""
    cut, articles = folder / "parts.json", folder / "articles.jsonl"
    found = {"cut": script("cut", dump=dump, parts=1, output=cut)}
    found["extract"] = script("extract", cut=cut, part=0, output=articles, counts=folder / "counts.json")
    found |= ours_create(folder, words, articles)
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
    """Sentences to shards, in `folder`."""
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
    """A dump to shards; `splitting`: CPU-seconds of the sentence splitter on its text."""
    plain = folder / "dump.xml"
    found = {"unpack": spent(["sh", "-c", 'bunzip2 -c "$0" > "$1"', dump, plain])}
    extractor = [sys.executable, "-m", "wikiextractor.WikiExtractor", "-q", "--processes", "1", "--no-templates"]
    found["extract"] = spent([*extractor, "-o", folder / "text", plain])
    found["split"] = (splitting, 0)
    return found | theirs_create(folder, words, text, nvidia)


def as_sentences(articles: Path, text: Path) -> float:
    """Write the articles' sentences, one a line; CPU-seconds of splitting alone."""
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
    """The articles of a text, each sentence a paragraph of its own."""
    with articles.open("w") as stream:
        for number, article in enumerate(text.read_text().split("\n\n")):
            stream.write(json.dumps({"id": str(number), "text": article}) + "\n")


def compare(what: str, rounds: list[tuple[Spent, Spent]], megabytes: float) -> None:
    """The table of one comparison: medians of the rounds, and the ratio of the medians."""
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
    """What both made of the same text."""
    read = vocabulary.read(words)
    names = ["rows", "tokens_per_row", "masked_share", "replaced_by_mask_share", "unchanged_share", "random_next_share"]
    print("\n| | " + " | ".join(name.replace("_", " ") for name in names) + " |\n|---|" + "--:|" * len(names))
    for length in LENGTHS:
        for who, path in (("theirs", theirs / f"{length}.hdf5"), ("ours", ours / f"{length}" / "training_0000.hdf5")):
            arrays = shards.read(path)
            found = {"rows": float(len(arrays["input_ids"])), **verification.measure(arrays, read)}
            print(f"| {length}, {who} | " + " | ".join(f"{found[name]:.6g}" for name in names) + " |")


def same_ids(text: Path, words: Path, nvidia: Path) -> None:
    """Every sentence's ids, by both tokenizers."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in STAND_INS.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_text(content)
        sys.path[:0] = [str(nvidia), folder]
        from tokenization import BertTokenizer  # type: ignore[import-not-found]
    from throughline.corpus.wordpiece import WordPiece

    theirs = BertTokenizer(str(words))
    lines = [line for line in text.read_text().split("\n") if line]
    ids, lengths = WordPiece(vocabulary.read(words)).encode(lines)
    other = []
    for line, ours in zip(lines, np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
        if theirs.convert_tokens_to_ids(theirs.tokenize(line)) != ours.tolist():
            other.append(line)
    print(f"\nids of {len(lines)} sentences: {len(lines) - len(other)} the same, {len(other)} not")
    for line in other[:20]:
        print(f"  {line[:200]!r}")


def main() -> None:
    """All comparisons asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nvidia", type=Path, help="a checkout of DeepLearningExamples")
    parser.add_argument("--text", type=Path, help="a text instead of the sample's dump")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ids", action="store_true", help="compare every sentence's token ids, and nothing else")
    arguments = parser.parse_args()
    nvidia = arguments.nvidia.resolve() / "PyTorch" / "LanguageModeling" / "BERT"
    dump = dumps.find_sample()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words, text, articles = folder / "vocabulary.txt", folder / "text.txt", folder / "articles.jsonl"
        vocabulary.write_bert_base_uncased(words)
        if arguments.text:
            text = arguments.text.resolve()
            as_articles(text, articles)
        else:
            (folder / "first").mkdir()
            ours_chain(folder / "first", words, dump)
            articles = folder / "first" / "articles.jsonl"
        splitting = as_sentences(articles, folder / "text.txt")
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
                create.append((ours_create(one, words, articles), theirs_create(other, words, text, nvidia)))
            else:
                chain.append((ours_chain(one, words, dump), theirs_chain(other, words, dump, text, nvidia, splitting)))
        if chain:
            xml = len(bz2.decompress(dump.read_bytes())) / 1e6
            compare(f"Whole chain, {xml:.1f} MB of XML", chain, megabytes)
            made = ("tokens", "gather", *(f"shard {length}" for length in LENGTHS))
            for ours, theirs in chain:
                mine = {step: ours[step] for step in made}
                create.append((mine, {step: theirs[step] for step in theirs if step.startswith("create")}))
        compare("Create step", create, megabytes)
        statistics(one, other, words)


if __name__ == "__main__":
    main()
