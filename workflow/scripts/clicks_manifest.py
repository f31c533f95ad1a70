"""Write the manifest of all verified shards of clicks.

clicks: name of the clicks
verified: results of all verifications
parameters: JSON, recorded and digested
"""

from pathlib import Path
from typing import Any, Literal

from throughline.command import run


def main(
    clicks: str,
    source: Literal["synthetic", "logs"],
    verified: list[Path],
    parts: list[Path],
    parameters: dict[str, Any],
    output: Path,
) -> None:
    from throughline.clicks import manifest

    content = manifest.merge(clicks, source, verified, parts, parameters, output)
    print(f"{content['rows']:,} rows, {content['malformed']:,} malformed lines left out")


if __name__ == "__main__":
    run(main, single=True)
