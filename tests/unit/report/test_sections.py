"""What the page and the tables show besides throughput: figures, the reason for each missing one, the environment."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from report_fixture import (
    CPU,
    V100,
    group_of,
    jitter,
    observed,
    page_of,
    read_csv,
    record,
    scoped,
    spec,
    summarized,
    write_failed,
    write_record,
    write_series,
)
from throughline.records import Summary, read_run
from throughline.report.analysis import advice, cells, summary, titles
from throughline.report.analysis.summary import Terms
from throughline.report.render import run_environment
from throughline.report.render.table_files import printed
from throughline.report.render.tables import TEXT, Table
from throughline.report.topic import Scope
from throughline.report.topics import TOPICS, hardware, similar_results, write_tables
from throughline.study.result_sections import Goals, Price

GOALS = Goals.model_validate({"efficiency": {"from_nodes": 20}, "utilization": {}})
TERMS = Terms(goals=GOALS, prices={"V100": Price(per_hour=3.6, currency="EUR")}, total_samples=1_000_000)


def groups(root: Path, complete: bool = True, **changes: Any) -> list[cells.Group]:
    """Make runs on one and two devices at two batch sizes. The larger batch does not fit on two devices."""
    fits = write_series(root, {"1n1g": 100.0, "1n2g": 190.0}, complete=complete, **changes)
    tight = write_series(root, {"1n1g": 120.0}, complete=complete, batch=96, **changes)
    tight += write_failed(root, "oom", batch=96, topology="1n2g")
    return cells.groups([summary.summarize(paths, repeats=5, terms=TERMS) for paths in (fits, tight)])


def shown(found: list[cells.Group], name: str, condensed: bool = True) -> Table:
    """Return a table; condensed: as Markdown shows it, without columns that have no figure."""
    table = next(topic for topic in TOPICS if topic.name == name).table(Scope(found))
    table = table and (table.in_form(TEXT) if condensed else table)
    assert table is not None
    return table


def with_settings(root: Path, settings: dict[str, dict[str, str]], **changes: Any) -> Summary:
    """Return the summary of one run of each framework, with these settings."""
    runs = [record(spec(framework=name, **changes), 100.0) | {"settings": made} for name, made in settings.items()]
    return summary.summarize([write_record(root, run) for run in runs], repeats=1)


def test_a_predicted_memory_stands_beside_the_peaks(tmp_path: Path) -> None:
    found = groups(tmp_path)[0].summary
    series = found.frameworks["torch"]
    held = series["1n1g"].memory
    assert held
    predicted = series["1n1g"].model_copy(update={"memory": held.model_copy(update={"predicted_bytes": 8000 << 20})})
    table = shown(
        [group_of(found.model_copy(update={"frameworks": {"torch": series | {"1n1g": predicted}}}))], "memory"
    )
    at = [column.key for column in table.columns].index("predicted_bytes")
    assert [line.entries[at].text for line in table.lines] == ["8,000", "n/a"]


def test_the_tooltip_of_a_mean_has_its_lowest_and_highest_value(tmp_path: Path) -> None:
    table = shown(groups(tmp_path), "utilization", condensed=False)
    power = next(e for c, e in zip(table.columns, table.lines[0].entries, strict=True) if c.heading == "power")
    assert (power.text, power.reason) == ("271", "266 to 276")


def test_a_head_on_all_positions_counts_in_the_share_of_matmul_alone(tmp_path: Path) -> None:
    """The device does that work, which is no part of the model's FLOPs: FLOP/s and MFU stay as they are."""
    head = {"vocabulary_head": "all positions, sharing the word embeddings", "vocabulary_rows": 30528}
    masked, every = (
        groups(tmp_path / name, beside={"settings": settings})[0].cells[0].record.work
        for name, settings in (("masked", {"vocabulary_head": "masked positions"}), ("every", head))
    )
    assert masked and masked.flops_per_sample and every and every.matmul_share
    times = 1 + 3 * 108 * 2 * 768 * (768 + 30528) / masked.flops_per_sample
    assert every.computed_matmul_share == pytest.approx(times * every.matmul_share) and times > 1.2
    same = {"computed_matmul_share", "convention"}
    assert every.model_dump(exclude=same) == masked.model_dump(exclude=same)
    assert masked.computed_matmul_share is None
    assert "scores of positions that are not masked" in every.convention["computed_matmul_share"]


