"""A framework that is added as docs/add-a-framework.md says goes through the whole graph, together with `torch`."""

from __future__ import annotations

from collections.abc import Callable

from framework_lab import register
from throughline.records import read_equivalence, read_summary

from .conftest import Clone

CONFIGURATION = """
corpus: {name: little, parts: 2, shards: {training: 2, test: 1}, sequences: {32: 5}}
runs: {device: cpu, repeats: 2, steps: {warmup: 2, timed: 4}}
benchmarks:
  both:
    model: bert-tiny
    sequence: 32
    frameworks: [fake, torch]
    topologies: [1n1g]
    batch: {fp32: [2]}
    options: {data: synthetic}
"""


def test_one_file_and_one_entry_are_a_framework(clone: Callable[[str], Clone]) -> None:
    made = clone(CONFIGURATION)
    register(made.path)
    made.made("results/report.html")
    summary = read_summary(made.path / "results/both/bz2_fp32.json")
    assert {name: cells["1n1g"].n_ok for name, cells in summary.frameworks.items()} == {"fake": 2, "torch": 2}
    found = read_equivalence(made.path / "results/both/equivalence.json")
    assert {name: compared["1n1g"].verdict for name, compared in found.frameworks.items()} == {
        "fake": "different",
        "torch": "equal",
    }
    assert (made.path / "results/both/equivalence.svg").is_file()
    assert any("they do not do the same work" in text for text in summary.frameworks["torch"]["1n1g"].warnings)
    report = (made.path / "results/report.html").read_text(encoding="utf-8")
    assert "fake (unequal)" in report and "What the frameworks can do" in report
    assert "Nothing to be done" in made.made("results/report.html").stdout
