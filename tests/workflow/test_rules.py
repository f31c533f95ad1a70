"""Every command of every rule can be formatted: what it names is an input, output, param, wildcard or log of its rule.

A dry run does not tell, because Snakemake formats a command when its job starts.
"""

import os
import string
from pathlib import Path
from unittest.mock import patch

import h5py
import numpy as np
import pytest
from snakemake.api import SnakemakeApi
from snakemake.settings.types import ConfigSettings, ResourceSettings, StorageSettings, WorkflowSettings

ROOT = Path(__file__).parents[2]
CORPORA = [
    "{}",
    "{dump: enwiki-20261101, contact: me@example.org}",
    "{dump: {shards: data}, sequences: {32: 5}}",
    "{dump: [sample, {text: README.md}], extractor: throughline}",
]
SHAPES = dict.fromkeys(["input_ids", "input_mask", "segment_ids"], (1, 32))
SHAPES |= dict.fromkeys(["masked_lm_positions", "masked_lm_ids"], (1, 5)) | {"next_sentence_labels": (1,)}


def fields(command: str) -> list[tuple[str, str]]:
    """Return the places in a command that Snakemake fills in: the first and the second part of their names."""
    names = [name for _, name, _, _ in string.Formatter().parse(command) if name]
    return [(name.partition(".")[0], name.partition(".")[2].partition("[")[0]) for name in names]


@pytest.mark.parametrize("corpus", CORPORA)
def test_what_a_command_names_is_in_its_rule(corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("A sentence.\n")
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data/training_0.hdf5", "w") as shard:
        for name, shape in SHAPES.items():
            shard[name] = np.zeros(shape, np.int32)
    (tmp_path / "config.yaml").write_text(f"corpus: {corpus}\n")
    with patch.dict(os.environ), SnakemakeApi() as api:
        made = api.workflow(
            ResourceSettings(cores=1),
            config_settings=ConfigSettings(),
            storage_settings=StorageSettings(),
            workflow_settings=WorkflowSettings(),
            snakefile=ROOT / "Snakefile",
            workdir=tmp_path,
        )
        rules = [rule for rule in made._workflow.rules if rule.shellcmd]
    assert len(rules) > 30
    for rule in rules:
        named = {"input": rule.input, "output": rule.output, "params": rule.params, "resources": rule.resources}
        for kind, name in fields(rule.shellcmd):
            if kind == "wildcards":
                assert name in rule.wildcard_names, f"{rule.name}: {kind}.{name}"
            elif name:
                assert name in dict(named[kind].items()), f"{rule.name}: {kind}.{name}"
            else:
                assert kind == "log" or len(named[kind]), f"{rule.name}: {kind}"
