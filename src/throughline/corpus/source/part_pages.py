"""Read the pages of one part of a dump.

A page belongs to the part in which its `<page>` begins, so every page is in exactly one part, wherever the borders are.
(Text is escaped in a dump, so `<page>` never occurs inside an article.)
"""

from collections.abc import Callable, Iterator

from throughline.corpus.source.dumps import Cut, Piece
from throughline.corpus.source.pages import Site, parse
from throughline.corpus.source.streams import CLOSING, WHOLE_AGAIN, DumpFile, text
from throughline.files import UserError
from throughline.progress import Progress

_LONGEST = 256 << 20


def pages(dump: Cut, part: int, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the XML of each page of a part in the dump's order; UserError if it is damaged or ends inside a page."""
    done = 0
    for piece in dump.parts[part]:
        file = dump.files[piece.file]
        first = 0 if file.kind == "bz2" else piece.begin

        def report(position: int, base: int = done - first) -> None:
            if progress is not None:
                progress.to(base + position)

        yield from _pages(file, piece, report)
        done += piece.end - first


def check_articles(dump: Cut) -> None:
    """Read a dump up to its first article; UserError if it has none."""
    site = Site.of(dump.header)
    for part in range(len(dump.parts)):
        for number, page in enumerate(pages(dump, part), 1):
            if parse(page, site, f"page {number} of part {part}").kind == "article":
                return
    raise UserError(
        f"no page of {', '.join(file.path for file in dump.files)} is an article",
        why="the dump holds no page, or redirects and pages of other namespaces alone",
        next_step="name another dump in corpus.dump",
    )


def units(dump: Cut, part: int) -> int:
    """Return how much `pages` reads for a part, in the unit of its progress (bytes, compressed or not)."""
    return sum(piece.end - (0 if dump.files[piece.file].kind == "bz2" else piece.begin) for piece in dump.parts[part])


def _pages(file: DumpFile, piece: Piece, report: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the pages that begin in a piece.

    Only blanks may stand between two pages; otherwise a damaged `<page>` would silently lose a page. The part that
    holds the page before a gap checks the gap. The first part checks the head of the file.
    """
    buffer = bytearray()
    inside = 0  # how many bytes of the buffer are before the piece's end
    at = 0  # everything before this place has been handled
    resume = 0  # where to go on searching for `</page>` after more was read
    before = "head" if piece.begin == 0 else "unknown"  # the text before `at`; unknown: maybe another part's page
    for position, more in text(file, piece.begin):
        divisible = file.kind != "bz2-streams"
        share = min(max(piece.end - position, 0), len(more)) if divisible else len(more) * (position < piece.end)
        inside += share
        buffer += more
        report(min(position, piece.end))
        while True:
            page = buffer.find(b"<page>", at)
            at = _check_gap(file.path, before, buffer, at, page)
            if page >= inside:
                return
            if page < 0:
                if before == "unknown" and len(buffer) >= inside + 5 and share < len(more):
                    return
                resume = at
                break
            end = buffer.find(b"</page>", max(page, resume))
            if buffer.find(b"<page>", page + 6, end if end >= 0 else None) >= 0:
                raise _lost(file.path, "a page begins inside another one")
            if end < 0:
                if len(buffer) - page > _LONGEST:
                    raise UserError(
                        f"{file.path} has a page of more than {_LONGEST >> 20} MiB",
                        why="MediaWiki allows 2 MiB; the file is damaged, or a dump of the pages' history",
                        next_step="use the pages-articles dump as it was published",
                    )
                at, resume = page, max(page, len(buffer) - 6)
                break
            at = resume = end + len(b"</page>")
            before = "page"
            yield bytes(buffer[page:at])
        del buffer[:at]
        inside, resume, at = max(inside - at, 0), resume - at, 0
    if buffer.startswith(b"<page>"):
        raise UserError(f"{file.path} ends inside a page", why="the file is not whole", next_step=WHOLE_AGAIN)


def _check_gap(path: str, before: str, buffer: bytearray, at: int, page: int) -> int:
    """Check the text from `at` to the next `<page>` at `page` (-1: none yet). Return up to where it has been checked.

    UserError if the text is neither blank nor the end of the dump.
    """
    stop = page if page >= 0 else len(buffer)
    if before == "page":
        rest = bytes(buffer[at:stop]).strip()
        if rest and (page >= 0 or not any(fits.startswith(rest) for fits in (b"<page>", CLOSING))):
            raise _lost(path, f"between two pages stands {rest[:60]!r}")
        return stop if page >= 0 else stop - len(bytes(buffer[at:stop]).lstrip())
    if before == "head" and buffer.find(b"</page>", at, stop) >= 0:
        raise _lost(path, "a page ends before the first one begins")
    return stop if page >= 0 else max(at, stop - 6)


def _lost(path: str, why: str) -> UserError:
    return UserError(f"{path} is damaged", why=f"{why}: a page would be lost", next_step=WHOLE_AGAIN)
