"""Several archives on one page: no cell is lost, equal names are told apart, and what they share is one plot."""

import zipfile
from pathlib import Path
from shutil import copy

import pytest

from throughline import commands
from throughline.archive import merge
from throughline.files import UserError
from unit.archive.test_archive import DEEP, SUMMARY, packed

KEPT = Path(__file__).with_name("two_topologies.zip")


def test_two_machines_on_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = copy(KEPT, tmp_path / "v100.zip"), copy(KEPT, tmp_path / "a100 at home.zip")
    with pytest.raises(SystemExit) as ended:
        commands.main(["merge", str(one), str(other), "--output", str(tmp_path / "merged.html")])
    assert ended.value.code == 0
    assert "2 machines, v100, a100-at-home" in capsys.readouterr().out
    page = (tmp_path / "merged.html").read_text()
    assert page.count('<td class="text named">v100</td>') == page.count('<td class="text named">a100-at-home</td>') == 4
    assert "v100.bert" in page and "a100-at-home.bert" in page
    assert page.count("bert: throughput, fp32") == page.count("bert: throughput, fp16") > 0
    assert "Nothing measured yet" not in page


def test_two_archives_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="two archives are called a"):
        merge.merge(
            [Path(copy(KEPT, tmp_path / "a.zip")), Path(copy(KEPT, tmp_path / "other/a.zip"))], tmp_path / "m.html"
        )
    assert not (tmp_path / "m.html").exists()


def test_a_summary_that_is_nested_too_deeply(tmp_path: Path) -> None:
    with zipfile.ZipFile(KEPT) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    deep = packed(files | {SUMMARY: DEEP}, tmp_path / "deep.zip")
    with pytest.raises(UserError, match="nested too deeply"):
        merge.merge([deep], tmp_path / "m.html")
    assert not (tmp_path / "m.html").exists()
