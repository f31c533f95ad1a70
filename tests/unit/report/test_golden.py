"""Records of schema 1 stay readable for ever: old records still give the summaries and tables of the first version.

golden_records/runs.jsonl holds one record a line, and golden_records/expected/ holds what the first version made of
them. A summary may have more keys now. Tables are the same to the byte, except for the words in REWORDED and a new
column at the right. Two files are newer than the first version: comparisons.csv (Holm's p, A/A runs of the same
framework, no verdict for unequal frameworks) and the last lines of cost (an unequal framework is no best value).
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from throughline import records
from throughline.files import UserError

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden_records"
EXPECTED = GOLDEN / "expected"
TERMS = {
    "goals": {"efficiency": {"from_nodes": 2, "at_least": 0.8}, "utilization": {"at_least": 0.8}},
    "prices": {"V100": {"per_hour": 2.5, "per_month": None, "devices": None, "currency": "USD"}},
    "task_samples": 300_000_000,
}
REMARKS = {"bert/bz32_fp32": "W/O xla & W/O clip"}
WORK = "FLOPs (per sample), FLOP/s (per device), peak (datasheet), MFU (share of peak), matmul (measured), "
USE = "GPUs busy, SM clock (MHz), power (W), temperature (°C), CPU (of the run, cores), memory (of the run, MiB), "
WORK += "share of matmul, real tokens/s (all devices), "
USE += "CPU (of the machine), network out (MB/s), throttled by, "
MEMORY = "needed (MiB, framework), reserved (MiB, framework), used (MiB, device), total (MiB, device), "
REWORDED = {
    "a single rank exchanges nothing, so that communication is 0 and the difference noise": (
        "a single rank has nobody to exchange with: communication is 0, and the measured difference is noise"
    ),
    "means over the timed window, over nodes, devices and repeats; a figure's title says the extremes": (
        "means over the timed window, the nodes, the devices and the repeats; on the page, the tooltip of a figure has "
        "its lowest and its highest value"
    ),
    **{
        f"the fastest, {name}, takes {time} of its time for {money} times its money": (
            f"fastest: {name}; for the same samples it needs {time} times the time of the best value and costs {money} "
            "times as much"
        )
        for name, time, money in (
            ("torch 1n2g, bf16, batch 16", "0.53", "1.06"),
            ("torch 2n8g, fp32, batch 32", "0.40", "3.17"),
        )
    },
    "made-up tokens": "made-up batches",
    "real tokens (of positions): n/a": f"{WORK}real tokens (of positions): n/a",
    "telemetry (CPU cost): n/a": f"{USE}telemetry (CPU cost): n/a",
    "used (share of total): n/a": f"{MEMORY}used (share of total): n/a",
}
"""Old text -> new text: words that now fit every workload, and notes that used to name only the last column."""
EXTRAS = ["bert__noexchange/bz32_fp32.json", "bert__synthetic/bz32_fp32.json", "bert__aa/bz32_fp32.json"]


def script(name: str, *arguments: object) -> None:
    """Run one of the commands in this process."""
    sys.argv = [name, *map(str, arguments)]
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "workflow/scripts" / f"{name}.py"), run_name="__main__")
    assert ended.value.code == 0


def make(root: Path) -> None:
    """Make every summary and table from the kept records, below `root`."""
    cells: dict[str, list[Path]] = {}
    for line in (GOLDEN / "runs.jsonl").read_text(encoding="utf-8").splitlines():
        run = json.loads(line)["spec"]
        name = f"{run['benchmark']}/bz{run['batch_per_device']}_{run['precision']}"
        path = root / name / run["framework"] / run["topology"] / f"run{run['repeat']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line, encoding="utf-8")
        cells.setdefault(name, []).append(path)
    for name, paths in cells.items():
        terms = {**TERMS, "goals": None} if "__" in name else TERMS
        proof = ["--equivalence", GOLDEN / "equivalence.json"] if name.startswith("bert/") else []
        remarks = [f"--remarks={REMARKS[name]}"] if name in REMARKS else []
        script("summarize", *paths, "--asked", 3, "--terms", json.dumps(terms), *proof, *remarks,
               "--output", root / f"{name}.json")  # fmt: skip
    for benchmark in ("bert", "early"):
        own = [root / f"{name}.json" for name in cells if name.startswith(f"{benchmark}/")]
        extras = [root / extra for extra in EXTRAS] if benchmark == "bert" else []
        script("tables", *own, "--extras", *extras, "--output-dir", root / benchmark / "tables")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("golden")
    before = sys.argv
    make(root)
    sys.argv = before
    return root


def kept(old: Any, new: Any) -> Any:
    """`new` without the keys that `old` lacks."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: kept(old[key], value) for key, value in new.items() if key in old}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [kept(before, after) for before, after in zip(old, new, strict=True)]
    return new


