"""What single calls reach: shares of the datasheet and of the largest product; tables, curves, the device's page."""

import json
from pathlib import Path
from typing import Any

import pytest

from report_fixture import group_of, page_of, read_csv, record, spec, write_record
from throughline import gpus
from throughline.observe import work
from throughline.records import Summary
from throughline.records.imported import Imported, ImportedRun
from throughline.report import answers
from throughline.report.analysis import cells, summary, titles
from throughline.report.render import run_environment, table_files
from throughline.report.render.tables import PAGE
from throughline.report.topic import Scope
from throughline.report.topics import cost, published_calls, write_plots, write_tables
from throughline.report.topics.single_calls import beside_layers, best, device, parts, reached, rooflines
from throughline.study.runs import read_spec

A100 = {"kind": "cuda", "name": "A100-SXM4-80GB", "count": 1, "fp16_native": True}
PUBLISHED = {"matmul": (230.0, 312.0), "forward": (110.0, 312.0), "forward_backward": (136.0, 312.0)}
"""Mu Li's figures of an A100 in fp16, and the datasheet's, in TFLOPS."""


def one(name: str, at: int | None, value: float, unit: str = "TFLOPS") -> dict[str, Any]:
    return {"name": name, "unit": unit, "better": "more", "at": at, "value": value}


def run(root: Path, speed: float, observed: dict[str, Any], beside: dict[str, Any], **changes: Any) -> Path:
    """Write a record of an A100 with the work of `speed` samples per second. A change to None leaves the key out."""
    stated = {key: value for key, value in spec(**changes).items() if value is not None}
    asked = read_spec(json.dumps(stated))
    value = record(asked.values(), speed, device=A100) | beside
    return write_record(root, value | {"work": work.of(asked, speed, 1, A100, observed)})


def write(root: Path, model: str, batch: int, precision: str, figures: list[Any], **changes: Any) -> Path:
    """Write the record of a test of single calls; return its path."""
    stated: dict[str, Any] = {
        "benchmark": model.replace("-", "_"),
        "model": model,
        "batch": batch,
        "precision": precision,
    }
    stated |= {"options": {"data": "synthetic"}, "sequence_length": None, "predictions": None, "corpus": None} | changes
    unit = "samples/s" if model.endswith("layer") else "calls/s"
    beside = {"unit": unit, "loss": None, "figures": figures, "data": None}
    return run(root, 10.0 * batch, {"matmul_flops_per_s": 250e12}, beside, **stated)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Summary]]:
    root = tmp_path_factory.mktemp("reached")
    paths = [
        write(root, "matmul", 1, "fp16", [one("matmul", 8192, 230.0), one("matmul", 2048, 240.0)]),
        write(root, "vector", 1, "fp32", [one("vector", 2**22, 0.202), one("vector_memory", 2**22, 1616.0, "GB/s")]),
        *(
            write(root, "bert-layer", batch, "fp16", layer, sequence_length=128)
            for batch, layer in (
                (2, [one("forward", None, 20.0), one("forward_backward", None, 30.0)]),
                (128, [one("forward", None, 110.0), one("forward_backward", None, 136.0)]),
            )
        ),
    ]
    return root, [summary.summarize([path], repeats=1) for path in paths]


@pytest.fixture
def groups(made: tuple[Path, list[Summary]]) -> list[cells.Group]:
    return cells.groups(made[1])


def of(groups: list[cells.Group], *names: str) -> list[cells.Group]:
    return [group for group in groups if group.benchmark in names]


def test_a_workload_that_trains_nothing_is_called(groups: list[cells.Group]) -> None:
    headline = answers.headline(Scope(of(groups, "matmul", "vector")))
    assert headline.startswith("torch calls matmul at 10.00 calls/s")


def test_what_only_training_has_is_left_out(groups: list[cells.Group]) -> None:
    """Single calls have no optimizer, no price of samples and no step to take apart, and their repeat has no range."""
    scope = Scope(of(groups, "matmul"), groups)
    found = scope.groups[0].summary
    assert [answer.question for answer in answers.answers(scope)][1:] == ["Next"]
    assert not {"optimizer", "data", "range"} & dict(run_environment.setup(found)).keys()
    assert (titles.switches(found), cost.table(scope)) == ("", None)


def test_shares_are_those_of_the_published_table(groups: list[cells.Group]) -> None:
    found = {one.name: one for one in best(reached(groups))}
    for name, (value, theory) in PUBLISHED.items():
        assert (found[name].value, found[name].theory, found[name].product) == (value, theory, 250.0)
        assert found[name].share == pytest.approx(value / theory)
    assert found["matmul"].size == 8192, "the largest size, not the fastest"
    assert found["forward"].size == 128, "the fastest batch"
    memory, card = found["vector_memory"], gpus.find("A100-SXM4-80GB")
    assert card and card.memory_bytes_per_s and memory.theory == card.memory_bytes_per_s / 1e9 == 2039
    assert (memory.product, found["vector"].theory, found["vector"].share_of_product) == (None, None, None)
    assert found["matmul"].intensity == pytest.approx(2 * 8192**3 / (3 * 8192**2 * 2))
    assert found["vector"].intensity == pytest.approx(1 / 8)
    flops = 128 * (24 * 128 * 1024**2 + 4 * 128**2 * 1024)
    assert found["forward"].intensity == pytest.approx(flops / (2 * (12 * 1024**2 + 2 * 128 * 128 * 1024)))
    assert found["forward_backward"].intensity is None


