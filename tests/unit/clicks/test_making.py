"""The clicks: which lines a log may have, which are left out and counted, and what shards and vocabularies contain."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from throughline import files
from throughline.clicks import logs, reading, shards
from throughline.datasets.targets import ClicksTargets
from throughline.files import UserError
from throughline.rank.data import Manifest
from throughline.spec import Options, example
from throughline.study.clicks_section import Clicks
from throughline.workloads import wide_deep

SHARDS = ["training_0000", "training_0001", "test_0000"]


def line(label: object = 1, numbers: list[object] | None = None, categories: list[str] | None = None) -> str:
    return "\t".join(map(str, [label, *(numbers or range(13)), *(categories or ["68fd1e64"] * 26)]))


def log(path: Path, rows: list[str]) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def made(logs: list[Path], folder: Path) -> Path:
    """Do all steps as the rules do; return the manifest."""
    parts = [folder / f"part_{number}.hdf5" for number in range(len(logs))]
    for number, part in enumerate(parts):
        shards.write_part(logs[number], number, len(SHARDS), part)
    for number, shard in enumerate(SHARDS):
        shards.write_shard(parts, number, folder / f"{shard}.hdf5")
        files.write_json(folder / f"{shard}.json", shards.verify(folder / f"{shard}.hdf5", parts, number))
    results = [folder / f"{shard}.json" for shard in SHARDS]
    shards.write_manifest("own", "logs", results, parts, {}, folder / "manifest.json")
    return folder / "manifest.json"


def test_a_line(tmp_path: Path) -> None:
    numbers: list[object] = ["", -2, 0, 1, 2147483647, *range(8)]
    ((rows, bad),) = logs.blocks(log(tmp_path / "log", [line(1, numbers), line(0, None, ["", *["ffffffff"] * 25])]))
    assert bad == [] and rows["labels"].tolist() == [1, 0]
    np.testing.assert_allclose(rows["numbers"][0, :5], np.log1p([0, 0, 0, 1, 2147483647]), rtol=1e-6)
    assert len(set(rows["ids"][0].tolist())) == 26, "the same value of another field is another category"
    assert rows["ids"][1, 0] not in logs.hashed(np.array([["00000000"] * 26], "S8")), "missing is none of the values"


@pytest.mark.parametrize(
    "wrong",
    [
        "", line(2), line("x"), line(1, [1.5, *range(12)]), line(1, [*range(14)]), line(1, None, ["68fd1e6"] * 26),
        line(1, None, ["68FD1E64"] * 26), line(1, None, ["68fd1e64"] * 25), line() + "\t", line().replace("\t", " "),
        line(1, ["-", *range(12)]), line(1, ["12345678901", *range(12)]), "1\0" + line()[1:], "é" + line(),
    ],
)  # fmt: skip
def test_a_malformed_line_is_left_out_and_counted(wrong: str, tmp_path: Path) -> None:
    place = log(tmp_path / "day_0", [line(), wrong, line(0)])
    ((rows, bad),) = logs.blocks(place)
    assert (bad, rows["labels"].tolist()) == ([2], [1, 0])
    with pytest.raises(UserError, match="1 malformed lines among 3, the first is line 2"):
        shards.write_part(place, 0, 3, tmp_path / "part.hdf5")
    assert not (tmp_path / "part.hdf5").exists()


def test_from_logs_to_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LINES_AT_ONCE", 100)  # several blocks
    logs.write_synthetic(
        tmp_path / "day_0",
        0,
        450,
        2000,
    )
    logs.write_synthetic(tmp_path / "plain", 1, 150, 2000)
    (tmp_path / "day_1.gz").write_bytes(gzip.compress(b"broken\r\n" + (tmp_path / "plain").read_bytes()))
    place = made([tmp_path / "day_0", tmp_path / "day_1.gz"], tmp_path)
    content = files.read_json(place)
    assert (content["rows"], content["malformed"]) == (600, 1)
    assert content["logs"][1] == {"file": "day_1.gz", "lines": 151, "malformed": 1, "first_malformed": [1]}
    assert [shard["split"] for shard in content["shards"]] == ["training", "training", "test"]
    assert all(150 < shard["rows"] < 250 for shard in content["shards"])

    parameters = wide_deep.Parameters(vocabulary=1000)
    read = Manifest(place, "clicks", parameters)
    rows = [read.reader.read(shard, 0) for shard in content["shards"]]
    whole = {name: np.concatenate([one[name] for one in rows]) for name in reading.TYPES}
    every = [some for name in ("day_0", "plain") for some, _ in logs.blocks(tmp_path / name)]
    for name in ("labels", "numbers"):
        expected = np.concatenate([some[name] for some in every])
        assert sorted(map(tuple, whole[name].reshape(600, -1))) == sorted(map(tuple, expected.reshape(600, -1)))
    assert whole["ids"].min() >= 0 and 900 < whole["ids"].max() < 1000
    batch = wide_deep.WORKLOAD.batch(rows[0], Options())
    synthetic = wide_deep.WORKLOAD.synthetic(1, example("wide-deep", parameters), 1)
    assert {name: (array.shape[1:], array.dtype) for name, array in batch.items()} == {
        name: (array.shape[1:], array.dtype) for name, array in synthetic.items()
    }


def test_a_larger_vocabulary_tells_more_apart() -> None:
    hashes = np.random.default_rng(1).integers(0, 2**32, 100_000, np.uint32)
    for vocabulary in (1000, 2_359_296, 2**31 - 1):
        ids = reading.in_vocabulary(hashes, vocabulary)
        assert ids.dtype == np.int32 and ids.min() >= 0 and 0.99 * vocabulary < ids.max() < vocabulary


def test_a_changed_shard_is_found(tmp_path: Path) -> None:
    logs.write_synthetic(tmp_path / "day_0", 0, 300, 2000)
    made([tmp_path / "day_0"], tmp_path)
    shard = tmp_path / "training_0000.hdf5"
    with h5py.File(shard, "r+") as stream:
        stream["ids"][7, 3] += 1
    with pytest.raises(UserError, match=r"other ids than part_0\.hdf5"):
        shards.verify(shard, [tmp_path / "part_0.hdf5"], 0)
    shard.write_bytes(shard.read_bytes()[:5000])
    with pytest.raises(UserError, match="no whole file of clicks"):
        shards.verify(shard, [tmp_path / "part_0.hdf5"], 0)


def test_a_log_that_ends_early_is_an_error(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(line() for _ in range(1000)).encode())
    (tmp_path / "day_0").write_bytes(packed[:-20])
    with pytest.raises(UserError, match="cannot be read to its end"):
        shards.write_part(tmp_path / "day_0", 0, 3, tmp_path / "part.hdf5")
    with pytest.raises(UserError, match="cannot be read"):
        shards.write_part(tmp_path / "absent", 0, 3, tmp_path / "part.hdf5")


def test_the_rule_of_synthetic_clicks_is_in_their_logs(tmp_path: Path) -> None:
    """The rule's probability is higher for a click than for a row without a click in 70 to 85 % of the pairs, and its
    mean is the share of clicks."""
    logs.write_synthetic(tmp_path / "log", 0, 3000, 2000)
    ((rows, _),) = logs.blocks(tmp_path / "log")
    cells = [row.split("\t") for row in (tmp_path / "log").read_text().splitlines()]
    inverse = pow(2654435761, -1, 2**32)
    values = np.array([[int(one, 16) * inverse % 2**32 for one in row[14:]] for row in cells])
    chance = wide_deep.probability(values, rows["numbers"])
    clicks, others = chance[rows["labels"] == 1], chance[rows["labels"] == 0]
    assert 0.7 < (clicks[:, None] > others).mean() < 0.85
    assert chance.mean() == pytest.approx(rows["labels"].mean(), abs=0.03)


def test_what_decides_the_files() -> None:
    section = Clicks.model_validate({"source": ["/data/day_0.gz", "/data/day_1.gz"], "name": "criteo"})
    elsewhere = section.model_copy(update={"source": ["/other/day_0.gz", "/other/day_1.gz"]})
    assert section.digest("clicks") == elsewhere.digest("clicks") != Clicks().digest("clicks")
    assert Clicks(rows=3000).digest("clicks") != Clicks().digest("clicks")
    assert "/data" not in json.dumps(section.without_places())
    targets = ClicksTargets(section)
    assert targets.log(name="criteo", part="0001") == "/data/day_1.gz"
    for wrong in (
        lambda: targets.parts(name="others"),
        lambda: targets.position(name="criteo", split="test", number="0002"),
        lambda: targets.log(name="criteo", part="0002"),
        lambda: targets.rows(name="criteo", day="0"),
    ):
        with pytest.raises(UserError, match="is not in the configuration"):
            wrong()


def test_synthetic_logs_have_all_rows() -> None:
    targets = ClicksTargets(Clicks(rows=10))
    assert sum(targets.rows(name="synthetic", day=str(day)) for day in range(4)) == 10


def test_a_reader_says_that_nobody_clicked() -> None:
    how = [
        reading.reader({"source": one}, Path(), SimpleNamespace(vocabulary=1000), 1).how
        for one in ("logs", "synthetic")
    ]
    assert how == [None, "synthetic clicks"]
