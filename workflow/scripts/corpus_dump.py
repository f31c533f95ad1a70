"""Copy the sample dump out of the installed package that contains it. No other dump comes with the packages.

name: the dump's name (default: the output's name without .xml.bz2)
"""

from pathlib import Path

from throughline.command import run
from throughline.files import UserError


def main(output: Path, name: str | None = None) -> None:
    from throughline.corpus.source import dumps

    name = name or output.name.removesuffix(".xml.bz2")
    if name != "sample":
        raise UserError(
            f"the dump {name} does not come with the packages",
            why="only the dump `sample` does",
            next_step=f"python workflow/scripts/corpus_download.py --contact you@your.org --output {name}.json",
        )
    dumps.copy_sample(output)


if __name__ == "__main__":
    run(main)
