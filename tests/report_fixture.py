"""Well-formed run records made without training. The tests of tables, plots and the report read them.

`write_study(root)` writes the results of one published study, with everything that can happen to a cell: a complete
series, a missing repeat, out of memory, unsupported, invalid, no baseline, two frameworks. `summarized`, `scoped` and
`frame` go from records to a summary, to the scope of a topic, and to its CSV.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from throughline import command, frameworks
from throughline.observe import environment, work
from throughline.records import SCHEMA, EquivalenceVerdict, Summary
from throughline.report.analysis import cells, summary
from throughline.report.render import page, table_files
from throughline.report.render.tables import CSV, Table
from throughline.report.topic import Scope
from throughline.study.runs import read_spec

# DLPerf, MXNet 1.6 and gluon-nlp, BERT-base, batch 32 per device, fp32, V100: samples/s of every repeat.
# 2n8g has six values, because its first run is missing.
DLPERF_BERT_BS32: dict[str, list[float]] = {
    "1n1g": [150.11, 150.14, 149.53, 149.88, 150.12, 150.04, 150.9],
    "1n2g": [267.29, 271.05, 273.02, 270.28, 269.99, 272.09, 268.86],
    "1n4g": [537.05, 538.5, 549.03, 538.91, 533.45, 536.96, 549.75],
    "1n8g": [1061.91, 1075.74, 1036.56, 1047.02, 1058.6, 1075.79, 1050.76],
    "2n8g": [1848.74, 1854.88, 1844.1, 1847.2, 1835.11, 1841.41],
    "4n8g": [3693.44, 3668.26, 3666.21, 3698.92, 3671.45, 3658.23, 3673.42],
}
# The same study's medians at batch 64, fp16 (AMP).
DLPERF_BERT_BS64_FP16 = {
    "1n1g": 473.76, "1n2g": 811.6, "1n4g": 1623.56, "1n8g": 3107.1, "2n8g": 5723.26, "4n8g": 11269.14,
}  # fmt: skip

Series = list[float] | float
"""The throughput of each repeat, or what five repeats lie around."""
OPTIMIZER = {"name": "adamw", "learning_rate": 1e-4, "weight_decay": 0.01, "betas": [0.9, 0.999], "epsilon": 1e-6}
OPTIONS = {
    "clip": "none", "gradient_accumulation": 1, "compile": False, "activation_checkpointing": False, "data": "real",
    "bucket_mb": 25, "dropout": 0.1, "memory_limit_mb": None,
}  # fmt: skip
V100 = {"kind": "cuda", "name": "Tesla V100-SXM2-16GB", "count": 8, "fp16_native": True}
CPU = {"kind": "cpu", "name": "AMD EPYC 9554 64-Core Processor", "count": 2, "fp16_native": False}

NOT_SAMPLED = {
    "node": 0, "interval_s": 1.0, "samples": 0, "cost_cpu_share": None, "machine": {}, "processes": {}, "devices": [],
    "reasons": {"telemetry": "telemetry was switched off"},
}  # fmt: skip
NO_MEMORY, NO_WORK = (
    dict.fromkeys(names) | {"reasons": dict.fromkeys(names, "this record knows no such figure")}
    for names in (
        ("needed_bytes", "reserved_bytes", "device_used_bytes", "device_total_bytes"),
        ("flops_per_sample", "flops_per_s", "datasheet_flops_per_s", "mfu", "matmul_flops_per_s", "matmul_share",
         "real_token_share", "real_tokens_per_s"),
    )
)  # fmt: skip


def spec(**changes: Any) -> dict[str, Any]:
    """Return a run specification with every key. `changes` replace keys; nested keys are merged."""
    value: dict[str, Any] = {
        "benchmark": "bert", "framework": "torch", "model": "bert-base", "sequence_length": 128, "predictions": 20,
        "batch": 32, "precision": "fp32", "topology": "1n1g", "repeat": 1,
        "steps": {"warmup": 20, "timed": 100, "max_total_seconds": None}, "seed": 42, "device": "auto", "threads": 1,
        "optimizer": dict(OPTIMIZER), "options": dict(OPTIONS),
        "corpus": {"name": "sample", "digest": "0123456789ab"}, "protocol": 1,
    }  # fmt: skip
    for key, change in changes.items():
        value[key] = {**value[key], **change} if isinstance(change, dict) and key in value else change
    if str(value["model"]).startswith("gpt2"):
        del value["predictions"]  # only BERT has this key
    return value


def asked(topologies: list[str], repeats: int = 5, frameworks: Iterable[str] = ("torch",), **changes: Any) -> str:
    """Return the cells that a configuration asks for, as `cells.read_asked` reads them. `changes` are of the spec."""
    run = read_spec(json.dumps(spec(**changes))).values()
    return json.dumps([{"spec": run, "frameworks": list(frameworks), "topologies": topologies, "repeats": repeats}])


def world_of(topology: str) -> int:
    nodes, devices = topology.removesuffix("g").split("n")
    return int(nodes) * int(devices)


def record(
    run: dict[str, Any],
    samples_per_s: float | None,
    *,
    status: str = "ok",
    reason: str | None = None,
    warnings: Iterable[str] = (),
    device: dict[str, Any] | None = None,
    memory: int | None = 9_000_000_000,
    framework: dict[str, Any] | None = None,
    commit: str | None = "5f0c1e2d3b4a5968778695a4b3c2d1e0f0123456",
    steps_timed: int | None = None,
) -> dict[str, Any]:
    """Return one run record as a real run writes it, with times that fit its throughput."""
    ok = status == "ok"
    asked = run["steps"]["timed"]
    steps = (asked if steps_timed is None else steps_timed) if ok else 0
    replicas = world_of(run["topology"]) // run["options"].get("tensor_parallel", 1)
    total = run["batch"] * (1 if run.get("scaling") == "strong" else replicas)
    samples = total * run["options"]["gradient_accumulation"] * steps
    window = samples / samples_per_s if ok and samples_per_s else None
    step = window / steps if window else 0.0
    ranks = [
        {
            "rank": rank, "node": 0, "window_start_s": 0.0, "window_end_s": window, "peak_memory_bytes": memory,
            "cpu_seconds": window, "loader_stall_s": 0.001 * window,
        }
        for rank in range(world_of(run["topology"]))
    ] if window else []  # fmt: skip
    return {
        "schema": SCHEMA, "spec": run, "unit": "samples/s", "figures": [],
        "status": status, "reason": reason, "warnings": list(warnings),
        "samples_per_s": samples_per_s if ok else None, "window_s": window, "steps_asked": asked,
        "steps_timed": steps, "warmup_steps": run["steps"]["warmup"],
        "step_seconds": [step] * steps, "loss": [10.0 - 0.01 * index for index in range(steps)],
        "scaler_skipped_steps": 0, "ranks": ranks, "peak_memory_bytes": memory if ok else None,
        "loader_stall_share": 0.001 if ok else None,
        "utilization": {"cpu": 0.97 if ok else None, "gpu": None},
        "settings": None, "network": None, "telemetry": [NOT_SAMPLED], "memory": NO_MEMORY,
        "work": NO_WORK | {"convention": {}},
        "device": dict(device or V100), "data": {"content_digest": "ab" * 32, "rows": 2048},
        "environment": {
            "python": "3.11.7", "os": "Debian GNU/Linux 12", "kernel": "6.1.0", "cpu": CPU["name"],
            "cpu_cores": 2, "memory_bytes": 25_000_000_000,
            "framework": framework or {
                "torch": "2.13.0", "transformers": "5.23.0", "cuda": "13.0", "cudnn": "9.1", "nccl": "2.27",
                "driver": "580.10",
            },
            "variables": {"OMP_NUM_THREADS": "1"}, "commit": commit, "tree_clean": True,
        },
        "started": "2026-11-20T12:00:00Z", "ended": f"2026-11-20T12:{run['repeat']:02d}:30Z",
    }  # fmt: skip


def observed(value: dict[str, Any], busy: float = 0.93) -> dict[str, Any]:
    """Give a record on GPUs that is ok the figures of its telemetry, memory and work."""
    run, speed, window = value["spec"], value["samples_per_s"], value["window_s"]
    if value["status"] != "ok":
        return value
    world, memory = world_of(run["topology"]), value["peak_memory_bytes"]
    measured = {"matmul_flops_per_s": 14.1e12, "counted": {"real_token_share": 0.87}}

    def series(mean: float, spread: float = 0.02) -> dict[str, float]:
        return {"mean": mean, "min": mean * (1 - spread), "max": mean * (1 + spread)}

    device = {
        "utilization": series(busy), "memory_used_bytes": series(memory * 1.05), "sm_clock_mhz": series(1480.0),
        "memory_clock_mhz": series(877.0),
        "power_w": series(271.0), "temperature_c": series(61.0),
        "energy_j": 271.0 * window, "throttle_reasons": ["power"],
    }  # fmt: skip
    node = {
        "node": 0, "interval_s": 1.0, "samples": 20, "cost_cpu_share": 0.0012,
        "machine": {"cpu_share": series(0.21), "network_sent_bytes_per_s": series(9.1e8)},
        "processes": {"cpu_cores": series(1.0 * world), "memory_bytes": series(2.4e9 * world)},
        "devices": [{"index": index, **device} for index in range(world)],
        "reasons": {"devices.0.sm_active": "this card has no such counters (GPM needs Hopper)",
                    "machine.infiniband_sent_bytes_per_s": "there is no InfiniBand"},
    }  # fmt: skip
    return {
        **value,
        "telemetry": [node],
        "utilization": {"cpu": value["utilization"]["cpu"], "gpu": busy},
        "memory": {
            "needed_bytes": int(memory * 0.93), "reserved_bytes": memory, "device_used_bytes": int(memory * 1.05),
            "device_total_bytes": 16_945_512_448, "reasons": {},
        },
        "work": work.of(frameworks.specification(run), speed, world, value["device"], measured),
    }  # fmt: skip


def write_record(root: Path, value: dict[str, Any], log: str = "started\nended\n") -> Path:
    """Write a record and its log where the workflow would write them; return the record's path.

    Its environment gets a digest if it has none.
    """
    run, facts = value["spec"], value["environment"]
    value = {**value, "environment": {"digest": environment.digest(facts, value["device"]), **facts}}
    folder = root / run["benchmark"] / f"bz{run['batch']}_{run['precision']}"
    path = folder / run["framework"] / run["topology"] / f"run{run['repeat']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    path.with_suffix(".log").write_text(log, encoding="utf-8")
    return path


def write_series(
    root: Path, values: Mapping[str, Series], first_repeat: dict[str, int] | None = None, **changes: Any
) -> list[Path]:
    """Write one ok record per value; return the records' paths. A number stands for five repeats around it.

    `values` are by topology, by framework ("jax": on one device) or by both ("jax 1n2g"). Most `changes` go into
    the specification; `device_found`, `framework_versions` and `memory` go into the record. With `complete` the
    records have telemetry, memory and work, too. `beside` replaces keys of the records.
    """
    device, versions = changes.pop("device_found", None), changes.pop("framework_versions", None)
    beside = changes.pop("beside", {})
    memory = changes.pop("memory", 9_000_000_000)
    complete = observed if changes.pop("complete", False) else dict[str, Any]
    return [
        write_record(
            root,
            complete(record(
                spec(repeat=repeat, **changes | _place(cell)), value, device=device, framework=versions, memory=memory,
            )) | beside,
        )
        for cell, speeds in values.items()
        for repeat, value in enumerate(
            speeds if isinstance(speeds, list) else jitter(speeds), start=(first_repeat or {}).get(cell, 1)
        )
    ]  # fmt: skip


def _place(cell: str) -> dict[str, str]:
    """Return the framework and the topology that the name of a cell has: "1n2g", "jax" or "jax 1n2g"."""
    *framework, last = cell.split()
    if last[0].isdigit():
        return {"topology": last} | ({"framework": framework[0]} if framework else {})
    return {"topology": "1n1g", "framework": last}


def write_failed(root: Path, status: str, *, repeats: Iterable[int] = (1,), **changes: Any) -> list[Path]:
    """Write records without a figure; return their paths. `changes` go into the specification, `reason` into all."""
    reason = changes.pop("reason", f"because {status}")
    return [
        write_record(root, record(spec(repeat=repeat, **changes), None, status=status, reason=reason))
        for repeat in repeats
    ]


def summarized(
    root: Path, values: Mapping[str, Series], repeats: int = 5, terms: Any = None, **changes: Any
) -> Summary:
    """Return the summary of what `write_series` writes."""
    return summary.summarize(write_series(root, values, **changes), repeats=repeats, terms=terms)


def write_summary(records: list[Path], repeats: int = 5, **options: Any) -> Path:
    """Summarize `records` beside them, where the workflow would; return the summary's path."""
    place = records[0].parents[2].with_suffix(".json")
    summary.write(records, place, repeats, **options)
    return place


