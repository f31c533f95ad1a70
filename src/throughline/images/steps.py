"""The steps that make pictures and faces, each with its command line (command.py).

source: a folder, or `sample`
damaged: what happens to a picture that cannot be decoded
"""

from pathlib import Path
from typing import Any, Literal


def listing(source: str, training: int, test: int, output: Path) -> None:
    """List the pictures of a source, with the class of each and the shard that it goes into.

    training: training shards in all
    test: test shards in all
    """
    from throughline.images import shards

    listed = shards.write_listing(source, {"training": training, "test": test}, output)
    print(f"{listed['images']:,} pictures of {len(listed['classes']):,} classes")


def shard(listing: Path, source: str, damaged: Literal["refuse", "skip"], output: Path) -> None:
    """Write one shard of pictures and its index.

    output: <split>_<number>.tar; the index is beside it
    """
    from throughline.images import shards

    skipped = shards.write_shard(listing, source, damaged == "skip", output)
    if skipped:
        print(f"{output.name}: {skipped:,} damaged pictures left out")


def verify(listing: Path, shard: Path, damaged: Literal["refuse", "skip"], side: int | None, output: Path) -> None:
    """Check one shard of pictures: decode each of them once, and write its digests.

    side: pixels of every picture in height and width; without a value, sizes may differ
    """
    from throughline.files import write_json
    from throughline.images import shards

    result = shards.verify(shard, listing, damaged == "skip", side)
    print(f"{result['file']}: {result['rows']:,} pictures decoded")
    write_json(output, result)


def manifest(name: str, listing: Path, verified: list[Path], parameters: dict[str, Any], output: Path) -> None:
    """Write the manifest of all verified shards of pictures.

    name: of the pictures
    verified: results of all verifications
    parameters: JSON, recorded and digested
    """
    from throughline.images import shards

    shards.write_manifest(name, verified, listing, parameters, output)
