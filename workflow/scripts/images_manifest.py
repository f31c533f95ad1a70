"""Write the manifest of all verified shards of pictures.

images: name of the pictures
verified: results of all verifications
parameters: JSON, recorded and digested
"""

from pathlib import Path
from typing import Any

from throughline.command import run


def main(images: str, listing: Path, verified: list[Path], parameters: dict[str, Any], output: Path) -> None:
    from throughline.images import manifest

    manifest.merge(images, verified, listing, parameters, output)


if __name__ == "__main__":
    run(main, single=True)
