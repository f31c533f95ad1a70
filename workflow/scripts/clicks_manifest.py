"""Write the manifest of all verified shards of clicks."""

import argparse
import json
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", required=True, help="name of the clicks")
    parser.add_argument("--source", choices=["synthetic", "logs"], required=True)
    parser.add_argument("--verified", type=Path, required=True, nargs="+", help="results of all verifications")
    parser.add_argument("--parts", type=Path, required=True, nargs="+")
    parser.add_argument("--parameters", type=json.loads, required=True, help="JSON, recorded and digested")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.clicks import manifest

    made = arguments.verified, arguments.parts, arguments.parameters
    content = manifest.merge(arguments.clicks, arguments.source, *made, arguments.output)
    print(f"{content['rows']:,} rows, {content['malformed']:,} malformed lines left out")


if __name__ == "__main__":
    command_line(main, single=True)
