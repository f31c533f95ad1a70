"""How training reads images: the same pixels with any number of processes and with DALI, limited memory, no process
left behind."""

import io
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from images_helpers import FACES, PERSONS, folder, made, picture, recordio
from throughline import images, processes
from throughline.files import UserError
from throughline.images import decoding
from throughline.randomness import Stream
from throughline.rank.data import AHEAD, AHEAD_BYTES, Loader, Manifest, batches
from throughline.rank.run import Run
from throughline.workloads import Unsupported

SIZE = 16


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures of twelve classes: training_0000, training_0001 and test_0000."""
    path = tmp_path_factory.mktemp("images")
    files = {f"train/{label:02d}/a.jpg": shaded(label) for label in range(12)}
    held = {f"val/{label:02d}/a.jpg": shaded(label) for label in range(3)}
    return made(folder(path / "source", files | held), path / "made")


def shaded(label: int) -> bytes:
    """Return a picture whose red is its label, and whose green and blue give the position of a pixel."""
    down, across = np.mgrid[0:30, 0:40]
    pixels = np.stack([np.full_like(down, 20 * label), across * 6, down * 8], axis=-1).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=95, subsampling=0)
    return stream.getvalue()


def opened(manifest: Path, image: int = SIZE) -> Any:
    return Manifest(manifest, "images", SimpleNamespace(image=image), 1)


def taken(manifest: Path, count: int, workers: int = 1) -> list[Any]:
    read = opened(manifest)
    source = read.decoded(batches(read, 1, 0, 1, 4), 4, workers)
    arrays = list(islice(source, count))
    source.close()
    return arrays


def decoders(ancestor: int) -> list[int]:
    return [pid for pid in processes.descendants(ancestor) if b"images.decoding" in processes.command_line(pid)]


def test_every_picture_once_an_epoch_and_the_same_pixels_for_any_number_of_processes(manifest: Path) -> None:
    one, three = taken(manifest, 6, workers=1), taken(manifest, 6, workers=3)
    for a, b in zip(one, three, strict=True):
        assert a["pixels"].shape == (4, SIZE, SIZE, 3) and a["pixels"].dtype == np.uint8
        assert a["labels"].dtype == np.int32
        assert all(np.array_equal(a[name], b[name]) for name in a)
        for shown, label in zip(a["pixels"], a["labels"], strict=True):
            assert abs(shown[..., 0].astype(int) - 20 * label).max() < 12, "pixels of their class"
    epochs = [np.concatenate([batch["labels"] for batch in one[first : first + 3]]) for first in (0, 3)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(12)) and not np.array_equal(*epochs)


def test_held_out_pictures_come_whole_and_always_the_same(manifest: Path) -> None:
    read = opened(manifest)
    rows = [read.reader.read(shard, epoch) for shard in read.held_out for epoch in (0, 5)]
    first, second = read.decoded(iter(rows), 4)
    assert sorted(first["labels"]) == [0, 1, 2] and len(first["pixels"]) == 3, "a last batch has what is left"
    assert np.array_equal(first["pixels"], second["pixels"])
    for shown, label in zip(first["pixels"], first["labels"].tolist(), strict=True):
        expected = decoding.resized(decoding.opened(shaded(label)), decoding.center_crop(40, 30), SIZE)
        assert np.array_equal(shown, expected)
    assert decoding.center_crop(40, 30) == (7, 2, 26, 26)


def test_a_face_is_shown_whole_or_mirrored(tmp_path: Path) -> None:
    read = Manifest(made(recordio(tmp_path / "source"), tmp_path / "made"), "faces", SimpleNamespace(), 1)
    whole = [np.asarray(decoding.opened(face)) for face in FACES]
    mirrored, each = 0, len(FACES) // PERSONS
    source: Any = read.decoded(batches(read, 1, 0, 1, 4), 4, 1)
    for batch in islice(source, 6):
        for shown, label in zip(batch["pixels"], batch["labels"].tolist(), strict=True):
            person = whole[label * each : (label + 1) * each]
            straight = any(np.array_equal(shown, face) for face in person)
            assert straight or any(np.array_equal(shown, face[:, ::-1]) for face in person)
            mirrored += not straight
    source.close()
    assert 0 < mirrored < 24


def test_a_crop_is_drawn_anew_in_every_epoch_and_for_every_picture_and_seed() -> None:
    def box(*names: int) -> Any:
        return decoding.random_crop(Stream(*names), 500, 375)

    assert box(1, 0) == box(1, 0) and len({box(seed, epoch) for seed in range(4) for epoch in range(4)}) == 16
    boxes = [box(3, number) for number in range(2000)]
    areas = np.array([wide * high / (500 * 375) for (_, _, wide, high), _ in boxes])
    shapes = np.array([wide / high for (_, _, wide, high), _ in boxes])
    assert 0.07 < areas.min() < 0.1 and 0.95 < areas.max() <= 1 and shapes.min() > 0.74 and 1.3 < shapes.max() < 1.35
    assert 0.45 < np.mean([mirrored for _, mirrored in boxes]) < 0.55
    assert all(left >= 0 and top >= 0 and left + w <= 500 and top + h <= 375 for (left, top, w, h), _ in boxes)
    for size in ((1, 1), (1, 400), (400, 1), (3, 2)):
        for number in range(20):
            (left, top, wide, high), _ = decoding.random_crop(Stream("long", number), *size)
            assert wide > 0 and high > 0 and left + wide <= size[0] and top + high <= size[1]
            read = decoding.opened(picture(size=size))
            assert decoding.resized(read, (left, top, wide, high), 8).shape == (8, 8, 3)


@pytest.mark.parametrize(("kind", "mode", "apart"), [("JPEG", "L", 4), ("JPEG", "CMYK", 4), ("PNG", "P", 12),
                                                     ("PNG", "RGBA", 4), ("JPEG", "RGB", 4)])  # fmt: skip
def test_every_kind_of_picture_becomes_red_green_and_blue(kind: str, mode: str, apart: int) -> None:
    """Of a JPEG file that is twice as wide as needed, libjpeg decodes only a part of the frequencies."""
    read = decoding.opened(picture(3, (64, 64), kind, mode))
    shown = decoding.resized(read, (0, 0, 64, 64), 32)
    wanted = picture(3, (64, 64), kind="PNG", mode="L" if mode == "L" else "RGB")
    right = np.asarray(decoding.opened(wanted).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR))
    assert abs(shown.astype(int) - right).mean() < apart
    assert read.size == ((32, 32) if kind == "JPEG" else (64, 64))


def test_the_rank_reads_through_its_loader_and_ends_with_its_processes(manifest: Path) -> None:
    read = opened(manifest)
    loader = Loader(read.decoded(batches(read, 1, 0, 1, 4), 4, 2), dict, read.ahead(4))
    assert all(np.array_equal(loader.next()["pixels"], batch["pixels"]) for batch in taken(manifest, 4))
    assert "decoded by Pillow" in str(read.reader.how) and "in 2 processes" in str(read.reader.how)
    assert decoders(os.getpid())
    assert read.ahead(4) == AHEAD - 2 and opened(manifest, 224).ahead(4096) == 1
    batch = 256 * (3 * 224**2 + 4)
    assert opened(manifest, 224).ahead(256) == 4 == AHEAD_BYTES // batch - 2, "batches ahead fit into the bound"
    loader.close()
    del loader
    assert processes.wait_until(lambda: not decoders(os.getpid()), 10)


READS = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from throughline.rank.data import Manifest, batches
read = Manifest(Path(sys.argv[1]), "images", SimpleNamespace(image=16), 1)
source = read.decoded(batches(read, 1, 0, 1, 4), 4, 2)
next(source)
assert not {"torch", "PIL"} & set(sys.modules), "a rank has no Pillow"
print("ready", flush=True)
time.sleep(600)
"""


