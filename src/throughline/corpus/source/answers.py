"""What a server's answer to a download means: come back later, ask elsewhere, or here are these bytes."""

from __future__ import annotations

import email.utils
import re
import socket
import time
from typing import Any


class LaterError(Exception):
    """This address may answer better in a while: `after_s` seconds, where it said so."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class ElsewhereError(Exception):
    """This address will not give the file."""


def extent(response: Any, have: int) -> tuple[int, int | None]:
    """The byte at which the answer begins, and the whole file's size where the server names it."""
    if response.status == 206:
        named = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip())
        if named is None or int(named[1]) != have:
            raise ElsewhereError("it answers with other bytes than it was asked for")
        return have, None if named[2] == "*" else int(named[2])
    if response.status != 200:
        raise ElsewhereError(f"{response.status} {response.reason}")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def version(response: Any) -> str | None:
    """What tells this version of a file from another, as If-Range takes it: a strong ETag, or a date."""
    tag = response.headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return str(tag)
    return response.headers.get("Last-Modified") or None


def retry_after(text: str | None) -> float | None:
    """Seconds to wait, from a Retry-After of seconds or of a date; None where it is neither."""
    if text is None:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def unreached(reason: Any) -> str:
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    if isinstance(reason, socket.gaierror):
        return "no such host, or no network"
    return f"no connection ({reason})"
