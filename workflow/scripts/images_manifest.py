"""Write the manifest of all verified shards of pictures."""

import argparse
import json
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", required=True, help="name of the pictures")
    parser.add_argument("--listing", type=Path, required=True)
    parser.add_argument("--verified", type=Path, required=True, nargs="+", help="results of all verifications")
    parser.add_argument("--parameters", type=json.loads, required=True, help="JSON, recorded and digested")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.images import manifest

    made = arguments.verified, arguments.listing, arguments.parameters
    manifest.merge(arguments.images, *made, arguments.output)


if __name__ == "__main__":
    command_line(main, single=True)
