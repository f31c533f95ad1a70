"""results/acceptance/<place>/visit<k>.unfinished.json: what a node job has measured that did not end."""

from pathlib import Path

from throughline.records.entry import Entry, Schema, Whole


class Broken(Entry):
    """A fault for which a run was refused. node: its number; device: the index of its GPU, None if nobody knows which
    one it is; fault: what follows the name in a sentence, such as `has 3 uncorrected ECC errors`."""

    node: Whole
    device: Whole | None
    fault: str


class Failure(Entry):
    """Why a measurement has no valid record. broken: the hardware's faults, if these are the reason."""

    reason: str
    broken: list[Broken]


class Unfinished(Entry):
    """A node job that did not end. records: those that it has made; failed: why others failed, by the record's path."""

    schema_: Schema
    records: list[str]
    failed: dict[str, Failure]


def unfinished(visit: str | Path) -> Path:
    """Return the file of this kind that belongs to a node job. It is not there if the node job has ended."""
    return Path(visit).with_suffix(".unfinished.json")
