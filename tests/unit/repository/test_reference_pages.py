"""The pages that are made from the code say what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from throughline import reference_pages, sources
from throughline.frameworks import reference
from throughline.launch.outcome import LEAST_WINDOW_S
from throughline.numbers import percent
from throughline.observe.telemetry_record import STEAL
from throughline.records import RunRecord, checks, run
from throughline.report.analysis import advice
from throughline.spec.options import SETTLED_S

PAGES = reference_pages.places() | reference.tables()
TABLE = (reference_pages.PAGES / "warnings.md").read_text(encoding="utf-8").partition("\n## ")[0]
WARNINGS = dict(re.findall(r"^\| (\w[^|]*) \| ([^|]*) \|$", TABLE, re.MULTILINE)[1:])
"""Map words of each warning to what the page says it means."""
LIMITS = {
    "the repeats lie ... apart": [percent(advice.SPREAD)],
    "the first repeat is ... slower": [percent(advice.FIRST)],
    "steps get ... within the window": [percent(advice.DRIFT), percent(advice.SURE_DRIFT)],
    "the steps' times have two modes": [
        f"over {percent(advice.APART)}", f"with {percent(advice.LEAST_SHARE)}", f"p < {percent(advice.SURE_DRIFT)}",
    ],
    "the ... of GPU ... ran at": [percent(advice.SLOWER)],
    "its host took": [percent(STEAL)],
    "the window of": [f"{SETTLED_S:.0f} s on a GPU", f"{LEAST_WINDOW_S:g} s anywhere"],
}  # fmt: skip
"""Map words of warnings to the limits that the code has for them."""


@pytest.mark.parametrize(("page", "places"), PAGES.items(), ids=lambda part: getattr(part, "name", ""))
def test_a_page_is_what_the_code_says(page: Path, places: dict[str, str]) -> None:
    written = page.read_text(encoding="utf-8")
    assert written == reference.filled(page, places), "python -m throughline.reference_pages, or frameworks.reference"
    assert all(written.count(f"<!-- {name} -->") == 1 and content in written for name, content in places.items())


@pytest.mark.parametrize("words", WARNINGS)
def test_a_warning_is_in_the_code(words: str) -> None:
    """Texts of the code are joined to one, as Python joins them."""
    code = "".join(path.read_text(encoding="utf-8") for path in sources.ROOT.rglob("*.py"))
    assert words.split(" ...")[0] in re.sub(r"""["']\n\s+f?["']""", "", code)


def test_the_page_of_warnings_has_the_limits_of_the_code() -> None:
    assert len(WARNINGS) == 18 and all(text in WARNINGS[words] for words, texts in LIMITS.items() for text in texts)


def test_each_status_has_a_meaning() -> None:
    assert tuple(run.STATUSES) == get_args(RunRecord.model_fields["status"].annotation)
    assert tuple(checks.CHECK_VERDICTS) == get_args(checks.CheckVerdict)
