"""Whole jobs: from the rows of a published table we print its figures to the last digit, and say what they mean."""

import csv
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from report_fixture import read_csv, scoped, summarized, write_series
from throughline.comparables import published as published_results
from throughline.records import Summary
from throughline.report.analysis import summary
from throughline.report.topics import whole_jobs, write_tables
from throughline.spec.job import FIGURES, EpochsJob, figures
from throughline.study.result_sections import Price

PUBLISHED = Path(__file__).with_name("published") / "trainer.csv"
ASKED = {"samples": 2048, "held_out": 1024, "epochs": 2}
JOB = EpochsJob(**ASKED)
ACCUMULATED: dict[str, Any] = {"framework": "hf-trainer", "job": ASKED, "options": {"gradient_accumulation": 4}}
CARDS = {"V100": ("Tesla V100-SXM2-32GB", 5.3), "A100": ("NVIDIA A100-PCIE-40GB", 9.3)}
COLUMNS = {"train_bs": "train_bs", "total_train_bs": "total_train_bs"} | whole_jobs.FIGURES
ROWS = list(csv.DictReader(line for line in PUBLISHED.read_text().splitlines() if not line.startswith("#")))


def told(row: dict[str, str]) -> dict[str, float]:
    """Return a row's figures by our names, including those that state its configuration."""
    return {name: float(row[heading]) for name, heading in COLUMNS.items()}


def place(row: dict[str, str]) -> tuple[str, int, int]:
    """Read the card, the number of cards and the batch of each card from a row's name."""
    card, count, batch = row["Name"].split("_")
    return card, int(count.removesuffix("gpu")), int(batch)


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Summary]]:
    """Card -> its summaries by their names, as if each row were one run of ours."""
    root, found = tmp_path_factory.mktemp("jobs"), dict[str, dict[str, Summary]]()

    def of_cell(row: dict[str, str]) -> tuple[str, int, str]:
        card, _, batch = place(row)
        return card, batch, "fp16" if row["fp16"] == "TRUE" else "fp32"

    for (card, batch, precision), rows in groupby(sorted(ROWS, key=of_cell), of_cell):
        paths = []
        device = {"kind": "cuda", "name": CARDS[card][0], "count": 8, "fp16_native": True}
        changes = ACCUMULATED | {"benchmark": card.lower(), "batch": batch, "precision": precision}
        for row in rows:
            values = told(row)
            alone = JOB.trained / (values["train_runtime"] - 2 * values["eval_runtime"])
            values |= {"samples_per_second_without_evaluations": alone, "preparation": 10.0}
            speeds, beside = (
                {f"1n{place(row)[1]}g": [JOB.trained / values["train_runtime"]]},
                {"figures": figures(values)},
            )
            paths += write_series(root, speeds, device_found=device, beside=beside, **changes)
        terms = summary.Terms(prices={card: Price(per_hour=CARDS[card][1], currency="CNY")}, total_samples=JOB.trained)
        found.setdefault(card, {})[f"bz{batch}_{precision}"] = summary.summarize(paths, repeats=1, terms=terms)
    return found


def test_our_table_is_the_published_one_to_the_last_digit(
    summaries: dict[str, dict[str, Summary]], tmp_path: Path
) -> None:
    printed = []
    for card, made in summaries.items():
        write_tables(scoped(*made.values()), tmp_path / card)
        lines = (tmp_path / card / "jobs.md").read_text().splitlines()
        header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line)
        first = header.index("name")
        printed += [",".join(row[first : first + 11]) for row in rows]
        assert [heading.split()[0] for heading in header[first + 1 : first + 11]] == [*ROWS[0]][1:]
    assert sorted(printed) == sorted(",".join(row.values()) for row in ROWS)


def test_published_jobs_stand_beside_ours(summaries: dict[str, dict[str, Summary]], tmp_path: Path) -> None:
    """The rows of the file of published results have every printed digit, and are like none of our cells' speeds."""
    ours = [whole_jobs.row(row) for row in published_results.jobs("deberta-v3-base")]
    assert [row["name"] for row in ours] == [row["Name"] for row in ROWS]
    figures_of = [[whole_jobs.digits(row[name]) for name in [*ROWS[0]][1:]] for row in ours]
    assert figures_of == [[*row.values()][1:] for row in ROWS]
    made = [one.model_copy(update={"model": "deberta-v3-base"}) for one in summaries["V100"].values()]
    scope = scoped(*made)
    write_tables(scope, tmp_path)
    beside = read_csv(tmp_path / "jobs_beside.csv")
    rows = [row for row in beside if row["name"] == "V100_4gpu_8" and row["fp16"] == "FALSE"]
    assert [row["measured_by"] for row in rows] == ["measured here", "Beijing supercomputing centre"]
    assert rows[0]["train/train_runtime"] == rows[1]["train/train_runtime"] == "203.6953"
    for row in rows:
        assert float(row["price"]) == pytest.approx(float(row["hours"]) * 4 * 5.3) and row["currency"] == "CNY"
    priced = [(row["hours"] * 3600, row["price"] / row["hours"]) for row in ours]
    costs = [(told(row)["train_runtime"], place(row)[1] * CARDS[place(row)[0]][1]) for row in ROWS]
    assert len(priced) == 19 and priced == [pytest.approx(cost) for cost in costs]
    assert not any(result.other.is_job for _, result in scope.similar)
    assert whole_jobs.beside(scoped(*summaries["V100"].values())) is None  # a model without such rows


