"""What a partition has, read from the output of a synthetic `sinfo`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest

from throughline.files import UserError
from throughline.launch import slurm_partition
from throughline.launch.slurm_partition import SlurmNode
from unit.launch.conftest import Program


@pytest.fixture
def sinfo(program: Program) -> Iterator[Callable[[str], str]]:
    """A function that makes a synthetic `sinfo` of a shell script."""
    slurm_partition.nodes.cache_clear()
    yield functools.partial(program, "sinfo")
    slurm_partition.nodes.cache_clear()


def printed(*groups: str) -> str:
    """Return a script that prints a node for each `PARTITION|STATE|RESOURCES|CORES`."""
    return "\n".join(f"echo 'n{number}|{group}|(null)'" for number, group in enumerate(groups))


def test_nodes_are_sorted_by_number_and_have_all_their_gpus(sinfo: Callable[[str], str]) -> None:
    sinfo("echo 'n10|gpu*|idle|gpu:a100:8(S:0-1),nvme:1|64|a100,ib'; " + printed("cpu|idle|(null)|8") +
          "\necho 'n9|gpu*|down*|gpu:8|32|(null)'")  # fmt: skip
    assert slurm_partition.nodes(None) == (
        SlurmNode("n9", "down*", 8, 32, frozenset({"(null)"})),
        SlurmNode("n10", "idle", 8, 64, frozenset({"a100", "ib"})),
    )


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ("gpu:k80:no_consume:4", 4),
        ("gpu:a100:4(S:0,2),nvme:1", 4),
        ("shard:8,gpu:a100_3g.39gb:2(S:0-1),gpu:1g.5gb:7", 9),
        ("gpu:0", 0),
        ("gpu", 1),
        ("gpu:a100", 1),
        ("gpumem:80,mps:400", 0),
        ("(null)", 0),
    ],
)
def test_the_gpus_among_generic_resources(sinfo: Callable[[str], str], resources: str, gpus: int) -> None:
    sinfo(printed(f"gpu*|idle|{resources}|64"))
    assert [node.gpus for node in slurm_partition.nodes(None)] == [gpus]


@pytest.mark.parametrize(
    ("groups", "partition", "expected"),
    [
        (
            ("main*|idle|(null)|8", "main*|idle|nvme:2|8", "gpu|idle|gpu:a100:8|64"),
            None,
            ("cpu", "no node of the default partition has GPUs"),
        ),
        (
            ("gpu*|idle|gpu:a100:8|64", "gpu*|idle|nvme:1,gpu:4|64"),
            None,
            ("cuda", "every node of the default partition has GPUs"),
        ),
        (("gpu|down|gpu:8(S:0-1)|64",), "gpu", ("cuda", "every node of partition gpu has GPUs")),
    ],
)
def test_nodes_of_one_kind_decide_the_device(
    sinfo: Callable[[str], str], groups: tuple[str, ...], partition: str | None, expected: tuple[str, str]
) -> None:
    sinfo(printed(*groups))
    assert slurm_partition.device(partition) == expected


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (printed(*["all*|idle|gpu:8|64"] * 2, *["all*|idle|(null)|8"] * 5), r"with GPUs \(2\) and without \(5\)"),
        (":", "Slurm names no node of the default partition"),
        ("echo no controller >&2; exit 1", "`sinfo`: .*no controller"),
    ],
)
def test_what_cannot_be_decided_names_the_key(sinfo: Callable[[str], str], body: str, words: str) -> None:
    sinfo(body)
    with pytest.raises(UserError, match=words) as error:
        slurm_partition.device(None)
    assert "runs.device" in str(error.value)


def test_the_cores_are_those_of_the_smallest_node_with_gpus(sinfo: Callable[[str], str]) -> None:
    sinfo(printed("gpu|idle|gpu:8|128", "gpu|idle|gpu:8|96", "gpu|idle|(null)|4", "main*|idle|(null)|8"))
    assert slurm_partition.cores("gpu") == 96
    sinfo(printed("main*|idle|(null)|8"))
    with pytest.raises(UserError, match=r"(?s)no node with GPUs in the default partition.*run:cpus_per_task="):
        slurm_partition.cores(None)


@pytest.mark.parametrize(
    ("state", "is_up", "is_lost"),
    [
        ("idle", True, False),
        ("idle~", True, False),
        ("mixed-", True, False),
        ("allocated+", True, False),
        ("idle*", False, False),
        ("down*", False, True),
        ("drained", False, True),
    ],
)
def test_a_node_that_does_not_respond_is_not_up_and_not_lost(state: str, is_up: bool, is_lost: bool) -> None:
    node = SlurmNode("n", state, 0, 1, frozenset())
    assert (node.is_up, node.is_lost) == (is_up, is_lost)
