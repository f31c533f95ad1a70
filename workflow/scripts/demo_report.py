"""Make docs/demo-report.html from the records in docs/demo: a report to look at without running anything."""

import argparse
from pathlib import Path

from throughline.files import command_line
from throughline.report import demo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kept", type=Path, default=Path("docs/demo"), help="folder of the kept records")
    parser.add_argument(
        "--keep", nargs="+", type=Path, metavar="FOLDER", help="first keep the records of these benchmarks"
    )
    parser.add_argument("--output", type=Path, default=Path("docs/demo-report.html"), help="the page")
    arguments = parser.parse_args()
    if arguments.keep:
        demo.keep(arguments.keep, arguments.kept)
    demo.write(arguments.kept, arguments.output)


if __name__ == "__main__":
    command_line(main)
