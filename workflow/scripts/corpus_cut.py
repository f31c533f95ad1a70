"""Check a dump or text files, and write down where they are cut into parts.

dump: .xml or .xml.bz2 files in their order; or a download's listing
text: the files are plain text, or JSON lines
"""

from pathlib import Path

from throughline.command import run


def main(dump: list[Path], parts: int, output: Path, text: bool = False) -> None:
    from throughline.corpus.source import documents, dumps
    from throughline.corpus.source.part_pages import check_articles

    if text:
        documents.write_cut(dump, parts, output)
        return
    named = [path for name in dump for path in (_listed(name) if name.suffix == ".json" else [name])]
    cut = dumps.cut(named, parts)
    check_articles(cut)
    dumps.write(output, cut)


def _listed(listing: Path) -> list[Path]:
    from throughline.corpus.source import published_dumps

    return published_dumps.listed(listing)


if __name__ == "__main__":
    run(main, single=True)
