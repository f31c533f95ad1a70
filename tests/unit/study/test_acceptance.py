"""What an acceptance measures: its places, the specifications and files of its runs, and its round robin of pairs."""

import pytest

from throughline.spec import Topology
from throughline.study import acceptance
from throughline.study.accept_section import Accept
from throughline.study.acceptance import Fleet, Place
from throughline.study.config import Config, load


@pytest.fixture
def config() -> Config:
    return load(["config.yaml"])


@pytest.mark.parametrize("nodes", range(1, 10))
def test_every_pair_meets_once_and_no_node_meets_two_at_a_time(nodes: int) -> None:
    rounds = acceptance.rounds_of_pairs(range(nodes))
    pairs = [pair for pairs in rounds for pair in pairs]
    assert len(pairs) == len(set(pairs)) == nodes * (nodes - 1) // 2
    assert all(first < second for first, second in pairs)
    assert all(len({node for pair in pairs for node in pair}) == 2 * len(pairs) for pairs in rounds)
    assert len(rounds) == (nodes - 1 if nodes % 2 == 0 else nodes if nodes > 1 else 0)


def test_places_have_words_folders_and_a_job() -> None:
    places = [Place("device", (3,), 5), Place("node", (3,)), Place("pair", (2, 5)), Place("all", (0, 1, 2))]
    assert [*map(str, places)] == ["node 3, GPU 5", "node 3", "nodes 2 and 5", "all nodes"]
    assert [place.folder for place in places] == ["node3/device5", "node3/all", "pair_2_5", "all"]
    assert [place.visit for place in places] == ["node3", "node3", "pair_2_5", "all"]


@pytest.mark.parametrize(
    ("nodes", "text", "renumbered"),
    [
        ((3,), "no word from node0:29500, node 0's agent", "no word from node3:29500, node 3's agent"),
        ((1, 2), "node 0: it is not like node 1", "node 1: it is not like node 2"),
        ((0, 2), "node 1 and its NUMA node 1", "node 2 and its NUMA node 1"),
        ((0, 2, 3), "rank 7 of 24 on node 2, node 9", "rank 7 of 24 on node 3, node 9"),
        ((1,), "results/acceptance/node0/visit1.json", "results/acceptance/node0/visit1.json"),
    ],
)
def test_texts_of_a_run_get_the_numbers_of_the_acceptance(nodes: tuple[int, ...], text: str, renumbered: str) -> None:
    assert Place("all", nodes).renumbered(text) == renumbered


def test_on_gpus_each_is_measured_alone_then_its_node_then_pairs_then_all(config: Config) -> None:
    made = acceptance.asked(config, Fleet((0, 1, 2, 3), 8, "cuda")).measurements()
    whats: dict[str, set[str]] = {}
    for measured in made:
        whats.setdefault(measured.place.kind, set()).add(f"{measured.what} {measured.spec.topology}")
    assert whats == {
        "device": {f"{what} 1n1g" for what in ("step", "matmul", "memory", "copies")},
        "node": {"step 1n8g", "all-reduce 1n8g", "disk 1n1g"},
        "pair": {"all-reduce 2n8g"},
        "all": {"step 4n8g", "all-reduce 4n8g"},
    }
    assert list(dict.fromkeys(measured.place.kind for measured in made)) == ["device", "node", "pair", "all"]
    assert len({measured.record for measured in made}) == len(made) == 3 * (4 * (8 * 4 + 3) + 6 + 2)
    first = made[0]
    assert first.record == "results/acceptance/node0/device0/step/run1.json"
    assert (first.spec.device, first.spec.repeat, first.spec.options.data) == ("cuda", 1, "synthetic")


