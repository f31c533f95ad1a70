"""Download files from the web. A file is whole or absent.

We resume (unfinished_download.py), retry, and check the file's digest. A server may cut the connection, be slow, ask us
to wait, not support ranges, or hold a different file than before. This module handles each case. It tells the server
who asks (`corpus.contact`) and limits the number of requests.
"""

import email.utils
import hashlib
import http.client
import re
import shutil
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import throughline
from throughline import files
from throughline.corpus.source import unfinished_download
from throughline.files import UserError
from throughline.progress import Progress

_READ = 1 << 18
_SMALL_AT_MOST = 64 << 20
_ENOUGH = 1 << 20  # after this many new bytes, the count of failures starts again
_LATER = {408, 425, 429, 500, 502, 503, 504}
_Answer = TypeVar("_Answer")


class LaterError(Exception):
    """This address may succeed later: after `after_s` seconds, if the server said when."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class ElsewhereError(Exception):
    """This address will not give the file."""


@dataclass(frozen=True)
class Digest:
    """The digest that a file must have: the name of a hash function in hashlib, and the hexadecimal digits."""

    kind: str
    value: str

    def of(self, path: Path) -> str:
        """Return the digest of a file."""
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, self.kind).hexdigest()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but none from https to http: on http, others could read the contact and change the file."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.type == "https" and not newurl.startswith("https:"):
            fp.close()
            raise ElsewhereError(f"it redirects from https to {newurl}, which is not encrypted")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def free_bytes(folder: Path) -> int:
    """Return how many bytes this user can still write below `folder`."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Client:
    """How to download: who asks, how often and how long. Tests replace the clock (`sleep`) and the disk (`free`).

    The client gives up an address after `tries` failures in a row (a mebibyte of progress starts the count again), or
    when the server asks it to wait longer than `patience_s`. Then it asks the next address.
    """

    contact: str | None = None
    tries: int = 5
    timeout_s: float = 60
    patience_s: float = 900
    sleep: Callable[[float], None] = time.sleep
    free: Callable[[Path], int] = free_bytes

    def __post_init__(self) -> None:
        if self.contact is not None and not re.fullmatch(r"[\x20-\x7e]+", self.contact):
            raise UserError(
                f"corpus.contact is {self.contact!r}",
                why="it travels in a header of every request, which takes printable ASCII",
                next_step="write an e-mail address or a web address",
            )

    @property
    def agent(self) -> str:
        """The User-Agent header: name, version, and the contact if there is one."""
        return f"Throughline/{throughline.__version__}" + (f" ({self.contact})" if self.contact else "")

    def text(self, urls: Sequence[str], page: bool = False) -> str | None:
        """Return a small text file from the first address that has it; None if every address answers 404.

        page: a web page is what is asked for, such as the list of a folder's files.
        """
        refusals: list[tuple[str, str]] = []
        for url in urls:
            try:
                return self._patiently(url, partial(self._text, url, page), lambda: 0)
            except ElsewhereError as error:
                refusals.append((url, str(error)))
        if all(answer.startswith("404") for _, answer in refusals):
            return None
        raise _nowhere(urls[0].rsplit("/", 1)[-1], refusals)

    def file(self, urls: Sequence[str], path: Path, digest: Digest, size: int | None = None) -> None:
        """Download a file to `path` from the first address that gives the right digest; UserError if none does."""
        part = path.with_name(path.name + ".part")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and digest.of(path) == digest.value.lower():
            return
        refusals: list[tuple[str, str]] = []
        with unfinished_download.alone(part):
            for url in urls:
                try:
                    self._proven(url, part, digest, size)
                    unfinished_download.finish(part, path)
                    return
                except ElsewhereError as error:
                    refusals.append((url, str(error)))
        raise _nowhere(path.name, refusals, part if part.exists() else None)

    def room(self, folder: Path, bytes_needed: int) -> None:
        """Raise UserError unless `bytes_needed` bytes fit below `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        free = self.free(folder)
        if free < bytes_needed:
            raise UserError(
                f"{folder} has too little space for the download",
                why=f"{bytes_needed / 1e9:.3g} GB are still to come, {free / 1e9:.3g} GB are free",
                next_step="free some space, or make data/ a link to a larger disk; what is there already is kept",
            )

    def _proven(self, url: str, part: Path, digest: Digest, size: int | None) -> None:
        """Download the file as `part` and check its digest.

        If a resumed download has a wrong digest, it is downloaded once more from the beginning.
        """
        for last in (False, True):
            self._patiently(url, partial(self._bytes, url, part, size), partial(unfinished_download.arrived, part))
            value = digest.of(part)
            if value == digest.value.lower():
                return
            in_pieces = unfinished_download.read_note(part).get("resumed", False)
            part.unlink()
            unfinished_download.note(part).unlink(missing_ok=True)
            if last or not in_pieces:
                raise ElsewhereError(f"its {digest.kind} is {value}, and should be {digest.value}")
            _say(f"{part.name}: the resumed download has a wrong {digest.kind}; it starts again from the beginning")

    def _patiently(self, url: str, ask: Callable[[], _Answer], progress: Callable[[], int]) -> _Answer:
        """Return the result of `ask`, and retry it while that makes sense; else raise ElsewhereError."""
        failures = 0
        while True:
            before = progress()
            try:
                return ask()
            except LaterError as error:
                failures = 1 if progress() - before >= _ENOUGH else failures + 1
                if failures >= self.tries:
                    raise ElsewhereError(f"{error} ({failures} times)") from None
                wait = error.after_s if error.after_s is not None else min(60.0, 2.0 ** (failures - 1))
                if wait > self.patience_s:
                    raise ElsewhereError(f"{error}; it asks to come back in {wait:.0f} s") from None
                _say(f"{url}: {error}; next try in {wait:.0f} s")
                self.sleep(wait)

    def _text(self, url: str, page: bool) -> str:
        with self._open(url, {}, page=page) as response:
            try:
                data = response.read(_SMALL_AT_MOST)
            except (OSError, http.client.HTTPException) as error:
                raise LaterError(f"the connection was cut ({error})") from None
            length = response.headers.get("Content-Length", "")
            if length.isdigit() and len(data) < int(length):
                raise LaterError(f"the connection was cut after {len(data)} of {length} bytes")
        return str(data.decode("utf-8", "replace"))

    def _bytes(self, url: str, part: Path, size: int | None) -> None:
        """Ask once for the missing bytes of `part`. Returns when `part` has its full length."""
        have = unfinished_download.arrived(part)
        if size is not None and have == size:
            return
        if size is not None and have > size:
            part.unlink()
            have = 0
        note = unfinished_download.read_note(part)
        known = note.get("version") if note.get("url") == url else None
        headers = {"Range": f"bytes={have}-", **({"If-Range": known} if known else {})} if have else {}
        with self._open(url, headers, part) as response:
            begin, total = _extent(response, have)
            if size is not None and total is not None and total != size:
                raise ElsewhereError(f"the file there has {total} bytes, and {size} are published")
            total = total if total is not None else size
            if have and not begin:
                _say(f"{part.name}: the file changed, or the server cannot resume it; it starts from the beginning")
            note = {"url": url, "version": _version(response) or known, "resumed": begin > 0}
            files.write_json(unfinished_download.note(part), note)
            if total is not None:
                self.room(part.parent, total - begin)
            self._copy(response, part, begin, total)

    def _copy(self, response: Any, part: Path, begin: int, total: int | None) -> None:
        progress = Progress(f"downloading {part.name.removesuffix('.part')}", total or 0, done=begin)
        with unfinished_download.writing(part, begin) as stream:
            done = begin
            while True:
                try:
                    data = response.read1(_READ)
                except TimeoutError:
                    raise LaterError(f"nothing came for {self.timeout_s:g} s") from None
                except (OSError, http.client.HTTPException) as error:
                    raise LaterError(f"the connection was cut after {done} bytes ({error})") from None
                if not data:
                    break
                stream.write(data)
                done += len(data)
                progress.to(done)
        if total is not None and done < total:
            raise LaterError(f"the connection was cut after {done} of {total} bytes")

    @contextmanager
    def _open(self, url: str, headers: dict[str, str], part: Path | None = None, page: bool = False) -> Iterator[Any]:
        headers = {"User-Agent": self.agent, "Accept-Encoding": "identity", **headers}
        opener = urllib.request.build_opener(_Redirects)
        try:
            response = opener.open(urllib.request.Request(url, headers=headers), timeout=self.timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error, part)
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise ElsewhereError(f"its certificate is not valid ({error.reason.verify_message})") from None
            raise LaterError(_unreached(error.reason)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LaterError(_unreached(error)) from None
        with response:
            if not page and response.headers.get_content_type() in {"text/html", "application/xhtml+xml"}:
                raise ElsewhereError("it answers with a web page instead of the file (a login page, or an error)")
            yield response

    def _refused(self, error: urllib.error.HTTPError, part: Path | None) -> None:
        answer = f"{error.code} {error.reason}".strip()
        if error.code == 416 and part is not None:
            part.unlink(missing_ok=True)
            raise LaterError(f"{answer}: it has no such bytes; the download starts from the beginning", 0)
        if error.code in _LATER:
            raise LaterError(answer, _retry_after(error.headers.get("Retry-After", "")))
        if error.code == 403:
            answer += f"; it was asked as {self.agent!r}"
        raise ElsewhereError(answer)


def _extent(response: Any, have: int) -> tuple[int, int | None]:
    """Return the byte at which the answer begins, and the size of the whole file if the server states it."""
    if response.status == 206:
        named = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip())
        if named is None or int(named[1]) != have:
            raise ElsewhereError("it answers with other bytes than it was asked for")
        return have, None if named[2] == "*" else int(named[2])
    if response.status != 200:
        raise ElsewhereError(f"{response.status} {response.reason}")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _version(response: Any) -> str | None:
    """Return a validator for If-Range that identifies this version of the file: a strong ETag, or a date."""
    tag: str = response.headers.get("ETag") or "W/"
    return response.headers.get("Last-Modified") or None if tag.startswith("W/") else tag


def _retry_after(text: str) -> float | None:
    """Return the seconds to wait from a Retry-After header in seconds or with a date; None if it is neither."""
    if text.strip().isdigit():
        return float(text)
    with suppress(ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return None


def _unreached(reason: Any) -> str:
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    if isinstance(reason, socket.gaierror):
        return "no such host, or no network"
    return f"no connection ({reason})"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _nowhere(name: str, refusals: Sequence[tuple[str, str]], part: Path | None = None) -> UserError:
    kept = f"; the {unfinished_download.arrived(part)} bytes that came are kept in {part}" if part else ""
    return UserError(
        f"{name} could not be downloaded",
        why="\n        ".join(f"{url}: {answer}" for url, answer in refusals),
        next_step=f"run snakemake again later{kept}; or name a mirror that has it in corpus.mirrors",
    )
