"""Write a file of made-up clicks in Criteo's format."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--values", type=int, required=True, help="number of different categories")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.clicks import made_up

    made_up.write(arguments.output, arguments.part, arguments.rows, arguments.values)


if __name__ == "__main__":
    command_line(main, single=True)
