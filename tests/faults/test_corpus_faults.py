"""While the corpus is made: with real processes, no unfinished file gets its final name, and the next call completes
the corpus."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from corpus_helpers import content_digest, documents, read_shard, same, tiny_vocabulary, write_tokens
from dump_server import Server, slow
from process_helpers import mounted, until
from throughline import files, handover, processes
from throughline.corpus.source import dumps
from throughline.corpus.text import tokens

PARAMETERS = '{"sequence_length": 32, "predictions": 5, "dupe_factor": 5}'
NAME = "simplewiki-20261101"
SINGLE = "pages-articles-multistream.xml.bz2"


def started(
    step: str, *words: object, folder: Path, limit_kb: int | None = None, official: str = ""
) -> subprocess.Popen[str]:
    """Start a step of the corpus in a new process.

    limit_kb: the size of the largest file that it may write; official: in place of Wikimedia's host.
    """
    command = [sys.executable, "-m", "throughline.command", f"corpus.{step}", *map(str, words)]
    if limit_kb is not None:
        command = ["bash", "-c", f'ulimit -f {limit_kb} && exec "$@"', "bash", *command]
    environment = os.environ | {
        handover.VARIABLE: handover.packed(contact="me@example.org"),
        "THROUGHLINE_OFFICIAL": official,
    }
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for a process that must end with `status`; return its output."""
    _, said = process.communicate(timeout=400)
    assert process.returncode == status, said
    assert "Traceback" not in said
    return said


