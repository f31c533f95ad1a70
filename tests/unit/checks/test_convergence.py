"""The convergence check: when there is one, its verdicts, its list of checkpoints, its rows and its plot."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import training_fixtures
from throughline import records
from throughline.checks import convergence_check
from throughline.files import UserError, write_json
from throughline.launch.supervision import Watchdog
from throughline.messages import Training
from throughline.rank import checkpoints, convergence, heartbeat
from throughline.rank.checkpoints import Checkpoints
from throughline.rank.heartbeat import Heart
from throughline.report.render import table_files
from throughline.report.topic import Scope
from throughline.report.topics import checks as topic
from throughline.spec import Options
from throughline.study import runs
from throughline.study.config import ConfigError, load
from throughline.study.targets import Targets
from throughline.workloads import bert

BLOCK = {
    "sequence_length": 32, "topologies": ["1n1g", "2n2g", "1n2g"], "batch": {"fp32": [64, 8], "bf16": [16]},
    "repeats": 3,
    "frameworks": ["torch", "torch-horovod"], "convergence": {"steps": 500},
}  # fmt: skip


def curve(**changes: Any) -> records.Curve:
    """Return a curve with the held-out losses 10, 8 and 7 at steps 0, 10 and 20."""
    looks = [
        {"step": step, "samples": 100, "figures": {"loss": loss, "mlm_accuracy": share, "nsp_accuracy": 0.5}}
        for step, loss, share in ((0, 10.0, 0.0), (10, 8.0, 0.1), (20, 7.0, 0.2))
    ]
    value: dict[str, Any] = {
        "schema": records.SCHEMA, "spec": training_fixtures.spec(), "evaluate_every": 10, "status": "ok",
        "reason": None, "warnings": [], "curve": looks, "loss": [10.0 - 0.1 * step for step in range(20)],
        "resumed_after_step": None,
        "device": None, "data": None, "environment": {}, "started": "2026-11-20T12:00:00Z",
        "ended": "2026-11-20T12:01:00Z",
    }  # fmt: skip
    return records.Curve.model_validate(value | changes)


def test_looking_at_held_out_data_and_writing_a_checkpoint_are_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes 200 s, and so does a piece of a checkpoint. The watchdog's limit is 300 s."""
    heart, dog, clock = Heart(tmp_path / "rank_0.beat"), Watchdog(300.0, 0.0), [0.0]
    phases = []

    def lives(seconds: float) -> None:
        clock[0] += seconds
        beat = heartbeat.read(tmp_path / "rank_0.beat")
        phases.append(beat.phase)
        assert dog.look([beat], clock[0]) is None

    def sums(network: Any, batch: Any) -> dict[str, float]:
        lives(200.0)
        return {"mlm_loss": 8.0, "mlm_right": 1.0, "masked": 2.0, "nsp_loss": 4.0, "nsp_right": 2.0, "samples": 4.0}

    def step() -> float:
        lives(1.0)
        return 5.0

    framework = SimpleNamespace(
        network=None, form=SimpleNamespace(sums=sums), data=lambda arrays: arrays, deliver=lambda batch: batch,
        seed=lambda value: None, sync=lambda: None, barrier=lambda: None, losses=list, broadcast=lambda value: value,
        save=lambda stream: stream.write(bytes(3 * checkpoints.PIECE)),
    )  # fmt: skip
    monkeypatch.setattr(checkpoints, "PIECE", 1000)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: lives(200.0))
    rows = {name: np.zeros((12, 4), kind) for name, kind in bert.ARRAYS.values()}
    reader = SimpleNamespace(rows=lambda shard: 12, read=lambda shard, epoch: rows)
    run = SimpleNamespace(
        framework=framework, heart=heart, rank=0, workload=bert.WORKLOAD, size=SimpleNamespace(batch_per_replica=4),
        options=Options(), spec=training_fixtures.spec(seed=1), step=step,
        manifest=SimpleNamespace(held_out=[{}], reader=reader), decoded=lambda rows: rows,
    )  # fmt: skip
    trained = convergence.train(run, Training(4, 2, 12, str(tmp_path), "check", None, None))
    assert [look["step"] for look in trained.curve] == [0, 2, 4] and len(trained.losses) == 4
    look, learn, write = ["evaluation"] * 3, ["training"] * 2, ["checkpoint"] * 3
    assert phases == look + (learn + look + write) * 2


