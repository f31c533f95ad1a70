"""Verdicts of checks follow from the records, tries and curves behind them; tables follow in any order of rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from throughline.archive import again
from throughline.archive.differences import of_file
from throughline.checks.convergence_check import judge
from throughline.checks.equivalence import judged
from throughline.files import UserError, write_json
from throughline.records import Curve, Equivalence, MaxBatch
from throughline.records.checks import Comparison
from unit.archive.test_archive import DEMO

Check = tuple[dict[str, Any], Path]


@pytest.fixture
def checked(tmp_path: Path) -> Check:
    """An equivalence check of real runs, also in another precision, and records with the losses that it states."""
    check = json.loads((DEMO / "equivalence.jsonl").read_text().splitlines()[0])
    in_fp32 = check["frameworks"]["torch"]["1n1g"]
    lower = judged([loss * (1 + 1e-6 * step) for step, loss in enumerate(in_fp32["loss"][:10])], in_fp32["loss"], 1e-3)
    unsupported = Comparison(verdict="unsupported", reason="no kernel").model_dump()  # it leaves no record
    check["precisions"] = {"torch": {"bf16": lower.model_dump() | {"updates": in_fp32["updates"]}, "fp8": unsupported}}
    kept = {f"{name}_{topology}": one for name, of in check["frameworks"].items() for topology, one in of.items()}
    for name, compared in {**kept, "torch_1n1g_bf16": check["precisions"]["torch"]["bf16"]}.items():
        write_json(tmp_path / f"equivalence/{name}.json", {"ranks": [{"loss": compared["loss"]}]})
    return check, tmp_path / "equivalence.json"


def differences(derive: Callable[[Path], Any], path: Path, value: Any) -> list[str]:
    """Return what a file states otherwise than what follows from the files beside it."""
    write_json(path, value)
    write_json(path.with_name("again.json"), derive(path))
    return [str(one) for one in of_file("file", path, path.with_name("again.json"))]


def found(check: dict[str, Any], path: Path) -> list[str]:
    return differences(again.equivalence_of, path, Equivalence.model_validate(check).model_dump(by_alias=True))


def test_an_equivalence_check_follows_from_its_records(checked: Check) -> None:
    assert not found(*checked)


def other_loss(compared: dict[str, Any]) -> None:
    compared["loss"][2] *= 1.001


def smaller(compared: dict[str, Any]) -> None:
    compared["largest_difference"] /= 2


def above_its_tolerance(compared: dict[str, Any]) -> None:
    compared["tolerance"] = compared["largest_difference"] / 2


def tensor_above_its_tolerance(compared: dict[str, Any]) -> None:
    tensor = next(iter(compared["updates"]["tensors"].values()))
    tensor["tolerance"] = tensor["difference"] / 2


@pytest.mark.parametrize("kind", ["frameworks", "precisions"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (other_loss, ".loss[2]: it states"),
        (smaller, "largest_difference: it states"),
        (above_its_tolerance, "it states 'equal', and 'different' follows"),
        (tensor_above_its_tolerance, "it states 'equal', and 'different' follows"),
    ],
)
def test_what_was_typed_is_found(
    change: Callable[[dict[str, Any]], None], told: str, kind: str, checked: Check
) -> None:
    check, path = checked
    change(next(one for of in check[kind].values() for one in of.values() if one["updates"]))
    assert any(told in line for line in found(check, path))


def test_a_record_that_is_gone_is_named(checked: Check) -> None:
    check, path = checked
    for record in path.with_suffix("").glob("*_1n1g.json"):
        record.unlink()
    with pytest.raises(UserError, match=r"equivalence/\w+_1n1g.json does not exist"):
        found(check, path)


@pytest.mark.parametrize("name", ["/etc/torch", "../torch", ".torch"])
def test_a_name_in_an_equivalence_check_is_no_way_out_of_the_folder(name: str, checked: Check) -> None:
    check, path = checked
    frameworks = check["frameworks"]
    by_topology = next(iter(frameworks.values()))
    for changed in (frameworks | {name: by_topology}, frameworks | {"torch": {name: next(iter(by_topology.values()))}}):
        with pytest.raises(ValueError, match="is no name"):
            found(check | {"frameworks": changed}, path)


def test_the_largest_batch_follows_from_the_tries(tmp_path: Path) -> None:
    path = tmp_path / "max_batch_fp32.json"
    sizes = {8: "fits", 16: "fits", 17: "oom"}
    largest = {
        "status": "ok", "reason": None, "largest_batch_per_device": 32, "smallest_out_of_memory": 64,
        "peak_memory_bytes": 1, "device": None, "tries": [
            {"batch": size, "status": status, "reason": None, "peak_memory_bytes": 1} for size, status in sizes.items()
        ],
    }  # fmt: skip
    search = {
        "schema": 3, "benchmark": "b", "model": "bert-tiny", "sequence_length": 32, "predictions": 5,
        "precision": "fp32", "topology": "1n1g", "steps": 3, "memory_limit_mb": None, "tried_at_most": 64,
        "frameworks": {"torch": largest}, "started": "2026-11-20T12:00:00Z", "ended": "2026-11-20T12:00:00Z",
    }  # fmt: skip
    told = differences(again.search_of, path, MaxBatch.model_validate(search).model_dump(by_alias=True))
    assert told == [
        "file: frameworks.torch.largest_batch_per_device: it states 32, and 16 follows from the raw values (+100 %)",
        "file: frameworks.torch.smallest_out_of_memory: it states 64, and 17 follows from the raw values (+276 %)",
    ]


def test_a_verdict_follows_from_its_curve(tmp_path: Path) -> None:
    path = tmp_path / "convergence_torch_bz8_fp32.json"
    lines = [json.loads(line) for line in (DEMO / "runs.jsonl").read_text().splitlines()]
    run = next(line for line in lines if line["spec"]["model"].startswith("bert"))
    kept = {key: run[key] for key in ("spec", "device", "data", "environment", "warnings", "started", "ended")}
    looks = [{"step": step, "samples": 4, "figures": {"loss": 2.0 - step / 10}} for step in (5, 10)]
    curve = {"schema": 3, "evaluate_every": 5, "status": "ok", "reason": None, "curve": looks, "loss": [2.0, 1.0]}
    write_json(path.with_suffix("") / "curve.json", kept | curve | {"resumed_after_step": None})
    (tmp_path / "stated.csv").write_text("step,loss\n1,1.5\n10,1.1\n")
    value = judge(Curve.model_validate(kept | curve | {"resumed_after_step": None}), tmp_path / "stated.csv", 0.1)
    verdict = value.model_dump(by_alias=True, mode="json")

    assert verdict["verdict"] == "fail" and not differences(again.convergence_of, path, verdict)
    verdict["compared"][0] |= {"value": 1.0, "passes": True}
    verdict["verdict"] = "pass"
    told = differences(again.convergence_of, path, verdict)
    assert len(told) == 3 and "file: verdict: it states 'pass', and 'fail' follows from the raw values" in told


def test_rows_in_another_order_and_other_columns_are_words(tmp_path: Path) -> None:
    kept, made = tmp_path / "kept.csv", tmp_path / "made.csv"
    made.write_text("name,speed,new\nb,2.5,1\na,1.5,2\n")
    for text, found in (
        ("name,speed,old\na,1.5,7\nb,2.5,8\n", ["line 1"]),
        ("name,speed,old\na,1.6,7\nb,2.5,8\n", ["line 1", "row 2, speed"]),
        ("name,speed,new\nb,2.5,1\n", ["line 3"]),
        (made.read_text(), []),
    ):
        kept.write_text(text)
        told = list(of_file("t", kept, made))
        assert [one.what for one in told] == found and [one.word for one in told] == [True, False][: len(found)]
    assert [one.word for one in of_file("t", tmp_path / "gone.csv", made)] == [True]
    assert [one.word for one in of_file("t", tmp_path / "gone.json", made)] == [False]
