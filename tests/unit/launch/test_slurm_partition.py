"""What a partition has, read from the output of a synthetic `sinfo`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from throughline.files import UserError
from throughline.launch import slurm_partition

Sinfo = Callable[[str], None]


@pytest.fixture
def sinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sinfo]:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def answers(body: str) -> None:
        (tmp_path / "sinfo").write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "sinfo").chmod(0o755)

    for asked in (slurm_partition.device, slurm_partition.cores):
        asked.cache_clear()
    yield answers
    for asked in (slurm_partition.device, slurm_partition.cores):
        asked.cache_clear()


@pytest.mark.parametrize(
    ("lines", "named", "expected"),
    [
        (
            "main*|3|(null)|8\nmain*|1|nvme:2|8\ngpu|2|gpu:a100:8|64",
            None,
            ("cpu", "no node of the default partition has GPUs"),
        ),
        (
            "gpu*|2|gpu:a100:8|64\ngpu*|3|nvme:1,gpu:4|64",
            None,
            ("cuda", "every node of the default partition has GPUs"),
        ),
        ("gpu|2|gpu:8(S:0-1)|64", "gpu", ("cuda", "every node of partition gpu has GPUs")),
    ],
)
def test_one_kind_of_nodes(sinfo: Sinfo, lines: str, named: str | None, expected: tuple[str, str]) -> None:
    sinfo(f"echo '{lines}'")
    assert slurm_partition.device(named) == expected


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo 'all*|2|gpu:8|64'; echo 'all*|5|(null)|8'", r"has nodes with GPUs \(2\) and without \(5\)"),
        (":", "Slurm names no node of the default partition"),
        ("echo no controller >&2; exit 1", "`sinfo`: .*no controller"),
    ],
)
def test_what_cannot_be_settled_names_the_key(sinfo: Sinfo, body: str, words: str) -> None:
    sinfo(body)
    with pytest.raises(UserError, match=words) as error:
        slurm_partition.device(None)
    assert "runs.device" in str(error.value)


def test_the_cores_of_the_smallest_node_with_gpus(sinfo: Sinfo) -> None:
    sinfo("echo 'gpu|2|gpu:8|128'; echo 'gpu|1|gpu:8|96'; echo 'gpu|3|(null)|4'")
    assert slurm_partition.cores("gpu") == 96


@pytest.mark.parametrize("body", ["echo 'main*|3|(null)|8'", "echo no controller >&2; exit 1"])
def test_cores_that_slurm_does_not_tell_can_be_given(sinfo: Sinfo, body: str) -> None:
    sinfo(body)
    with pytest.raises(UserError, match=r"(?s)no node with GPUs in the default partition.*run:cpus_per_task="):
        slurm_partition.cores(None)


def test_a_node_that_does_not_respond_is_not_up_and_not_lost() -> None:
    states = {"idle": (True, False), "idle*": (False, False), "down*": (False, True), "drained": (False, True)}
    for state, expected in states.items():
        node = slurm_partition.SlurmNode("n", state, 0, 1, frozenset())
        assert (node.is_up, node.is_lost) == expected, state
