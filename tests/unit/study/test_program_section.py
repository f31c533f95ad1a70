"""The section `programs`: which mistakes are named, and what a run's specification has of it."""

from pathlib import Path

import pytest

from throughline.spec import RunSpec, cell_name
from throughline.study import runs
from throughline.study.config import ConfigError, load

OWN = "command: 'train --ranks={world} --batch={batch}', timing: marks, per_step: '{batch} * {world}'"
BLOCK = "programs: [own], topologies: [1n1g, 1n2g], batch: {bf16: [8]}"


def written(tmp_path: Path, own: str, block: str = BLOCK, others: str = "") -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(f"programs: {{own: {{{own}}}{others}}}\nbenchmarks: {{mine: {{{block}}}}}\n", encoding="utf-8")
    return path


def mistakes(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load([path])
    return str(caught.value)


def specs(path: Path) -> list[RunSpec]:
    return list(runs.expand(load([path])))


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("timing: marks, per_step: 1", "programs.own.command: missing"),
        ("command: '', timing: marks, per_step: 1", "programs.own.command"),
        (
            "command: 'train {gpus}', timing: marks, per_step: 1",
            "programs.own.command = 'train {gpus}': there is no {gpus}; placeholders: nodes,",
        ),
        ('command: "train \'a", timing: marks, per_step: 1', 'own.command = "train \'a": No closing quotation'),
        ("command: train, prepare: 'rm {all}', timing: marks, per_step: 1", "prepare = 'rm {all}': there is no {all}"),
        ("command: train, timing: marks, per_step: '{size}'", "per_step = '{size}': there is no {size}"),
        ("command: train, timing: marks, per_step: '{port}'", "per_step = '{port}': {port} is not known before a run"),
        (
            "command: train, timing: marks, per_step: '{batch} / 2'",
            "per_step = '{batch} / 2': '{batch} / 2' is no whole number",
        ),
        ("command: train, timing: marks, per_step: 0", "programs.own.per_step"),
        ("command: train, timing: nanogptt, per_step: 1", "did you mean nanogpt or nanochat?"),
        ("command: train, timing: {pattern: 'iter (?P<ms>.*)'}, per_step: 1", "its groups: ms"),
        ("command: train, timing: {pattern: 'iter .*'}, per_step: 1", "needs the groups (?P<step>...) and one of"),
        ("command: train, timing: {pattern: '(?P<step>.) (?P<ms>.) (?P<s>.)'}, per_step: 1", "its groups: step, ms, s"),
        ("command: train, timing: {pattern: '(?P<step>.'}, per_step: 1", "is no regular expression: "),
        (
            "command: train, timing: marks, per_step: 1, unit: Tokens/s",
            "unit = 'Tokens/s': a unit is one word in small",
        ),
        ("command: train, timing: marks, per_step: 1, start: rnak", "did you mean rank?"),
    ],
)
def test_a_mistake_in_a_program(tmp_path: Path, own: str, message: str) -> None:
    assert message in mistakes(written(tmp_path, own))


@pytest.mark.parametrize(
    ("own", "block", "message"),
    [
        (OWN, "programs: [owm]", "programs = 'owm': allowed: own; did you mean own?"),
        (OWN, "programs: [own, own]", "listed twice: own"),
        (
            "command: train, timing: marks, per_step: 1",
            BLOCK,
            "own would not know the world: its command lacks {world}",
        ),
        (
            "command: 'train {world}', timing: marks, per_step: 1",
            "programs: [own], batch: {bf16: [4, 8]}",
            "own would not know the batch: its command lacks {batch}",
        ),
        (
            "command: 'train {batch}', timing: marks, per_step: 1",
            "programs: [own], batch: {bf16: [4], fp32: [4]}",
            "own would not know the precision: its command lacks {precision}",
        ),
        (OWN, "programs: [own], topologies: [1n1g]", "own takes {batch}, and `batch` states none"),
        (
            "command: 'train {world}', timing: marks, per_step: '{batch} - 4 * {world}'",
            BLOCK,
            "own: per_step: '{batch} - 4 * {world}' is 0 here, and a step has at least 1 unit (topology 1n2g)",
        ),
        (OWN, f"{BLOCK}, extras: [max_batch]", "extras: max_batch: it changes a framework of ours"),
        (OWN, f"{BLOCK}, convergence: {{steps: 9}}", "convergence and job are for frameworks of ours"),
    ],
)
def test_a_mistake_in_a_block_of_programs(tmp_path: Path, own: str, block: str, message: str) -> None:
    assert message in mistakes(written(tmp_path, own, block))


