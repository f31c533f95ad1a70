"""The whole job on real text, and what is made again if something is missing."""

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from clones import ONE, SMALL, Clone, job_counts
from corpus_helpers import content, same
from throughline.records import read_run, read_summary
from throughline.spec import Topology

RECORDS = {
    f"results/{cell}/torch/{topology}/run{repeat}.json"
    for cell, topology, repeats in (
        ("quick/bz4_fp32", "1n1g", 2),
        ("quick/bz4_fp32", "1n2g", 2),
        ("other/bz4_bf16", "1n1g", 1),
    )
    for repeat in range(1, repeats + 1)
}


def test_everything_is_made(finished: tuple[Clone, str]) -> None:
    clone, _ = finished
    assert clone.files("results/*/bz*/*/*/run*.json") == RECORDS
    for name in RECORDS:
        assert read_run(clone.path / name).status == "ok"
    shards = clone.files("data/little/seq*/*.hdf5")
    assert len(shards) == 3 and all("/seq32/" in name for name in shards), "no run reads the other length"
    summary = read_summary(clone.path / "results/quick/bz4_fp32.json")
    cells = summary.frameworks["torch"]
    assert list(cells) == ["1n1g", "1n2g"] and cells["1n1g"].speedup == 1.0 and cells["1n2g"].n_ok == 2
    report = (clone.path / "results/report.html").read_text(encoding="utf-8")
    assert "quick" in report and "other" in report


def test_data_come_before_all_runs_and_repeats_stand_side_by_side(clone: Callable[[], Clone]) -> None:
    asked = clone(SMALL.replace("[1n1g, 1n2g]", "[1n1g, 1n2g], extras: [synthetic, aa]"))
    printed = asked.made("--dry-run", "--quiet", "host").stdout
    priorities: dict[str, list[tuple[int, str]]] = {}
    for said in re.split(r"^(?:local)?rule ", printed, flags=re.MULTILINE)[1:]:
        output, priority = re.search(r"output: ([^\s,]+)", said), re.search(r"priority: (\d+)", said)
        if output:
            priorities.setdefault(said.split(":")[0], []).append((int(priority[1]) if priority else 0, output[1]))
    runs = [output.split("/") for _, output in sorted(priorities["run"], reverse=True)]
    assert [(parts[1], parts[4], parts[5]) for parts in runs[:7]] == [
        *((name, topology, "run1.json") for topology in ("1n1g", "1n2g") for name in ("quick", "quick__synthetic")),
        *(("quick__aa", topology, "run1.json") for topology in ("1n1g", "1n2g")),
        ("other", "1n1g", "run1.json"),
    ]
    assert {parts[5] for parts in runs[7:]} == {"run2.json"}
    data = ("vocabulary", "cut", "extract", "tokenize", "gather", "shard", "verify", "manifest")
    assert min(min(priorities[rule])[0] for rule in data) > max(priorities["run"])[0]


def test_every_record_holds_its_configuration_and_environment(finished: tuple[Clone, str]) -> None:
    clone, _ = finished
    digests: dict[tuple[str, Topology], set[str | None]] = {}
    for name in RECORDS:
        record = read_run(clone.path / name)
        assert (clone.path / name).with_suffix(".telemetry.csv").read_text().startswith("node,at_s,in_window")
        assert list(record.configuration["benchmarks"]) == [record.spec.benchmark]
        assert record.configuration["corpus"]["sequences"] == {"32": 5, "64": 10}
        assert record.environment["code"] and record.environment["packages"]["torch"]
        empty = {key for key, value in record.environment.items() if value is None}
        assert empty <= set(record.environment["reasons"])
        digests.setdefault((record.spec.cell, record.spec.topology), set()).add(record.environment["digest"])
    assert all(len(found) == 1 and None not in found for found in digests.values())


def test_the_log_of_a_run_begins_with_how_to_repeat_it_and_ends_with_its_outcome(finished: tuple[Clone, str]) -> None:
    clone, _ = finished
    lines = (clone.path / "results/quick/bz4_fp32/torch/1n2g/run1.log").read_text().splitlines()
    again = "snakemake --force results/quick/bz4_fp32/torch/1n2g/run1.json --configfile small.yaml"
    assert lines[0] == f"# again: {again}"
    assert job_counts(clone.made("--dry-run", *shlex.split(again)[1:]).stdout) == {"run": 1}
    page = (clone.path / "results/report.html").read_text(encoding="utf-8")
    assert "snakemake results/quick/bz4_fp32.json --configfile small.yaml\n" in page
    assert "outcome: " in lines[-2] and "samples/s" in lines[-2]
    assert lines[-1].startswith("next: snakemake results/quick/bz4_fp32.json")


def test_a_missing_shard_and_a_missing_run_are_made_again_alone(finished: tuple[Clone, str]) -> None:
    clone, _ = finished
    shard, record = "data/little/seq32/training_0001.hdf5", "results/quick/bz4_fp32/torch/1n2g/run2.json"
    before_it = content(clone.path / shard)
    before = clone.times("results/*/bz*/*/*/run*.json", "data/little/seq*/*.hdf5")
    for name in (shard, record):
        (clone.path / name).unlink()
    counts = job_counts(clone.made().stdout)
    after = clone.times("results/*/bz*/*/*/run*.json", "data/little/seq*/*.hdf5")
    assert {name for name in after if after[name] != before.get(name)} == {shard, record}
    assert set(before) == set(after)
    assert counts["run"] == counts["shard"] == counts["manifest"] == counts["summary"] == 1
    assert not set(counts) & {"dump", "cut", "extract", "tokenize"}
    assert same(content(clone.path / shard), before_it)


