"""The steps that make clicks, each with its command line (command.py).

parts: all parts, in their order
position: of the shard among all shards, training shards first
"""

from pathlib import Path
from typing import Any, Literal


def synthetic(day: int, rows: int, values: int, output: Path) -> None:
    """Write a log of synthetic clicks in Criteo's format.

    day: number of the log
    values: number of different categories
    """
    from throughline.clicks import logs

    logs.write_synthetic(output, day, rows, values)


def part(file: Path, part: int, shards: int, output: Path) -> None:
    """Parse a log of clicks.

    shards: how many there are in all
    """
    from throughline.clicks.shards import write_part

    lines, malformed = write_part(file, part, shards, output)
    print(f"{file.name}: {lines:,} lines, {malformed:,} of them malformed and left out")


def shard(parts: list[Path], position: int, output: Path) -> None:
    """Gather one shard of clicks from all parts."""
    from throughline.clicks import shards

    rows = shards.write_shard(parts, position, output)
    print(f"{output.name}: {rows:,} rows")


def verify(shard: Path, parts: list[Path], position: int, output: Path) -> None:
    """Check one shard of clicks against the parts, and write its digests."""
    from throughline.clicks import shards
    from throughline.files import write_json

    result = shards.verify(shard, parts, position)
    print(f"{result['file']}: {result['rows']:,} rows, {result['clicks']:,} clicks")
    write_json(output, result)


def manifest(
    name: str,
    kind: Literal["synthetic", "logs"],
    verified: list[Path],
    parts: list[Path],
    parameters: dict[str, Any],
    output: Path,
) -> None:
    """Write the manifest of all verified shards of clicks.

    name: of the clicks
    verified: results of all verifications
    parameters: JSON, recorded and digested
    """
    from throughline.clicks import shards

    content = shards.write_manifest(name, kind, verified, parts, parameters, output)
    print(f"{content['rows']:,} rows, {content['malformed']:,} malformed lines left out")
