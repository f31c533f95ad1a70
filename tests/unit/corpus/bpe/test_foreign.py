"""Token files of nanoGPT, llm.c and Megatron-LM, intact and damaged. The tests write them in the published layouts."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from throughline.corpus.bpe import foreign_files
from throughline.files import UserError

IDS = np.array([50256, *range(40_000, 40_600), 50256, *range(301)], "<u2")
DOCUMENTS = [601, 0, 302]  # tokens of each document
END = -1
"""The place after the last byte, for `changed`."""


def nanogpt(folder: Path, name: str = "train") -> None:
    IDS.tofile(folder / f"{name}.bin")


def llm_c(folder: Path, name: str = "tinystories_val_000001") -> None:
    header = struct.pack("<3i", 20240520, 1, len(IDS)).ljust(1024, b"\0")
    (folder / f"{name}.bin").write_bytes(header + IDS.tobytes())


def megatron(folder: Path, name: str = "my-gpt2-train_text_document", kind: str = "<u2", code: int = 8) -> None:
    """Write Megatron-LM's two files. Each document is one sequence; only the last document is two sequences."""
    lengths = np.array([*DOCUMENTS[:-1], 100, 202], "<i4")
    begins = np.cumsum([0, *lengths[:-1]]) * np.dtype(kind).itemsize
    bounds = np.array([0, 1, 2, 4], "<i8")
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(bounds))
    (folder / f"{name}.idx").write_bytes(header + lengths.tobytes() + begins.astype("<i8").tobytes() + bounds.tobytes())
    IDS.astype(kind).tofile(folder / f"{name}.bin")


def test_every_format_is_told_and_gives_its_tokens(tmp_path: Path) -> None:
    for name in ("raw", "headed", "indexed/wide"):
        (tmp_path / name).mkdir(parents=True)
    nanogpt(tmp_path / "raw")
    nanogpt(tmp_path / "raw", "part_10_train")
    nanogpt(tmp_path / "raw", "part_2_train")
    llm_c(tmp_path / "headed")
    megatron(tmp_path / "indexed")
    megatron(tmp_path / "indexed/wide", "Test_text_sentence", "<i4", 4)
    (tmp_path / "raw/.hidden.bin").touch()
    (tmp_path / "raw/meta.pkl").touch()
    found = foreign_files.find(tmp_path)
    assert [(str(file.path.relative_to(tmp_path)), file.format, file.split) for file in found] == [
        ("headed/tinystories_val_000001.bin", "llm.c", "test"),
        ("indexed/my-gpt2-train_text_document.bin", "megatron", "training"),
        ("indexed/wide/Test_text_sentence.bin", "megatron", "test"),
        ("raw/part_2_train.bin", "nanogpt", "training"),
        ("raw/part_10_train.bin", "nanogpt", "training"),
        ("raw/train.bin", "nanogpt", "training"),
    ]
    for file in found:
        tokens = foreign_files.open_tokens(file.path)
        assert isinstance(tokens.tokens, np.memmap) and not tokens.tokens.flags.writeable
        assert np.array_equal(tokens.tokens, IDS) and tokens.offset == (1024 if file.format == "llm.c" else 0)
        assert tokens.tokens.dtype == ("<i4" if "wide" in str(file.path) else "<u2")
        bounds = None if tokens.documents is None else np.diff(tokens.documents).tolist()
        assert bounds == (DOCUMENTS if file.format == "megatron" else None)


def test_a_link_finds_the_index_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    megatron(tmp_path / "there", "train_text_document")
    link = tmp_path / "training_0000.bin"
    link.symlink_to(tmp_path / "there/train_text_document.bin")
    assert foreign_files.open_tokens(link).format == "megatron"
    (tmp_path / "there/train_text_document.idx").unlink()
    with pytest.raises(UserError, match=r"looks like Megatron-LM's, and its \.idx is not beside it"):
        foreign_files.open_tokens(link)


def test_files_without_an_index_are_told_by_their_neighbours_and_by_wide_tokens(tmp_path: Path) -> None:
    megatron(tmp_path, "train_a", "<i4", 4)
    nanogpt(tmp_path, "train_b")
    with pytest.raises(UserError, match=r"train_b\.bin .*\n.*looks like Megatron-LM's"):
        foreign_files.find(tmp_path)
    for name in ("train_a.idx", "train_b.bin"):
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match=r"train_a\.bin .*\n.*looks like Megatron-LM's"):
        foreign_files.find(tmp_path)


