"""The clicks: which lines a log may have, which are left out and counted, and what shards and vocabularies contain."""

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
from throughline.study.data_sections import Clicks
from throughline.workloads import wide_deep

NAMES = ["training_0000", "training_0001", "test_0000"]


def line(label: object = 1, numbers: list[object] | None = None, categories: list[str] | None = None) -> str:
    return "\t".join(map(str, [label, *(numbers or range(13)), *(categories or ["68fd1e64"] * 26)]))


def log(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def made(sources: list[Path], folder: Path) -> Path:
    """Do all steps as the rules do; return the manifest."""
    parts = [folder / f"part_{number}.hdf5" for number in range(len(sources))]
    for number, part in enumerate(parts):
        shards.write_part(sources[number], number, len(NAMES), part)
    for position, name in enumerate(NAMES):
        shards.write_shard(parts, position, folder / f"{name}.hdf5")
        files.write_json(folder / f"{name}.json", shards.verify(folder / f"{name}.hdf5", parts, position))
    results = [folder / f"{name}.json" for name in NAMES]
    shards.write_manifest("mine", "logs", results, parts, {}, folder / "manifest.json")
    return folder / "manifest.json"


def test_a_line(tmp_path: Path) -> None:
    numbers: list[object] = ["", -2, 0, 1, 2147483647, *range(8)]
    lines = [line(1, numbers), line(0, None, ["", *["ffffffff"] * 25])]
    ((rows, bad),) = logs.blocks(log(tmp_path / "log", lines))
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
    for day, rows in (("day_0", 450), ("plain", 150)):
        logs.write_synthetic(tmp_path / day, rows, rows, 2000)
    (tmp_path / "day_1.gz").write_bytes(gzip.compress((tmp_path / "plain").read_bytes() + b"broken\r\n"))
    place = made([tmp_path / "day_0", tmp_path / "day_1.gz"], tmp_path)
    content = files.read_json(place)
    assert (content["rows"], content["malformed"]) == (600, 1)
    assert content["logs"][1] == {"file": "day_1.gz", "lines": 151, "malformed": 1, "first_malformed": [151]}
    assert [shard["split"] for shard in content["shards"]] == ["training", "training", "test"]
    assert all(150 < shard["rows"] < 250 for shard in content["shards"])

    parameters = wide_deep.Parameters(vocabulary=1000)
    reader = Manifest(place, "clicks", parameters).reader
    by_shard = [reader.read(shard, 0) for shard in content["shards"]]
    whole = {name: np.concatenate([rows[name] for rows in by_shard]) for name in reading.TYPES}
    written = [rows for name in ("day_0", "plain") for rows, _ in logs.blocks(tmp_path / name)]
    for name in ("labels", "numbers"):
        expected = np.concatenate([rows[name] for rows in written])
        assert sorted(map(tuple, whole[name].reshape(600, -1))) == sorted(map(tuple, expected.reshape(600, -1)))
    assert whole["ids"].min() >= 0 and 900 < whole["ids"].max() < 1000
    assert content["share_of_clicks"] == whole["labels"].mean()
    batch = wide_deep.WORKLOAD.batch(by_shard[0], Options())
    for name, array in wide_deep.WORKLOAD.synthetic(1, example("wide-deep", parameters), 1).items():
        assert (array.shape[1:], array.dtype) == (batch[name].shape[1:], batch[name].dtype)


def test_ids_fill_every_vocabulary_and_a_reader_says_that_nobody_clicked() -> None:
    hashes = np.random.default_rng(1).integers(0, 2**32, 100_000, np.uint32)
    for vocabulary in (1000, 2_359_296, 2**31 - 1):
        ids = reading.in_vocabulary(hashes, vocabulary)
        assert ids.dtype == np.int32 and ids.min() >= 0 and 0.99 * vocabulary < ids.max() < vocabulary
    for source, how in (("logs", None), ("synthetic", "synthetic clicks")):
        assert reading.reader({"source": source}, Path(), SimpleNamespace(vocabulary=1000), 1).how == how


def test_a_changed_shard_is_found(tmp_path: Path) -> None:
    logs.write_synthetic(tmp_path / "day_0", 0, 300, 2000)
    made([tmp_path / "day_0"], tmp_path)
    shard, part = tmp_path / "training_0000.hdf5", tmp_path / "part_0.hdf5"
    for changed, name, message in (
        ((shard, part), "labels", "has a label that is not 0 or 1"),
        ((shard,), "numbers", r"has other numbers than part_0\.hdf5, somewhere in rows 0 to"),
    ):
        for file in changed:
            with h5py.File(file, "r+") as stream:
                stream[name][0] = 7
        with pytest.raises(UserError, match=message):
            shards.verify(shard, [part], 0)
    shard.write_bytes(shard.read_bytes()[:5000])
    with pytest.raises(UserError, match="is no whole file of clicks"):
        shards.verify(shard, [part], 0)


def test_a_log_that_ends_early_is_an_error(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(line() for _ in range(1000)).encode())
    (tmp_path / "day_0").write_bytes(packed[:-20])
    for name in ("day_0", "absent"):
        with pytest.raises(UserError, match=f"{name} cannot be read to its end"):
            shards.write_part(tmp_path / name, 0, 3, tmp_path / "part.hdf5")


def test_the_rule_of_synthetic_clicks_is_in_their_logs(tmp_path: Path) -> None:
    """The rule's probability is higher for a click than for another row in 70 to 85 % of the pairs."""
    logs.write_synthetic(tmp_path / "log", 0, 3000, 2000)
    ((rows, _),) = logs.blocks(tmp_path / "log")
    cells = [row.split("\t")[14:] for row in (tmp_path / "log").read_text().splitlines()]
    values = np.array([[int(cell, 16) * pow(2654435761, -1, 2**32) % 2**32 for cell in row] for row in cells])
    chance = wide_deep.probability(values, rows["numbers"])
    assert 0.7 < (chance[rows["labels"] == 1][:, None] > chance[rows["labels"] == 0]).mean() < 0.85
    assert chance.mean() == pytest.approx(rows["labels"].mean(), abs=0.03)


def test_the_section_and_its_files(tmp_path: Path) -> None:
    (tmp_path / "day_1.gz").touch()
    names = [f"{tmp_path}/day_0.gz", f"{tmp_path}/day_1.gz"]
    section = Clicks.model_validate({"source": names, "name": "criteo"})
    elsewhere = section.model_copy(update={"source": ["/other/day_0.gz", "/other/day_1.gz"]})
    digests = {clicks.digest("clicks") for clicks in (section, elsewhere, Clicks(), Clicks(rows=3000))}
    assert len(digests) == 3 and str(tmp_path) not in json.dumps(section.without_places())
    targets, synthetic = ClicksTargets(section), ClicksTargets(Clicks(rows=10))
    assert targets.log("criteo", part="0001") == names[1]
    with pytest.raises(UserError, match=r"day_0\.gz is not there, and clicks\.source names it\n.* did you mean"):
        targets.log("criteo", part="0000")
    assert targets.parts(name="criteo")[-1] == "data/criteo/clicks/parts/part_0001.hdf5"
    assert [targets.position(split, "0001", name="criteo") for split in ("training", "test")] == [1, 9]
    assert sum(synthetic.rows("synthetic", day=str(day)) for day in range(4)) == 10
    for wrong in (
        lambda: targets.parts(name="others"),
        lambda: targets.position("test", "0002", name="criteo"),
        lambda: targets.log("criteo", part="0002"),
        lambda: targets.rows("criteo", day="0"),
        lambda: synthetic.rows("synthetic", day="4"),
    ):
        with pytest.raises(UserError, match="is not in the configuration"):
            wrong()