def names(suffix: str) -> list[str]:
    return sorted(path.relative_to(EXPECTED).as_posix() for path in EXPECTED.rglob(f"*{suffix}"))


@pytest.mark.parametrize("name", names(".json"))
def test_summaries_say_the_same(made: Path, name: str) -> None:
    old, new = (json.loads((root / name).read_text(encoding="utf-8")) for root in (EXPECTED, made))
    old["schema"] = new["schema"]
    assert kept(old, new) == old
    assert json.dumps(kept(old, new), sort_keys=True) == json.dumps(old, sort_keys=True)


@pytest.mark.parametrize("name", [*names(".csv"), *names(".md"), *names(".tex")])
def test_tables_are_the_same_bytes(made: Path, name: str) -> None:
    old, new = ((root / name).read_text(encoding="utf-8") for root in (EXPECTED, made))
    for before, after in REWORDED.items():
        old = old.replace(before, after)
    if name.endswith("/throughput.csv"):  # the column at the right, tokens/s, is new
        lines = [line.rpartition(",") for line in new.splitlines()]
        assert lines[0][2] == "median_tokens_per_s"
        new = "".join(f"{line}\n" for line, _, _ in lines)
    assert new == old


def test_checks_of_schema_1() -> None:
    curve, verdict = records.read_curve(GOLDEN / "curve.json"), records.read_verdict(GOLDEN / "verdict.json")
    assert curve.curve[1].figures == {"loss": 9.5, "mlm_accuracy": 0.04, "nsp_accuracy": 0.55}
    assert verdict.last == curve.curve[-1]
    proof, largest = (
        records.read_equivalence(GOLDEN / "equivalence.json"),
        records.read_max_batch(GOLDEN / "max_batch.json"),
    )
    assert (proof.batch_per_device, proof.parameters, proof.covers) == (32, {"sequence": 128}, [])
    assert largest.parameters == {"sequence": 128}
    for name in names(".json"):
        assert records.read_summary(EXPECTED / name).parameters == {"sequence": 32 if "real" in name else 128}


def test_a_newer_schema_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """The error names the version that made the file. The file stays, and no advice says to remove it."""
    place = tmp_path / "bert/bz32_fp32.json"
    place.parent.mkdir()
    newer = json.dumps({"schema": 3, "environment": {"torch": {"commit": "5f0c1e2d3b4a"}}})
    place.write_text(newer)
    for read in (records.read_summary, records.read_run, records.read_curve, records.read_max_batch):
        with pytest.raises(UserError, match="has schema 3") as refused:
            read(place)
        assert "5f0c1e2d3b4a" in str(refused.value) and "force" not in str(refused.value)
    with pytest.raises(UserError, match="has schema 3"):
        records.leave_newer([tmp_path / "none.json", place])
    assert place.read_text() == newer
    place.write_text('{"schema": "?"}')
    with pytest.raises(UserError, match="reads 1 to 2"):
        records.read_summary(place)
    records.leave_newer([place, GOLDEN / "runs.jsonl", EXPECTED / "bert/bz32_fp32.json"])
