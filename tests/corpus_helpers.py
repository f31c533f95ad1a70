"""Helpers of the corpus's tests: small dumps in every packing, small vocabularies, small documents."""

from __future__ import annotations

import bz2
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np
from hypothesis import strategies as st

from throughline.corpus import reading
from throughline.corpus.shards import Parameters, layout
from throughline.corpus.text import tokens, vocabulary
from throughline.corpus.text.tokens import Documents
from throughline.corpus.text.vocabulary import SPECIALS, Vocabulary

HEADER = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>enwiki</dbname>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Talk</namespace>
      <namespace key="10" case="first-letter">Template</namespace>
    </namespaces>
  </siteinfo>
"""
CLOSING = "</mediawiki>\n"


def same(one: bytes, other: bytes) -> bool:
    """True if both are equal. With `assert one == other`, pytest would search megabytes for their difference for an
    hour."""
    return one == other


def content(path: Path) -> bytes:
    """Return the content of a file, whatever its compression: an HDF5 file's attributes and arrays, or JSON without the
    SHA-256 of files."""
    if path.suffix == ".json":
        return re.sub(rb'"sha256": "[0-9a-f]{64}"', b'"sha256": ""', path.read_bytes())
    if path.suffix != ".hdf5":
        return path.read_bytes()
    with h5py.File(path) as stream:
        arrays = (f"{one.name} {one.dtype} {one.shape}".encode() + one[...].tobytes() for one in stream.values())
        return b"\n".join([repr(dict(stream.attrs)).encode(), *arrays])


def page(number: int, text: str, *, title: str | None = None, namespace: int = 0, redirect: bool = False) -> str:
    """Return one page in the form that it has in a dump."""
    return (
        f"  <page>\n    <title>{title or f'Page {number}'}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n"
        + ('    <redirect title="Elsewhere" />\n' if redirect else "")
        + f"    <revision>\n      <id>{number + 1000}</id>\n"
        f'      <text xml:space="preserve">{text}</text>\n    </revision>\n  </page>\n'
    )


def streams(*texts: str | bytes) -> bytes:
    """Return the bytes of a bz2 file with one stream for each text."""
    return b"".join(bz2.compress(text.encode() if isinstance(text, str) else text) for text in texts)


def tiny_vocabulary(folder: Path, words: int = 40) -> Vocabulary:
    """Make a vocabulary with the five special tokens in their usual order, two unused entries, and some words."""
    path = folder / "tiny.txt"
    entries = ["[PAD]", "[unused0]", *SPECIALS[1:], "[unused1]", *(f"word{i}" for i in range(words))]
    path.write_text("".join(f"{entry}\n" for entry in entries))
    return vocabulary.read(path)


def any_parameters(**chosen: st.SearchStrategy[int]) -> st.SearchStrategy[Parameters]:
    """A strategy for parameters of every kind, for small documents. `chosen` replaces strategies of single ones."""
    return st.builds(
        Parameters,
        sequence_length=st.integers(8, 40),
        predictions=st.integers(1, 5),
        probability=st.floats(0.01, 0.9),
        short_sequences=st.sampled_from([0.0, 0.1, 1.0]),
        seed=st.integers(0, 2**63),
        **chosen,
    )


def documents(lengths: Sequence[Sequence[int]], words: Vocabulary, *, ids: Sequence[int] | None = None) -> Documents:
    """Make documents whose sentences have the given lengths. Their tokens count upwards, so that a test can recognize
    neighbours."""
    sentences = np.array([length for document in lengths for length in document], np.int64)
    counts = np.array([len(document) for document in lengths], np.int64)
    ids_of_tokens = words.words[np.arange(sentences.sum()) % len(words.words)].astype(np.uint16)
    numbers = np.array(range(len(lengths)) if ids is None else ids, np.int64)
    return Documents(ids_of_tokens, tokens.offsets(sentences), tokens.offsets(counts), numbers)


def write_tokens(path: Path, found: Documents, words: Vocabulary, *, sha256: str | None = None) -> None:
    """Write a tokens file with these documents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tokens.Pile(path.parent, tokens.MEMORY_BYTES) as pile:
        pile.add(found)
        tokens._write(path, pile, pile.table(), sha256 or words.sha256, len(words))


def read_shard(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of a shard, in the layout's order and types."""
    with layout.open_shard(path) as stream:
        kinds = layout.types(stream)
        return {name: np.asarray(reading.rows(stream[name]), dtype=kind) for name, kind in kinds.items()}


def content_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 over the names, shapes and values of a shard's arrays, one after the other."""
    digest = hashlib.sha256()
    for name, kind in layout.types(arrays).items():
        digest.update(f"{name} {kind} {arrays[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name], dtype="<" + kind).tobytes())
    return digest.hexdigest()
