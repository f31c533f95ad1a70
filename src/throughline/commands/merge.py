"""Put the results of several archives on one page: all machines, best value, and how they scale.

archives: archives that `snakemake pack` has made; a machine has the name of its file
output: the page
"""

from pathlib import Path


def main(archives: list[Path], /, output: Path = Path("merged.html")) -> None:
    from throughline.archive import merge

    names = merge.merge(archives, output)
    print(f"{output}: {len(names)} machines, {', '.join(names)} (open it in a browser; it needs no network)")
