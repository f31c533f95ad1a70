"""The compiled loops give the same results as Python and numpy, are built once, and are not required."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_helpers import documents, tiny_vocabulary
from throughline.corpus import compression, kernel
from throughline.corpus.shards import Parameters, instances, layout, row_checks, segment_pairs, text_lookup
from throughline.corpus.text import vocabulary
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError

from .shards.test_instances import LENGTHS, PARAMETERS

T = TypeVar("T")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary.write_bert_base_uncased(path)
    return vocabulary.read(path)


def plainly(function: Callable[[], T]) -> T:
    """Return the function's result without the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "load", lambda: None)
        return function()


@settings(max_examples=80, deadline=None)
@given(lengths=LENGTHS, parameters=PARAMETERS, wide=st.booleans())
def test_examples(words: Vocabulary, lengths: list[list[int]], parameters: Parameters, wide: bool) -> None:
    found = documents(lengths, words)
    if wide:
        found = replace(found, tokens=found.tokens.astype(np.uint32))

    def made() -> list[dict[str, np.ndarray]]:
        order = segment_pairs.examples(found, parameters, "training", 0)
        return list(instances.blocks(found, order, parameters, words, "training", 0, 50))

    compiled, plain = made(), plainly(made)
    assert len(compiled) == len(plain)
    for ours, expected in zip(compiled, plain, strict=True):
        assert list(ours) == list(layout.TYPES) and expected.keys() == ours.keys()
        for name, array in ours.items():
            assert array.dtype == expected[name].dtype and np.array_equal(array, expected[name]), name


def test_the_longest_sequence(tmp_path: Path) -> None:
    words = tiny_vocabulary(tmp_path, words=3000)
    found, parameters = documents([[40_000, 3], [50_000], [7]], words), Parameters(1 << 15, 5000, dupe_factor=1)

    def made() -> bytes:
        order = segment_pairs.examples(found, parameters, "training", 0)
        (block,) = instances.blocks(found, order, parameters, words, "training", 0, 50)
        return b"".join(block[name].tobytes() for name in layout.TYPES)

    assert made() == plainly(made)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_verification_by_kernel_and_by_numpy_accept_the_same(data: st.DataObject, words: Vocabulary) -> None:
    """One value of a valid block is changed. Either both see a fault, or neither does and their counts are equal."""
    found, parameters = documents([[4, 9, 30, 2] * 3, [7, 7, 50], [3, 3, 1]], words), Parameters(24, 4, dupe_factor=2)
    order = segment_pairs.examples(found, parameters, "training", 0)
    (block,) = instances.blocks(found, order, parameters, words, "training", 0, 4096)
    array = block[data.draw(st.sampled_from(sorted(block)))].reshape(-1)
    place = data.draw(st.integers(0, len(array) - 1))
    value = st.sampled_from([-1, 0, 1, 2, 3, words.cls, words.sep, words.mask, len(words), int(array[place])])
    array[place] = data.draw(st.one_of(st.integers(0, 30), value)) % (1 << 7 if array.itemsize == 1 else 1 << 31)
    for promised in (parameters, None):
        compiled = row_checks._compiled_counts(block, words, promised)
        try:
            row_checks.check_layout(Path("shard"), block, words)
            if promised is not None:
                row_checks.check_promises(Path("shard"), block, words, promised)
        except UserError:
            assert compiled is None
        else:
            assert compiled == row_checks.counted(block, words)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_segments_are_looked_up_alike(data: st.DataObject, words: Vocabulary) -> None:
    """The text has few different words, and some tokens are changed afterwards. Either both see a fault, or they judge
    the same rows."""
    lengths = st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=1, max_size=5)
    found, variety = documents(data.draw(lengths), words), data.draw(st.sampled_from([1, 2, 3, 50]))
    found.tokens[:] = 2000 + found.tokens % variety
    parameters, wide = Parameters(data.draw(st.sampled_from([8, 16, 40])), 4, dupe_factor=2), data.draw(st.booleans())
    order = segment_pairs.examples(found, parameters, "training", 0)
    if not len(order):
        return
    (block,) = instances.blocks(found, order, parameters, words, "training", 0, 4096)
    row_checks.check_layout(Path("shard"), block, words)
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, len(found.tokens) - 1))
        found.tokens[place] = 2000 + data.draw(st.integers(0, variety))
    if data.draw(st.booleans()):
        block["next_sentence_labels"][data.draw(st.integers(0, len(order) - 1))] ^= 1
    text = text_lookup.Text(replace(found, tokens=found.tokens.astype(np.uint32)) if wide else found)

    def judged() -> int | str:
        try:
            return text.check(Path("shard"), block, np.arange(len(order)))
        except UserError as error:
            return str(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lookup, "_TOO_COMMON", data.draw(st.sampled_from([3, 1000])))
        plain = plainly(judged)
        assert judged() == plain
        length, second = (block[name].sum(axis=1, dtype=np.int64) for name in ("input_mask", "segment_ids"))
        labels = block["next_sentence_labels"]
        compiled = text._compiled(row_checks.restored(block), length - second - 2, second - 1, labels)
        if isinstance(plain, str):
            assert f"first in row {-3 - compiled} " in plain
        else:
            assert compiled == plain


@pytest.mark.parametrize("kind", ["i4", "i2", "i8", "i1"])
def test_planes(kind: str) -> None:
    data = np.random.default_rng(0).integers(-128, 127, size=(33, 7)).astype(kind)
    assert compression._planes(data).tobytes() == plainly(lambda: compression._planes(data)).tobytes()


def test_elements() -> None:
    data = np.random.default_rng(0).integers(0, 1 << 32, size=1001, dtype=np.uint32)
    planes, out = compression._planes(data), np.empty_like(data)
    kernel.load().elements(planes.ctypes.data, len(data), out.ctypes.data)
    assert np.array_equal(out, data)


@pytest.mark.slow
def test_many_processes_build_it_once(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\necho once >> {tmp_path}/calls\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "CC": str(compiler)}
    code = "from throughline.corpus import kernel; assert kernel.load() is not None"
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(subprocess.run, [sys.executable, "-c", code], env=environment) for _ in range(4)]
    assert [run.result().returncode for run in runs] == [0] * 4
    assert (tmp_path / "calls").read_text() == "once\n"
    assert len(list((tmp_path / "cache").rglob("*.so"))) == 1


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"PATH": "nowhere"}, "no C compiler is here"),
        ({"CC": "false"}, "false failed"),
        ({"XDG_CACHE_HOME": __file__}, None),  # a file where the folder would be
    ],
)
def test_without_a_compiler_an_error_says_what_to_install(
    tmp_path: Path, broken: dict[str, str], why: str | None
) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), **broken}
    code = "from throughline.corpus import kernel; from throughline.files import command_line;"
    code += "command_line(lambda: print(kernel.load()))"
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if why is None:
        assert run.stdout.startswith("<CDLL") and not run.stderr
    else:
        assert run.returncode == 1 and run.stderr.startswith("error: the compiled part of the corpus cannot be built")
        assert why in run.stderr and "next: install a C compiler (Debian, Ubuntu: gcc" in run.stderr
        assert len(run.stderr.splitlines()) == 3 and not list(tmp_path.rglob("*.so"))
