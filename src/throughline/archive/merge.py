"""Lay the results of several archives on one page: one table, one best value, one plot for what they share."""

import re
from collections.abc import Sequence
from pathlib import Path

from throughline import records
from throughline.archive.opening import looked_into, validated
from throughline.files import UserError, write_text
from throughline.records import Summary
from throughline.report.render import page


def merge(archives: Sequence[Path], output: Path) -> list[str]:
    """Write the page of these archives, and return the names that it gives to their machines.

    A machine has the name of its archive's file. UserError if an archive cannot be opened or was changed, or if two
    files have the same name.
    """
    machines: dict[str, dict[Path, Summary]] = {}
    for path in archives:
        name = re.sub(r"[^\w-]+", "-", path.stem).strip("-") or "archive"
        if name in machines:
            raise UserError(
                f"two archives are called {name}: {path} is the second",
                why="a machine has the name of its archive on the page",
                next_step="rename one of the files",
            )
        with looked_into(path) as archive:
            machines[name] = {
                Path(name, inner): validated(archive.unpacked(inner), records.read_summary)
                for inner in archive.summaries
            }
    write_text(output, page.render(page.Results(machines=machines), [], None, output))
    return list(machines)
