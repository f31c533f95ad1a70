"""Snakemake makes shards from a folder of pictures and a run that reads them, a single shard again, and faces."""

import json
from collections.abc import Callable

from clones import Clone, job_counts
from images_helpers import classes, folder, picture

PICTURES = """
images: {name: little, source: pictures, damaged: skip, shards: {training: 1, test: 1}}
faces: {name: people, source: people, shards: {training: 1, test: 1}}
runs: {device: cpu, repeats: 1, threads: 2, steps: {warmup: 2, timed: 3}}
benchmarks:
  small: {model: resnet-tiny, image: 32, classes: 3, topologies: [1n2g], batch: {fp32: [4]}}
"""
RUN = "results/small/bz4_fp32/torch/1n2g/run1.json"


def test_from_pictures_to_a_run_and_one_shard_again(clone: Callable[[str], Clone]) -> None:
    made = clone(PICTURES)
    folder(made.path / "pictures", classes(3, 6) | {"train/class0/broken.jpg": b"\xff\xd8\xff no picture"})
    counts = job_counts(made.made(RUN).stdout)
    steps = {"images_listing": 1, "images_shard": 2, "images_verify": 2, "images_manifest": 1}
    assert counts == {**steps, "run": 1}
    manifest = json.loads((made.path / "data/little/images/manifest.json").read_text())
    assert (manifest["rows"], manifest["skipped"], manifest["classes"]) == (18, 1, 3)
    record = json.loads((made.path / RUN).read_text())
    assert record["status"] == "ok" and record["unit"] == "images/s"
    assert record["data"]["content_digest"] == manifest["content_digest"]
    assert "in 2 processes, prepared 6 batches ahead" in record["settings"]["data"]
    logs = "".join((made.path / name).read_text() for name in made.files("logs/little/images/*.log"))
    assert "skipped train/class0/broken.jpg: it is neither JPEG nor PNG" in logs

    shard = made.path / "data/little/images/training_0000.tar"
    before = shard.read_bytes()
    shard.unlink()
    assert job_counts(made.made("data/little/images/training_0000.tar").stdout) == {"images_shard": 1}
    assert shard.read_bytes() == before
    absent = made.snakemake("--dry-run", "data/little/images/training_0002.tar")
    assert absent.returncode and "It holds: training_0000, test_0000" in absent.stdout

    faces = {f"train/person{number % 2}/{number}.jpg": picture(number, (112, 112)) for number in range(4)}
    folder(made.path / "people", faces)
    assert job_counts(made.made("data/people/faces/manifest.json").stdout) == steps
    manifest = json.loads((made.path / "data/people/faces/manifest.json").read_text())
    assert (manifest["rows"], manifest["classes"]) == (4, 2)