def judged(folder: Path, text: str, tolerance: float = 0.05, **changes: Any) -> records.ConvergenceVerdict:
    (folder / "stated.csv").write_text(text)
    return convergence_check.judge(curve(**changes), folder / "stated.csv", tolerance)


def test_one_check_for_every_framework_and_precision() -> None:
    config = load([], {"benchmarks": {"b": BLOCK, "c": {"sequence_length": 32}}})
    requests = convergence_check.requests(config, runs.expand(config))
    assert sorted(requests) == [
        f"results/b/convergence_{cell}_{framework}_2n2g.json"
        for cell in ("bz16_bf16", "bz8_fp32")
        for framework in ("torch-horovod", "torch")
    ]
    assert {(spec.steps.warmup, spec.steps.timed) for spec in requests.values()} == {(0, 500)}


def test_data_without_held_out_data_are_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"benchmarks\.b\.convergence: it looks at held-out"):
        load([], {"corpus": {"shards": {"test": 0}}, "benchmarks": {"b": BLOCK}})


def test_a_second_phase_begins_with_the_check_of_its_framework_and_precision() -> None:
    second = {**BLOCK, "sequence_length": 128, "frameworks": ["torch"], "convergence": {"begin_from": "one"}}
    config = load([], {"benchmarks": {"one": BLOCK, "two": second}})
    checks = convergence_check.requests(config, runs.expand(config))
    targets = Targets(config, [], {}, {}, checks)
    names = ("benchmark", "batch", "precision", "framework", "topology")
    wildcards = {path: {name: str(getattr(spec, name)) for name in names} for path, spec in checks.items()}
    begins = {path: targets.begin(**wildcards[path]) for path in checks}
    assert {path: begin for path, begin in begins.items() if begin} == {
        f"results/two/convergence_{cell}_torch_2n2g.json": [f"results/one/convergence_{cell}_torch_2n2g/curve.json"]
        for cell in ("bz16_bf16", "bz8_fp32")
    }


def test_pass_and_fail(tmp_path: Path) -> None:
    good = judged(tmp_path, "step,loss,mlm_accuracy\n0,10,0\n20,6.8,0.2\n")
    assert (good.verdict, len(good.compared)) == ("pass", 6)
    assert good.last and good.last.step == 20
    between = next(one for one in good.compared if (one.quantity, one.step) == ("loss", 10))
    assert (between.stated, between.limit) == pytest.approx((8.4, 8.82))  # interpolated between the stated steps
    bad = judged(tmp_path, "step,loss\n10,8\n20,6\n")
    assert bad.verdict == "fail" and "loss 7.0000 at step 20, 6.0000 is stated" in bad.reason
    assert "1 of 2 comparisons fail" in bad.reason
    assert judged(tmp_path, "step,loss\n10,8\n20,6\n", tolerance=0.2).verdict == "pass"
    worse = judged(tmp_path, "step,mlm_accuracy\n20,0.3\n")
    assert worse.verdict == "fail" and worse.compared[0].limit == pytest.approx(0.25)


def test_the_curve_of_another_machine_is_a_stated_curve(tmp_path: Path) -> None:
    first = tmp_path / "first.json"

    def after(**changes: Any) -> records.ConvergenceVerdict:
        records.write(records.Curve, curve(**changes).model_dump(by_alias=True, mode="json"), first)
        return convergence_check.judge(curve(), first, 0.05)

    same = after()
    assert (same.verdict, same.against, len(same.compared)) == ("pass", "first.json", 9)
    assert same.stated["loss"] == [[0.0, 10.0], [10.0, 8.0], [20.0, 7.0]]
    better = [{"step": step, "samples": 100, "figures": {"loss": loss}} for step, loss in ((0, 10.0), (20, 6.0))]
    worse = after(curve=better)
    assert worse.verdict == "fail" and "loss 7.0000 at step 20, 6.0000 is stated" in worse.reason
    with pytest.raises(UserError, match=r"(?s)first\.json is no curve to compare with.*it has no evaluations"):
        after(curve=[])
    with pytest.raises(UserError, match="there was no memory"):
        after(status="oom", reason="there was no memory", curve=[])
    with pytest.raises(UserError, match="it is of bert-mini, and this check trains bert-tiny"):
        after(spec=training_fixtures.spec(model="bert-mini"))


