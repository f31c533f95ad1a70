"""Hugging Face's Trainer runs its own loop: the same steps as the plain loop, whole jobs, and what it cannot do."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from framework_lab import Lab, python
from throughline import frameworks, workloads
from throughline.frameworks import hf_trainer
from throughline.frameworks.description import FEATURES
from throughline.frameworks.rank import load
from throughline.programs import timing
from throughline.spec import EpochsJob
from throughline.spec.job import FIGURES

JOB = {"samples": 64, "held_out": 30, "epochs": 2}


@pytest.fixture(scope="module")
def held_out(lab: Lab) -> Lab:
    """The lab with a corpus that has held-out rows."""
    other = copy.copy(lab)
    other.manifest = training_fixtures.corpus(lab.folder / "held_out", held_out=1)
    return other


def test_a_whole_job_on_two_ranks(held_out: Lab) -> None:
    record = held_out.run(
        "hf-trainer", topology="1n2g", job=JOB, options={"gradient_accumulation": 2, "clip": "global_norm"}
    )
    assert (record.status, record.reason) == ("ok", None)
    assert (record.warmup_steps, record.steps_timed, record.steps_asked) == (0, 8, 8)
    assert record.loss is not None and len(record.loss) == 8 and all(loss and 4 < loss < 15 for loss in record.loss)
    told = {one.name: one.value for one in record.figures if one.value is not None}
    assert set(told) == set(FIGURES)
    assert EpochsJob(**JOB).faults(2, 4, 2, told) == [] and told["global_step"] == 8
    assert record.window_s == pytest.approx(told["train_runtime"], abs=0.3)
    assert record.samples_per_s == pytest.approx(128 / (record.window_s or 0))
    # The evaluations are part of the window but of no step. The last one comes after all steps.
    steps = sum(record.step_seconds)
    assert told["samples_per_second_without_evaluations"] == pytest.approx(128 / steps)
    assert steps + 1.5 * told["eval_runtime"] < (record.window_s or 0)
    assert told["preparation"] > 0
    assert record.work is not None and record.work.real_token_share is not None and record.work.real_token_share < 1
    assert record.settings is not None and "Trainer.train() makes it by itself" in record.settings["timed_step"]
    log = next(held_out.folder.glob("results/**/hf-trainer/1n2g/run1.log")).read_text()
    assert "evaluation " in log, "the heartbeat names the phase"


def test_a_job_needs_as_many_held_out_rows_as_it_asks_for(held_out: Lab) -> None:
    done, record = held_out.launch("hf-trainer", job={**JOB, "held_out": 41})
    assert done.returncode == 1 and not record.exists()
    assert "has 40 held-out rows for an evaluation over 41" in done.stderr


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"precision": "fp16"}, "fp16 on GPUs only"),
        ({"options": {"sharding": "full_shard"}, "topology": "1n2g"}, "FSDP on GPUs only"),
        ({"options": {"gradient_sync": False}, "topology": "1n2g"}, "always exchanges"),
        ({"options": {"clip": "value"}}, "global norm only"),
    ],
)
def test_what_the_trainer_cannot_do_is_refused_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    spec = training_fixtures.spec(framework="hf-trainer", **changes)
    frameworks.refuse(spec)
    rank = load("hf-trainer")(spec, 0, 0, 2 if "topology" in changes else 1, "cpu")
    with pytest.raises(workloads.Unsupported, match=reason):
        rank.device()


def test_what_it_lacks_has_a_reason_and_what_others_lack_as_well() -> None:
    assert set(FEATURES) - hf_trainer.FRAMEWORK.features == set(hf_trainer.FRAMEWORK.reasons)
    with pytest.raises(workloads.Unsupported, match="torch trains steps, and no whole jobs: hf-trainer does"):
        frameworks.refuse(training_fixtures.spec(job=JOB))


ASKED = """
import json, os, sys
import torch
from throughline import frameworks, workloads
from throughline.frameworks.rank import load
from throughline.programs import timing
spec = frameworks.specification(json.loads(sys.argv[1]))
made = load("hf-trainer")  # once, before both processes
for cards in (0, 8):
    if os.fork():
        os.wait()
        continue
    if cards:  # only what the Trainer asks about its GPUs; the model stays on the processor
        torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: cards
        torch.cuda.set_device = torch.cuda.manual_seed_all = lambda *_: None
    rank = made(spec, 0, 0, spec.topology.world, "cuda" if cards else "cpu")
    if not cards:
        rank.device()
        rank.model(workloads.of(spec.model).facts(None))
        rank.optimizer()
    arguments = rank.arguments() if cards else rank.trainer.args
    words = arguments.distributed_state.distributed_type.name, arguments.n_gpu, arguments.parallel_mode.name
    print(*words, flush=True)
    os._exit(0)
"""


def test_one_device_trains_without_distributed_data_parallel() -> None:
    """On a processor, and beside other GPUs. Our agent sets LOCAL_RANK for every rank, and accelerate takes it for a
    sign of several processes."""
    spec = training_fixtures.spec(framework="hf-trainer", options={"data": "synthetic"})
    started = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = subprocess.run(
        [python("hf-trainer"), "-c", ASKED, json.dumps(spec.values())],
        env=os.environ | started | {"PYTHONPATH": str(Path("src").resolve())},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-2:] == ["NO 0 NOT_PARALLEL", "NO 1 NOT_PARALLEL"], done.stderr[-2000:]


SCRIPT = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=1, n_head=2))
rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)}] * 64
how = {"max_steps": 31, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "use_cpu": True}
Trainer(model, TrainingArguments(sys.argv[1], report_to=[], save_strategy="no", **how), train_dataset=rows).train()
"""


def test_the_example_gives_marks_to_a_script_of_the_trainer(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    example = Path(__file__).parents[2] / "examples/trainer_marks.py"
    command = [python("hf-trainer"), example, "script.py", tmp_path / "out"]
    variables = os.environ | {"THROUGHLINE_MARKS": str(tmp_path / "marks"), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=tmp_path, env=variables, check=True, timeout=300)
    marks = [timing.mark(line) for line in (tmp_path / "marks").read_text().splitlines()]
    assert [(mark.step, mark.value) for mark in marks] == [(10, 40), (20, 40), (30, 40)]
    assert marks[0].at_s < marks[1].at_s < marks[2].at_s
