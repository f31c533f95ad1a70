"""Download files from the web. A file is whole and right, or it is absent.

An unfinished download is `<name>.part`. It survives a kill, and the next call asks for the rest only. A server may cut
the connection, be slow, ask us to wait, not support ranges, or hold a different file than before, which the checksum
shows. Each case ends with the right file, or with an error that has every host's answer. The client tells each server
who asks (`corpus.contact`) and limits the number of requests.
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urljoin

import urllib3
from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError, SSLError
from urllib3.util import Retry, make_headers, parse_url

import throughline
from throughline.files import UserError
from throughline.progress import Progress

_READ = 1 << 18
_TEXT_AT_MOST = 64 << 20
_PAGE = "it answers with a web page instead of the file (a login page, or an error)"
_ENOUGH = 1 << 20  # after this many new bytes, the count of failures starts again
_LATER = {408, 425, 429, 500, 502, 503, 504}
_REDIRECTS = 10
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_Answer = TypeVar("_Answer")


class LaterError(Exception):
    """This address may succeed later: after `after_s` seconds, if the server said when."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class ElsewhereError(Exception):
    """This address will not give the file."""


@dataclass(frozen=True)
class Client:
    """How to download: who asks, how often and how long. Tests replace the clock (`sleep`).

    The client gives up an address after `tries` failures in a row (a mebibyte of progress starts the count again), or
    when the server asks it to wait longer than `patience_s`. Then it asks the next address.
    """

    contact: str | None = None
    tries: int = 5
    timeout_s: float = 60
    patience_s: float = 900
    sleep: Callable[[float], None] = time.sleep

    @property
    def agent(self) -> str:
        """The User-Agent header: name, version, and the contact if there is one."""
        return f"Throughline/{throughline.__version__}" + (f" ({self.contact})" if self.contact else "")

    def text(self, urls: Sequence[str]) -> str | None:
        """Return a small text file from the first address that has it; None if every address answers 404.

        An address that ends in a slash is a folder, and its text is the web page that lists its files.
        """
        answers: dict[str, str] = {}
        for url in urls:
            try:
                return self._patiently(url, partial(self._text, url))
            except ElsewhereError as error:
                answers[url] = str(error)
        if all(answer.startswith("404") for answer in answers.values()):
            return None
        raise _nowhere(urls[0].rsplit("/", 1)[-1], answers)

    def file(self, urls: Sequence[str], path: Path, checksum: str, size: int | None = None) -> None:
        """Download a file to `path` from the first address that gives the right one; UserError if none does.

        checksum: the name of a hash function and the hexadecimal digits, such as `sha1:da39a3ee...`. size: in bytes.
        """
        checksum = checksum.lower()
        if path.exists() and _checksum(path, checksum) == checksum:
            return
        part = path.with_name(path.name + ".part")
        answers: dict[str, str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(part):
            for url in urls:
                try:
                    self._checked(url, part, checksum, size)
                except ElsewhereError as error:
                    answers[url] = str(error)
                    continue
                with part.open("rb") as stream:
                    os.fsync(stream.fileno())
                os.replace(part, path)
                return
        raise _nowhere(path.name, answers, part)

    def _checked(self, url: str, part: Path, checksum: str, size: int | None) -> None:
        """Download the file as `part` and check its digest.

        If a resumed download has a wrong digest, it is downloaded once more from the beginning.
        """
        for last in (False, True):
            resumed = self._patiently(url, partial(self._bytes, url, part, size), part)
            actual = _checksum(part, checksum)
            if actual == checksum:
                return
            part.unlink()
            if last or not resumed:
                raise ElsewhereError(f"it gives a file with {actual}, and should give {checksum}")
            _say(f"{part.name}: the resumed download is wrong ({actual}); it starts again from the beginning")

    def _patiently(self, url: str, ask: Callable[[], _Answer], part: Path | None = None) -> _Answer:
        """Return the result of `ask`, and retry it while that makes sense; else raise ElsewhereError.

        part: the file that grows while `ask` makes progress.
        """
        failures = 0
        while True:
            before = arrived(part) if part else 0
            try:
                return ask()
            except LaterError as error:
                failures = 1 if part and arrived(part) - before >= _ENOUGH else failures + 1
                if failures >= self.tries:
                    raise ElsewhereError(f"{error} ({failures} times)") from None
                wait = error.after_s if error.after_s is not None else min(60.0, 2.0 ** (failures - 1))
                if wait > self.patience_s:
                    raise ElsewhereError(f"{error}; it asks to come back in {wait:.0f} s") from None
                _say(f"{url}: {error}; next try in {wait:.0f} s")
                self.sleep(wait)

    def _text(self, url: str) -> str:
        with self._opened(url, {}) as response:
            text = str(response.read(_TEXT_AT_MOST).decode("utf-8-sig", "replace"))
        if not url.endswith("/") and text.lstrip().lower().startswith(("<!doctype", "<html", "<?xml")):
            raise ElsewhereError(_PAGE)
        return text

    def _bytes(self, url: str, part: Path, size: int | None) -> bool:
        """Ask once for the missing bytes of `part`, until it has its full length.

        Returns True if some bytes are from an earlier request, so that they may be from another version of the file.
        """
        have = arrived(part)
        if have and have == size:
            return True
        with self._opened(url, {"Range": f"bytes={have}-"} if have else {}, part) as response:
            begin, total = _extent(response, have)
            if size is not None and total is not None and total != size:
                raise ElsewhereError(f"the file there has {total} bytes, and {size} are published")
            total = size if total is None else total
            if have and not begin:
                _say(f"{part.name}: the server cannot resume it; it starts from the beginning")
            if total is not None:
                check_space(part.parent, total - begin)
            _copy(response, part, begin, total)
        return begin > 0

    @contextmanager
    def _opened(self, url: str, headers: Mapping[str, str], part: Path | None = None) -> Iterator[BaseHTTPResponse]:
        """Yield the answer of a server that has the file. Trouble on the way, also while it is read, is a LaterError.

        part: the unfinished download, which is removed if the server has no such bytes.
        """
        headers = {"User-Agent": self.agent, "Accept-Encoding": "identity", **headers}
        try:
            with closing(self._followed(url, headers)) as response:
                answer = f"{response.status} {response.reason or ''}".strip()
                if response.status == 416 and part is not None:
                    part.unlink(missing_ok=True)
                    raise LaterError(f"{answer}: it has no such bytes; the download starts from the beginning", 0)
                if response.status in _LATER:
                    raise LaterError(answer, Retry(retry_after_max=sys.maxsize).get_retry_after(response))
                if response.status not in (200, 206):
                    raise ElsewhereError(f"{answer}; it was asked as {self.agent!r}" if "403" in answer else answer)
                kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
                if kind in {"text/html", "application/xhtml+xml"} and not url.endswith("/"):
                    raise ElsewhereError(_PAGE)
                yield response
        except HTTPError as error:
            if isinstance(error, SSLError) and isinstance(error.args[0], ssl.SSLCertVerificationError):
                raise ElsewhereError(f"its certificate is not valid ({error.args[0].verify_message})") from None
            raise LaterError(f"the connection failed ({error})") from None

    def _followed(self, url: str, headers: Mapping[str, str]) -> BaseHTTPResponse:
        """Return the answer of an address after its redirects, with the body still to be read.

        No redirect leads from https to http, where others could read the contact and change the file.
        """
        for _ in range(_REDIRECTS):
            response = _pool(url).request(
                "GET", url, headers=headers, timeout=self.timeout_s, retries=False, preload_content=False
            )
            location = response.get_redirect_location()
            if not location:
                return response
            response.close()
            there = urljoin(url, location)
            if url.startswith("https:") and not there.startswith("https:"):
                raise ElsewhereError(f"it redirects from https to {there}, which is not encrypted")
            url = there
        raise ElsewhereError(f"it redirects more than {_REDIRECTS} times")


def arrived(part: Path) -> int:
    """Return how many bytes of an unfinished download have arrived."""
    return part.stat().st_size if part.exists() else 0


def check_space(folder: Path, needed: int) -> None:
    """Raise UserError unless `needed` bytes fit below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"{folder} has too little space for the download",
            why=f"{needed / 1e9:.3g} GB are still to come, {free / 1e9:.3g} GB are free",
            next_step="free some space, or make data/ a link to a larger disk; what is there already is kept",
        )


def _pool(url: str) -> urllib3.PoolManager:
    """Return what connects to the host of `url`, through the proxy that the environment names for it, if any."""
    address = parse_url(url)
    proxy = urllib.request.getproxies().get(address.scheme or "")
    if not proxy or urllib.request.proxy_bypass(address.netloc or ""):
        return urllib3.PoolManager()
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    auth = parse_url(proxy).auth
    return urllib3.ProxyManager(proxy, proxy_headers=make_headers(proxy_basic_auth=unquote(auth)) if auth else None)


def _extent(response: BaseHTTPResponse, have: int) -> tuple[int, int | None]:
    """Return the byte at which the answer begins, and the size of the whole file if the server states it."""
    if response.status == 200:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdigit() else None
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip())
    if span is None or int(span[1]) != have:
        raise ElsewhereError("it answers with other bytes than it was asked for")
    return have, None if span[2] == "*" else int(span[2])


def _copy(response: BaseHTTPResponse, part: Path, begin: int, total: int | None) -> None:
    """Write the body to `part` from byte `begin` on, up to its length `total`. On a full disk, what came stays."""
    progress = Progress(f"downloading {part.name.removesuffix('.part')}", total or 0, done=begin)
    try:
        with part.open("ab" if begin else "wb") as stream:
            while data := response.read1(_READ, decode_content=False):
                stream.write(data)
                progress.to(stream.tell())
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise UserError(
            f"{part} could not be written on",
            why=f"{os.strerror(error.errno)}, after {arrived(part)} bytes",
            next_step="free some space and run snakemake again: it goes on from there",
        ) from None
    if total is not None and arrived(part) < total:
        raise LaterError(f"the connection was cut after {arrived(part)} of {total} bytes")


def _checksum(path: Path, like: str) -> str:
    """Return the checksum of a file in the form of `like`, by the same hash function."""
    function = like.partition(":")[0]
    with path.open("rb") as stream:
        return f"{function}:{hashlib.file_digest(stream, function).hexdigest()}"


@contextmanager
def locked(part: Path) -> Iterator[None]:
    """Lock the download of `part`; UserError if another process holds the lock."""
    lock = part.with_name(part.name + ".lock")
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{part.name.removesuffix('.part')} is being downloaded by another process",
                why=f"it holds {lock}",
                next_step="wait until it is done, and run snakemake again",
            ) from None
        except OSError:
            pass  # a file system without locks: only Snakemake's own lock protects the download
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _nowhere(name: str, answers: Mapping[str, str], part: Path | None = None) -> UserError:
    kept = f"; the {arrived(part)} bytes that came are kept in {part}" if part and part.exists() else ""
    return UserError(
        f"{name} could not be downloaded",
        why="\n        ".join(f"{url}: {answer}" for url, answer in answers.items()),
        next_step=f"run snakemake again later{kept}; or name a mirror that has it in corpus.mirrors",
    )
