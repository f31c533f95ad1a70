"""Round figures that a reader can derive by hand, from records to tables: no number moves unnoticed.

golden_records/run.json is a record; run_on_cpu.json, summary.json and the checks beside them are other files of schema
3, as it is now. If one of them cannot be read any more, the schema needs another number. golden_records/expected/ holds
the tables.

How the tables follow from SECONDS, the time of a step in each repeat, with batch 32 and 3.6 USD per device and hour:

    figure               1n1g              1n2g                 2n8g
    seconds of a step    .40, .32, .256    .50, .40, .32        .512, .40, .32
    samples/s            80, 100, 125      128, 160, 200        1000, 1280, 1600     32 x devices / seconds
    median               100               160                  1280
    average              101.67            162.67               1293.33
    speedup              1                 1.60                 12.80                median / 100
    its range            -                 128/125 to 200/80    1000/125 to 1600/80  slowest / fastest, and the reverse
    efficiency           100 %             80 %                 80 %                 speedup / devices
    FLOP/s of a device   5 T               4 T                  4 T                  50 G a sample x median / devices
    MFU, of 20 T         25 %              20 %                 20 %
    samples for 1 USD    100,000           80,000               80,000               3600 x median / (3.6 x devices)
    a million samples    10 USD            12.50 USD            12.50 USD
    36 million samples   100 h, 360 USD    62.5 h, 450 USD      7.8125 h, 450 USD
    energy of a sample   2 J               2 J                  2 J                  256 J a device / (4 steps x 32)

The repeats of two topologies do not overlap: p of the rank test is that of 2 of 20 orders, 0.1, and 0.2 after Holm's
correction for two tests. Without exchange, a step on 1n2g takes .40, .32 and .25 s. So it spends .10, .08 and .07 s on
its exchange: the median is 80 ms, a fifth of .40 s.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from report_fixture import NO_MEMORY, NO_WORK, NOT_SAMPLED, run_script, world_of, write_record
from throughline import __version__, records
from throughline.files import UserError

GOLDEN = Path(__file__).parent / "golden_records"
EXPECTED = GOLDEN / "expected/bert/tables"
TABLES = sorted(path.name for path in EXPECTED.iterdir())
RUN = json.loads((GOLDEN / "run.json").read_text(encoding="utf-8"))
TERMS = {
    "goals": {"efficiency": {"from_nodes": 2, "at_least": 0.9}, "utilization": {"at_least": 0.4}},
    "prices": {"V100": {"per_hour": 3.6, "per_month": None, "devices": None, "currency": "USD"}},
    "total_samples": 36_000_000,
}
SECONDS = {
    "bert": {"1n1g": (0.40, 0.32, 0.256), "1n2g": (0.50, 0.40, 0.32), "2n8g": (0.512, 0.40, 0.32)},
    "bert__no_gradient_sync": {"1n2g": (0.40, 0.32, 0.25)},
}


def run(benchmark: str, topology: str, repeat: int, seconds: float) -> dict[str, Any]:
    """Return a record: four steps of so many seconds."""
    world, value = world_of(topology), deepcopy(RUN)
    speed = 32 * world / seconds
    value["spec"] |= {"benchmark": benchmark, "topology": topology, "repeat": repeat}
    value |= {"samples_per_s": speed, "window_s": 4 * seconds, "step_seconds": [seconds] * 4}
    value["ranks"] = [{**RUN["ranks"][0], "rank": rank, "window_end_s": 4 * seconds} for rank in range(world)]
    rate = 50e9 * speed / world
    value["work"] |= {"flops_per_s": rate, "mfu": rate / 20e12, "matmul_share": rate / 10e12}
    value["work"]["real_tokens_per_s"] = 0.75 * 128 * speed
    value["telemetry"][0]["devices"] *= world
    return value


def out_of_memory(repeat: int) -> dict[str, Any]:
    """Return the record of a run that did not fit."""
    value = run("bert", "1n2g", repeat, 1.0)
    value["spec"]["framework"] = "mxnet-horovod"
    without = dict.fromkeys(("samples_per_s", "window_s", "peak_memory_bytes", "loader_stall_share"))
    value |= {**without, "telemetry": [NOT_SAMPLED], "memory": NO_MEMORY, "work": NO_WORK | {"convention": {}}}
    value |= {"status": "oom", "reason": "16384 MiB did not hold batch 32", "steps_timed": 0}
    return value | {"step_seconds": [], "loss": [], "ranks": [], "utilization": {"cpu": None, "gpu": None}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the records, their summaries and their tables with the commands of the workflow."""
    root = tmp_path_factory.mktemp("golden")
    for benchmark, series in SECONDS.items():
        values = [
            run(benchmark, topology, repeat, seconds)
            for topology, repeats in series.items()
            for repeat, seconds in enumerate(repeats, start=1)
        ]
        values += [out_of_memory(repeat) for repeat in (1, 2, 3)] if benchmark == "bert" else []
        paths = [write_record(root, value) for value in values]
        terms = json.dumps(TERMS if benchmark == "bert" else {**TERMS, "goals": None})
        run_script("summarize", *paths, "--asked", 3, "--terms", terms, "--output", root / benchmark / "bz32_fp32.json")
    extras = ["--extras", root / "bert__no_gradient_sync/bz32_fp32.json"]
    run_script("tables", root / "bert/bz32_fp32.json", *extras, "--output-dir", root / "bert/tables")
    return root


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_the_same_bytes(made: Path, name: str) -> None:
    assert (made / "bert/tables" / name).read_text(encoding="utf-8") == (EXPECTED / name).read_text(encoding="utf-8")


