"""An option off and on: we print OneFlow's published table of GPT-2 from its own figures, and find its mistakes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from report_fixture import CPU, frame, group_of, page_of, read_csv, scoped, summarized
from throughline.numbers import MIB
from throughline.records import Summary
from throughline.report.analysis import cells, judged_pairs
from throughline.report.topic import Scope
from throughline.report.topics import off_and_on, write_tables
from throughline.report.topics.off_and_on import Case, Figures
from throughline.spec import Topology

# OneFlow, "Megatron-LM" measurements for OSDI (DLPerf), 2020-12-08 and -09: GPT-2 small, 8 V100 a machine, fp16.
# Columns: date, topology, batch, then memory (MiB), use (%), samples/s without and with the optimization.
ONEFLOW = [
    ("20201208", "1n8g", 1, (5603, 73, 104), (3849, 43, 89)),
    ("20201208", "1n8g", 4, (11301, 95, 239), (9547, 88, 235)),
    ("20201208", "2n8g", 4, (11087, 96, 412), (9160, 92, 395)),
    ("20201209", "4n8g", 4, (11089, 95, 717), (9082, 92, 742)),
]
# The published text of its cells, with every arrow in front of its figure.
PRINTED = {
    ("1n_8g_dp_1bs", "gpu_mem(MiB)"): "3849(-1754,↓31.3%)",
    ("1n_8g_dp_1bs", "throughput(samples/s)"): "89(↓14.4%)",
    ("1n_8g_dp_4bs", "gpu_mem(MiB)"): "9547(-1754,↓15.5%)",
    ("1n_8g_dp_4bs", "throughput(samples/s)"): "235(↓1.7%)",
    ("2n_8g_dp_4bs", "gpu_mem(MiB)"): "9160(-1927,↓11.4%)",
    ("2n_8g_dp_4bs", "throughput(samples/s)"): "395(↓4.1%)",
    ("4n_8g_dp_4bs", "gpu_mem(MiB)"): "9082(-2727,↓23.1%)",
    ("4n_8g_dp_4bs", "throughput(samples/s)"): "742(↑3.4%)",
}
GPT2_SMALL = 124_475_904  # parameters, with the padded vocabulary


def published(numbers: Sequence[int]) -> Figures:
    memory, use, speed = numbers
    return {"memory_bytes": memory * MIB, "utilization_share": use / 100, "samples_per_s": speed}


def published_cases() -> list[Case]:
    every = []
    for date, topology, batch, off, on in ONEFLOW:
        case = Case(date, "off_optimization", Topology.parse(topology), 1, batch, published(off))
        every += [case, replace(case, description="on_optimization", figures=published(on), off=published(off))]
    return every


def test_the_published_table_is_printed_and_its_mistakes_are_found() -> None:
    """Six of its eight changes are right. One of the two wrong changes also has a wrong difference. One more figure is
    cut off instead of rounded: 25 of 717 is 3.49 %."""
    table = frame(off_and_on.printed(published_cases()))
    assert list(table.columns[:7]) == [
        "date", "test_num", "test_desc", "case", "gpu_mem(MiB)", "gpu_util(%)", "throughput(samples/s)",
    ]  # fmt: skip
    numbers = ["1-1", "1-2", "1-3", "1-4", "2-1", "2-2", "3-1", "3-2"]
    assert list(table["test_num"]) == [f"test-{number}" for number in numbers]
    first = ["20201208", "test-1-1", "off_optimization", "1n_8g_dp_1bs", "5603", "73", "104"]
    assert list(table.iloc[0, :7]) == first
    on = table[table["test_desc"] == "on_optimization"].set_index("case")
    assert list(on["gpu_util(%)"]) == ["43", "88", "92", "92"]
    computed = {place: on.loc[place] for place in PRINTED}
    assert {place: text for place, text in computed.items() if text != PRINTED[place]} == {
        ("2n_8g_dp_4bs", "gpu_mem(MiB)"): "9160(-1927,↓17.4%)",
        ("4n_8g_dp_4bs", "gpu_mem(MiB)"): "9082(-2007,↓18.1%)",
        ("4n_8g_dp_4bs", "throughput(samples/s)"): "742(↑3.5%)",
    }


@pytest.mark.parametrize(
    ("off", "on", "said"),
    [(11301, 9547, "11301 → 9547 (-1754, ↓15.5 %)"), (717, 742, "717 → 742 (+25, ↑3.5 %)"), (None, 3, "n/a → 3"),
     (50, 50, "50 → 50"), (10.04, 10.04, "10 → 10")],
)  # fmt: skip
def test_a_change_in_words(off: float | None, on: float | None, said: str) -> None:
    assert off_and_on.in_words(off, on, 1) == said


@pytest.mark.parametrize(
    ("topology", "tensor_parallel", "batch", "name"),
    [("1n8g", 1, 4, "1n_8g_dp_4bs"), ("1n4g", 4, 4, "1n_4g_mp_4bs"), ("1n4g", 2, 8, "1n_4g_2dp_2mp_8bs")],
)
def test_names_of_cases(topology: str, tensor_parallel: int, batch: int, name: str) -> None:
    case = Case("", "", Topology.parse(topology), tensor_parallel, batch, dict.fromkeys(off_and_on.SCALES))
    assert case.name == name
    assert list(frame(off_and_on.printed([case])).iloc[0, 4:7]) == ["", "", ""]


def block(root: Path, name: str, memory: int, speeds: dict[str, float], **changes: Any) -> Summary:
    settings = {"settings": {"parameters": GPT2_SMALL, "sharding": "the optimizer's states: 8 bytes"}}
    return summarized(root, speeds, benchmark=name, memory=memory * MIB, beside=settings, **changes)


@pytest.fixture
def measured(tmp_path: Path) -> list[Summary]:
    """Two blocks of GPT-2 that only differ in sharding, one with tensor parallelism, and one of another model."""
    speeds, gpt2 = {"1n2g": 190.0, "2n2g": 330.0}, "gpt2-small"
    wide = {"options": {"tensor_parallel": 2}, "device_found": CPU}
    return [
        block(tmp_path, "plain", 9000, {"1n1g": 100.0, **speeds}, complete=True, model=gpt2),
        block(tmp_path, "split", 8000, speeds, complete=True, model=gpt2, options={"sharding": "zero1"}),
        block(tmp_path, "wide", 5000, {"2n2g": 80.0}, model=gpt2, **wide),
        block(tmp_path, "bert", 9000, speeds),
    ]


def test_files_and_page_of_a_pair(tmp_path: Path, measured: list[Summary]) -> None:
    everything = cells.groups(measured)
    for group in everything:
        write_tables(Scope([group], everything), tmp_path / group.benchmark)
    assert not (tmp_path / "plain/pairs.csv").exists()
    first, second = read_csv(tmp_path / "split/pairs.csv")
    assert [first[key] for key in ("without", "topology", "switched_on")] == ["plain", "1n2g", "sharding zero1"]
    change, on, off = (float(first[f"memory_bytes_{kind}"]) for kind in ("change", "on", "off"))
    assert change == on - off == pytest.approx(-1050 * MIB, abs=2)
    for row, held in ((first, GPT2_SMALL / 2), (second, GPT2_SMALL * 3 / 4)):
        assert float(row["saved_bytes_per_parameter"]) == pytest.approx(1050 * MIB / held)
    assert (first["utilization_share_change"], first["samples_per_s_change"]) == ("0.0", "0.0")
    assert not (tmp_path / "bert/cases.csv").exists()
    plain, split, (wide,) = (read_csv(tmp_path / name / "cases.csv") for name in ("plain", "split", "wide"))
    assert [case["case"] for case in plain] == ["1n_1g_dp_32bs", "1n_2g_dp_32bs", "2n_2g_dp_32bs"]
    assert [(case["test_num"], case["test_desc"], case["gpu_mem(MiB)"]) for case in split[:2]] == [
        ("test-1-1", "sharding_none", "9450"), ("test-1-2", "sharding_zero1", "8400(-1050,↓11.1%)"),
    ]  # fmt: skip
    names = ("date", "case", "gpu_mem(MiB)", "gpu_util(%)")  # on CPUs the threads' share
    assert [wide[name] for name in names] == ["20261120", "2n_2g_2dp_2mp_32bs", "5000", "97"]
    assert "torch: its speedups are relative to 1n2g" in (tmp_path / "split/throughput.md").read_text()

    text = page_of(tmp_path, *measured)
    for words in (
        'id="benchmark-split-pairs"', "9450 → 8400 (-1050, ↓11.1 %)", "DeepSpeed&#39;s stage 1 saves about 12",
        "sharding zero1 splits the optimizer&#39;s states: 8 bytes.", "W/ sharding: zero1</small>",
        "W/ tensor parallelism over 2 devices</small>",
    ):  # fmt: skip
        assert words in text
    assert 'id="benchmark-plain-pairs"' not in text
    assert " splits " not in text.partition('id="benchmark-wide-pairs"')[2].partition("</section>")[0]


def test_throughput_in_other_units_is_of_all_devices_and_of_each(tmp_path: Path, measured: list[Summary]) -> None:
    """Two devices that share a replica still count as two: tokens/s per device are divided by the world size."""
    write_tables(scoped(measured[2]), tmp_path)
    (row,) = read_csv(tmp_path / "figures.csv")
    assert (row["tokens_per_s"], row["tokens_per_s_per_device"]) == ("10240.0", "2560.0")
    text = page_of(tmp_path, measured[2])
    assert "<dt>per device</dt><dd>2,560 <small>tokens/s</small>" in text
    assert "<small>10,240 tokens/s</small>" in text
    # The only topology is its own baseline, so there is no speedup.
    assert "on 4 devices (2n2g) in fp32 with batch 32 per replica." in text and "there is one topology" in text
    assert "speedup over 2n2g" not in text


def test_bytes_saved_are_told_of_gpus_alone(tmp_path: Path) -> None:
    off, on = (
        group_of(block(tmp_path, name, 700, {"1n2g": 9.0}, device_found=CPU, options={"sharding": kind}))
        for name, kind in (("plain", "none"), ("split", "zero1"))
    )
    (pair,) = off_and_on.switched(judged_pairs.judge([on], [off, on]))
    off_bytes, on_bytes = off_and_on.off_on("memory_bytes", pair)
    assert off_bytes == on_bytes and off_and_on.saved_bytes_per_parameter(pair) is None
