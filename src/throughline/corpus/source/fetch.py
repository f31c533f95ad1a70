"""Files from the web that are whole or absent: resumed, retried, and proven by their digest.

What has arrived of a file stands beside it (unfinished.py), and the next call goes on from there. The file gets its
name only when its digest is right.

A server may cut the connection, be slow, ask to wait, know no ranges, or hold another file than before: each is
answered here. It is told who asks (`corpus.contact`), and how often it is asked is bounded.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import throughline
from throughline import files
from throughline.corpus.progress import Progress
from throughline.corpus.source import answers, unfinished
from throughline.corpus.source.answers import ElsewhereError, LaterError
from throughline.files import UserError

_READ = 1 << 18
_SMALL_AT_MOST = 64 << 20
_ENOUGH = 1 << 20  # so many new bytes, and the tries are counted from the beginning again
_LATER = {408, 425, 429, 500, 502, 503, 504}
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Digest:
    """What a file has to be: the name of a hash function in hashlib, and its hexadecimal digits."""

    kind: str
    value: str

    def of(self, path: Path) -> str:
        """The digest that a file has."""
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, self.kind).hexdigest()

    def fits(self, path: Path) -> bool:
        return self.of(path) == self.value.lower()


def free_bytes(folder: Path) -> int:
    """Bytes that this user can still write below `folder`."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Client:
    """How to ask: who asks, how often and how long, and the clock and disk that tests replace.

    An address is given up after `tries` failures in a row (a mebibyte of progress starts the count again), or when it
    asks to wait longer than `patience_s`; then the next address is asked.
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
        """The User-Agent: name, version, and the contact where there is one."""
        name = f"Throughline/{throughline.__version__}"
        return f"{name} ({self.contact})" if self.contact else name

    def text(self, urls: Sequence[str]) -> str | None:
        """A small text file from the first address that has it; None where every one answers that it does not."""
        refusals: list[tuple[str, str]] = []
        for url in urls:
            try:
                return self._patiently(url, partial(self._text, url), lambda: 0)
            except ElsewhereError as error:
                refusals.append((url, str(error)))
        if all(answer.startswith("404") for _, answer in refusals):
            return None
        raise _nowhere(urls[0].rsplit("/", 1)[-1], refusals)

    def file(self, urls: Sequence[str], path: Path, digest: Digest, size: int | None = None) -> None:
        """Bring a file to `path`, from the first address that gives what it has to be.

        UserError where none does, the disk is too small, or another process is at it.
        """
        part = path.with_name(path.name + ".part")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and digest.fits(path):
            return
        refusals: list[tuple[str, str]] = []
        with unfinished.alone(part):
            for url in urls:
                try:
                    self._proven(url, part, digest, size)
                except ElsewhereError as error:
                    refusals.append((url, str(error)))
                    continue
                unfinished.finish(part, path)
                return
        raise _nowhere(path.name, refusals, part if part.exists() else None)

    def room(self, folder: Path, bytes_needed: int) -> None:
        """UserError unless so many bytes fit below `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        free = self.free(folder)
        if free < bytes_needed:
            raise UserError(
                f"{folder} has too little space for the download",
                why=f"{_gigabytes(bytes_needed)} are still to come, {_gigabytes(free)} are free",
                next_step="free some space, or make data/ a link to a larger disk; what is there already is kept",
            )

    def _proven(self, url: str, part: Path, digest: Digest, size: int | None) -> None:
        """The file as `part`, with the right digest. What came in pieces and is wrong is brought once more, whole."""
        for last in (False, True):
            self._patiently(url, partial(self._bytes, url, part, size), partial(unfinished.arrived, part))
            value = digest.of(part)
            if value == digest.value.lower():
                return
            in_pieces = unfinished.read_note(part).get("resumed", False)
            part.unlink()
            unfinished.note(part).unlink(missing_ok=True)
            if last or not in_pieces:
                raise ElsewhereError(f"its {digest.kind} is {value}, and should be {digest.value}")
            _say(f"{part.name}: what came in pieces has a wrong {digest.kind}; from the beginning")

    def _patiently(self, url: str, ask: Callable[[], _Answer], progress: Callable[[], int]) -> _Answer:
        """What `ask` returns, asked again while that makes sense; else ElsewhereError."""
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
                _say(f"{url}: {error}; again in {wait:.0f} s")
                self.sleep(wait)

    def _text(self, url: str) -> str:
        with self._open(url, {}) as response:
            try:
                data = response.read(_SMALL_AT_MOST)
            except (OSError, http.client.HTTPException) as error:
                raise LaterError(f"the connection was cut ({error})") from None
            length = response.headers.get("Content-Length", "")
            if length.isdigit() and len(data) < int(length):
                raise LaterError(f"the connection was cut after {len(data)} of {length} bytes")
        return str(data.decode("utf-8", "replace"))

    def _bytes(self, url: str, part: Path, size: int | None) -> None:
        """Ask once for what is missing of `part`. Returns when it is as long as it has to be."""
        have = unfinished.arrived(part)
        if size is not None and have == size:
            return
        if size is not None and have > size:
            part.unlink()
            have = 0
        headers, known = {}, unfinished.read_note(part)
        if have:
            headers["Range"] = f"bytes={have}-"
            if known.get("url") == url and known.get("version"):
                headers["If-Range"] = known["version"]
        with self._open(url, headers, part) as response:
            begin, total = answers.extent(response, have)
            if size is not None and total is not None and total != size:
                raise ElsewhereError(f"the file there has {total} bytes, and {size} are published")
            total = total if total is not None else size
            if have and not begin:
                _say(f"{part.name}: the file changed, or cannot be had from byte {have} on; from the beginning")
            version = answers.version(response) or (known.get("version") if known.get("url") == url else None)
            files.write_json(unfinished.note(part), {"url": url, "version": version, "resumed": begin > 0})
            if total is not None:
                self.room(part.parent, total - begin)
            self._copy(response, part, begin, total)

    def _copy(self, response: Any, part: Path, begin: int, total: int | None) -> None:
        progress = Progress(f"downloading {part.name.removesuffix('.part')}", total or 0, done=begin)
        with unfinished.writing(part, begin) as stream:
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
    def _open(self, url: str, headers: dict[str, str], part: Path | None = None) -> Iterator[Any]:
        headers = {"User-Agent": self.agent, "Accept-Encoding": "identity", **headers}
        try:
            response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=self.timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error, part)
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise ElsewhereError(f"its certificate is not valid ({error.reason.verify_message})") from None
            raise LaterError(answers.unreached(error.reason)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LaterError(answers.unreached(error)) from None
        with response:
            if response.headers.get_content_type() in {"text/html", "application/xhtml+xml"}:
                raise ElsewhereError("it answers with a web page instead of the file (a login page, or an error)")
            yield response

    def _refused(self, error: urllib.error.HTTPError, part: Path | None) -> None:
        why = f"{error.code} {error.reason}".strip()
        if error.code == 416 and part is not None:
            part.unlink(missing_ok=True)
            raise LaterError(f"{why}: it has no such bytes; from the beginning", 0)
        if error.code in _LATER:
            raise LaterError(why, answers.retry_after(error.headers.get("Retry-After")))
        if error.code == 403:
            why += f"; it was asked as {self.agent!r}"
        raise ElsewhereError(why)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _gigabytes(value: int) -> str:
    return f"{value / 1e9:.3g} GB"


def _nowhere(name: str, refusals: Sequence[tuple[str, str]], part: Path | None = None) -> UserError:
    kept = f"; the {unfinished.arrived(part)} bytes that came are kept in {part}" if part else ""
    return UserError(
        f"{name} could not be downloaded",
        why="\n        ".join(f"{url}: {answer}" for url, answer in refusals),
        next_step=f"run snakemake again later{kept}; or name a mirror that has it in corpus.mirrors",
    )
