"""Presets for other people's programs: each is a valid configuration, and counts the units of a step as its authors do.

tests/unit/comparables/test_logs.py has lines of every kind of log that a preset names.
"""

from pathlib import Path

import pytest

from throughline.programs import words
from throughline.spec import RunSpec
from throughline.study import runs
from throughline.study.config import load

PRESETS = sorted((Path(__file__).parents[3] / "presets").glob("program-*.yaml"))
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


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_a_preset_is_valid_and_says_what_it_takes(preset: Path) -> None:
    text = preset.read_text(encoding="utf-8")
    assert all(f"\n# {part}" in text for part in ("Version: ", "Published")) and " Install" in text
    asked: list[RunSpec] = [spec for spec in runs.expand(load([preset])) if spec.repeat == 1]
    for spec in asked:
        assert spec.program
        # What only the node knows is left: its number, where the first node listens, the folder of the run.
        assert words.used(words.command(spec)) <= set(words.OF_NODE)
        counted = UNITS.get((spec.framework, str(spec.topology)))
        smallest = spec.batch == min(s.batch for s in asked if s.framework == spec.framework)
        assert not smallest or counted in (None, spec.program.per_step)
