"""Token files that other programs wrote. We read them where they are.

| written by | file | before the tokens | a token |
|---|---|---|---|
| nanoGPT | `train.bin`, `val.bin` | nothing | u2 |
| llm.c | `*.bin` | 256 i4: 20240520, the version 1, the number of tokens | u2 |
| Megatron-LM | `*.bin`, with an `.idx` beside it | nothing | u2 or i4, as the `.idx` says |

All numbers are little-endian. An `.idx` file consists of: `MMIDIDX` and two zero bytes; the version 1 (u8); the code of
the tokens' type (u1); the number S of sequences (u8); the number D of document bounds (u8); the number of tokens in
each sequence (i4[S]); the byte at which each begins (i8[S]); the bounds of documents, counted in sequences (i8[D]).
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline import files
from throughline.datasets.shards import WORDS
from throughline.files import UserError
from throughline.study.corpus_section import TOKENS, finished_files

NANOGPT, LLM_C, MEGATRON = "nanogpt", "llm.c", "megatron"
_WORDS = re.compile(r"(?<![a-z])(train|val|test)")

_LLM_C_HEADER = struct.Struct("<256i")
_LLM_C = (20240520, 1)  # magic number and version of a file of GPT-2's tokens
_LLM_C_OTHERS = {20240801: "its tokens are Llama 3's", 20240522: "it holds the questions of an evaluation"}

_MEGATRON_HEADER = struct.Struct("<9sQBQQ")
_MEGATRON_MAGIC = b"MMIDIDX\0\0"
_MEGATRON_TYPES = {8: "<u2", 4: "<i4"}
_MEGATRON_OTHERS = {1: "u1", 2: "i1", 3: "i2", 5: "i8", 6: "f8", 7: "f4"}
_MEGATRON_NAMES = ("_document", "_sentence")  # the ends of the file names that its tool makes


@dataclass(frozen=True)
class TokenFile:
    path: Path
    format: str
    split: str  # training or test


@dataclass(frozen=True)
class Tokens:
    """An open file. `tokens` [T] is memory-mapped and begins at byte `offset` of the file."""

    format: str
    tokens: NDArray[Any]
    offset: int
    documents: NDArray[np.int64] | None = None  # [D+1]: where each document begins, then T; only for Megatron-LM


def find(folder: str | Path) -> list[TokenFile]:
    """Return the token files in a folder and below it.

    UserError if there is none, or if a file is damaged or its name does not tell its split. The tokens themselves are
    not checked: verification reads them all and checks that they are in the vocabulary.
    """
    paths = sorted(finished_files(str(folder), TOKENS), key=files.natural)
    for path in paths:
        if path.suffix == ".idx" and path.with_suffix(".bin") not in paths:
            raise _damaged(path, "the tokens that it describes are not beside it", f"put {path.stem}.bin there")
    paths = [path for path in paths if path.suffix == ".bin"]
    return [TokenFile(path, open_tokens(path).format, split_of(path)) for path in paths]


def split_of(path: Path) -> str:
    """Return "training" or "test" from a word in the file's name; UserError if there is no such word or several."""
    words = {*_WORDS.findall(path.stem.lower())}
    if len(words) != 1:
        raise UserError(
            f"the name of the token file {path} says {' and '.join(sorted(words)) or 'no split'}",
            why="one word in a file's name says what it is for: train, or val or test",
            next_step="rename the file (with its .idx, where it has one), or link to it under another name",
        )
    return WORDS[words.pop()]


def open_tokens(path: Path) -> Tokens:
    """Map a token file of any of the formats into memory. For a link, the index may be beside the file behind it."""
    try:
        with path.open("rb") as stream:
            start = stream.read(_LLM_C_HEADER.size)
    except FileNotFoundError:
        raise _damaged(path, "it does not exist, or is a link to nothing") from None
    if index := _index_of(path):
        return _megatron(path, index)
    if _is_llm_c(start):
        return _llm_c(path, start)
    if _lost_its_index(path, start):
        remedy = f"put {path.stem}.idx there"
        raise _damaged(path, "it looks like Megatron-LM's, and its .idx is not beside it", remedy)
    return Tokens(NANOGPT, _mapped(path, "<u2"), 0)


def _index_of(path: Path) -> Path | None:
    """Return the .idx beside a file or beside the file that a link leads to; None if there is none."""
    while not (index := path.with_suffix(".idx")).exists():
        if not path.is_symlink():
            return None
        path = path.parent / os.readlink(path)
    return index