def checked(found: Summary, **verdicts: str) -> Summary:
    """Give a summary the verdicts of a numerical equivalence check, by framework."""
    check = {"largest_difference": 1e-7, "tolerance": 1e-5, "reason": None, "covers": []}
    made = {name: EquivalenceVerdict.model_validate(check | {"verdict": one}) for name, one in verdicts.items()}
    return found.model_copy(update={"equivalence": made})


def group_of(found: Summary) -> cells.Group:
    (group,) = cells.groups([found])
    return group


def scoped(*summaries: Summary) -> Scope:
    """Return the scope of the first summary's benchmark, beside all the others."""
    groups = cells.groups(summaries)
    return Scope([group for group in groups if group.benchmark == summaries[0].benchmark], groups)


def page_of(root: Path, *summaries: Summary) -> str:
    """Return the report on these summaries, whose records are below `root`."""
    places = {root / f"{one.benchmark}/bz{one.batch}_{one.precision}.json": one for one in summaries}
    return page.render(page.Results(places), [], None, root / "report.html")


def frame(table: Table | None) -> pd.DataFrame:
    """Return a table as it is written as CSV."""
    figures = table and table.in_form(CSV)
    assert figures
    return table_files.csv(figures)


def run_script(name: str, *arguments: object) -> None:
    """Run a command of workflow/scripts in this process, which has loaded the drawing library already."""
    before, sys.argv = sys.argv, [name, *map(str, arguments)]
    try:
        command.run(command.loaded(str(Path(__file__).parents[1] / f"workflow/scripts/{name}.py")))
    except SystemExit as ended:
        assert ended.code == 0
    finally:
        sys.argv = before


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