def test_a_changed_setting_makes_only_its_runs_again(finished: tuple[Clone, str]) -> None:
    clone, _ = finished
    changed = SMALL.replace("batch: {bf16: [4]}", "batch: {bf16: [4]}, seed: 7")
    try:
        (clone.path / "small.yaml").write_text(changed)
        assert job_counts(clone.made("--dry-run").stdout)["run"] == 1
    finally:
        (clone.path / "small.yaml").write_text(SMALL)


def test_one_summary_makes_only_what_it_needs(clone: Callable[[str], Clone], finished: tuple[Clone, str]) -> None:
    """The content of shards and manifest does not depend on cores, parts or place."""
    fresh = clone(SMALL.replace("parts: 2", "parts: 5"))
    fresh.made("--cores", "1", "results/other/bz4_bf16.json")
    assert fresh.files("results/*/bz*/*/*/run*.json") == {"results/other/bz4_bf16/torch/1n1g/run1.json"}
    assert not fresh.files("results/report.html", "data/little/seq64/*", "results/quick/**")
    assert hashes(fresh) == {name: digest for name, digest in hashes(finished[0]).items() if "/seq32/" in name}


def test_gpt2_reads_the_tokens_of_the_same_articles(finished: tuple[Clone, str]) -> None:
    """GPT-2's tokens can be made without a block of GPT-2. With such a block, only they are made. A damaged shard is
    found."""
    clone, _ = finished
    made = job_counts(clone.made("data/little/bpe/manifest.json").stdout)
    assert made == {"bpe_vocabulary": 1, "bpe_tokenize": 2, "bpe_shard": 3, "bpe_verify": 3, "bpe_manifest": 1}
    shard = clone.path / "data/little/bpe/training_0001.hdf5"
    whole, before = shard.read_bytes(), clone.times("data/little/bpe/*.hdf5")
    shard.unlink()
    assert job_counts(clone.made("data/little/bpe/training_0001.hdf5").stdout) == {"bpe_shard": 1}
    after = clone.times("data/little/bpe/*.hdf5")
    assert {name for name in after if after[name] != before[name]} == {"data/little/bpe/training_0001.hdf5"}
    assert same(shard.read_bytes(), whole)
    middle = len(whole) // 2
    shard.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    failed = clone.snakemake("data/little/bpe/manifest.json")
    assert failed.returncode != 0 and "snakemake --force data/little/bpe/training_0001.hdf5" in failed.stdout
    shard.unlink()
    block = "text: {model: gpt2-tiny, sequence_length: 48, topologies: [1n2g], batch: {fp32: [2]}, repeats: 1}"
    try:
        (clone.path / "small.yaml").write_text(SMALL.partition("  quick:")[0] + f"  {block}\n")
        again = job_counts(clone.made("corpus", "results/text/bz2_fp32.json").stdout)
        record = read_run(clone.path / "results/text/bz2_fp32/torch/1n2g/run1.json")
    finally:
        (clone.path / "small.yaml").write_text(SMALL)
        shutil.rmtree(clone.path / "results/text")
    assert again == {"bpe_shard": 1, "bpe_verify": 1, "bpe_manifest": 1, "corpus": 1, "run": 1, "summary": 1}
    assert record.status == "ok"
    assert record.settings["data"] == "real, windows at places drawn anew each epoch, prepared 8 batches ahead"
    listed = json.loads((clone.path / "data/little/bpe/manifest.json").read_text())
    assert record.data.rows == sum(shard["tokens"] // 48 - 1 for shard in listed["shards"])
    assert listed["content_digest"] == record.data.content_digest


def test_masks_can_be_drawn_while_reading(clone: Callable[[str], Clone]) -> None:
    drawn = clone(ONE.replace("{dupe_factor: 1}", "{dupe_factor: 1, dynamic: true}"))
    drawn.made("results/other/bz4_bf16.json")
    record = read_run(drawn.path / "results/other/bz4_bf16/torch/1n1g/run1.json")
    assert record.status == "ok"
    assert record.settings["data"] == "real, masks drawn anew each epoch, prepared 8 batches ahead"
    manifest = json.loads((drawn.path / "data/little/seq32/manifest.json").read_text())
    assert manifest["parameters"]["dynamic"] is True and manifest["vocabulary"]["words"] == [[999, 30522]]


def hashes(clone: Clone) -> dict[str, str]:
    return {
        name: hashlib.sha256(content(clone.path / name)).hexdigest()
        for name in sorted(clone.files("data/little/seq*/*.*"))
    }


def test_a_record_that_was_edited_by_hand_enters_no_median(finished: tuple[Clone, str], tmp_path: Path) -> None:
    edited = Clone(shutil.copytree(finished[0].path, tmp_path / "edited"))
    path = edited.path / "results/other/bz4_bf16/torch/1n1g/run1.json"
    record = json.loads(path.read_text())
    record["samples_per_s"] *= 2
    path.write_text(json.dumps(record))
    (edited.path / "data/little/seq32/training_0001.hdf5").unlink()  # data that are made again hide nothing
    for _ in range(2):  # a failed call does not end the next one before it has begun
        failed = edited.snakemake()
        assert failed.returncode != 0
        assert "does not follow from the window" in failed.stdout
    path.write_text((finished[0].path / path.relative_to(edited.path)).read_text())
    edited.made()
    assert "job count" not in edited.snakemake("--dry-run").stdout
