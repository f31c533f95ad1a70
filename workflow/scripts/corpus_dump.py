"""Copy the sample dump out of the installed package that carries it."""

from __future__ import annotations

import argparse
from pathlib import Path

from throughline.corpus import dumps
from throughline.files import command_line


def main() -> None:
    """The sample dump."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    dumps.copy_sample(parser.parse_args().output)


if __name__ == "__main__":
    command_line(main)
