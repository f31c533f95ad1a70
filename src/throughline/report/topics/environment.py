"""What the runs of each cell ran in, and in which facts that differs from the other cells of the benchmark.

Records hold no names of machines and users, so the table has none either.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from throughline.report.analysis import advice
from throughline.report.analysis.cells import Group, Row
from throughline.report.render.tables import CSV, CellLine, Column, Entry, Table
from throughline.report.topic import Scope, Topic

PACKAGES = "packages."


def csv(scope: Scope) -> Table | None:
    """Return a line for each measured cell and a column for each fact; None if nothing is known."""
    cells = [(group, row, _facts(group, row)) for group in scope.groups for row in group.measured]
    keys = list(dict.fromkeys(key for _, _, facts in cells for key in facts))
    if not keys:
        return None
    different = [key for key in keys if _differs(key, [facts.get(key) for _, _, facts in cells])]
    columns = [Column("differs_in"), Column("repeats_left_out"), *map(Column, keys)]
    first = cells[0][2]
    lines = []
    for group, row, facts in cells:
        unlike = [key for key in different if facts.get(key) != first.get(key)]
        texts = [", ".join(unlike), _left_out(row), *(facts.get(key) for key in keys)]
        lines.append(CellLine([_entry(value) for value in texts], group, row))
    return Table(columns, lines, forms=(CSV,))


def _facts(group: Group, row: Row) -> Mapping[str, Any]:
    """Return the known facts of a cell under short names, such as `torch`, `cuda` and `driver`, packages as one."""
    known = {key: value for key, value in group.facts(row).items() if value is not None}
    facts: dict[str, Any] = {}
    packages = []
    for key, value in known.items():
        name = key.removeprefix("environment.")
        if name.startswith(PACKAGES):
            packages.append(f"{name.removeprefix(PACKAGES)} {value}")
        elif not key.startswith("device.kind"):
            facts[_short(name)] = value
    return facts | ({"packages": ", ".join(packages)} if packages else {})


def _short(name: str) -> str:
    short = {"device.name": "device_name", "data.content_digest": "data_digest", "framework.driver": "framework_driver"}
    return short.get(name) or name.removeprefix("framework.").removeprefix("variables.")


def _differs(key: str, values: Sequence[Any]) -> bool:
    """True if the cells do not all have the same value. A size of memory may differ as among machines of one kind."""
    known = [value for value in values if value is not None]
    return any(value != values[0] for value in values) and not (len(known) == len(values) and advice.close(key, known))


def _left_out(row: Row) -> str:
    """Return the repeats that ran in another environment and do not count, with what differs there."""
    parts = row.cell.left_out if row.cell else []
    return "; ".join(f"{', '.join(map(str, part.repeats))}: {', '.join(part.differs)}" for part in parts)


def _entry(value: Any) -> Entry:
    plain = value if value is None or isinstance(value, int | float | str) else str(value)
    return Entry("", " | ".join(plain.splitlines()) if isinstance(plain, str) else plain)


TOPIC = Topic("environment", "Environment", order=200, csv=csv)
