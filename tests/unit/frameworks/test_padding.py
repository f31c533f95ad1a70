"""`remove_padding: auto`: a rank decides by its device whether padding is left out. The specification keeps `auto`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from throughline import frameworks
from throughline.rank.run import Run
from throughline.workloads import bert
from training_fixtures import plan, spec

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("kind", "changes", "left_out", "words"),
    [
        ("cuda", {}, True, "left out: the device is a GPU"),
        ("cuda", {"options": {"cuda_graph": "step"}}, False, "computed: a CUDA graph has one shape"),
        ("cuda", {"framework": "jax"}, False, "computed: jax cannot leave it out for bert-tiny"),
        ("cuda", {"model": "gpt2-tiny"}, False, "computed: torch cannot leave it out for gpt2-tiny"),
        ("cpu", {}, False, "computed: on a CPU"),
    ],
)
def test_the_device_and_the_framework_decide_whether_padding_is_left_out(
    kind: str, changes: dict[str, Any], left_out: bool, words: str
) -> None:
    asked = spec(**{**changes, "options": {**changes.get("options", {}), "remove_padding": "auto"}})
    assert '"remove_padding":"auto"' in asked.canonical.replace(" ", ""), "the record keeps what was asked"
    assert frameworks.resolved(asked, kind).options.remove_padding is left_out
    assert frameworks.padding(asked, kind)[1].startswith(words)
    assert "remove_padding" not in frameworks.needs(asked), "no framework has to refuse it"
    for value in (True, False):
        decided = replace(asked, options=replace(asked.options, remove_padding=value))
        assert frameworks.resolved(decided, kind) is decided


def test_a_rank_computes_what_was_decided_and_its_record_says_why() -> None:
    rows = {stored: np.ones((2, 5 if stored.startswith("masked") else 32), "i4") for stored, _ in bert.ARRAYS.values()}
    rows["next_sentence_labels"] = np.zeros(2, "i4")
    for value, kind, packed in (("auto", "cpu", False), (True, "cpu", True), (False, "cpu", False)):
        run = Run(plan(run={"options": {"remove_padding": value}}, kind=kind), 0, Mock())
        assert ("lengths" in run.workload.batch(rows, run.options)) is packed
        assert ("padding" in run.chosen) is (value == "auto")
    on_gpu = plan(run={"options": {"remove_padding": "auto"}}, kind="cuda")
    assert Run(on_gpu, 0, Mock()).options.remove_padding is True
