"""Print what is doubtful about the published results in resources/published.csv, or in a file with the same columns."""

import argparse
from pathlib import Path

from throughline import published
from throughline.files import command_line
from throughline.report.analysis import plausibility


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=published.FILE)
    for doubt in plausibility.doubts(list(published.read(parser.parse_args().file))):
        row = doubt.row
        what = f"{row.source}, {row.framework}, {row.model}, {row.precision or 'precision not stated'}"
        print(f"{doubt.rule}: {what}, {row.devices} devices: {doubt.text} [{row.place}]")


if __name__ == "__main__":
    command_line(main)
