"""The demo report: its records still make a page, the page shows these records, and neither names a machine."""

import re
from pathlib import Path

import pytest

from throughline.report import demo
from throughline.report.render import page

DOCS = Path(__file__).parents[3] / "docs"
KEPT, PAGE = DOCS / "demo", DOCS / "demo-report.html"
PRIVATE = re.compile(
    r"/(?:home|root|work|tmp|usr/local)/|(?<![\d.])(?!127\.)\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|https?://(?!www\.w3\.org)"
)
"""Paths and addresses, without those of the loopback interface, which every machine has."""


@pytest.mark.slow
def test_the_kept_records_make_a_page(tmp_path: Path) -> None:
    """All records are summarized. The page shows only one benchmark, because plots take time."""
    places = demo.summaries(KEPT, tmp_path)
    benchmarks = dict.fromkeys(place.parent.name for place in places)
    assert len(benchmarks) >= 4
    first = [place for place in places if place.parent.name == next(iter(benchmarks))]
    page.write(tmp_path / "alone", first, [], None, tmp_path / "page.html", note=demo.note(KEPT))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "two virtual CPU cores" in text and "its log is not there" not in text


def test_the_page_is_of_the_kept_records() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"digest {demo.digest(KEPT)}" in text, "make demo-report"
    assert PAGE.stat().st_size < 1_000_000
    assert sum(path.stat().st_size for path in KEPT.iterdir()) < 2_000_000


def test_neither_tells_of_a_machine() -> None:
    for path in (*KEPT.iterdir(), PAGE):
        assert not PRIVATE.search(re.sub(r"base64,[^\"]*", "", path.read_text(encoding="utf-8"))), path


def test_records_are_kept_with_their_configuration_once(tmp_path: Path) -> None:
    demo.summaries(KEPT, tmp_path / "results")
    demo.keep(sorted((tmp_path / "results").iterdir()), tmp_path / "again")
    before, after = (
        sorted((root / demo.FILES[0]).read_text(encoding="utf-8").splitlines()) for root in (KEPT, tmp_path / "again")
    )
    assert before == after and 0 < sum('"configuration":{' in line for line in before) < len(before) / 2
