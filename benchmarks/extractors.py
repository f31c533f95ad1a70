"""Compare programs that make plain text from wikitext: CPU-seconds, the text they keep, the markup they leave.

    python benchmarks/extractors.py                        the sample
    python benchmarks/extractors.py DUMP --rounds 7        another dump (.xml or .xml.bz2), seven rounds in turn
    python benchmarks/extractors.py --times 4              its pages four times, unpacked: without bz2
    python benchmarks/extractors.py --differences 30       also show 30 sentences that only one of the two has
    python benchmarks/extractors.py --odd                  the odd dumps of the tests (tests/corpus_odd_dumps.py)

Both extractors of the workflow are measured through the workflow's command, from the dump to articles. CPU-seconds are
those of the process and all that it started, with its start. Other libraries are measured if they are installed
(mwparserfromhell, wikitextparser, gensim): only their function, on texts that are already unpacked. Our function is
measured in the same way too.

A list item counts as kept if its longest stretch of plain words (three or more, with the texts of links) is in the
text. Sentences are compared article by article, without quotation marks, because wikiextractor writes them for italics.
"""

from __future__ import annotations

import importlib
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import harness
from corpus_steps import repeated

from throughline.corpus.source import dumps, pages, part_pages
from throughline.corpus.text import sentences, wikitext

NAMES = ("wikiextractor", "throughline")
OTHERS: dict[str, tuple[str, Callable[..., Callable[[str], str]]]] = {
    "mwparserfromhell": ("mwparserfromhell", lambda module: lambda text: str(module.parse(text).strip_code())),
    "wikitextparser": ("wikitextparser", lambda module: lambda text: str(module.parse(text).plain_text())),
    "gensim, `filter_wiki`": ("gensim.corpora.wikicorpus", lambda module: module.filter_wiki),
}
LEFT = {
    "`()`, `(,`, `;)`": r"\(\s*[,;:]*\s*\)|\(\s*[,;]|[,;]\s*\)",
    "`formula_1`, `codice_1`": r"(?:formula|codice)_\d",
    "`{{`, `[[`, `''`, tags": r"\{\{|\}\}|\[\[|\]\]|''|</?(?:ref|br|su[bp]|small|span|div|li|ol|ul|math|code|center)\b",
    "lines that begin with `*`, `#`, `:`, `|`": r"^[*#:|]",
}
Texts = dict[str, str]


def probes(wiki: Texts) -> dict[str, list[str]]:
    """Map each article to the longest stretch of plain words in each of its list items."""
    found: dict[str, list[str]] = {}
    for number, text in wiki.items():
        for item in re.findall(r"^[*#]+(.*)", text, re.MULTILINE):
            item = re.sub(r"<ref[^<>]*/>|<ref.*?(?:</ref>|$)|\[\[[^\[\]|]*\||https?://\S+|<!--.*?-->", "\0", item)
            while item != (item := re.sub(r"\{\{[^{}]*\}\}", "\0", item)):
                pass
            stretch = max(re.split(r"[^\w ,.()-]+", re.sub(r"\[\[([^\[\]|:]*)\]\]", r"\1", item)), key=len).strip(
                " ,.()-"
            )
            if len(stretch.split()) >= 3:
                found.setdefault(number, []).append(" ".join(stretch.split()))
    return found


def kept(items: dict[str, list[str]], texts: Texts) -> str:
    flat = {number: " ".join(text.replace('"', "").split()) for number, text in texts.items()}
    here = sum(stretch in flat[number] for number, stretches in items.items() for stretch in stretches)
    return f"{here / sum(map(len, items.values())):.1%}" if items else "-"


def found_sentences(texts: Texts) -> list[tuple[str, str]]:
    clean = ((number, " ".join(s.replace('"', "").split())) for number, t in texts.items() for s in sentences.split(t))
    return [(number, sentence) for number, sentence in clean if sentence]


def cells(cost: float, items: dict[str, list[str]], texts: Texts) -> list[str]:
    """Return the cells of an extractor: its cost, how much text it keeps, and the markup that it leaves."""
    text = "\n".join(texts.values())
    left = [len(re.findall(pattern, text, re.MULTILINE)) for pattern in LEFT.values()]
    return [f"{cost:.3f}", f"{len(text) / 1e6:.2f}", kept(items, texts), *map(str, left)]


