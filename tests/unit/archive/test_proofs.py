"""Verdicts of checks follow from the records, tries and curves behind them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from throughline.archive import proofs
from throughline.records import ConvergenceVerdict, Curve, Equivalence, Largest, Look, MaxBatch
from throughline.records.checks import AgainstStated

DEMO = Path(__file__).parents[3] / "docs/demo/proofs.jsonl"


@pytest.fixture
def proven(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    """An equivalence check of real runs, and records with the losses that it states."""
    proof = json.loads(DEMO.read_text().splitlines()[0])
    for framework, topologies in proof["frameworks"].items():
        for topology, compared in topologies.items():
            (tmp_path / f"{framework}_{topology}.json").write_text(json.dumps({"ranks": [{"loss": compared["loss"]}]}))
    for framework, precisions in proof["precisions"].items():
        for precision, compared in precisions.items():
            name = f"{framework}_{next(iter(proof['frameworks'][framework]))}_{precision}.json"
            (tmp_path / name).write_text(json.dumps({"ranks": [{"loss": compared["loss"]}]}))
    return proof, tmp_path


def found(proof: dict[str, Any], folder: Path) -> list[str]:
    return [str(one) for one in proofs.of_proof("equivalence.json", Equivalence.model_validate(proof), folder)]


def test_a_proof_follows_from_its_records(proven: tuple[dict[str, Any], Path]) -> None:
    assert not found(*proven)


def first(proof: dict[str, Any]) -> Any:
    return next(iter(next(iter(proof["frameworks"].values())).values()))


def other_loss(proof: dict[str, Any]) -> None:
    first(proof)["loss"][2] *= 1.001


def smaller(proof: dict[str, Any]) -> None:
    first(proof)["largest_difference"] /= 2


def above_its_tolerance(proof: dict[str, Any]) -> None:
    first(proof)["tolerance"] = first(proof)["largest_difference"] / 2


@pytest.mark.parametrize(
    ("change", "told"),
    [(other_loss, ".loss[2]: it states"), (smaller, "largest_difference: it states"), (above_its_tolerance, "equal")],
)
def test_what_was_typed_is_found(
    change: Callable[[dict[str, Any]], None], told: str, proven: tuple[dict[str, Any], Path]
) -> None:
    proof, folder = proven
    change(proof)
    assert any(told in line for line in found(proof, folder))


def test_a_record_that_is_gone_is_named(proven: tuple[dict[str, Any], Path]) -> None:
    proof, folder = proven
    for path in folder.glob("*_1n1g.json"):
        path.unlink()
    assert any("the archive lacks the record" in line for line in found(proof, folder))


def test_the_largest_batch_follows_from_the_tries() -> None:
    tries = [{"batch": size, "status": "fits", "reason": None, "peak_memory_bytes": 1} for size in (8, 16)]
    largest = {
        "status": "ok", "reason": None, "largest_batch_per_device": 32, "smallest_out_of_memory": 64,
        "peak_memory_bytes": 1, "device": None, "tries": tries,
    }  # fmt: skip
    search = MaxBatch.model_construct(quantity="batch", frameworks={"torch": Largest.model_validate(largest)})
    told = [str(one) for one in proofs.of_search("max_batch_fp32.json", search)]
    assert told == [
        "max_batch_fp32.json: frameworks.torch.largest_batch_per_device: it states 32, and 16 follows from the raw "
        "values (+100 %)"
    ]


def test_a_verdict_follows_from_its_curve() -> None:
    look = {"step": 10, "samples": 4, "figures": {"loss": 2.0}}
    curve = Curve.model_construct(status="ok", curve=[Look.model_validate(look)])
    compared = AgainstStated(quantity="loss", step=10, value=1.0, stated=1.0, limit=1.1, passes=True)
    verdict = ConvergenceVerdict.model_construct(
        verdict="pass", compared=[compared], last=Look.model_validate(look), reason=""
    )
    told = [str(one) for one in proofs.of_curve("convergence.json", verdict, curve)]
    assert len(told) == 1 and "compared.loss.10: it states 1.0, and 2.0 follows" in told[0]
    assert "lacks the curve" in str(next(proofs.of_curve("convergence.json", verdict, None)))