def test_collectives_stand_beside_nccl_tests(tmp_path: Path) -> None:
    bandwidths = [one("bus_bandwidth", size, value, "GB/s") for size, value in ((2**20, 90.0), (2**30, 350.0))]
    group = group_of(summary.summarize([write(tmp_path, "all-reduce", 1, "fp32", bandwidths, topology="1n1g")], 1))
    found = ImportedRun(file="a.log", model="all_reduce", devices=1, value=700.0, unit="GB/s", kind="nccl-tests")
    others = [
        found,
        *(found.model_copy(update=u) for u in ({"devices": 4}, {"model": "sendrecv"}, {"unit": "tokens/s"})),
    ]
    rows = list(Imported(schema=3, name="switch", files=others).results().values())
    shown = published_calls.bandwidths(Scope([group], [group], imported=rows))
    assert shown
    (row,) = table_files.printed(shown.in_form(PAGE))[1]
    assert row[0:2] + row[3:7] == ["all-reduce", "1n1g", "1,073,741,824", "350.0", "700.0", "0.5000"]
    assert published_calls.bandwidths(Scope([group], [group])) is None


@pytest.mark.slow
def test_tables_and_curves_in_files(groups: list[cells.Group], tmp_path: Path) -> None:
    scope = Scope(of(groups, "bert_layer"), of(groups, "bert_layer"))
    write_tables(scope, tmp_path / "tables")
    write_plots(scope, tmp_path / "plots")
    rows = [
        [row[key] for key in ("figure", "size", "value", "theory")] for row in read_csv(tmp_path / "tables/reached.csv")
    ]
    assert rows[:2] == [["forward", "2", "20.0", "312.0"], ["forward_backward", "2", "30.0", "312.0"]]
    assert "| 136.0 | TFLOPS | 312.0 | 44 % | 54 % |" in (tmp_path / "tables/reached.md").read_text()
    drawn = (tmp_path / "plots/reached_TFLOPS.svg").stat().st_size
    assert drawn > 3000 and not list((tmp_path / "plots").glob("*forward*"))


def test_the_device_stands_once_on_the_page(made: tuple[Path, list[Summary]], groups: list[cells.Group]) -> None:
    own, others = Scope(of(groups, "matmul"), groups), Scope(of(groups, "vector"), groups)
    first = device(own)
    assert first and len(first.lines) == 5 and device(others) is None
    assert len(list(rooflines(own))) == 1 and not list(rooflines(others))
    text = page_of(made[0], *made[1])
    assert text.count("<summary><b>The device in one table</b>") == 1 and 'id="benchmark-bert_layer-reached"' in text
    assert "benchmark-matmul-roofline_0-title" in text and "loss" not in text.partition("<main")[2]


def trained(root: Path, **changes: Any) -> cells.Group:
    """Return BERT-base on the same card with 1,000 samples per second."""
    counted = {"counted": {"real_token_share": 0.8, "real_pair_share": 0.7}}
    path = run(root, 1000.0, counted, {}, precision="fp16", batch=96, **changes)
    return group_of(summary.summarize([path], repeats=1))


def test_a_step_beside_its_layers(groups: list[cells.Group], tmp_path: Path) -> None:
    group = trained(tmp_path)
    (one,) = parts([group], groups)
    assert (one.layer.model, one.layer.size, one.layer.value) == ("bert-layer", 128, 136.0), "not the batch of 2"
    (cell,) = group.measured
    assert cell.record.work and cell.record.work.flops_per_s
    assert one.share == pytest.approx(cell.record.work.flops_per_s / 136e12)
    shown = beside_layers(Scope([group], groups))
    page_form = shown and shown.in_form(PAGE)
    assert page_form
    (row,) = table_files.printed(page_form)[1]
    assert row[3:] == [f"{one.tflops:.2f}", "136.0", f"{100 * one.share:.0f} %", "128", "sdpa", "bert_layer"]


@pytest.mark.parametrize(
    "changes", [{"sequence_length": 512}, {"options": {"dropout": 0.0}}, {"options": {"remove_padding": True}}]
)
def test_what_is_unlike_is_not_compared(groups: list[cells.Group], tmp_path: Path, changes: dict[str, Any]) -> None:
    assert not parts([trained(tmp_path, **changes)], groups)


def test_a_device_stands_beside_the_published_ones(groups: list[cells.Group]) -> None:
    """The columns A100, A6000, V100 and 3090 Ti have the digits of Mu Li's table, and ours those of our runs."""
    shown = published_calls.table(Scope(of(groups, "matmul"), groups))
    assert published_calls.table(Scope(of(groups, "vector"), groups)) is None
    assert shown and [column.heading for column in shown.columns] == [
        "call", "A100", "RTX A6000", "V100", "RTX 3090 Ti", "RTX 4090", "A100-SXM4-80GB",
    ]  # fmt: skip
    rows = {line.entries[0].text: [entry.text for entry in line.entries[1:]] for line in shown.lines}
    assert len(rows) == 4 + 11
    assert rows["memory, GB / bandwidth, GB/s"][:4] == ["80 / 2039", "48 / 768", "32 / 900", "24 / 1008"]
    assert rows["price to buy, USD"][:4] == ["16,000", "4,000", "3,500", "1,500"]
    assert rows["theory, TF32 (else fp32) / fp16, TFLOPS"][0] == "156 / 312"
    assert rows["matmul, fp16, TFLOPS"] == ["230", "95", "95", "81", "172", "230"]
    assert rows["vector, fp32, TFLOPS"] == ["0.202", "0.082", "0.098", "0.107", "0.117", "0.202"]
    assert rows["bert-layer, forward backward, fp16, TFLOPS"] == ["136", "70", "64", "62", "109", "136"]
    assert rows["t5-decoder-layer, forward, fp16, TFLOPS"] == ["38", "28", "26", "30", "38", "n/a"]
    assert rows["matmul, fp32, TFLOPS"][-1] == "n/a"
