"""The pages that are made from the code say what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from throughline import reference_pages, sources
from throughline.frameworks import reference
from throughline.records import RunRecord, checks, run

PAGES = reference_pages.places() | reference.tables()


@pytest.mark.parametrize(("page", "places"), PAGES.items(), ids=lambda part: getattr(part, "name", ""))
def test_a_page_is_what_the_code_says(page: Path, places: dict[str, str]) -> None:
    written = page.read_text(encoding="utf-8")
    assert written == reference.filled(page, places), "python -m throughline.reference_pages, or frameworks.reference"
    assert all(written.count(f"<!-- {name} -->") == 1 and content in written for name, content in places.items())


@pytest.mark.parametrize("words", reference_pages.WARNINGS)
def test_a_warning_is_in_the_code(words: str) -> None:
    """Texts of the code are joined to one, as Python joins them."""
    own = Path(reference_pages.__file__)
    code = "".join(path.read_text(encoding="utf-8") for path in sources.ROOT.rglob("*.py") if path != own)
    assert words.split(" ...")[0] in re.sub(r"""["']\n\s+f?["']""", "", code)


def test_each_status_has_a_meaning() -> None:
    assert tuple(run.STATUSES) == get_args(RunRecord.model_fields["status"].annotation)
    assert tuple(checks.PROOF_VERDICTS) == get_args(checks.ProofVerdict)
