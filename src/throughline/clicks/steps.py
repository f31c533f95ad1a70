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
    from throughline.clicks import synthetic_logs

    synthetic_logs.write(output, day, rows, values)


def part(file: Path, part: int, shards: int, malformed_at_most: float, output: Path) -> None:
    """Parse one log of clicks.

    malformed_at_most: largest allowed share of malformed lines
    """
    from throughline.clicks import making

    lines, malformed = making.parse(file, part, shards, malformed_at_most, output)
    print(f"{file.name}: {lines:,} lines, {malformed:,} of them malformed and left out")


def shard(parts: list[Path], position: int, output: Path) -> None:
    """Gather one shard of clicks from all parts."""
    from throughline.clicks import making

    rows = making.gather(parts, position, output)
    print(f"{output.name}: {rows:,} rows")


def verify(shard: Path, parts: list[Path], position: int, output: Path) -> None:
    """Check one shard of clicks against the parts, and write its digests."""
    from throughline.clicks import verification
    from throughline.files import write_json

    result = verification.verify(shard, parts, position)
    print(f"{result['file']}: {result['rows']:,} rows, {result['clicks']:,} clicks")
    write_json(output, result)


def manifest(
    clicks: str,
    kind: Literal["synthetic", "logs"],
    verified: list[Path],
    parts: list[Path],
    parameters: dict[str, Any],
    output: Path,
) -> None:
    """Write the manifest of all verified shards of clicks.

    clicks: name of the clicks
    verified: results of all verifications
    parameters: JSON, recorded and digested
    """
    from throughline.clicks import manifest

    content = manifest.merge(clicks, kind, verified, parts, parameters, output)
    print(f"{content['rows']:,} rows, {content['malformed']:,} malformed lines left out")