def test_no_pass_without_a_comparison(tmp_path: Path) -> None:
    assert convergence_check.judge(curve(), None, 0.05).verdict == "not judged"
    assert judged(tmp_path, "step,loss\n1000,1\n").verdict == "fail"
    unfinished = judged(tmp_path, "step,loss\n0,11\n", loss=[10.0, None])
    assert (unfinished.verdict, unfinished.reason) == ("fail", "the loss is not finite from step 2 on")
    none: dict[str, Any] = {"curve": [], "loss": []}
    assert judged(tmp_path, "step,loss\n0,11\n", status="oom", reason="no", **none).verdict == "fail"
    assert judged(tmp_path, "step,loss\n0,11\n", status="unsupported", reason="no", **none).verdict == "unsupported"


@pytest.mark.parametrize("text", ["", "loss\n1\n", "step,speed\n1,2\n", "step,loss\none,2\n"])
def test_what_is_no_stated_curve(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"stated\.csv"):
        judged(tmp_path, text)


def test_a_damaged_checkpoint_is_not_used(tmp_path: Path) -> None:
    book = Checkpoints(tmp_path / "book", "one")
    for step in (10, 20, 30):
        book.add(step, lambda stream, step=step: stream.write(b"state %d" % step), [{"step": step}], [0.5] * step)
    assert sorted(path.name for path in book.folder.glob("*.checkpoint")) == [
        "step_000000020.checkpoint", "step_000000030.checkpoint",
    ]  # fmt: skip
    entry, faults = book.newest()
    assert entry and entry.step == 30 and not faults
    (book.folder / entry.file).write_text("state 31")
    entry, faults = book.newest()
    assert entry and entry.step == 20 and "step 30 is not used" in faults[0]
    assert len(book.until(20)[1]) == 20
    assert Checkpoints(book.folder, "another").newest() == (None, [])
    kept = tmp_path / "last"
    book.leave_last(kept)
    assert sorted(path.name for path in kept.iterdir()) == ["state.json", "step_000000030.checkpoint"]
    # The checkpoint is still the damaged one.
    assert not book.folder.exists() and Checkpoints(kept, None).newest()[0] is None
    book.folder.mkdir()
    (book.folder / "state.json").write_text("{")
    assert book.newest() == (None, [])


def test_the_report_says_with_whose_weights_a_check_began(tmp_path: Path) -> None:
    verdict, first = judged(tmp_path, "step,loss\n0,10\n20,7\n"), "one/convergence_bz8_fp32_torch_1n1g"
    curves = [curve(), curve(begun_from=f"{first}, step 30, {'a' * 64}")]
    _, rows = table_files.printed(topic.convergence(Scope([], checks=[topic.Check(verdict, one) for one in curves])))
    assert rows[1][-1] == f"{rows[0][-1]}. It began with the weights of {first} after step 30"
    assert "began" not in rows[0][-1]


def test_rows_and_plot(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "step,loss\n0,10\n20,7\n")
    header, (row,) = table_files.printed(topic.convergence(Scope([], checks=[topic.Check(verdict, None)])))
    assert header[5:8] == ["held-out loss", "mlm accuracy", "nsp accuracy"]
    assert row[3:8] == ["pass", "20", "7.0000", "20.0 %", "50.0 %"]
    path = tmp_path / "convergence_x.json"
    topic.write_convergence(verdict, curve(), path)
    assert path.with_suffix(".svg").stat().st_size > 5000 and path.with_suffix(".png").stat().st_size > 5000
    write_json(path, verdict.model_dump(by_alias=True, mode="json"))
    assert topic.read(path) == topic.Check(verdict, None)
    assert topic.smoothed([1.0, 2.0, None, 4.0]) == ([1.0, 2.0, 4.0], [1.0, 2.0, 4.0])