def hidden(folder: Path) -> list[Path]:
    return list(folder.rglob("*.partial*"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vocabulary, and the tokens of a shard that takes a second to make."""
    folder = tmp_path_factory.mktemp("source")
    words = tiny_vocabulary(folder, words=3000)
    chance = np.random.default_rng(4)
    found = documents([chance.integers(3, 25, size=50).tolist() for _ in range(2000)], words)
    write_tokens(folder / "tokens.hdf5", found, words)
    return folder


def shard(source: Path, folder: Path, limit_kb: int | None = None) -> subprocess.Popen[str]:
    return started(
        "shard",
        *("--tokens", source / "tokens.hdf5", "--vocabulary", source / "tiny.txt", "--split", "training"),
        *("--number", 0, "--parameters", PARAMETERS, "--output", "data/training_0000.hdf5"),
        folder=folder,
        limit_kb=limit_kb,
    )


def verified(source: Path, folder: Path, status: int = 0) -> str:
    process = started(
        "verify",
        *("--shard", "data/training_0000.hdf5", "--vocabulary", source / "tiny.txt", "--parameters", PARAMETERS),
        *("--sequence-length", 32, "--predictions", 5, "--output", "data/verified.json"),
        folder=folder,
    )
    return ended(process, status)


@pytest.fixture(scope="module")
def whole(source: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of the shard that is made without a disturbance."""
    folder = tmp_path_factory.mktemp("whole")
    ended(shard(source, folder))
    return (folder / "data/training_0000.hdf5").read_bytes()


def values(path: Path) -> str:
    return content_digest(read_shard(path))


def test_kill_9_of_the_shard_writer(source: Path, whole: bytes, tmp_path: Path) -> None:
    process = shard(source, tmp_path)
    until(lambda: any(path.stat().st_size > 200_000 for path in hidden(tmp_path)), every_s=0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.communicate()
    (left,) = hidden(tmp_path)
    assert not (tmp_path / "data/training_0000.hdf5").exists() and left.name.startswith(".")
    ended(shard(source, tmp_path))
    (tmp_path / "whole.hdf5").write_bytes(whole)
    assert values(tmp_path / "data/training_0000.hdf5") == values(tmp_path / "whole.hdf5")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["training_0000.hdf5"]


@pytest.fixture
def placed(whole: bytes, tmp_path: Path) -> Path:
    """The shard's path, with the shard."""
    path = tmp_path / "data/training_0000.hdf5"
    path.parent.mkdir()
    path.write_bytes(whole)
    return path


def test_a_flipped_bit_is_caught_or_changes_nothing(source: Path, placed: Path, tmp_path: Path) -> None:
    """A flipped bit in the data is always found. A flipped bit in a byte of HDF5 that nobody reads does not change the
    content."""
    whole, content = placed.read_bytes(), content_digest(read_shard(placed))
    with h5py.File(placed) as stream:
        chunk = stream["masked_lm_ids"].id.get_chunk_info(3)
    places = [*np.random.default_rng(5).integers(len(whole), size=20).tolist(), chunk.byte_offset + chunk.size // 2]
    caught = 0
    for position in places:
        placed.write_bytes(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
        try:
            assert content_digest(read_shard(placed)) == content, position
        except files.UserError as error:
            caught += 1
            assert "snakemake --force" in str(error)
    assert caught > 15 and "snakemake --force data/training_0000.hdf5" in verified(source, tmp_path, 1)


def test_a_limit_of_sizes(source: Path, whole: bytes, tmp_path: Path) -> None:
    said = ended(shard(source, tmp_path, limit_kb=len(whole) // 2048), 1)
    assert "training_0000.hdf5 could not be written: File too large" in said and "nothing unfinished was left" in said
    assert not any((tmp_path / "data").iterdir())
    ended(shard(source, tmp_path))


def test_a_full_disk(source: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "data", "size=512k") as data:
        output = ended(shard(source, tmp_path), 1)
        assert "data/training_0000.hdf5 could not be written: No space left on device" in output
        assert not any(data.iterdir())


def test_a_disk_too_small_for_the_download(tmp_path: Path) -> None:
    with Server() as server, mounted(tmp_path / "data", "size=1m"):
        server.publish(NAME, {SINGLE: bytes(3_000_000)})
        process = started("download", "--output", f"data/{NAME}.json", folder=tmp_path, official=server.address)
        assert "data has too little space for the download" in ended(process, 1)
        assert all(not path.endswith("bz2") for path, _ in server.requests)


def test_a_read_only_folder(source: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    if os.geteuid():
        data.chmod(0o555)
        output = ended(shard(source, tmp_path), 1)
        assert "data could not be opened: Permission denied" in output
        return
    with mounted(data, "ro"):
        output = ended(shard(source, tmp_path), 1)
        assert "data could not be opened: Read-only file system" in output and "mounted read-only" in output


def test_kill_9_of_a_download(tmp_path: Path) -> None:
    content = np.random.default_rng(6).bytes(4_000_000)
    with Server() as server:
        folder = server.publish(NAME, {SINGLE: content})
        path = f"{folder}/{NAME}-{SINGLE}"
        server.misbehave(path, slow(0.05))
        words = ("download", "--output", f"data/{NAME}.json")
        process = started(*words, folder=tmp_path, official=server.address)
        part = tmp_path / "data" / f"{NAME}-{SINGLE}.part"
        until(lambda: part.exists() and part.stat().st_size > 500_000)
        process.kill()
        process.communicate()
        kept = part.stat().st_size
        assert sorted(file.suffix for file in part.parent.iterdir()) == [".lock", ".part"]
        ended(started(*words, folder=tmp_path, official=server.address))
        assert server.asked(path)[-1]["Range"] == f"bytes={kept}-"
    assert sorted(file.name for file in part.parent.iterdir()) == [f"{NAME}-{SINGLE}", f"{NAME}.json"]
    assert same((part.parent / f"{NAME}-{SINGLE}").read_bytes(), content)


def extraction(folder: Path, dump: Path, *options: object) -> subprocess.Popen[str]:
    how = ("--text", False, "--parts", 1)
    ended(started("cut", "--dump", dump, *how, "--output", "cut.json", folder=folder))
    outputs = ("--articles", "out/part.jsonl", "--counts", "out/part.json", "--extractor", "wikiextractor")
    return started("extract", "--cut", "cut.json", "--part", 0, *outputs, *options, folder=folder)


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process, parents first. To look at all processes would take too long here."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError):
            found += [int(child), *descendants(int(child))]
    return found


def is_extractor(pid: int) -> bool:
    return b"WikiExtractor" in processes.command_line(pid)


@pytest.mark.parametrize("number", [0, 1, -1], ids=["its guard", "the program", "its last process"])
def test_kill_9_of_the_extractor(tmp_path: Path, number: int) -> None:
    process = extraction(tmp_path, dumps.find_sample(), "--stall-s", 2)
    below: list[int] = []

    def running() -> bool:
        below[:] = [pid for pid in descendants(process.pid) if is_extractor(pid)]
        return len(below) >= 4 and bool(hidden(tmp_path / "out"))

    until(running, every_s=0.001)
    os.kill(below[number], signal.SIGKILL)
    output = ended(process, 1)
    assert "wikiextractor" in output or "text extraction" in output
    assert not any((tmp_path / "out").iterdir())
    until(lambda: not any(is_extractor(pid) for pid in below))
    ended(extraction(tmp_path, dumps.find_sample()))
    assert files.read_json(tmp_path / "out/part.json")["articles"] == 106


def test_paths_with_blanks_and_quotes(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s "a" folder; $(touch pwned) \\ *'
    folder.mkdir()
    dump = folder / "my 'dump' & more.xml.bz2"
    shutil.copy(dumps.find_sample(), dump)
    ended(extraction(folder, dump))
    (folder / "out/part.jsonl").rename(folder / "the articles.jsonl")
    tiny_vocabulary(folder)
    how = ("tokenize", "--tokenizer", "--lower-case", True, "--lines", False, "--vocabulary", folder / "tiny.txt")
    ended(started(*how, "--articles", "the articles.jsonl", "--output", "to kens.hdf5", folder=folder))
    assert len(tokens.read(folder / "to kens.hdf5")[0]) == 105  # one of the 106 articles has no text
    assert not list(tmp_path.rglob("pwned"))
    (folder / "to kens.hdf5").write_bytes(b"")
    gather = ("gather", "--parts", "to kens.hdf5", "--position", 0, "--shards", 1)
    process = started(*gather, "--output", "x.hdf5", folder=folder)
    assert "snakemake --force 'to kens.hdf5'" in ended(process, 1)