def changed(at: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content + new if at == END else content[:at] + new + content[at + len(new) :]


def cut(size: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:size]


LENGTHS, BEGINS, BOUNDS = 34, 34 + 4 * 4, 34 + 12 * 4  # their byte offsets in the .idx file


@pytest.mark.parametrize(
    ("write", "ending", "damage", "why"),
    [
        (nanogpt, ".bin", cut(-1), "it has 1805 bytes of tokens, and each takes 2"),
        (nanogpt, ".bin", cut(0), "it holds no tokens"),
        (llm_c, ".bin", cut(-2), "its header says 903 tokens, and it holds 902"),
        (llm_c, ".bin", cut(-1), "it has 1805 bytes of tokens, and each takes 2"),
        (llm_c, ".bin", changed(END, b"\1\0"), "its header says 903 tokens, and it holds 904"),
        (llm_c, ".bin", changed(8, struct.pack("<i", -903)), "its header says -903 tokens"),
        (llm_c, ".bin", cut(1024), "it holds no tokens"),
        (llm_c, ".bin", cut(1023), "header has 1024 bytes, and this file only 1023"),
        (llm_c, ".bin", changed(4, b"\2"), "the magic number 20240520 and the version 2"),
        (llm_c, ".bin", changed(0, b"\1"), "the magic number 20240385 and the version 1"),
        (llm_c, ".bin", changed(0, struct.pack("<2i", 20240801, 7)), "its tokens are Llama 3's"),
        (llm_c, ".bin", changed(0, struct.pack("<i", 20240522)), "it holds the questions of an evaluation"),
        (megatron, ".bin", cut(-2), "its sequences have 903 tokens, and .*bin has 902"),
        (megatron, ".bin", cut(-1), "it has 1805 bytes of tokens, and each takes 2"),
        (megatron, ".bin", cut(0), "it holds no tokens"),
        (megatron, ".bin", changed(END, b"\1\0"), "its sequences have 903 tokens, and .*bin has 904"),
        (megatron, ".idx", cut(0), "it begins with b'' instead of"),
        (megatron, ".idx", cut(33), "its header has 34 bytes, and this file only 33"),
        (megatron, ".idx", cut(-1), "4 sequences and 4 bounds of documents take 114 bytes, and it has 113"),
        (megatron, ".idx", changed(END, b"\0"), "take 114 bytes, and it has 115"),
        (megatron, ".idx", changed(0, b"TNTIDX\0\0"), "it begins with b'TNTIDX"),
        (megatron, ".idx", changed(9, b"\2"), "it has the version 2, and only version 1 can be read"),
        (megatron, ".idx", changed(17, b"\5"), r"the type 5 \(i8\), not 8 \(u2\) or 4 \(i4\)"),
        (megatron, ".idx", changed(17, b"\x63"), r"the type 99 \(unknown\)"),
        (megatron, ".idx", changed(17, b"\4"), "it has 1806 bytes of tokens, and each takes 4"),
        (megatron, ".idx", changed(18, b"\xff" * 8), "18446744073709551615 sequences and 4 bounds of documents take"),
        (megatron, ".idx", changed(26, b"\x09"), "4 sequences and 9 bounds of documents take 154 bytes"),
        (megatron, ".idx", changed(LENGTHS, struct.pack("<2i", 602, -1)), "a sequence has a negative length"),
        (megatron, ".idx", changed(LENGTHS, struct.pack("<2i", 602, 1)), "its sequences do not follow each other"),
        (megatron, ".idx", changed(LENGTHS + 12, struct.pack("<i", 203)), "its sequences have 904 tokens"),
        (megatron, ".idx", changed(BEGINS + 8, b"\1"), "its sequences do not follow each other"),
        (megatron, ".idx", changed(BOUNDS, b"\1"), "its documents do not begin with the first sequence"),
        (megatron, ".idx", changed(BOUNDS + 24, b"\3"), "its documents do not .* end with the last"),
        (megatron, ".idx", changed(BOUNDS + 8, b"\5"), "its documents do not .* and ascend"),
        (megatron, ".idx", None, "it looks like Megatron-LM's, and its .idx is not beside it"),
        (megatron, ".bin", None, "the tokens that it describes are not beside it"),
    ],
)
def test_a_damaged_file_is_named_with_its_fault(
    tmp_path: Path, write: Callable[[Path], None], ending: str, damage: Callable[[bytes], bytes] | None, why: str
) -> None:
    write(tmp_path)
    (path,) = tmp_path.glob(f"*{ending}")
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=f"is no token file that can be read\n  why:  .*{why}"):
        foreign_files.find(tmp_path)


@pytest.mark.parametrize(
    ("name", "says"), [("tokens", "no split"), ("latest", "no split"), ("train_test", "test and train")]
)
def test_a_name_says_one_split(tmp_path: Path, name: str, says: str) -> None:
    nanogpt(tmp_path, name)
    with pytest.raises(UserError, match=rf"the name of the token file .*{name}\.bin says {says}\n"):
        foreign_files.find(tmp_path)


def test_folders_without_token_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        foreign_files.find(tmp_path / "absent")
    with pytest.raises(UserError, match="holds no token files"):
        foreign_files.find(tmp_path)
    os.symlink(tmp_path / "nothing.bin", tmp_path / "train.bin")
    with pytest.raises(UserError, match="or is a link to nothing"):
        foreign_files.find(tmp_path)