def test_more_than_the_matrix_product_is_no_share_of_it(tmp_path: Path) -> None:
    run = observed(record(spec(), 220.0))
    run["work"] |= {"matmul_share": 5.638, "matmul_flops_per_s": run["work"]["flops_per_s"] / 5.638}
    table = hardware.work(scoped(summary.summarize([write_record(tmp_path, run)], repeats=1)))
    share = table.lines[0].entries[[column.key for column in table.columns].index("matmul_share")]
    assert share.text in ("", "n/a") and "more FLOP/s than the matrix product" in (share.reason or "")


def test_more_than_a_matrix_product_of_the_same_runs_is_implausible(tmp_path: Path) -> None:
    runs = write_series(tmp_path, {"1n1g": [100.0]}, complete=True, device_found=CPU)
    run = observed(record(spec(framework="mxnet-horovod"), 220.0, device=CPU))
    scope = scoped(summary.summarize([*runs, write_record(tmp_path, run)], repeats=1))
    ((rule, row, text),) = printed(similar_results.implausible(scope))[1]
    assert (rule, row) == ("above the measured matrix product", "bert bz32_fp32, mxnet-horovod, 1 device")
    assert "a product reaches" in text
    (note,) = similar_results.notes(scope, scope.groups[0])
    assert note.where == "mxnet-horovod, 1 device" and rule in note.text


@pytest.mark.parametrize(
    ("device", "compiled", "says"), [(V100, False, True), (V100, True, False), (CPU, False, False)]
)
def test_a_step_that_was_not_compiled_on_gpus_is_said(
    tmp_path: Path, device: dict[str, Any], compiled: bool, says: bool
) -> None:
    made = summarized(tmp_path, {"1n1g": [100.0]}, options={"compile": compiled}, device_found=device)
    found = advice.not_compiled(group_of(made))
    assert [(note.where, "options.compile is false" in note.text) for note in found] == [("torch", True)] * says


EAGER = "not compiled: the job has 40 steps"


@pytest.mark.parametrize(
    ("settings", "title", "said"),
    [
        ({"torch": "compiled: the device is a GPU"}, "W/ compile (auto) &", []),
        ({"torch": EAGER}, "W/O compile (auto) &", [EAGER]),
        ({"torch": "compiled: it can", "mxnet-horovod": "not compiled: it cannot"},
         "W/ compile (auto), but W/O compile in mxnet-horovod &", []),
        ({"torch": ""}, "compile: auto &", []),
    ],
)  # fmt: skip
def test_what_compile_auto_did_is_in_the_title_and_an_eager_step_is_said(
    tmp_path: Path, settings: dict[str, str], title: str, said: list[str]
) -> None:
    stated = {name: {"compiling": words} if words else {} for name, words in settings.items()}
    group = group_of(with_settings(tmp_path, stated, options={"compile": "auto"}))
    assert f"fp32, {title}" in titles.title(group)
    texts = [note.text for note in advice.not_compiled(group)]
    assert len(texts) == len(said) and all(words in text for words, text in zip(said, texts, strict=True))


@pytest.mark.parametrize(
    ("settings", "end"),
    [({"emulated_products": "of float16 numbers in float32"}, "W/ products in fp32, rounded to fp16, in torch"),
     ({"data": "synthetic files"}, "W/ synthetic files")],
)  # fmt: skip
def test_a_title_names_what_frameworks_say_that_they_do(tmp_path: Path, settings: dict[str, str], end: str) -> None:
    group = group_of(with_settings(tmp_path, {"torch": settings, "jax": {}}, precision="fp16"))
    assert titles.title(group).endswith(f"& {end}")


def test_the_best_value_is_that_of_all_batch_sizes(tmp_path: Path) -> None:
    table = shown(groups(tmp_path), "cost", condensed=False)
    best = [line for line in table.lines if any(entry.kind == "best" for entry in line.entries)]
    assert [(line.cell.group.batch, str(line.cell.topology)) for line in best if line.cell] == [(96, "1n1g")]
    assert "best value, samples for 1 EUR: torch 1n1g, fp32, batch 96: 120,000" in table.notes


def test_a_record_without_figures_says_why(tmp_path: Path) -> None:
    found = groups(tmp_path, complete=False)
    unknown = "knows no such figure"
    for name, reason in (("memory", unknown), ("utilization", "telemetry was switched off"), ("flops", unknown)):
        table = shown(found, name)
        assert any(reason in note for note in table.notes)
        assert all(entry.value is not None for line in table.lines for entry in line.entries)


