"""`throughline bench`: the programs that its words mean, and the lines about what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from report_fixture import scoped, summarized, write_failed, write_series, write_summary
from throughline import bench
from throughline.files import UserError


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["python", "train.py", "--lr=1"], {"train": ["python", "train.py", "--lr=1"]}),
        (["python", "train.py", "my run"], {"train": ["python", "train.py", "my run"]}),
        (["python a/Train_2.py", "python b.py"], {"train-2": "python a/Train_2.py", "b": "python b.py"}),
        (["python a.py", "python a.py x", "python b/a.py"], {"a": ..., "a-x": ..., "a-2": ...}),
        (["python a.py --lr 1 --batch 8", "python a.py --lr 1 --batch 16"], {"a-batch-8": ..., "a-batch-16": ...}),
        (["python a.py --compile=True", f"python a.py --from /data/{'x' * 40}"], {"a-compile-true": ..., "a": ...}),
        (["bash run.sh"], {"run": "bash run.sh"}),
        (["/usr/bin/nanogpt --fast"], {"nanogpt": ...}),
        (["python 3d.py", "python torch.py"], {"program-3d": ..., "program-torch": ...}),
    ],
)
def test_the_programs_of_a_command_line(words: list[str], named: Mapping[str, Any]) -> None:
    found = bench.programs(words, {"timing": "marks", "python": None, "variables": {}})
    assert list(found) == list(named)
    for name, command in named.items():
        assert found[name]["timing"] == "marks" and found[name].keys() == {"command", "timing"}
        assert command is ... or found[name]["command"] == command


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "there is no command to measure"),
        (["--timming", "nanogpt", "python", "train.py"], "throughline bench has no option --timming"),
        (["python 'a.py"], "No closing quotation"),
        ([" "], "is empty"),
    ],
)
def test_words_that_are_no_command(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        bench.programs(words, {})


def test_variables_of_the_command_line() -> None:
    assert bench.variables(["A=1", "B_2=x=y", "C="]) == {"A": "1", "B_2": "x=y", "C": ""}
    with pytest.raises(UserError, match="--variables OMP: it is no NAME=VALUE"):
        bench.variables(["A=1", "OMP"])


def test_the_name_of_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="--name Two words"):
        bench.Bench("Two words", {}, {}).run(None, {}, dry_run=True)


def test_a_setup_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="--setup ended with status 7"):
        bench.Bench("two", {}, {}).run("exit 7", {}, dry_run=False)
    assert not (tmp_path / "results").exists()


def test_a_second_call_leaves_the_files_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / bench.LOCKS).mkdir(parents=True)
    (tmp_path / bench.LOCKS / "0.output.lock").touch()
    asked = bench.Bench("two", bench.programs(["python b.py"], {}), {"batch": {"program": ["program"]}, "steps": {}})
    with pytest.raises(UserError, match=r"is locked\n(.*\n)*.*snakemake .* --unlock"):
        asked.run(None, {}, dry_run=False)
    assert not (tmp_path / "results/two/config.yaml").exists()


def verdict(root: Path, first: list[float], second: list[float]) -> str:
    """Return the verdict of bench on the repeats of two commands, which the records call torch and jax."""
    (pair,) = scoped(summarized(root, {"torch": first, "jax": second}, repeats=len(first))).pairs
    return bench.verdict(pair)


SLOW, NOISY = [100.0, 100.6, 99.5, 100.3, 99.8], [95.0, 106.0, 104.0, 93.0, 108.0]
FAST = [130.6, 130.0, 131.2, 130.1, 131.0]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (SLOW, FAST, "jax is 1.305 times as fast as torch (1.292 to 1.319)"),
        (FAST, SLOW, "torch is 1.305 times as fast as jax (1.292 to 1.319)"),
        (
            SLOW,
            SLOW[1:] + SLOW[:1],
            "jax and torch: no difference: the 90 % interval of this pair alone, 0.992 to 1.008, lies within 5.0 %",
        ),
        (SLOW, NOISY, "jax and torch: inconclusive: about 18 more repeats would tell a difference of 5 %"),
        (SLOW[:2], FAST[:2], "jax and torch: inconclusive: fewer than three repeats on a side: no test"),
    ],
    ids=["second faster", "first faster", "no difference", "inconclusive", "too few"],
)
def test_the_verdict_in_words(tmp_path: Path, first: list[float], second: list[float], said: str) -> None:
    assert verdict(tmp_path, first, second) == said


def test_the_lines_about_a_summary(tmp_path: Path) -> None:
    written = write_series(tmp_path, {"torch": SLOW, "jax": FAST})
    written += write_failed(tmp_path, "oom", repeats=range(1, 6), framework="paddle", reason="rank 0: out of memory")
    lines = bench.outcome(write_summary(written))
    assert lines[0] == "torch 1n1g: 100.0 samples/s, median of 5, 99.50 to 100.6 (1.1 % apart)"
    assert "paddle 1n1g: OOM: rank 0: out of memory" in lines
    assert lines[-1].startswith("jax is 1.305 times as fast as torch")


def test_the_figures_of_several_commands_begin_with_the_commands() -> None:
    made = bench.programs(["python a.py --seed={seed}", "python a.py 'two words'"], {})
    assert bench.Bench("x", made, {}).commands() == [
        "a-seed-seed: python a.py --seed={seed}",
        "a-two-words: python a.py 'two words'",
    ]
    assert bench.Bench("x", {"a": made["a-two-words"]}, {}).commands() == []
