"""Files of an archive are read one by one, each is the one that archive.json names, and huge JSON is not parsed."""

import json
import random
import zipfile
from pathlib import Path

import pytest

from throughline.archive import contents, opening
from throughline.files import UserError
from unit.archive.test_archive import KEPT, RUN, SUMMARY, packed

Files = dict[str, bytes]


@pytest.fixture
def files() -> Files:
    with zipfile.ZipFile(KEPT) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_only_what_is_asked_for_is_unpacked() -> None:
    with opening.looked_into(KEPT) as archive:
        assert not list(archive.folder.iterdir())
        assert archive.json(f"{RUN}.json")["status"] == "ok"
        assert archive.summaries == [SUMMARY, "results/bert/bz64_fp16.json"]
        assert archive.unpacked(SUMMARY) == archive.unpacked(SUMMARY) == archive.folder / SUMMARY
        assert [path.name for path in archive.folder.rglob("*") if path.is_file()] == ["bz32_fp32.json"]
        assert "results/none.json" not in archive
        with pytest.raises(UserError, match="the archive lacks it"):
            archive.unpacked("results/none.json")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        (f"{RUN}.log", b"another log", "its SHA-256 is not the one in archive.json"),
        (f"{RUN}.log", None, "archive.json names this file, and the archive lacks it"),
        ("results/bert/more.json", b"{}", "archive.json does not name this file"),
        ("results/../more.json", b"{}", "does not belong below results/"),
    ],
)
def test_a_file_that_nobody_asks_for_is_checked_too(
    name: str, content: bytes | None, why: str, files: Files, tmp_path: Path
) -> None:
    files.pop(name, None)
    path = packed(files | ({name: content} if content else {}), tmp_path / "a.zip", honest=True)
    with pytest.raises(UserError, match=why), opening.looked_into(path):
        pass


@pytest.mark.slow
def test_json_with_millions_of_values_is_not_parsed(files: Files, tmp_path: Path) -> None:
    chance = random.Random(1)
    block = b",".join(chance.choice((b"{}", b"[]")) for _ in range(1 << 17))
    huge = b"[" + b",".join([block] * 20) + b"]"
    path = packed(files | {f"{RUN}.json": huge}, tmp_path / "a.zip")
    with opening.looked_into(path) as archive, pytest.raises(ValueError, match="more than 4,000,000 values"):
        archive.json(f"{RUN}.json")
    with opening.opened(path) as (folder, _), pytest.raises(ValueError, match="more than 4,000,000 values"):
        opening.as_json(folder / f"{RUN}.json")


@pytest.mark.slow
def test_large_json_is_refused_and_two_million_steps_are_read(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = json.dumps([0.0123456789012345] * 2_000_000, indent=1)
    assert len(steps) < opening.MOST_BYTES_OF_JSON
    (tmp_path / "steps.json").write_text(steps)
    assert len(opening.as_json(tmp_path / "steps.json")) == 2_000_000
    monkeypatch.setattr(opening, "MOST_BYTES_OF_JSON", 10_000)
    files[contents.NAME] = json.dumps(json.loads(files[contents.NAME]) | {"files": {}}).encode()
    path = packed(files, tmp_path / "a.zip", honest=True)
    with pytest.raises(UserError, match=r"\.json unpacks to more than 0 MiB"), opening.opened(path):
        pass
