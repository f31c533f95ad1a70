"""Show what is implausible about our own rows. Doubts about rows of others stand beside those rows."""

from collections.abc import Iterator

from throughline.comparables.plausibility import Doubt
from throughline.report.analysis.cells import Group
from throughline.report.analysis.notes import Note
from throughline.report.render.tables import Table, texts
from throughline.report.topic import Scope, Topic

INTRO = (
    "Rules check every row, whoever measured it; docs/compare.md lists them. A figure with more printed digits is "
    "checked more exactly."
)


def about_ours(scope: Scope) -> list[Doubt]:
    """Return the doubts about our rows."""
    return [doubt for doubt in scope.doubts if doubt.row.origin == "measured"]


def table(scope: Scope) -> Table:
    """Return a line for each doubt about our rows."""
    rows = [
        [doubt.rule, f"{doubt.row.source}, {doubt.row.framework}, {_devices(doubt.row.devices or 0)}", doubt.text]
        for doubt in about_ours(scope)
    ]
    return texts(["rule", "row", "how it follows"], rows)


def notes(scope: Scope, group: Group) -> Iterator[Note]:
    """Yield a warning for each of the group's rows that is implausible."""
    for doubt in about_ours(scope):
        if doubt.row.source == f"{group.benchmark} {group.name}":
            where = f"{doubt.row.framework}, {_devices(doubt.row.devices or 0)}"
            yield Note(where, f"implausible: {doubt.rule} (see Implausible figures)", "warning")


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


TOPIC = Topic("implausible", "Implausible figures", INTRO, order=200, table=table, notes=notes)
