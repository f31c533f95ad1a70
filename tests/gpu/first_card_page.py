"""The page of first_card.py, in Markdown. It also says what was not measured. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

COLUMNS = {
    "losses": ("largest_difference", "tolerance"),
    "rows": ("samples_per_s", "times_as_long", "mfu", "memory_gb", "kernels"),
    "workflow": ("samples_per_s", "runs"),
    "bench": ("said",),
    "tests": (),
}
"""The figures of each part's rows, in the order of the table. A row also has a name, a status and a reason."""


def markdown(value: dict[str, Any]) -> str:
    """Return the page made from the content of first-card.json."""
    cards = ", ".join(f"{card['name']} ({card['memory']})" for card in value["cards"]) or "no card"
    packages = [f"{name} {version}" for name, version in value["packages"].items() if version]
    lines = ["# First card", ""]
    if value["tiny"] or value["device"] == "cpu":
        lines += ["This run tries the program. Its figures mean nothing.", ""]
    lines += [f"{value['started']}, {cards}, driver {value['driver'] or 'unknown'}, Python {value['python']}."]
    lines += ["", f"Packages: {', '.join(packages)}."]
    were = "had kernels at the start" if value["compiled_kernels_at_start"] else "was empty at the start"
    lines += ["", f"Compiled kernels: {value['compiled_kernels']} {were}.", f"{value['seconds']} s in all.", ""]
    for name, part in value["parts"].items():
        lines += [f"## {name}: {part['outcome']}", "", *(table(name, part) if part["plan"] else ())]
        lines += [""] if part["plan"] else []
    return "\n".join(lines)


def table(name: str, part: dict[str, Any]) -> Iterator[str]:
    """Yield a table of a part's rows, and of those planned rows that are missing."""
    columns = COLUMNS[name]
    heads = [column.replace("_per_s", "/s").replace("_", " ") for column in columns]
    yield line("what", "status", *heads, "why")
    yield "|---|---|" + "--:|" * len(heads) + "---|"
    for row in part["rows"]:
        yield line(row["name"], row["status"], *(shown(row.get(column)) for column in columns), row.get("reason") or "")
    made = {row["name"] for row in part["rows"]}
    for planned in part["plan"]:
        if planned not in made:
            yield line(planned, "not measured", *[""] * len(columns), part["outcome"])


def line(*cells: Any) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def shown(value: Any) -> str:
    """Return a figure, or several with their names, as text; a dash without any."""
    match value:
        case None:
            return "–"
        case dict():
            return "; ".join(f"{name} {shown(one)}" for name, one in value.items()) or "–"
        case list():
            return ", ".join(map(shown, value))
        case float():
            return f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.3g}"
        case _:
            return str(value)