def test_the_page_shows_all_of_it(tmp_path: Path) -> None:
    html = page_of(tmp_path, *(group.summary for group in groups(tmp_path)))
    for text in ("Memory", "Utilization", "FLOPs and MFU", "Cost", "Comparisons", "1n2g over 1n1g", "44.5 %",
                 "no topology has 20 nodes and more", "(no valid repeat)", "without an A/A run of its",
                 "each of the 128 positions attends to all", "10.00 EUR"):  # fmt: skip
        assert text in html


def test_a_cpu_has_no_mfu_and_says_why(tmp_path: Path) -> None:
    found = groups(tmp_path, device_found=CPU)
    table = shown(found, "flops")
    assert "mfu" not in [column.key for column in table.columns]
    assert any("MFU" in note and "a CPU's peak depends on its clock" in note for note in table.notes)
    assert any("no price is known for AMD EPYC" in note for note in shown(found, "cost").notes)
    value = observed(record(spec(), 100.0, device={**CPU, "name": "A processor that nobody sells"}))
    value["telemetry"][0] |= {"devices": [], "reasons": {"devices": "the run is on the processor"}}
    plain = group_of(summary.summarize([write_record(tmp_path / "plain", value)], repeats=1))
    cost = shown([plain], "cost")
    assert not cost.columns and any("energy" in note and "Reason" in note for note in cost.notes)


def test_what_a_model_or_an_optimizer_does_not_have_is_not_shown(tmp_path: Path) -> None:
    found = summarized(tmp_path, {"1n1g": [5.0]}, repeats=1)
    assert dict(run_environment.setup(found))["dropout"] == "0.1"
    sgd = replace(found.optimizer, name="sgd", momentum=0.875)
    built = {"dropout": [], "parameters": 25_557_032}
    shown = dict(run_environment.setup(found.model_copy(update={"settings": {"torch": built}, "optimizer": sgd})))
    assert shown["model"].endswith(", 25,557,032 parameters")
    assert "dropout" not in shown and shown["optimizer"].endswith(", momentum 0.875")


def test_other_figures_have_the_names_and_units_of_their_records(tmp_path: Path) -> None:
    """Results of a workload whose samples are images, with a figure at two sizes."""
    one = {"name": "recall", "unit": "%", "better": "more", "at": 1, "value": 71.5}
    beside = {"unit": "images/s", "loss": None, "figures": [one, {**one, "at": 10, "value": None}]}
    found = summarized(tmp_path, {"1n1g": jitter(100.0, 3), "1n2g": jitter(190.0, 3)}, repeats=3, beside=beside)
    write_tables(scoped(found), tmp_path / "tables")
    first, _ = read_csv(tmp_path / "tables/figures.csv")
    assert (first["recall_1_%"], first["recall_10_%"], first["tokens_per_s"]) == ("71.5", "", "12800.0")
    assert "| 71.50 |" in (tmp_path / "tables/figures.md").read_text()
    assert "| framework | node_num | gpu_num | images/s |" in (tmp_path / "tables/throughput.md").read_text()
    text = page_of(tmp_path, found)
    assert "190.0 images/s on 2 devices" in text and "samples/s" not in text
    assert 'id="benchmark-bert-figures"' in text and "at 1, %, more is better" in text


def test_one_speed_in_every_convention_of_counting_flops(tmp_path: Path) -> None:
    """OneFlow's published speed of GPT-2 on eight V100 is 26.1 TFLOPS, 20.9 % of 125."""
    run = {"benchmark": "gpt2", "model": "gpt2-small", "batch": 4, "precision": "fp16", "sequence_length": 1024}
    own = summarized(tmp_path, {"1n8g": [239.0]}, repeats=1, complete=True, **run)
    write_tables(scoped(own), tmp_path / "tables")
    (row,) = read_csv(tmp_path / "tables/conventions.csv")
    found = {name: float(value) for name, value in row.items() if name.startswith(("tflops_", "mfu_", "tokens_"))}
    assert found["tokens_per_s_per_device"] == pytest.approx(239 * 1024 / 8)
    assert found["tflops_full"] == pytest.approx(26.14, abs=0.01)
    assert found["mfu_full"] == pytest.approx(0.209, abs=5e-4)
    assert found["tflops_torchtitan"] == found["tflops_full"] > found["tflops_nemo"]
    assert found["tflops_causal"] == pytest.approx(found["tflops_nemo"], rel=1e-3)
    assert found["tflops_megatron"] > found["tflops_palm"] > found["tflops_full"]
    assert all(found[f"mfu_{name[7:]}"] == pytest.approx(v / 125) for name, v in found.items() if name[:6] == "tflops")
    work = own.frameworks["torch"]["1n8g"].work
    assert work and work.mfu and work.mfu_causal
    assert work.mfu_causal / work.mfu == pytest.approx(817.2 / 875.2, rel=1e-3)
    html = page_of(tmp_path, own)
    for text in ("FLOP/s as others count them", "6 P + 12 L H s", "8 P_layers + 16 L H s + 6 P_head", "6 P + 6 L H s"):
        assert text in html