MXNET_VERSIONS = {
    "mxnet": "1.6.0", "gluonnlp": "0.10.0", "horovod": "0.19.5", "cuda": "10.2", "cudnn": "7.6", "nccl": "2.7",
    "driver": "440.33",
}  # fmt: skip


def jitter(middle: float, n: int = 5) -> list[float]:
    """Return `n` values around `middle`, always the same ones. `middle` is their median if `n` is odd."""
    return [middle * (1 + 0.004 * offset) for offset in (0.0, -1.0, 0.6, -0.4, 1.2, 0.3, -0.7)[:n]]


def write_study(root: Path) -> dict[str, list[Path]]:
    """Write the study with everything that goes wrong; return summary name (bz32_fp32 ...) -> record paths."""
    mx: dict[str, Any] = {"framework": "mxnet-horovod", "framework_versions": MXNET_VERSIONS}
    study = {
        "bz32_fp32": [
            *write_series(root, DLPERF_BERT_BS32, {"2n8g": 2}, memory=10_817_000_000, **mx),
            *write_series(root, {t: jitter(v * 1.04, 7) for t, v in {
                "1n1g": 150.11, "1n2g": 281.2, "1n4g": 561.0, "1n8g": 1109.4, "2n8g": 1990.4}.items()},
                memory=9_611_000_000, complete=True),
        ],
        "bz64_fp16": [
            *write_series(root, {t: jitter(v, 7) for t, v in DLPERF_BERT_BS64_FP16.items()},
                batch=64, precision="fp16", memory=9_200_000_000, **mx),
        ],
        "bz96_fp32": [
            write_record(root, record(
                spec(batch=96, repeat=repeat, framework="mxnet-horovod"), None, status="oom",
                reason="the device's memory (16160 MiB) did not hold batch 96", framework=MXNET_VERSIONS))
            for repeat in range(1, 8)
        ],
    }  # fmt: skip
    torch16 = {"batch": 64, "precision": "fp16"}
    reasons = {"invalid": "loss is not finite at step 37", "unsupported": "torch has no fp16 all-reduce on this device"}
    for topology, statuses in {"1n2g": ["ok"] * 3 + ["invalid"] * 2, "1n4g": ["unsupported"] * 5}.items():
        for repeat, status in enumerate(statuses, start=1):
            run = spec(topology=topology, repeat=repeat, **torch16)
            made = record(run, 820.0 + repeat, status=status, reason=reasons.get(status))
            study["bz64_fp16"].append(write_record(root, made))
    return study


def write_summaries(root: Path, study: dict[str, list[Path]], repeats: int = 7, **options: Any) -> list[Path]:
    """Summarize every group of `study`; return the summaries' paths."""
    places = []
    for name, records in study.items():
        place = root / records[0].relative_to(root).parts[0] / f"{name}.json"
        summary.write(records, place, repeats, **options)
        places.append(place)
    return places


HOSTILE = (
    "=cmd|'/c calc'!A0 <script>alert(1)</script> [x](javascript:alert(1)) **b** \\input{/etc/passwd} $x$ | a & b\n# h"
)
