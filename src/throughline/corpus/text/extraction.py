"""Extract the plain text of the articles in one part of a dump with one of two extractors, and check that none is lost.

The extractor `throughline` is wikitext.py, called here for each article. The default, wikiextractor, has the AGPL
licence, so we run it as a program and never import it. When it fails, it still exits with status 0 and only prints
fewer articles. It also reads XML line by line. So we give it the articles alone (pages.py), each in the one form that
it reads reliably, and check that every article comes out.
"""

import html
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from throughline import files
from throughline.corpus.source import dumps, pages, within
from throughline.corpus.source.streams import CLOSING
from throughline.corpus.text import wikitext
from throughline.datasets.shards import remove_leftovers
from throughline.files import UserError

Article = dict[str, Any]
"""id, revid, url, title and text."""
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
# A process between us and wikiextractor. Only we hold the other end of the pipe `lifeline`. It closes when we end for
# any reason. Then the guard kills its group: itself, the program and every process that the program forked.
_GUARD = """
import os, signal, subprocess, sys, threading
lifeline = int(sys.argv[1])
os.set_inheritable(lifeline, False)
def kill_group_when_closed():
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=kill_group_when_closed, daemon=True).start()
status = subprocess.call(sys.argv[2:])
sys.exit(status if status >= 0 else 128 - status)
"""


def extract(
    dump: dumps.Cut, part: int, articles: Path, counts: Path, *, extractor: str = "wikiextractor", stall_s: float = 900
) -> None:
    """Write the articles of a part as JSON lines, and their counts as JSON.

    `part` is counted over all sources. UserError if articles are missing, the dump is damaged, or the extractor makes
    no progress for `stall_s` seconds; then nothing is written. (wikiextractor waits for ever when one of its processes
    was killed.)
    """
    seen: Counter[str] = Counter()
    expected: list[int] = []
    raised, number = within(part, len(dump.parts))

    def extracted() -> Iterator[Article]:
        ids: list[int] = []
        if dump.parts[number]:
            site = pages.Site.from_header(dump.header)
            wikitexts = _articles_of(dump, number, seen, expected)
            for article in (
                _by_us(wikitexts, site) if extractor == "throughline" else _by_program(wikitexts, site, stall_s)
            ):
                ids.append(int(article["id"]))
                yield {**article, "id": str(ids[-1] + raised)}
        if ids != expected:
            raise _incomplete(ids, expected, part)

    write(extracted(), part, articles, counts, seen)


def write(
    documents: Iterator[Article], part: int, articles: Path, counts: Path, seen: Counter[str] | None = None
) -> None:
    """Write articles, or documents that are already plain text, with their counts. `seen`: how many pages were met."""
    remove_leftovers(articles)
    counted = Counter(dict.fromkeys(COUNTED, 0))
    with files.atomic(articles) as temporary:
        with temporary.open("wb") as out:
            for document in documents:
                counted.update(articles=1, characters=len(document["text"]))
                out.write(json.dumps(document).encode() + b"\n")
        counted.update(seen or {"pages": counted["articles"]})
        files.write_json(counts, {"schema": 1, "part": part, **counted})


def _articles_of(dump: dumps.Cut, part: int, seen: Counter[str], ids: list[int]) -> Iterator[pages.Page]:
    """Yield the part's articles. Appends their ids to `ids`, and counts the kinds of pages in `seen`."""
    for page in dumps.pages(dump, part):
        seen["pages"] += 1
        parsed = pages.parse(page, f"page {seen['pages']} of part {part}")
        if parsed.kind != "article":
            seen["redirects" if parsed.kind == "redirect" else "other_namespaces"] += 1
        elif ids and ids[-1] == parsed.id:
            seen["repeated"] += 1
        else:
            ids.append(parsed.id)
            yield parsed


def _incomplete(ids: list[int], expected: list[int], part: int) -> UserError:
    missing, surplus = (sorted(set(some) - set(others)) for some, others in ((expected, ids), (ids, expected)))
    return UserError(
        f"text extraction of part {part} gave {len(ids)} of {len(expected)} articles",
        why=f"missing page ids: {missing[:5]}; not expected: {surplus[:5]}; wikiextractor does not report its failures",
        next_step="run snakemake again (a process may have been killed for memory); if the same ids are missing again,"
        " look at these pages in the dump",
    )


