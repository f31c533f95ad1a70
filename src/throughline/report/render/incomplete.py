"""The report of a workflow that did not finish: what is measured so far, and what is missing shown as failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from throughline.files import UserError, write_text
from throughline.records import Summary
from throughline.report.analysis.cells import Asked
from throughline.report.analysis.summary import summarize
from throughline.report.render import markup, page
from throughline.report.render.collected import Results


def write(results: Path, asked: Sequence[Asked], output: Path) -> int:
    """Write the report of the records there are, and return how many that is; 0: there is none, nothing is written.

    Summaries are made in memory: under its name a summary always stands for every repeat.
    """
    collected = Results()
    count = 0
    for cell in asked:
        place = results / cell.benchmark / f"bz{cell.batch}_{cell.precision}"
        records = sorted(place.glob("*/*/run*.json"))
        count += len(records)
        if records:
            try:
                summary: Summary = summarize(records, cell.repeats)
                collected.present[place.with_suffix(".json")] = summary
            except UserError as error:
                collected.unreadable.append((f"{cell.benchmark}/{place.name}", markup.one_line(str(error))))
    if count:
        write_text(output, page.render(collected, [], asked, output))
    return count
