"""What a hostile archive holds does no harm: names lead nowhere, and values that cannot be are lines of the check."""

import json
import random
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from throughline import __version__, commands
from throughline.archive import accepted, check, compare, contents, pack
from throughline.files import UserError
from throughline.records.acceptance import Acceptance
from unit.archive.test_archive import RUN, SUMMARY, Files, differences, packed, unpacked, with_value

__all__ = ["unpacked"]
DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("../outside.json", b"{}", "does not belong below"),
        ("results/../../outside.json", b"{}", "does not belong below"),
        ("/etc/outside", b"{}", "does not belong below"),
        ("results/a\\b.json", b"{}", "does not belong below"),
        (f"{SUMMARY}/inner.json", b"{}", "File exists"),
        (f"results/{'long' * 100}", b"{}", "File name too long"),
        ("results/bomb.csv", b"0" * (300 << 20), "unpacks to more than"),
        (contents.NAME, DEEP, "nested too deeply"),
        (contents.NAME, b"9" * 10_000, "digits"),
        (contents.NAME, b"\xff\xfe", "codec"),
        (contents.NAME, b"[]", "valid dictionary"),
    ],
)
def test_a_hostile_archive_is_refused(name: str, content: bytes, why: str, unpacked: Files, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not accepted") as refused:
        check.check(packed(unpacked | {name: content}, tmp_path / "a.zip", honest=True))
    assert why in str(refused.value) and "next:" in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_a_link_and_a_name_twice_are_refused(unpacked: Files, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("results/link")
    link.external_attr = 0o120777 << 16
    for number, entry in enumerate((link, zipfile.ZipInfo(SUMMARY))):
        path = packed(unpacked, tmp_path / f"{number}.zip", honest=True)
        with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning) if number else nullcontext():
            archive.writestr(entry, b"/etc/passwd")
        with pytest.raises(UserError, match=r"link|twice"):
            check.check(path)


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no archive")
    with pytest.raises(UserError, match="is no archive"):
        check.check(tmp_path / "a.zip")
    with pytest.raises(UserError, match="does not exist"):
        check.check(tmp_path / "b.zip")


@pytest.mark.parametrize(
    ("formats", "version", "next_step"),
    [
        ({"archive": 99}, "99 of the format archive", "check it with that version or a later one"),
        (
            {"archive": 2, "results": 2},
            "2 of the format results",
            "check it with that version; to compare with it, measure and pack again with this one",
        ),
    ],
)
def test_another_version_of_a_format_is_one_clear_error(
    formats: dict[str, int], version: str, next_step: str, unpacked: Files, tmp_path: Path
) -> None:
    changed = with_value(unpacked, contents.NAME, lambda told: told.update(formats=formats, version="0.3.0"))
    path = packed(changed, tmp_path / "a.zip")
    for read in (check.check, lambda path: contents.looked_into(path).__enter__()):
        with pytest.raises(UserError) as refused:
            read(path)
        reads = 3 if "results" in formats else 2
        assert str(refused.value).splitlines() == [
            f"{path} has version {version}, and this version of Throughline ({__version__}) reads {reads}",
            "  why:  version 0.3.0 of Throughline has made it",
            f"  next: {next_step}",
        ]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        (f"{RUN}.log", b"another log", "its SHA-256 is not the one in archive.json"),
        (f"{RUN}.log", None, "archive.json names this file, and the archive lacks it"),
        ("results/bert/more.json", b"{}", "archive.json does not name this file"),
    ],
)
def test_a_file_that_is_not_the_named_one(
    name: str, content: bytes | None, why: str, unpacked: Files, tmp_path: Path
) -> None:
    unpacked.pop(name, None)
    path = packed(unpacked | ({name: content} if content else {}), tmp_path / "a.zip", honest=True)
    with pytest.raises(UserError, match=why), contents.looked_into(path):
        pass
    (told,) = differences(path)
    assert told.startswith(f"{name}: {why}")


def summaries(*names: str) -> Callable[[Any], None]:
    return lambda told: told["benchmarks"]["bert"]["summaries"].extend(names)


def benchmark(name: str) -> Callable[[Any], None]:
    return lambda told: told["benchmarks"].update({name: {**told["benchmarks"]["bert"], "summaries": []}})


@pytest.mark.parametrize(
    "change",
    [
        summaries("/dev/zero"),
        summaries("/tmp/outside.json"),
        summaries("results/../../outside.json"),
        summaries("results/bert/bz1_fp32.json"),  # the archive has no such file
        summaries("results/bert/bz32_fp32.json\n"),
        lambda told: told["benchmarks"]["bert"].update(compared=["../../outside.json"]),
        benchmark("/etc"),
        benchmark("../../.."),
        benchmark(".."),
        lambda told: told["benchmarks"].update(other=told["benchmarks"]["bert"]),
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


def test_a_node_of_an_acceptance_is_a_number() -> None:
    fleet = {"nodes": ["./../../..", 1], "devices": 1, "kind": "cpu"}
    spec = {
        "benchmark": "b", "framework": "torch", "model": "bert-tiny", "sequence_length": 32, "topology": "1n1g",
        "predictions": 5, "precision": "fp32", "batch": 8, "repeat": 1, "protocol": 3,
    }  # fmt: skip
    asked = {"fleet": fleet, "repeats": 1, "rounds": 0, "specs": [["step", spec]]}
    asked |= {"expected": [], "published": [], "tolerance": 0.02}
    with pytest.raises(ValueError, match="valid integer"):
        accepted.asked_of(Acceptance.model_construct(asked=asked))


def test_a_record_that_is_nested_too_deeply_is_named(unpacked: Files, tmp_path: Path) -> None:
    told = differences(packed(unpacked | {f"{RUN}.json": DEEP}, tmp_path / "a.zip"))
    assert f"{RUN}.json: it is nested too deeply" in told


@pytest.mark.slow
def test_huge_json_is_refused(unpacked: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of two million steps are not too many."""
    steps = json.dumps([0.0123456789012345] * 2_000_000, indent=1).encode()
    assert len(steps) < contents.MOST_BYTES_OF_JSON and steps.count(b",") < contents.MOST_VALUES_OF_JSON
    chance = random.Random(1)
    block = b",".join(chance.choice((b"{}", b"[]")) for _ in range(1 << 17))
    values = packed(unpacked | {f"{RUN}.json": b"[" + b",".join([block] * 20) + b"]"}, tmp_path / "b.zip")
    with pytest.raises(UserError, match=r"run2\.json has more than 4,000,000 values"):
        check.check(values)
    monkeypatch.setattr(contents, "MOST_BYTES_OF_JSON", 10_000)
    with pytest.raises(UserError, match=r"\.json unpacks to more than 0 MiB"):
        check.check(packed(unpacked, tmp_path / "a.zip"))


def test_a_page_that_holds_something_else(unpacked: Files, tmp_path: Path) -> None:
    told = differences(packed(unpacked | {pack.PAGE: b'data:application/json;base64,AAAAA"'}, tmp_path / "a.zip"))
    assert f"{pack.PAGE}: {SUMMARY}: the page does not hold this summary as it is" in told


def test_repeats_without_end_are_a_line(unpacked: Files, tmp_path: Path) -> None:
    """A summary has a place for each repeat, and its number comes from a stranger."""
    files = {name.replace("1n1g/run2", f"1n1g/run{10**15}"): content for name, content in unpacked.items()}
    assert f"{SUMMARY}: it cannot be derived: a cell has more than 10,000 repeats" in differences(
        packed(files, tmp_path / "a.zip")
    )
