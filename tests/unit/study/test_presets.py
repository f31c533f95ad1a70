"""Presets ask for the runs that the published studies have measured."""

from pathlib import Path

import pytest

from throughline.comparables.published import rows as published_rows
from throughline.frameworks import features as offered
from throughline.spec import RunSpec, StepSize
from throughline.study import runs
from throughline.study.config import load
from throughline.workloads import gpt2

GRID = [("fp32", 32), ("fp32", 48), ("fp16", 64), ("fp16", 96)]
"""Precision and batch per device of the study of NVIDIA's BERT."""
PRESETS = Path(__file__).parents[3] / "presets"


def asked(name: str) -> list[RunSpec]:
    return [spec for spec in runs.expand(load([PRESETS / f"{name}.yaml"])) if spec.repeat == 1]


@pytest.mark.parametrize("preset", ["oneflow-gpt2", "gpt2-cpu"])
def test_the_pair_differs_in_sharding_alone_and_meets_on_every_topology_that_can_split(preset: str) -> None:
    blocks: dict[str, dict[str, RunSpec]] = {}
    for spec in asked(preset):
        blocks.setdefault(spec.benchmark, {})[f"{spec.topology} {spec.batch}"] = spec
    off, on = (next(block for name, block in blocks.items() if name.endswith(end)) for end in ("gpt2", "_split"))
    first, second = next(iter(off.values())), next(iter(on.values()))
    assert runs.switch(first, second) == ("sharding", "none", "shard_grad_op")
    assert set(on) == {where for where in off if not where.startswith("1n1g ")}


def test_the_cases_of_the_gpt_report_without_pipelines() -> None:
    """The report names a case <data parallel>x<tensor parallel>x1_<global batch>_<hidden>x<layers>."""
    shapes = []
    for spec in asked("megatron-gpt"):
        shape, size = gpt2.SHAPES[spec.model], spec.size
        layout = f"{size.replicas}x{spec.options.tensor_parallel}x1_{size.global_batch}"
        shapes.append(f"{layout}_{shape.hidden}x{shape.layers}")
        assert size.replicas * spec.options.tensor_parallel == spec.topology.world
        options = spec.options
        how = spec.parameters.sequence_length, options.activation_checkpointing, options.clip
        assert how == (2048, True, "global_norm")
    assert shapes == [
        "1x1x1_2_1536x16", "8x1x1_16_1536x16", "16x1x1_32_1536x16", "32x1x1_64_1536x16",
        "1x1x1_8_768x12", "1x8x1_16_1536x16", "1x16x1_16_3072x16", "1x32x1_16_3072x32",
        "2x4x1_16_1536x16", "4x2x1_16_1536x16", "2x8x1_16_2304x24", "4x8x1_32_2304x24",
    ]  # fmt: skip


def test_the_grids_of_wide_and_deep() -> None:
    """Global batches and vocabularies are those of the published tables."""
    by_vocabulary = {(spec.parameters.vocabulary, str(spec.topology)) for spec in asked("wide-deep-vocabulary")}
    assert by_vocabulary == {(3_200_000 << n, where) for n in range(8) for where in ("1n1g", "1n8g")}
    by_batch = {spec.size.global_batch for spec in asked("wide-deep-batch") if str(spec.topology) == "1n8g"}
    assert by_batch == {512 << n for n in range(11)}
    devices = asked("wide-deep-devices")
    assert {spec.size.batch_per_replica for spec in devices if spec.scaling == "weak"} == {16384}
    assert {spec.size.global_batch for spec in devices if spec.scaling == "strong"} == {16384}
    for spec in [*asked("wide-deep-vocabulary"), *asked("wide-deep-batch"), *devices]:
        assert spec.parameters.embedding >= spec.topology.world, "every device has a column"
        assert (spec.parameters.table, spec.parameters.update, spec.optimizer.name) == ("columns", "lazy", "adam")


