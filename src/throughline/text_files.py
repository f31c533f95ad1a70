"""Text files of users: packed by gzip or not, with a byte order mark or not, sentences or JSON lines."""

import gzip
import re
import zlib
from pathlib import Path
from typing import IO, cast

GZIP = b"\x1f\x8b"
MARK = "\ufeff".encode()
"""The byte order mark, with which some programs begin a UTF-8 text."""
UNREADABLE = (OSError, EOFError, zlib.error)
"""What reading raises if a file is absent, or its packed data is damaged or cut off."""
_OBJECT = re.compile(rb'(?:\s|\xef\xbb\xbf)*\{\s*"')
_NAMES = re.compile(r"\.(jsonl?|ndjson)(\.gz)?$")


def opened(path: Path) -> IO[bytes]:
    """Open a file. The bytes that are read, and their positions, are those of the unpacked text."""
    with path.open("rb") as stream:
        packed = stream.read(len(GZIP)) == GZIP
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")


def is_json_lines(path: str | Path) -> bool:
    """Return whether each line of a file is a JSON object. Its first letters tell it; without any, the name does."""
    try:
        with opened(Path(path)) as stream:
            start = stream.read(4096)
    except UNREADABLE:
        start = b""
    return (_OBJECT.match(start) if start else _NAMES.search(str(path))) is not None
