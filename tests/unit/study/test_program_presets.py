"""Presets for other people's programs: each is a valid configuration, and its pattern finds the steps in a real line.

A line is what the version of the preset prints, on GPUs or, for nanoGPT and LitGPT, on a CPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from throughline.programs import words
from throughline.programs.timing import Lines, step_s
from throughline.spec import RunSpec
from throughline.study import runs
from throughline.study.config import load

PRESETS = Path(__file__).parents[3] / "presets"
NANOGPT = "iter 10: loss 3.7214, time 203.88ms, mfu 0.02%"
LITGPT = "Epoch 1 | iter 20 step 20 | loss train: 9.472, val: n/a | iter time: 424.87 ms (step) remaining time: 0:00:00"
TORCHTITAN = (
    "[rank0]:[titan] 2026-02-20 14:42:41,123 - root - INFO - \x1b[31mstep: 90  \x1b[32mloss:  4.21357  "
    "\x1b[38;2;180;60;0mgrad_norm:  1.1134  \x1b[38;2;54;234;195mmemory: 76.80GiB(80.84%)  \x1b[34mtps: 8,532  "
    "\x1b[36mtflops: 494.11  \x1b[35mmfu: 49.96%\x1b[39m"
)
BERT = (
    "Iteration:  14%|█▎        | 156/1142 [00:28<02:54,  5.66it/s]Sat Dec 19 16:42:01 2020[1,0]<stdout>:DLL 2020-12-19 "
    "16:42:01.066413 - Training Epoch: 0 Training Iteration: 49  average_loss : 7.985928622159091  "
    "step_loss : 8.0078125  learning_rate : 0.0"
)
GLUONNLP = (
    "[1,0]<stderr>:INFO:root:[step 100]\tmlm_loss=7.89311\tmlm_acc=12.88\tnsp_loss= 0.69\tnsp_acc=56.25\t"
    "throughput=17.3K tks/s\tlr=0.0000500 time=0.22, latency=215.3 ms/batch"
)
LINES: dict[str, tuple[str | None, tuple[int, float, float | None]]] = {
    # preset: a line of its log, and the step, the figure and the loss in it
    "nanogpt": (NANOGPT, (10, 203.88, 3.7214)),
    "litgpt": (LITGPT, (20, 424.87, 9.472)),
    "torchtitan": (TORCHTITAN, (90, 8532.0, 4.21357)),
    "nvidia-bert": (BERT, (49, 60121.066413, 8.0078125)),
    "gluonnlp": (GLUONNLP, (100, 215.3, 7.89311)),
    "run-clm": (None, (0, 0.0, None)),
}
UNITS = {
    # units of a step on all devices, by program and topology, as its authors count them
    ("nanogpt", "1n8g"): 491_520,
    ("litgpt", "1n8g"): 4 * 8 * 2048,
    ("run-clm", "1n2g"): 8,
    ("bert", "1n1g"): 67_584,
    ("bert", "1n8g"): 67_584,
    ("bert", "4n8g"): 270_336,
    ("bert-without-accumulation", "4n8g"): 1024,
    ("gluonnlp", "4n8g"): 1024,
    ("fsdp", "1n8g"): 16 * 8192,
    ("tensor", "1n8g"): 8 * 8192,
    ("pipeline", "1n8g"): 8 * 8192,
    ("context-2", "1n8g"): 4 * 65_536,
    ("context-8", "1n8g"): 262_144,
}


def asked(name: str) -> list[RunSpec]:
    return [spec for spec in runs.expand(load([PRESETS / f"program-{name}.yaml"])) if spec.repeat == 1]


def test_every_preset_of_a_program_is_here_and_says_what_it_takes() -> None:
    assert {path.stem.removeprefix("program-") for path in PRESETS.glob("program-*.yaml")} == set(LINES)
    for name in LINES:
        text = (PRESETS / f"program-{name}.yaml").read_text(encoding="utf-8")
        assert all(f"\n# {part}" in text for part in ("Version: ", "Published")) and " Install" in text


@pytest.mark.parametrize("name", LINES)
def test_a_preset_is_valid_and_its_pattern_finds_the_steps(name: str) -> None:
    line, expected = LINES[name]
    for spec in asked(name):
        program = spec.program
        assert program
        # What only the node knows is left: its number, where the first node listens, the folder of the run.
        assert words.used(words.command(spec)) <= set(words.OF_NODE)
        counted = UNITS.get((spec.framework, str(spec.topology)))
        smallest = spec.batch == min(s.batch for s in asked(name) if s.framework == spec.framework)
        assert not smallest or counted in (None, program.per_step)
        if line is None:
            assert program.timing.pattern is None
            continue
        point = Lines(program).point(line, 0.0)
        assert point and (point.step, point.value, point.loss) == expected


def test_the_published_figure_of_torchtitan_is_a_step_of_the_right_length() -> None:
    (spec,) = (spec for spec in asked("torchtitan") if spec.framework == "float8")
    assert spec.program
    seconds = step_s(spec.program, 8532.0, spec.topology.world)
    assert 16 * 8192 / seconds == pytest.approx(8 * 8532.0)


def test_a_validation_of_torchtitan_is_no_step() -> None:
    spec = asked("torchtitan")[0]
    assert spec.program and not Lines(spec.program).point(TORCHTITAN.replace("step:", "validate step:"), 0.0)