def _by_us(articles: Iterator[pages.Page], site: pages.Site) -> Iterator[Article]:
    """Extract with wikitext.py."""
    base = (site.base or "").rpartition("/")[0]
    for page in articles:
        yield {
            "id": str(page.id),
            "revid": str(page.revision),
            "url": f"{base}?curid={page.id}",
            "title": html.unescape(page.title.decode()),
            "text": wikitext.plain_text(pages.unescaped(page.text), site.silent_namespaces),
        }


def _by_program(articles: Iterator[pages.Page], site: pages.Site, stall_s: float) -> Iterator[Article]:
    """Extract with wikiextractor."""

    def dump() -> Iterator[bytes]:
        yield _HEADER % (f"<base>{site.base}</base>\n".encode() if site.base else b"")
        for page in articles:
            yield _PAGE % (page.title, page.id, page.revision, page.text)
        yield CLOSING + b"\n"

    for line in _run([sys.executable, *PROGRAM, *OPTIONS], dump(), stall_s):
        try:
            article = json.loads(line)
            article["id"], article["text"]
        except (ValueError, TypeError, KeyError):
            raise _failed(f"it printed a line that is no article and begins with {line[:80]!r}") from None
        yield article


def _failed(why: str) -> UserError:
    return UserError(
        "wikiextractor failed",
        why=why,
        next_step="run snakemake again, with fewer jobs at a time or more memory if a process was killed; if it fails"
        " again, install the wikiextractor pinned in envs/main.txt",
    )


def _run(command: list[str], feed: Iterator[bytes], stall_s: float) -> Iterator[bytes]:
    """Pipe `feed` through a program that dies with this process, and yield the lines that it prints.

    UserError if it fails, or if nothing moves for `stall_s` seconds.
    """
    moved = time.monotonic()
    failure: BaseException | None = None

    def write_feed() -> None:
        nonlocal moved, failure
        try:
            with stdin:
                for data in feed:
                    stdin.write(data)
                    moved = time.monotonic()
        except BaseException as error:
            failure = failure or error

    def watch() -> None:
        """Kill the group when the program has ended or stalled: a process that it forked may hold the pipe for ever."""
        nonlocal failure
        # an ended guard stays a zombie with its status, so its group can still be killed
        while os.waitid(os.P_PID, guard.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() - moved > stall_s:
                failure = failure or _failed(f"nothing moved for {stall_s:g} seconds: it waits for a killed process")
                break
            time.sleep(0.01)
        os.killpg(guard.pid, signal.SIGKILL)

    with tempfile.TemporaryFile() as messages:
        guard, lifeline = _started(command, messages)
        assert guard.stdin is not None and guard.stdout is not None
        stdin, stdout = guard.stdin, guard.stdout
        writer, watcher = (threading.Thread(target=work, daemon=True) for work in (write_feed, watch))
        writer.start()
        watcher.start()
        try:
            for line in stdout:
                moved = time.monotonic()
                yield line
            watcher.join()
        finally:
            os.killpg(guard.pid, signal.SIGKILL)
            watcher.join()
            writer.join()
            status = guard.wait()
            stdout.close()
            os.close(lifeline)
        if isinstance(failure, BrokenPipeError) or (failure is None and status):
            messages.seek(0)
            last = messages.read()[-2000:].decode(errors="replace").strip()
            failure = _failed(f"its exit status is {status}: {files.scrub(last) or 'it printed no reason'}")
        if failure is not None:
            raise failure


def _started(command: list[str], messages: IO[bytes]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a program below a guard, in a session of their own; return the guard, and our end of its lifeline."""
    lifeline, ours = os.pipe()
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD, str(lifeline), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=messages,
        pass_fds=(lifeline,),
        start_new_session=True,
        env={**os.environ, "PYTHONUTF8": "1", "PYTHONHASHSEED": "0"},
    )
    os.close(lifeline)
    return guard, ours