def test_a_large_fleet_is_planned_once(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    made = acceptance.asked(config, Fleet(tuple(range(64)), 8, "cuda"))
    calls, measurements = [], made.measurements()
    monkeypatch.setattr(acceptance.Plan, "measurements", lambda _: calls.append(1) or measurements)
    visits = made.visits
    assert [made.priorities[file] for file in visits] == [*range(len(visits), 0, -1)]
    assert sum(map(len, made.visits.values())) == len(measurements) == 12_774 and len(calls) == 1


def test_on_a_cpu_the_node_is_the_device_and_two_nodes_are_a_pair(config: Config) -> None:
    made = acceptance.asked(config, Fleet((0, 1, 2, 3), 1, "cpu", threads=2)).measurements()
    assert {measured.place.kind for measured in made} == {"node", "pair", "all"}
    assert {one.what for one in made if one.place.kind == "node"} == {"step", "matmul", "memory", "disk"}
    assert {measured.spec.threads for measured in made} == {2}
    for nodes, kinds in (((0, 1), {"node", "pair"}), ((0,), {"node"})):
        assert {place.kind for place in acceptance.asked(config, Fleet(nodes, 1, "cpu")).places()} == kinds


def test_a_quick_acceptance_measures_nodes_in_two_runs_and_pairs_as_usual(config: Config) -> None:
    accept = Accept(quick=True, repeats=2, precision="fp16", disk="/scratch")
    plan = acceptance.asked(config.model_copy(update={"accept": accept}), Fleet(tuple(range(128)), 8, "cuda"))
    node, *others = plan.visits.values()
    assert [(one.what, str(one.spec.topology), one.spec.precision) for one in node] == [
        ("parts", "1n8g", "fp16"), ("step", "1n8g", "bf16")
    ]  # fmt: skip
    assert (node[0].spec.parameters.written, node[0].spec.parameters.disk_folder) == (1 << 28, "/scratch")
    assert len(others) == 127 + 2 * 127 * 64 and {one.what for visit in others[127:] for one in visit} == {"all-reduce"}
    assert acceptance.read_plan(plan.text) == plan
    assert len(plan.text) < 20_000, "it is a word of a command line, which may have 128 KiB"


@pytest.mark.parametrize(("pairs", "rounds"), [("all", 15), ("none", 0), (4, 4), (99, 15)])
def test_pairs_are_shortened_by_rounds(config: Config, pairs: object, rounds: int) -> None:
    config = config.model_copy(update={"accept": Accept.model_validate({"pairs": pairs})})
    made = acceptance.asked(config, Fleet(tuple(range(16)), 1, "cpu"))
    assert sum(place.kind == "pair" for place in made.places()) == 8 * rounds


def test_the_training_step_is_that_of_a_benchmark(config: Config) -> None:
    block = {"model": "gpt2-tiny", "sequence_length": 64, "batch": {"bf16": [4, 8]}, "repeats": 9}
    config = load(["config.yaml"], {"benchmarks": {"mine": block}, "accept": {"train": "mine", "step_s": 7}})
    made = acceptance.asked(config, Fleet((0, 1), 8, "cuda")).measurements()
    steps = [measured.spec for measured in made if measured.what == "step"]
    assert {(spec.model, spec.parameters.sequence_length, spec.precision, spec.batch) for spec in steps} == {
        ("gpt2-tiny", 64, "bf16", 4)
    }
    assert {spec.topology for spec in steps} == {Topology(1, 1), Topology(1, 8)}
    assert {(spec.repeat, spec.steps.max_total_seconds) for spec in steps} == {(1, 7), (2, 7), (3, 7)}


def test_the_training_step_may_be_that_of_a_program() -> None:
    mine = {"command": "train --batch {batch} --world {world}", "timing": "marks", "per_step": 8}
    accept = {"train": {"program": "mine", "batch": 4, "precision": "bf16"}}
    config = load(["config.yaml"], {"programs": {"mine": mine}, "accept": accept})
    made = acceptance.asked(config, Fleet((0, 1), 8, "cuda")).measurements()
    steps = [measured.spec for measured in made if measured.what == "step"]
    assert {(spec.framework, spec.batch, spec.precision) for spec in steps} == {("mine", 4, "bf16")}
    assert {spec.topology for spec in steps} == {Topology(1, 1), Topology(1, 8)}
    assert all(spec.program and spec.program.command[2] == "{batch}" for spec in steps)


def test_an_expected_figure_must_be_one_of_its_measurement() -> None:
    row = {"what": "copies", "figure": "latency", "value": 1, "unit": "us", "source": "a table"}
    with pytest.raises(ValueError, match="figure = latency: copies has host_to_device and device_to_host"):
        Accept.model_validate({"expected": [row]})