def test_processes_do_not_outlive_a_killed_rank(manifest: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", READS, str(manifest)], stdout=subprocess.PIPE) as rank:
        assert rank.stdout and rank.stdout.readline() == b"ready\n"
        workers = decoders(rank.pid)
        assert len(workers) == 2
        assert not any("libtorch" in Path(f"/proc/{pid}/maps").read_text() for pid in workers)
        rank.send_signal(signal.SIGKILL)
        rank.wait()
    assert processes.wait_until(lambda: not any(processes.command_line(pid) for pid in workers), 10)


def test_a_process_that_dies_ends_the_rank_with_its_status(manifest: Path) -> None:
    read = opened(manifest)
    source = read.decoded(batches(read, 1, 0, 1, 4), 4, 1)
    next(source)
    for pid in decoders(os.getpid()):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="a process that decodes pictures ended with status -9"):
        list(islice(source, 4))


def test_a_file_that_changed_is_named_before_a_run_and_in_it(manifest: Path, tmp_path: Path) -> None:
    for name, what, in_run in (
        ("training_0001.tar", "was changed", "Damaged: it is neither"),
        ("training_0001.idx", "in its index", "ValueError: .* is not what the manifest says"),
    ):
        place = tmp_path / name
        for path in manifest.parent.glob("*.*"):
            folder(place, {path.name: path.read_bytes()})
        read, file = opened(place / "manifest.json"), place / name
        read.check(read.shards)
        whole = file.read_bytes()
        file.write_bytes(whole[:512] + bytes(100) + whole[612:] + b"\n")
        with pytest.raises(UserError, match=what):
            read.check(read.shards)
        rows = read.reader.read(read.shards[1], 0)
        with pytest.raises(RuntimeError, match=rf"picture \d of training_0001\.tar: {in_run}"):
            next(read.decoded(iter([rows]), 8))
        file.unlink()
        with pytest.raises(UserError, match="is missing"):
            read.check(read.shards)


