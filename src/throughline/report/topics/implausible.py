"""Show what is implausible about our own rows. Doubts about rows of others stand beside those rows."""

from collections.abc import Iterator

from throughline.comparables.plausibility import Doubt
from throughline.report.render.tables import Table, texts
from throughline.report.topic import LOSS, Finding, Scope, Topic

INTRO = (
    "The same rules check every row, whoever measured it; docs/compare.md lists them. A figure with more printed "
    "digits is checked more exactly."
)


def table(scope: Scope) -> Table:
    """Return a row for each doubt about our rows."""
    rows = [
        [doubt.rule, f"{doubt.row.source}, {doubt.row.framework}, {_devices(doubt.row.devices or 0)}", doubt.text]
        for doubt in _about_ours(scope)
    ]
    return texts(["rule", "row", "how it follows"], rows)


def _about_ours(scope: Scope) -> list[Doubt]:
    return [doubt for doubt in scope.doubts if doubt.row.origin == "measured"]


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def findings(scope: Scope) -> Iterator[Finding]:
    """Say how many rows are implausible."""
    count = len({doubt.row.model_dump_json() for doubt in _about_ours(scope)})
    if count:
        rows = "1 row of this benchmark has" if count == 1 else f"{count} rows of this benchmark have"
        yield Finding(f"{rows} implausible figures: see Implausible figures.", LOSS)


TOPIC = Topic("implausible", "Implausible figures", INTRO, order=200, table=table, findings=findings)