def rows(*summaries: Summary) -> list[list[str]]:
    """Return the page's table of frameworks."""
    table = run_environment.frameworks(summaries)
    assert table
    return printed(table)[1]


def one(root: Path, device: dict[str, Any], framework: str, **stated: Any) -> Summary:
    return summarized(root, {framework: [100.0]}, repeats=1, device_found=device, framework_versions=stated)


def test_each_framework_has_its_version_environment_and_source(tmp_path: Path) -> None:
    numbers = {"cuda": "11.8", "cudnn": "8.9.6", "nccl": "2.21.5", "driver": "535", "horovod_nccl": "2.21.5"}
    mxnet = one(tmp_path, V100, "mxnet-horovod", mxnet="1.9.1", horovod="0.28.1", controller="mpi", **numbers)
    torch = one(tmp_path / "cpu", CPU, "torch", torch="2.13.0+cpu", cuda=None, driver=None)
    found = rows(mxnet, torch, torch)
    assert len(found) == 2, "a row for each version"
    name, version, built, environment, source = found[0]
    assert (name, version) == ("mxnet-horovod", "mxnet 1.9.1, horovod 0.28.1")
    assert built == "CUDA 11.8, cuDNN 8.9.6, NCCL 2.21.5, Horovod's NCCL 2.21.5"
    assert environment == "envs/mxnet-horovod.txt" and "GluonNLP" in source
    assert found[1][:4] == ["torch", "torch 2.13.0+cpu", "CPUs", "the workflow's, envs/torch.txt"]
    assert run_environment.frameworks([]) is None


def test_the_image_and_the_links_of_a_run_are_shown(tmp_path: Path) -> None:
    """The bandwidth and the NVLink of the V100 are those that a blog prints: 900 GB/s, 300 GB/s in both directions."""
    value = record(spec(topology="1n2g"), 100.0, device=V100, framework={"torch": "2.13.0"})
    value["environment"]["container"] = "apptainer: torch.sif"
    ports = [{"name": "mlx5_0/1", "gbit_per_s": 100.0, "state": "active", "link_layer": "Ethernet"}]
    machine = {"network": [{"name": "eth0", "gbit_per_s": None}], "infiniband": ports}
    card = {"nvlinks": [True] * 5 + [False]}
    value["hardware"] = [{"node": 0, "machine": machine, "devices": [card, card], "reasons": {}}]
    path = write_record(tmp_path, value)
    found = summary.summarize([path], repeats=1)
    table = run_environment.environments([found], [read_run(path)])
    assert table
    facts = {line.entries[0].text: line.entries[1].text for line in table.lines}
    assert facts["container"] == "apptainer: torch.sif"
    assert facts["memory bandwidth of a GPU"] == "900 GB/s (datasheet)"
    assert facts["NVLink of a GPU"] == "300 GB/s, both directions together (datasheet)"
    assert facts["NVLinks"] == "2 × (5 of 6 are active)"
    assert facts["network interfaces"] == "1 × (eth0, speed not stated)"
    assert facts["InfiniBand and RoCE"] == "1 × (mlx5_0/1, 100 Gbit/s, Ethernet, active)"


def test_a_version_has_its_own_line_wherever_its_pins_are(tmp_path: Path) -> None:
    old = one(tmp_path, CPU, "jax@old", jax="0.9.2")
    (found,) = rows(old)
    assert found[:4] == ["jax@old", "jax 0.9.2", "CPUs", "envs/jax@old.txt"]
