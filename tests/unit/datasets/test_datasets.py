"""What all data packages share: whole files, the results of verifications, manifests, and the files of a section."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest

from throughline.datasets import hdf5, manifest
from throughline.datasets.shards import installed_file, split_of
from throughline.datasets.targets import FolderTargets
from throughline.files import UserError, read_json, write_json
from throughline.study.data_sections import Clicks

WHOLE = partial(hdf5.defect, schema=1, arrays=("a",))


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    path, others = tmp_path / "x.hdf5", [".x.01.partial.json", ".y.01.partial.hdf5"]
    for name in (*others, ".x.0123.partial.hdf5"):
        (tmp_path / name).touch()
    with pytest.raises(ZeroDivisionError), hdf5.new_file(path, {"schema": 1}) as stream:
        stream["a"] = 1 / 0
    assert sorted(file.name for file in tmp_path.iterdir()) == others, "only its own leftovers are removed"
    with hdf5.new_file(path, {"schema": 1}) as stream:
        stream.create_dataset("a", data=np.arange(5), track_times=False)
    with hdf5.opened(path, WHOLE) as stream:
        mapped = hdf5.mapped(stream["a"])
        assert isinstance(mapped, np.memmap) and mapped.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda stream: stream.attrs.__delitem__("complete"), "why:  its writing was interrupted"),
        (lambda stream: stream.attrs.__setitem__("schema", 2), "why:  another version of Throughline wrote it"),
        (lambda stream: stream.__delitem__("a"), "why:  it lacks a"),
    ],
)
def test_a_file_that_is_not_whole(tmp_path: Path, change: Callable[[h5py.File], None], message: str) -> None:
    path = tmp_path / "x.hdf5"
    with pytest.raises(UserError, match=r"x\.hdf5 does not exist"), hdf5.opened(path, WHOLE):
        pass
    with hdf5.new_file(path, {"schema": 1}) as stream:
        stream["a"] = [1]
    with h5py.File(path, "a") as stream:
        change(stream)
    with pytest.raises(UserError, match=r"x\.hdf5 is no whole log") as caught, hdf5.opened(path, WHOLE, "log"):
        pass
    assert message in str(caught.value) and f"snakemake --force {path}" in str(caught.value)


def test_from_verified_shards_to_a_manifest(tmp_path: Path) -> None:
    for name, data in (("theirs.bin", b"abc"), ("training_0000.bin", b"def"), ("training_0000.idx", b"index")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "test_0000.bin").symlink_to(tmp_path / "theirs.bin")
    test = manifest.verified(tmp_path / "test_0000.bin", {"rows": 1}, "x", looked="closely")
    training = manifest.verified(tmp_path / "training_0000.bin", {"rows": 0}, "y", tmp_path / "training_0000.idx")
    assert list(test) == ["schema", "file", "source", "rows", "sha256", "content_digest", "looked"]
    assert test["source"] == "theirs.bin" and test["sha256"] == hashlib.sha256(b"abc").hexdigest()
    assert list(training) == ["schema", "file", "rows", "sha256", "index", "content_digest"]
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    write_json(paths[0], test)
    write_json(paths[1], training)
    with pytest.raises(UserError, match="no row to train on"):
        manifest.read_results(paths, "rows", UserError("no row to train on"))
    write_json(paths[1], training | {"rows": 2})
    results = manifest.read_results(paths, "rows", UserError("no row to train on"))
    manifest.write(tmp_path / "manifest.json", {"kind": "k"}, {"seed": 1}, {"rows": 3}, results, ["source", "rows"])
    content = read_json(tmp_path / "manifest.json")
    assert content["shards"] == [
        {"file": "training_0000.bin", "split": "training", "rows": 2},
        {"file": "test_0000.bin", "split": "test", "source": "theirs.bin", "rows": 1},
    ]
    digests = ["parameters_digest", "content_digest"]
    assert list(content) == ["schema", "kind", "parameters", *digests, "rows", "shards"]
    assert content["content_digest"] == manifest.digest([["training_0000.bin", "y"], ["test_0000.bin", "x"]])


def test_files_of_a_folder_and_names() -> None:
    section = Clicks.model_validate({"name": "c", "shards": {"training": 9, "test": 1}})
    targets = FolderTargets(section, "clicks", ".hdf5")
    assert targets.files()[:2] == ["data/c/clicks/manifest.json", "data/c/clicks/training_0000.hdf5"]
    assert targets.verified(name="c")[-1] == "data/c/clicks/verified/test_0000.json"
    assert split_of("hdf5_lower_case_1_seq_len_128_training_7.hdf5") == "training"
    for wrong, message in (
        (lambda: targets.verified(name="d"), r"clicks d is not in the configuration\. It holds: c"),
        (lambda: targets.check(name="c", split="test", number="0001"), r"It holds: training_0000, \.\.\., test_0000"),
        (lambda: split_of("shard_7.hdf5"), "belongs to no split"),
        (lambda: installed_file("the sample", "pytest", "none.bin"), "the sample is not on this machine"),
        (lambda: installed_file("the sample", "no-such-package", "none.bin"), "install the no-such-package pinned"),
    ):
        with pytest.raises(UserError, match=message):
            wrong()