def test_throughput_without_evaluations_and_the_price_stand_beside_it(
    summaries: dict[str, dict[str, Summary]], tmp_path: Path
) -> None:
    write_tables(scoped(*summaries["V100"].values()), tmp_path)
    rows = {(row["name"], row["fp16"]): row for row in read_csv(tmp_path / "jobs.csv")}
    one, four = rows["V100_1gpu_8", "FALSE"], rows["V100_4gpu_8", "FALSE"]
    alone = [float(row["samples_per_second_without_evaluations"]) for row in (one, four)]
    assert alone == pytest.approx([13.24, 24.85], abs=0.005)
    assert float(four["evaluations_share"]) == pytest.approx(0.19, abs=0.002)
    assert float(four["runtime_with_preparation_s"]) == pytest.approx(213.6953)
    assert not (tmp_path / "figures.csv").exists() or "train_runtime" not in (tmp_path / "figures.csv").read_text()
    cost = summaries["V100"]["bz8_fp32"].frameworks["hf-trainer"]["1n4g"].cost
    assert cost and cost.task_price == pytest.approx(1.1995, abs=5e-5)
    assert cost.per_million_samples == pytest.approx(292.86, abs=0.02)
    assert cost.task_hours == pytest.approx(203.6953 / 3600)


def test_published_rows_add_up_and_every_figure_is_declared() -> None:
    for row in ROWS:
        _, devices, batch = place(row)
        assert JOB.faults(devices, batch, 4, told(row)) == []
    assert set(whole_jobs.FIGURES) <= set(FIGURES)
    assert {one["name"] for one in figures(dict.fromkeys(FIGURES, 1.0))} == set(FIGURES)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("train_bs", 16, "4 devices x 8 are 32"),
        ("total_train_bs", 64, "4 devices x 8 x 4 micro-batches are 128"),
        ("global_step", 33, "are 32"),
        ("train_samples_per_second", 20.109, "samples x epochs are 4096"),
        ("train_steps_per_second", 0.158, "the optimizer steps are 32"),
        ("eval_samples_per_second", 52.729, "the held-out samples are 1024"),
        ("eval_steps_per_second", 1.650, "the steps of an evaluation are 32"),
        ("eval_runtime", 119.4207, "2 evaluations take"),
    ],
)
def test_a_wrong_digit_is_found(column: str, value: float, expected: str) -> None:
    row = told(next(row for row in ROWS if row["Name"] == "V100_4gpu_8"))
    found = JOB.faults(4, 8, 4, row | {column: value})
    assert any(column in fault or column == "eval_runtime" for fault in found)
    assert any(expected in fault for fault in found), found


def test_steps_of_a_job_are_rounded_up_as_the_trainer_does() -> None:
    assert EpochsJob(100, 10, 3).steps(8, 4) == 3 * 4  # 13 batches in 4 steps, the last of one batch
    rates = {"train_samples_per_second": 30.0, "train_runtime": 10.0, "train_steps_per_second": 1.2, "global_step": 12}
    evaluation = {"eval_samples_per_second": 10.0, "eval_steps_per_second": 2.0, "eval_runtime": 1.0}
    assert EpochsJob(100, 10, 3).faults(1, 8, 4, rates | evaluation) == []


def test_a_record_whose_figures_do_not_add_up_is_marked(tmp_path: Path) -> None:
    beside: dict[str, Any] = {"figures": figures(told(ROWS[0]) | {"train_runtime": 230.6953})}
    found = summarized(tmp_path, {"1n4g": [20.1]}, repeats=1, batch=8, beside=beside, **ACCUMULATED)
    (cell,) = found.frameworks["hf-trainer"].values()
    said = "repeat 1 do not add up: train_samples_per_second x train_runtime is 4638"
    assert any(said in text for text in cell.warnings)