def test_dali_shows_pillows_crops_and_ends_with_its_rows(manifest: Path) -> None:
    pytest.importorskip("nvidia.dali")
    torch = pytest.importorskip("torch")
    read = opened(manifest)
    held_out = next(number for number, shard in enumerate(read.content["shards"]) if shard["split"] == "test")
    rows = [*islice(batches(read, 1, 0, 1, 3), 4), {"rows": np.array([[held_out, row, -1] for row in (0, 1)])}]
    by_pillow = list(read.decoded(iter(rows), 3))
    copied, stayed = (
        list(read.reader.by_dali(iter(rows), 3, threads=2, gpu=None, stays=stays)) for stays in (False, True)
    )
    assert [len(batch["pixels"]) for batch in copied] == [3, 3, 3, 3, 2]
    for pillow, dali, tensors in zip(by_pillow, copied, stayed, strict=True):
        assert dali["pixels"].shape[1:] == (SIZE, SIZE, 3) and dali["pixels"].dtype == np.uint8
        assert dali["labels"].dtype == np.int32 and np.array_equal(dali["labels"], pillow["labels"])
        assert np.abs(dali["pixels"].astype(int) - pillow["pixels"]).mean() < 2
        assert not isinstance(tensors["pixels"], np.ndarray) and np.array_equal(tensors["labels"], dali["labels"])
        assert np.array_equal(torch.from_dlpack(tensors["pixels"]).numpy(), dali["pixels"])


@pytest.mark.parametrize(("kind", "takes", "asked"), [("cuda", True, (1, True)), ("cuda", False, (1, False)),
                                                      ("cpu", True, (None, False))])  # fmt: skip
def test_pixels_stay_on_the_gpu_for_frameworks_that_take_them(
    manifest: Path, monkeypatch: pytest.MonkeyPatch, kind: str, takes: bool, asked: tuple[int | None, bool]
) -> None:
    given: list[Any] = []
    run: Any = SimpleNamespace(
        manifest=opened(manifest), size=SimpleNamespace(batch_per_replica=4), plan=SimpleNamespace(kind=kind),
        options=SimpleNamespace(image_decoder="dali"), spec=SimpleNamespace(decoders=2),
        framework=SimpleNamespace(local_rank=1, takes_from_gpu=takes),
    )  # fmt: skip
    monkeypatch.setattr(type(run.manifest.reader), "by_dali", lambda self, *words: given.append(words[-2:]))
    Run.decoded(run, iter(()))
    assert given == [asked]


def test_an_environment_without_dali_says_so(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvidia", None)
    monkeypatch.delitem(sys.modules, "throughline.images.dali", raising=False)
    monkeypatch.delattr(images, "dali", raising=False)
    with pytest.raises(Unsupported, match=r"options\.image_decoder is dali, and this framework's environment lacks it"):
        opened(manifest).reader.by_dali(iter(()), 4, 1, None)