def compare_odd() -> None:
    """Print what each extractor of the workflow keeps of every odd dump that has articles."""
    from corpus_odd_dumps import ODD, articles

    names = [name for extractor in NAMES for name in (f"{extractor}: M characters", "list items kept")]
    table = harness.Table("dump", "articles", "list items", *names)
    for odd in ODD:
        if not odd.articles:
            continue
        with tempfile.TemporaryDirectory() as name:
            texts = {extractor: articles(odd, Path(name), 1, extractor) for extractor in NAMES}
            cut = dumps.cut(odd.build(Path(name)), 1)
            site = pages.Site.of(cut.header)
            parsed = [pages.parse(page, site, "a page") for page in part_pages.pages(cut, 0)]
        items = probes({str(page.id): pages.unescaped(page.text) for page in parsed if page.kind == "article"})
        row = [odd.what, odd.articles, sum(map(len, items.values()))]
        for extractor in NAMES:
            found = {str(number): text for number, text in texts[extractor].items()}
            row += [f"{sum(map(len, found.values())) / 1e6:.3f}", kept(items, found)]
        table.add(*row)


def main() -> None:
    parser = harness.options(__doc__, rounds=5)
    parser.add_argument("dump", nargs="?", type=Path, help="a dump (default: the sample)")
    parser.add_argument("--times", type=int, default=1, help="repeat its pages so many times, unpacked")
    parser.add_argument("--differences", type=int, default=0, help="sentences to show that only one of the two has")
    parser.add_argument("--odd", action="store_true", help="compare what is kept of the odd dumps of the tests")
    given = parser.parse_args()
    if given.odd:
        compare_odd()
        return
    texts: dict[str, Texts] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dump = given.dump or dumps.find_sample()
        if given.times > 1:
            repeated(dump, folder / "dump.xml", times=given.times)
            dump = folder / "dump.xml"
        cut = dumps.cut([dump], 1)
        read = list(part_pages.pages(cut, 0))
        dumps.write(folder / "parts.json", cut)

        def extract(extractor: str) -> float:
            out = folder / f"{extractor}.jsonl"
            asked = {"cut": folder / "parts.json", "part": 0, "output": out, "counts": folder / "counts.json"}
            spent = harness.script("corpus_extract", extractor=extractor, **asked)
            lines = map(json.loads, out.open(encoding="utf-8"))
            texts[extractor] = {article["id"]: article["text"] for article in lines}
            return spent.cpu_seconds

        rounds = harness.in_turn({extractor: partial(extract, extractor) for extractor in NAMES}, given.rounds)
    harness.write(given.json, rounds)
    site = pages.Site.of(cut.header)
    parsed = [page for page in (pages.parse(page, site, "a page") for page in read) if page.kind == "article"]
    megabytes = sum(map(len, read)) / 1e6
    wiki = {str(page.id): pages.unescaped(page.text) for page in parsed}
    items = probes(wiki)
    print(f"{megabytes:.2f} MB of XML, {len(wiki)} articles, {sum(map(len, items.values()))} list items\n")

    table = harness.Table("extractor", "CPU-s per MB of XML", "M characters", "list items kept", *LEFT)
    for extractor in NAMES:
        table.add(extractor, *cells(harness.middle(rounds, extractor) / megabytes, items, texts[extractor]))
    alone: list[tuple[str, Callable[[str], str]]] = [("throughline", wikitext.plain_text)]
    for other, (module, made) in OTHERS.items():
        try:
            alone.append((other, made(importlib.import_module(module))))
        except ImportError:
            print(f"{module} is not installed", file=sys.stderr)
    for other, convert in alone:
        before = time.process_time()
        converted = {number: convert(text) for number, text in wiki.items()}
        table.add(f"{other}, alone", *cells((time.process_time() - before) / megabytes, items, converted))

    print(f"\nwikiextractor / throughline: {harness.ratio(rounds, *NAMES)}")
    compare_sentences(texts, given.differences)


def compare_sentences(texts: dict[str, Texts], shown: int) -> None:
    """Print how many sentences of each extractor the other one has, and some that only one of them has."""
    found = {extractor: found_sentences(texts[extractor]) for extractor in NAMES}
    for extractor, other in (NAMES, NAMES[::-1]):
        there = set(found[other])
        only = [sentence for sentence in found[extractor] if sentence not in there]
        count = len(found[extractor])
        print(f"of {count} sentences of {extractor}, {other} has {1 - len(only) / count:.1%}")
        for number, sentence in random.Random(1).sample(only, min(shown, len(only))):
            print(f"{extractor} alone, page {number}: {sentence}")


if __name__ == "__main__":
    main()
