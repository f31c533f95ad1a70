"""What a hostile archive holds does no harm: names lead nowhere, and values that cannot be are lines of the check."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from throughline import commands
from throughline.archive import accepted, check, compare, contents, proofs, samples
from throughline.files import UserError
from throughline.records import Equivalence, read_run
from throughline.records.acceptance import Acceptance
from unit.archive.test_archive import RUN, SUMMARY, Files, differences, packed, unpacked, with_value
from unit.archive.test_proofs import found, proven

__all__ = ["proven", "unpacked"]
TABLE = f"{RUN}.telemetry.csv"
PAGE = "results/report.html"


def summaries(*names: str) -> Callable[[Any], None]:
    return lambda told: told["benchmarks"]["bert"]["summaries"].extend(names)


def compared(told: Any) -> None:
    told["benchmarks"]["bert"]["compared"] = ["../../outside.json"]


def benchmark(name: str) -> Callable[[Any], None]:
    return lambda told: told["benchmarks"].update({name: {**told["benchmarks"]["bert"], "summaries": []}})


def of_another(told: Any) -> None:
    told["benchmarks"]["other"] = told["benchmarks"]["bert"]


@pytest.mark.parametrize(
    "change",
    [
        summaries("/dev/zero"),
        summaries("/tmp/outside.json"),
        summaries("results/../../outside.json"),
        summaries("results/bert/bz1_fp32.json"),  # the archive has no such file
        summaries("results/bert/bz32_fp32.json\n"),
        compared,
        benchmark("/etc"),
        benchmark("../../.."),
        benchmark(".."),
        of_another,
    ],
)
def test_a_name_in_the_contents_leads_nowhere_else(
    change: Callable[[Any], None], unpacked: Files, tmp_path: Path
) -> None:
    path = packed(with_value(unpacked, contents.NAME, change), tmp_path / "a.zip")
    for use in (check.check, lambda path: compare.compare([], [path], tmp_path / "c.json")):
        with pytest.raises(UserError, match="is not accepted"):
            use(path)
    with pytest.raises(SystemExit) as ended:
        commands.main(["check", str(path)])
    assert ended.value.code == 1


def test_a_framework_is_no_way_out_of_the_folder_of_tables(unpacked: Files, tmp_path: Path) -> None:
    def outside(summary: Any) -> None:
        for part in ("frameworks", "environment", "baselines"):
            summary[part][f"{tmp_path}/outside"] = summary[part].pop("torch")

    told = differences(packed(with_value(unpacked, SUMMARY, outside), tmp_path / "a.zip"))
    assert any(line.startswith(f"{SUMMARY}: ") and "is no name" in line for line in told), told
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_a_framework_of_a_proof_is_no_way_out_either(proven: tuple[dict[str, Any], Path]) -> None:
    proof, folder = proven
    proof["frameworks"]["/etc/torch"] = proof["frameworks"].pop(next(iter(proof["frameworks"])))
    assert found(proof, folder) == ["equivalence.json: '/etc/torch' is no name"]
    proof["frameworks"] = {"torch": {"../1n1g": next(iter(next(iter(proof["frameworks"].values())).values()))}}
    assert [str(one) for one in proofs.of_proof("e", Equivalence.model_validate(proof), folder)] == [
        "e: '../1n1g' is no name"
    ]


def test_a_node_of_an_acceptance_is_a_number() -> None:
    fleet = {"nodes": ["./../../..", 1], "devices": 1, "kind": "cpu"}
    spec = {
        "benchmark": "b",
        "framework": "torch",
        "model": "bert-tiny",
        "sequence_length": 32,
        "topology": "1n1g",
        "predictions": 5,
    }
    asked = {"fleet": fleet, "repeats": 1, "rounds": 0, "specs": [["step", {**spec, "precision": "fp32"}]]}
    asked["specs"][0][1] |= {"batch": 8, "repeat": 1, "protocol": 3}
    asked |= {"expected": [], "published": [], "tolerance": 0.02}
    with pytest.raises(ValueError, match="valid integer"):
        accepted.asked_of(Acceptance.model_construct(asked=asked))


def text(table: str) -> str:
    header, first, *rest = table.splitlines()
    return "\n".join([header, first.replace("0,-1.7", "0,early"), *rest])


def no_times(table: str) -> str:
    return table.replace("at_s", "when", 1)


def not_finite(table: str) -> str:
    """A mean that is not finite would be equal to everything."""
    return table.replace("1754652672", "inf", 1)


def short(table: str) -> str:
    return table + "0,1\n"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda table: text(table).encode(), "early17775"),
        (lambda table: not_finite(table).encode(), "not finite"),
        (lambda table: no_times(table).encode(), "it has no column at_s"),
        (lambda table: short(table).encode(), "a row lacks one of node"),
        (lambda table: (table + "9" * 200_000).encode(), "not finite"),
        (lambda table: b"\xff\xfe", "codec can't decode"),
        (lambda table: b"", "No columns"),
    ],
)
def test_a_table_of_samples_that_is_none(
    change: Callable[[str], bytes], why: str, unpacked: Files, tmp_path: Path
) -> None:
    told = of_samples(unpacked, change(unpacked[TABLE].decode()), tmp_path)
    assert len(told) == 1 and "run2.telemetry.csv: it cannot be read: " in told[0] and why in told[0]


def of_samples(unpacked: Files, table: bytes, folder: Path) -> list[str]:
    record = folder / f"{RUN}.json"
    record.parent.mkdir(parents=True)
    record.write_bytes(unpacked[f"{RUN}.json"])
    path = Path(samples.table_name(str(record)))
    path.write_bytes(table)
    return [str(one) for one in samples.telemetry(f"{RUN}.json", read_run(record), path)]


def test_a_table_of_samples_is_not_read_if_it_is_too_large(
    unpacked: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MOST_BYTES", 1 << 10)
    (told,) = of_samples(unpacked, unpacked[TABLE], tmp_path)
    assert told.endswith("run2.telemetry.csv: it holds more than 0 MiB, and is not read")


def test_a_figure_without_samples(unpacked: Files, tmp_path: Path) -> None:
    """A column of another name leaves a figure that nobody can derive."""
    told = of_samples(unpacked, unpacked[TABLE].replace(b"machine_loopback", b"machine_other", 1), tmp_path)
    assert told == [f"{RUN}.json: telemetry[0].machine.loopback_bytes_per_s: the archive lacks the samples behind it"]


def no_window(record: Any) -> None:
    for rank in record["ranks"]:
        rank["window_start_s"] = rank["window_end_s"]


def test_a_window_without_length_and_a_page_that_cannot_be_decoded(unpacked: Files, tmp_path: Path) -> None:
    changed = with_value(unpacked, f"{RUN}.json", no_window) | {PAGE: b'data:application/json;base64,AAAAA"'}
    told = differences(packed(changed, tmp_path / "a.zip"))
    assert f"{RUN}.json: ranks[0]: its window does not end after its start" in told
    assert f"{PAGE}: it holds a file that cannot be decoded" in told
