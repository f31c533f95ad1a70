"""Plot results/<benchmark>/equivalence.json as SVG and PNG."""

import argparse
from pathlib import Path

from throughline.files import command_line
from throughline.records import read_equivalence
from throughline.report.render.topics import checks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("equivalence", type=Path, help="equivalence.json")
    parser.add_argument("--output", type=Path, required=True, help="equivalence.svg; the .png goes beside it")
    arguments = parser.parse_args()
    checks.write_equivalence(read_equivalence(arguments.equivalence), arguments.output)


if __name__ == "__main__":
    command_line(main)