def _is_llm_c(start: bytes) -> bool:
    """True if the file begins with llm.c's header: with its magic number, or with zeros from byte 16 on.

    (Raw tokens would not contain the token 0 504 times in a row.)
    """
    magic = int.from_bytes(start[:4], "little")
    return magic in (_LLM_C[0], *_LLM_C_OTHERS) or (len(start) == _LLM_C_HEADER.size and not any(start[16:]))


def _llm_c(path: Path, start: bytes) -> Tokens:
    if len(start) < _LLM_C_HEADER.size:
        raise _damaged(path, f"llm.c's header has {_LLM_C_HEADER.size} bytes, and this file only {len(start)}")
    magic, version, count, *_ = _LLM_C_HEADER.unpack(start)
    if (magic, version) != _LLM_C:
        reason = _LLM_C_OTHERS.get(magic, f"it has the magic number {magic} and the version {version}")
        raise _damaged(path, f"{reason}; llm.c's files of GPT-2's tokens have {_LLM_C[0]} and {_LLM_C[1]}")
    tokens = _mapped(path, "<u2", len(start))
    if len(tokens) != count:
        raise _damaged(path, f"its header says {count} tokens, and it holds {len(tokens)}")
    return Tokens(LLM_C, tokens, len(start))


def _lost_its_index(path: Path, start: bytes) -> bool:
    """True if the file looks like Megatron-LM's, though it has no index.

    We look at its name, at the files beside it, and at its first numbers: if every second u2 is 0, they are small i4.
    """
    named = Path(os.path.realpath(path))
    high = np.frombuffer(start[: len(start) // 4 * 4], "<u2")[1::2]
    return named.stem.endswith(_MEGATRON_NAMES) or any(named.parent.glob("*.idx")) or (len(high) > 7 and not high.any())


def _megatron(path: Path, index: Path) -> Tokens:
    content = index.read_bytes()
    if content[:9] != _MEGATRON_MAGIC:
        raise _damaged(index, f"it begins with {content[:9]!r} instead of {_MEGATRON_MAGIC!r}")
    if len(content) < _MEGATRON_HEADER.size:
        raise _damaged(index, f"its header has {_MEGATRON_HEADER.size} bytes, and this file only {len(content)}")
    _, version, code, sequences, bounds = _MEGATRON_HEADER.unpack_from(content)
    if version != 1:
        raise _damaged(index, f"it has the version {version}, and only version 1 can be read")
    if code not in _MEGATRON_TYPES:
        known = " or ".join(f"{number} ({kind[1:]})" for number, kind in _MEGATRON_TYPES.items())
        raise _damaged(index, f"its tokens have the type {code} ({_MEGATRON_OTHERS.get(code, 'unknown')}), not {known}")
    size = _MEGATRON_HEADER.size + 12 * sequences + 8 * bounds
    if len(content) != size:
        listed = f"{sequences} sequences and {bounds} bounds of documents"
        raise _damaged(index, f"{listed} take {size} bytes, and it has {len(content)}")
    lengths = np.frombuffer(content, "<i4", sequences, _MEGATRON_HEADER.size)
    begins = np.frombuffer(content, "<i8", sequences, _MEGATRON_HEADER.size + 4 * sequences)
    documents = np.frombuffer(content, "<i8", bounds, _MEGATRON_HEADER.size + 12 * sequences)
    tokens = _mapped(path, _MEGATRON_TYPES[code])
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    for holds, reason in (
        ((lengths >= 0).all(), "a sequence has a negative length"),
        (np.array_equal(begins, offsets[:-1] * tokens.itemsize), "its sequences do not follow each other"),
        (offsets[-1] == len(tokens), f"its sequences have {offsets[-1]} tokens, and {path.name} has {len(tokens)}"),
        (
            bounds and documents[0] == 0 and documents[-1] == sequences and (np.diff(documents) >= 0).all(),
            "its documents do not begin with the first sequence, end with the last, and ascend",
        ),
    ):
        if not holds:
            raise _damaged(index, reason)
    return Tokens(MEGATRON, tokens, 0, offsets[documents])


def _mapped(path: Path, kind: str, offset: int = 0) -> NDArray[Any]:
    size, width = path.stat().st_size - offset, np.dtype(kind).itemsize
    if size <= 0:
        raise _damaged(path, "it holds no tokens")
    if size % width:
        raise _damaged(path, f"it has {size} bytes of tokens, and each takes {width}")
    return np.memmap(path, kind, "r", offset)


def _damaged(path: Path, why: str, remedy: str = "copy it again from where it was made") -> UserError:
    remedy = f"{remedy}, or remove the file from the folder"
    return UserError(f"{path} is no token file that can be read", why=why, next_step=remedy)