@pytest.mark.parametrize(
    ("name", "block", "message"),
    [
        ("other", "programs: [own, other], batch: {bf16: [8]}", "its rows count samples and tokens; state `unit`"),
        ("My_own", BLOCK, "programs.My_own: the name of a program has lower-case"),
        ("jax", BLOCK, "programs.jax: a framework has this name; choose another"),
    ],
)
def test_a_second_program_that_cannot_be(tmp_path: Path, name: str, block: str, message: str) -> None:
    others = f", {name}: {{command: train, timing: marks, per_step: 1, unit: tokens}}"
    assert message in mistakes(written(tmp_path, OWN, block, others))


@pytest.mark.parametrize(
    "sees", ["'train {world}'", "'train {devices}'", "'train {hostfile}'", "'train {nodes}'", "train, start: rank"]
)
def test_a_program_that_learns_the_number_of_its_devices(tmp_path: Path, sees: str) -> None:
    specs(written(tmp_path, f"command: {sees}, timing: marks, per_step: 1"))


def test_what_a_specification_has(tmp_path: Path) -> None:
    own = (
        f"{OWN}, start: rank, unit: tokens, precisions: {{bf16: bfloat16}}, folder: {tmp_path}, files: ['*.txt'], "
        "variables: {OMP_NUM_THREADS: 8, SECRET: word}, silent_for: 30, timeout: 90, prepare: [bash, -c, 'rm x']"
    )
    path = written(tmp_path, own, f"{BLOCK}, repeats: 1")
    one, two = specs(path)
    assert one.program and two.program
    assert (one.program.per_step, two.program.per_step) == (8, 16)
    assert two.program.command == ("train", "--ranks={world}", "--batch={batch}")
    assert two.program.precision == "bfloat16"
    assert two.program.variables == {"OMP_NUM_THREADS": "8", "SECRET": None}
    assert two.record == "results/mine/bz8_bf16/own/1n2g/run1.json"
    assert "word" not in two.canonical and str(tmp_path) not in two.canonical
    places = load([path]).programs["own"].places()
    assert places == {
        "folder": str(tmp_path),
        "files": ["*.txt"],
        "python": None,
        "variables": {"OMP_NUM_THREADS": "8", "SECRET": "word"},
        "silent_for": 30.0,
        "timeout": 90.0,
    }


def test_a_program_may_decide_batch_and_precision(tmp_path: Path) -> None:
    (spec,) = specs(written(tmp_path, "command: train, timing: nanogpt, per_step: 512", "programs: [own], repeats: 1"))
    assert spec.record == "results/mine/bzprogram_program/own/1n1g/run1.json"
    assert cell_name(spec.benchmark, spec.batch, spec.precision, spec.framework) == "mine own"
    assert (spec.model, spec.framework) == ("program", "own")
    assert spec.program and spec.program.timing.group == "ms"


def test_a_program_beside_a_framework(tmp_path: Path) -> None:
    block = (
        "model: bert-tiny, sequence_length: 32, frameworks: [torch], programs: [own], batch: {bf16: [8]}, repeats: 1"
    )
    ours, own = specs(written(tmp_path, OWN, block))
    assert (ours.framework, ours.program, own.framework) == ("torch", None, "own")


def test_a_record_has_no_folders_above_that_of_the_program(tmp_path: Path) -> None:
    config = load([written(tmp_path, f"{OWN}, folder: {tmp_path}")])
    configuration = runs.unpacked(runs.packed(config), "mine")
    assert configuration and configuration["programs"]["own"]["folder"] == tmp_path.name
