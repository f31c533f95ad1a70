"""Extract the plain text of the articles in one part of a dump with one of two extractors, and check that none is lost.

The extractor `throughline` is wikitext.py, called here for each article. The default, wikiextractor, has the AGPL
licence, so we run it as a program and never import it. When it fails, it still exits with status 0 and only prints
fewer articles. It also reads XML line by line. So we give it the articles alone (pages.py), each in the one form that
it reads reliably, and check that every article comes out.
"""

import html
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from throughline import files, processes
from throughline.corpus.source import dumps, pages, within
from throughline.corpus.source.streams import CLOSING
from throughline.corpus.text import guard, wikitext
from throughline.datasets.shards import remove_leftovers
from throughline.files import UserError

COUNTED = ("pages", "articles", "redirects", "other_namespaces", "repeated", "characters")
PROGRAM = ("-P", "-m", "wikiextractor.WikiExtractor")
OPTIONS = ("-q", "--json", "--no-templates", "--html-safe=", "--processes", "1", "-o", "-", "/dev/stdin")
# wikiextractor takes every page whose title begins with the name of namespace 10 for a template and drops it. With the
# real name it would drop articles such as "Template metaprogramming", without a name all. No title begins with #.
_HEADER = b'<mediawiki>\n<siteinfo>\n%s<namespace key="10">#</namespace>\n</siteinfo>\n'
_PAGE = (
    b"<page>\n<title>%s</title>\n<ns>0</ns>\n<id>%d</id>\n<revision>\n<id>%d</id>\n"
    b'<text xml:space="preserve">%s</text>\n</revision>\n</page>\n'
)


def extract(
    dump: dumps.Cut, part: int, articles: Path, counts: Path, *, extractor: str = "wikiextractor", stall_s: float = 900
) -> None:
    """Write the articles of a part as JSON lines (id, revid, url, title, text), and their counts as JSON.

    `part` is counted over all sources. UserError if articles are missing, the dump is damaged, or the extractor makes
    no progress for `stall_s` seconds; then nothing is written. (wikiextractor waits for ever when one of its processes
    was killed.)
    """
    seen = Counter(dict.fromkeys(COUNTED, 0))
    expected: list[int] = []
    extracted: list[int] = []
    remove_leftovers(articles)
    raised, number = within(part, len(dump.parts))
    with files.atomic(articles) as temporary:
        if dump.parts[number]:
            site = pages.Site.of(dump.header)
            found = _articles_of(dump, number, site, seen, expected)
            lines = _by_us(found, site) if extractor == "throughline" else _by_program(found, site, stall_s)
            with temporary.open("wb") as out:
                for article, line in lines:
                    extracted.append(int(article["id"]))
                    seen["characters"] += len(article["text"])
                    out.write(_raised(article, raised) if raised else line)
        if extracted != expected:
            raise _incomplete(extracted, expected, part)
        seen["articles"] = len(extracted)
        files.write_json(counts, {"schema": 1, "part": part, **seen})


def take_over(documents: Iterator[dict[str, Any]], part: int, articles: Path, counts: Path) -> None:
    """Write documents that are already plain text, with their counts, in the form that `extract` writes."""
    seen = Counter(dict.fromkeys(COUNTED, 0))
    with files.atomic(articles) as temporary:
        with temporary.open("wb") as out:
            for document in documents:
                seen.update(pages=1, articles=1, characters=len(document["text"]))
                out.write(json.dumps(document).encode() + b"\n")
        files.write_json(counts, {"schema": 1, "part": part, **seen})


def _raised(article: dict[str, Any], by: int) -> bytes:
    """Return an article's line of JSON with its page id raised by `by`. Every source but the first needs this."""
    return json.dumps({**article, "id": str(int(article["id"]) + by)}).encode() + b"\n"


def _by_us(articles: Iterator[pages.Page], site: pages.Site) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Extract with wikitext.py: yield each article as a map, and its line of JSON."""
    base = (site.base or "").rpartition("/")[0]
    for page in articles:
        value = {
            "id": str(page.id),
            "revid": str(page.revision),
            "url": f"{base}?curid={page.id}",
            "title": html.unescape(page.title.decode()),
            "text": wikitext.plain_text(pages.unescaped(page.text), site.silent_namespaces),
        }
        yield value, json.dumps(value).encode() + b"\n"


def _by_program(
    articles: Iterator[pages.Page], site: pages.Site, stall_s: float
) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Extract with wikiextractor: yield each article as a map, and its line of JSON."""
    for line in _run([sys.executable, *PROGRAM, *OPTIONS], _dump_of(articles, site), stall_s):
        yield _article(line), line