def test_the_grid_of_the_study_of_faces() -> None:
    """The preset has every published cell of R100 and Y1: persons, classifier, batch per device."""
    cells: dict[tuple[object, ...], list[str]] = {}
    for spec in asked("dlperf-insightface"):
        if spec.precision == "fp32":
            how = spec.parameters
            cell = spec.model, how.classes, how.margin_loss, how.classifier, spec.batch
            cells.setdefault(cell, []).append(str(spec.topology))
    r100, y1 = ("iresnet100", 85742, "arcface"), ("mobilefacenet-y1", 85742, "arcface")
    glint = ("iresnet100", 360232, "cosface")
    batches = {
        **{(*r100, "data_parallel"): (64, 96), (*r100, "model_parallel"): (64, 115), (*r100, "partial"): (64, 120)},
        **{(*glint, "data_parallel"): (64, 85), (*glint, "model_parallel"): (64, 100), (*glint, "partial"): (64, 115)},
        **{(*y1, "data_parallel"): (256, 350), (*y1, "model_parallel"): (256, 400)},
    }
    several = {(*r100, "partial", batch): ["2n8g", "4n8g"] for batch in (64, 120)}
    assert cells == {
        (*cell, batch): ["1n1g", "1n4g", "1n8g", *several.get((*cell, batch), [])]
        for cell, sizes in batches.items()
        for batch in sizes
    }


def test_ngc_bert_takes_the_published_steps() -> None:
    """Every published run is there. Those on 1 and 8 V100s have their micro-batches; on 32 the logs have four times as
    many as the README states and we take, and they call runs without accumulation that only exchange more often."""
    rows = [row for row in published_rows() if row.source == "PaddlePaddle/Perf a26f150 NGC PyTorch"]
    specs = [spec for spec in asked("ngc-pytorch-bert") if spec.model == "bert-base"]
    base = [spec for spec in specs if spec.benchmark != "ngc_base_convergence"]
    ours = {(spec.precision, spec.topology.nodes, spec.topology.world, spec.batch, spec.size) for spec in base}
    published = set()
    for row in rows:
        fewer = 1 if row.devices != 32 else 264 * 32 // (row.batch or 1) if "without" in row.options else 4
        assert row.batch and row.devices and row.gradient_accumulation
        size = StepSize(row.devices, row.batch, row.gradient_accumulation // fewer)
        published.add((row.precision, row.nodes, row.devices, row.batch, size))
    assert len(published) == 16 and published <= ours
    alone = {(precision, 1, 1, batch, StepSize(1, batch, 1)) for precision, batch in GRID}
    assert ours - published == alone, "the baseline of the speedup without accumulation"
    assert {spec.cell for spec in base if spec.global_batch} == {f"ngc_base/bz{b}_{p}" for p, b in GRID}


@pytest.mark.parametrize(
    ("preset", "model", "batches"),
    [
        ("large-scale-resnet50", "resnet50", {"fp32": 128, "fp16": 256}),
        ("large-scale-bert", "bert-base", {"fp32": 32, "fp16": 64}),
    ],
)
def test_the_grid_of_the_large_scale_evaluation(preset: str, model: str, batches: dict[str, int]) -> None:
    """Machines and GPUs, precision and compiler are the report's; what a framework cannot compile is asked for once."""
    config = load([PRESETS / f"{preset}.yaml"])
    specs = runs.expand(config)
    assert {spec.repeat for spec in specs} == set(range(1, 8))
    grids: dict[object, set[int]] = {}
    for spec in specs:
        steps = spec.steps
        assert (spec.model, spec.batch, steps.warmup, steps.timed) == (model, batches[spec.precision], 20, 100)
        grids.setdefault((spec.framework, spec.precision, spec.options.compile), set()).add(spec.topology.world)
    names, compiled = {"torch", "mxnet-horovod", "tensorflow", "paddle", "jax"}, {"torch", "tensorflow", "paddle"}
    cells = {(name, precision, False) for name in names for precision in batches}
    cells |= {(name, precision, True) for name in compiled for precision in batches}
    assert grids == {cell: {1, 8, 16, 32, 64, 128, 256, 512, 1000} for cell in cells}
    assert {spec.topology.nodes for spec in specs} == {1, 2, 4, 8, 16, 32, 64, 125}
    assert all("compile" in offered(name, model) for name in compiled)
    goals = config.goals
    assert goals.efficiency and goals.utilization
    assert (goals.efficiency.from_nodes, goals.efficiency.at_least, goals.utilization.at_least) == (20, 0.8, 0.8)
    parts = ("gpu", "cpu", "memory", "disk", "network")
    assert goals.mean_utilization and goals.mean_utilization.shares == dict.fromkeys(parts, 0.8)