def test_what_stands_in_no_table(made: Path) -> None:
    found = json.loads((made / "bert/bz32_fp32.json").read_text(encoding="utf-8"))
    goals = {goal["name"]: (goal["verdict"], goal["worst"], goal["where"]) for goal in found["goals"]}
    assert goals == {
        "efficiency": ("fail", 0.8, "torch 2n8g"),
        "utilization": ("not measured", None, "mxnet-horovod 1n2g"),
    }
    cell = found["frameworks"]["torch"]["1n2g"]
    assert cell["values"] == [128.0, 160.0, 200.0]
    assert cell["speedup_range"] == [1.024, 2.5] and cell["efficiency_range"] == [0.512, 1.25]
    assert cell["median_absolute_deviation"] == 32.0  # the median of 32, 0 and 40
    assert cell["coefficient_of_variation"] == pytest.approx(36.07 / 162.67, rel=1e-3)
    assert cell["range_coverage"] == 0.75  # 1 - 2 x 0.5^3
    assert cell["speedup_coverage"] == 0.75 * 0.75
    baseline = found["frameworks"]["torch"]["1n1g"]
    assert (baseline["speedup_range"], baseline["efficiency_range"]) == (None, None)


READERS: dict[str, Callable[[Path], Any]] = {
    "run": records.read_run,
    "summary": records.read_summary,
    "equivalence": records.read_equivalence,
    "max_batch": records.read_max_batch,
    "curve": records.read_curve,
    "verdict": records.read_verdict,
}


def test_the_files_of_schema_3(tmp_path: Path) -> None:
    found = {name: read(GOLDEN / f"{name}.json") for name, read in READERS.items() if name != "run"}
    assert found["curve"].curve[1].figures == {"loss": 9.5, "mlm_accuracy": 0.04, "nsp_accuracy": 0.55}
    assert found["verdict"].last == found["curve"].curve[-1]
    assert (found["equivalence"].batch, found["equivalence"].covers) == (32, [])
    for name in ("equivalence", "max_batch", "summary"):
        assert found[name].parameters == {"sequence_length": 128}
    on_cpu = records.read_run(write_record(tmp_path, json.loads((GOLDEN / "run_on_cpu.json").read_text())))
    assert (on_cpu.schema_, on_cpu.spec.parameters.sequence_length, on_cpu.status) == (3, 32, "ok")


@pytest.mark.parametrize("schema", [1, 2])
@pytest.mark.parametrize("name", READERS)
def test_a_file_of_version_0_3_is_one_clear_error(tmp_path: Path, name: str, schema: int) -> None:
    """It says what, where, why and what next. Nothing else is looked at: all names have changed since."""
    place = tmp_path / f"{name}.json"
    place.write_text(json.dumps({"schema": schema, "benchmark": "bert", "sequence": 128}))
    with pytest.raises(UserError) as refused:
        READERS[name](place)
    what, why, next_step = str(refused.value).splitlines()
    assert what == f"{place} has schema {schema}; this version of Throughline ({__version__}) reads schema 3"
    assert "version 0.3 or earlier made it" in why and "run snakemake again" in next_step
    records.leave_newer([place])  # it may be made again


def test_a_newer_schema_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """The error names the version that made the file. The file stays, and no advice says to remove it."""
    place = tmp_path / "bert/bz32_fp32.json"
    place.parent.mkdir()
    newer = json.dumps({"schema": 4, "environment": {"torch": {"commit": "5f0c1e2d3b4a"}}})
    place.write_text(newer)
    for read in (records.read_summary, records.read_run, records.read_curve, records.read_max_batch):
        with pytest.raises(UserError, match="has schema 4") as refused:
            read(place)
        assert "5f0c1e2d3b4a" in str(refused.value) and "force" not in str(refused.value)
    with pytest.raises(UserError, match="has schema 4"):
        records.leave_newer([tmp_path / "none.json", place])
    assert place.read_text() == newer
    place.write_text('{"schema": "?"}')
    with pytest.raises(UserError, match="reads schema 3"):
        records.read_summary(place)
    records.leave_newer([place, GOLDEN / "run.json", GOLDEN / "summary.json"])
