"""The example of a training program of one's own: the preset measures it by its marks, and by the lines of its log."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clones import ROOT, Clone, job_counts

PRESET = (ROOT / "presets/own-program-cpu.yaml").read_text(encoding="utf-8")
SHORT = "runs:\n  device: cpu\n  repeats: 1\n  steps: {warmup: 3, timed: 12}\n"
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def test_the_preset_measures_both_programs_and_both_give_the_same_shape(clone: Callable[[str], Clone]) -> None:
    made = clone(re.sub(r"runs:\n(?: .*\n)+", SHORT, PRESET))
    assert job_counts(made.made(PATH=PATH).stdout)["run"] == 4
    summary = json.loads((made.path / "results/own_program/bz16_fp32.json").read_text())
    assert (summary["unit"], summary["model"]) == ("samples/s", "program")
    for name, started in (("train", "python"), ("train-logs", "torchrun")):
        for devices in (1, 2):
            run = json.loads((made.path / f"results/own_program/bz16_fp32/{name}/1n{devices}g/run1.json").read_text())
            points = run["program"]["points"]
            assert (run["status"], run["warmup_steps"], run["steps_timed"]) == ("ok", 3, 12), run["reason"]
            assert run["program"]["command"][0] == started
            assert run["samples_per_s"] == pytest.approx(12 * 16 * devices / run["window_s"])
            assert points["step"][:16] == list(range(1, 17))
            if name == "train":
                assert set(points["value"]) == {16 * devices} and run["loss"] is None
                assert run["window_s"] == pytest.approx(points["at_s"][15] - points["at_s"][3])
            else:
                assert 1000 * run["window_s"] == pytest.approx(sum(points["value"][4:16]))
                assert len(run["loss"]) == 12 and run["loss"][-1] < run["loss"][0] < 7.5
            cell = summary["frameworks"][name][f"1n{devices}g"]
            assert cell["median_speed"] == pytest.approx(run["samples_per_s"], abs=0.01)
            one = summary["frameworks"][name]["1n1g"]["median_speed"]
            assert cell["speedup"] == pytest.approx(cell["median_speed"] / one, abs=0.01)