def _articles_of(
    dump: dumps.Cut, part: int, site: pages.Site, seen: Counter[str], ids: list[int]
) -> Iterator[pages.Page]:
    """Yield the part's articles. Appends their ids to `ids`, and counts the kinds of pages in `seen`."""
    for page in dumps.pages(dump, part):
        seen["pages"] += 1
        parsed = pages.parse(page, site, f"page {seen['pages']} of part {part}")
        if parsed.kind != "article":
            seen["redirects" if parsed.kind == "redirect" else "other_namespaces"] += 1
        elif ids and ids[-1] == parsed.id:
            seen["repeated"] += 1
        else:
            ids.append(parsed.id)
            yield parsed


def _dump_of(articles: Iterator[pages.Page], site: pages.Site) -> Iterator[bytes]:
    """Yield the XML of a dump that holds only these articles."""
    yield _HEADER % (f"<base>{site.base}</base>\n".encode() if site.base else b"")
    for page in articles:
        yield _PAGE % (page.title, page.id, page.revision, page.text)
    yield CLOSING + b"\n"


def _article(line: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        value = json.loads(line)
        if isinstance(value, dict) and {"id", "text"} <= value.keys():
            return value
    raise UserError(
        "wikiextractor printed a line that is no article",
        why=f"it begins with {line[:80]!r}",
        next_step="install the wikiextractor pinned in envs/main.txt",
    )


def _incomplete(extracted: list[int], expected: list[int], part: int) -> UserError:
    missing = sorted(set(expected) - set(extracted))
    surplus = len(set(extracted) - set(expected))
    return UserError(
        f"text extraction of part {part} gave {len(extracted)} of {len(expected)} articles",
        why=f"missing page ids: {', '.join(map(str, missing[:5])) or 'none'}{' ...' if len(missing) > 5 else ''};"
        f" not expected: {surplus}; wikiextractor does not report its own failures",
        next_step="run snakemake again (a process may have been killed for memory); if the same ids are missing again,"
        " look at these pages in the dump",
    )


def _run(command: list[str], feed: Iterator[bytes], stall_s: float) -> Iterator[bytes]:
    """Pipe `feed` through a program that dies with this process, and yield the lines that it prints.

    UserError if it fails or stalls.
    """
    lifeline, ours = os.pipe()
    failure: list[BaseException] = []
    moved = [time.monotonic()]
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(lifeline), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            pass_fds=(lifeline,),
            start_new_session=True,
            env={**os.environ, "PYTHONUTF8": "1", "PYTHONHASHSEED": "0"},
        )
        os.close(lifeline)
        assert process.stdin is not None and process.stdout is not None
        feeder = threading.Thread(target=_write_all, args=(feed, process.stdin, moved, failure), daemon=True)
        feeder.start()
        try:
            yield from _lines(process, process.stdout, moved, stall_s)
            if not processes.wait_until(partial(_ended, process), stall_s, every=0.005):
                raise _stalled(stall_s)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # ends what it forked too; an ended program keeps its status
            status = process.wait()
            os.close(ours)
            process.stdout.close()
        feeder.join(timeout=stall_s)
        if failure and not isinstance(failure[0], BrokenPipeError):
            raise failure[0]
        if status or failure:
            messages.seek(0)
            last = messages.read()[-2000:].decode(errors="replace").strip()
            raise UserError(
                f"wikiextractor failed with exit status {status}",
                why=files.scrub(last) or "it printed no reason",
                next_step="run snakemake again; if it fails again, install the version pinned in envs/main.txt",
            )


def _write_all(feed: Iterator[bytes], stdin: IO[bytes], moved: list[float], failure: list[BaseException]) -> None:
    try:
        with stdin:
            for data in feed:
                stdin.write(data)
                moved[0] = time.monotonic()
    except BaseException as error:
        failure.append(error)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """True if the process has ended. It stays a zombie, so that its group can still be killed."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _lines(process: subprocess.Popen[bytes], stdout: IO[bytes], moved: list[float], stall_s: float) -> Iterator[bytes]:
    """Yield the printed lines until the pipe closes, or until the program has ended and nothing more arrives.

    (A process that the program forked may hold the pipe open for ever.)
    """
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout=min(stall_s, 5)):
                if _ended(process):
                    break
                if time.monotonic() - moved[0] > stall_s:
                    raise _stalled(stall_s)
                continue
            data = os.read(stdout.fileno(), 1 << 20)
            if not data:
                break
            moved[0] = time.monotonic()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line + b"\n"
    if rest:
        yield rest + b"\n"


def _stalled(stall_s: float) -> UserError:
    return UserError(
        f"wikiextractor did not move for {stall_s:g} seconds and was stopped",
        why="it waits for ever when one of its processes was killed, for example for lack of memory",
        next_step="run snakemake again with fewer jobs at a time or more memory; it makes only this part again",
    )
