"""GPT-2's published vocabulary: encoder.json (each token's id) and vocab.bpe (the merges, in their order).

We rebuild both files from the table in the installed blingfire, and their SHA-256 proves that they are the published
ones. They write each byte of a token as a printable character (`CHARACTERS`): a space is `Ġ`, a line break is `Ċ`.
"""

import hashlib
import itertools
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from throughline import files
from throughline.corpus.bpe import END_OF_TEXT, SHA256, SIZE
from throughline.corpus.text.vocabulary import check_rebuilt
from throughline.datasets.shards import fault

FILES = {
    "encoder.json": SHA256,
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
_PRINTED_AS_THEY_ARE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED_AS_THEY_ARE]
CHARACTERS = {byte: chr(byte) for byte in _PRINTED_AS_THEY_ARE} | {byte: chr(256 + i) for i, byte in enumerate(_OTHERS)}
_BYTES = {character: byte for byte, character in CHARACTERS.items()}
_HEADER = "#version: 0.2"


@dataclass(frozen=True)
class Vocabulary:
    """The tokens as bytes in the order of their ids, without `<|endoftext|>`, and the merges in vocab.bpe's order."""

    tokens: tuple[bytes, ...]
    merges: tuple[tuple[str, str], ...]

    def printed(self) -> dict[str, int]:
        """Map each token, as encoder.json prints it, to its id."""
        return {printed(token): i for i, token in enumerate(self.tokens)}


def read(folder: Path) -> Vocabulary:
    """Read the vocabulary from the two files in a folder; UserError if they are not the published ones."""
    encoder, merges = (_checked(folder / name, sha256) for name, sha256 in FILES.items())
    tokens = tuple(bytes(map(_BYTES.__getitem__, token)) for token in [*json.loads(encoder)][:END_OF_TEXT])
    pairs = (line.split(" ") for line in merges.decode().splitlines()[1:])
    return Vocabulary(tokens, tuple((left, right) for left, right in pairs))


def _checked(path: Path, sha256: str) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise fault(path, "does not exist") from None
    if (digest := hashlib.sha256(content).hexdigest()) != sha256:
        reason = f"its sha256 is {digest}, the published file has {sha256}"
        raise fault(path, "is not GPT-2's published vocabulary", reason)
    return content


def build(folder: Path) -> None:
    """Write encoder.json and vocab.bpe into `folder`; UserError if they would not be the published files."""
    tokens = _from_blingfire()
    encoder = {printed(token): i for i, token in enumerate(tokens)} | {"<|endoftext|>": END_OF_TEXT}
    check_rebuilt("GPT-2's encoder.json", json.dumps(encoder), FILES["encoder.json"])
    merges = (f"{printed(left)} {printed(right)}" for left, right in _merges(tokens))
    merges_text = "\n".join([_HEADER, *merges, ""])
    check_rebuilt("GPT-2's vocab.bpe", merges_text, FILES["vocab.bpe"])
    files.write_text(folder / "encoder.json", json.dumps(encoder))
    files.write_text(folder / "vocab.bpe", merges_text)


def printed(token: bytes) -> str:
    """Return a token as the two files print it."""
    return "".join(map(CHARACTERS.__getitem__, token))


def _from_blingfire() -> list[bytes]:
    """Return all tokens but `<|endoftext|>` in the order of their ids; none if the table is too short.

    The table cannot hold the byte 0 and has a blank in its place. We put the byte back.
    """
    import blingfire

    table = (Path(blingfire.__file__).parent / "gpt2.i2w").read_bytes()
    begin = 100  # here is where each token begins, then the tokens
    try:
        begins = struct.unpack_from(f"<{SIZE + 1}i", table, begin)
    except struct.error:
        return []
    text = table[begin + 4 * len(begins) :]
    tokens = [text[first:last] for first, last in itertools.pairwise(begins)][:END_OF_TEXT]
    tokens[_OTHERS.index(0) + len(_PRINTED_AS_THEY_ARE)] = b"\0"
    return tokens


def _merges(tokens: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the two parts from which each token of several bytes is merged."""
    ids = {token: i for i, token in enumerate(tokens)}
    merges = []
    for token in tokens[256:]:
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:  # like the encoder: first join the neighbours whose token has the lowest id
            joined = [ids.get(left + right, SIZE) for left, right in itertools.pairwise(parts)]
            at = joined.index(min(joined))
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        merges.append((parts[0], parts[-1]))
    return merges
