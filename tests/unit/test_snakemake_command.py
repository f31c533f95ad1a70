"""`throughline run` and `bench`: words become a command of Snakemake, or a configuration for commands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from throughline import bench, commands, snakemake_command
from throughline.files import UserError
from throughline.study import presets

ROOT = Path(__file__).parents[2]
TARGET = "results/gpt2/bz2_fp32.json"
PRESET = "presets/gpt2-cpu.yaml"


@pytest.fixture(autouse=True)
def in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    ("words", "preset", "command"),
    [
        ([TARGET], "gpt2-cpu", f"snakemake {TARGET} --configfile {PRESET}"),
        (["-n", TARGET], PRESET, f"snakemake -n {TARGET} --configfile {PRESET}"),
        (["--configfile", PRESET, TARGET], None, f"snakemake {TARGET} --configfile {PRESET}"),
        ([f"--configfile={PRESET}", "--", TARGET], None, f"snakemake {TARGET} --configfile {PRESET}"),
        (["config.yaml"], "gpt2-cpu", f"snakemake --configfile {PRESET} config.yaml"),
        ([TARGET, "--config", "a=1", "b=2"], None, f"snakemake {TARGET} --config a=1 b=2"),
        ([], None, "snakemake"),
    ],
)
def test_configurations_come_last(words: list[str], preset: str | None, command: str) -> None:
    assert str(snakemake_command.command(words, preset)) == command


def test_below_the_clone_it_works_in_the_clone_and_elsewhere_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT / "docs")
    assert str(snakemake_command.command(["../config.yaml"])) == "cd .. && snakemake --configfile config.yaml"
    monkeypatch.chdir(tmp_path)
    command = str(snakemake_command.command([TARGET], "gpt2-cpu"))
    assert command == f"snakemake {TARGET} --snakefile {ROOT / 'Snakefile'} --configfile {ROOT / PRESET}"
    assert str(snakemake_command.command(["-s", "other"])) == "snakemake -s other"
    monkeypatch.setattr(presets, "WORKFLOW", tmp_path)
    with pytest.raises(UserError, match="this folder has no Snakefile"):
        snakemake_command.command([])


def test_it_becomes_the_command_that_it_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    become: list[tuple[str, list[str]]] = []
    monkeypatch.chdir(ROOT / "docs")
    monkeypatch.setattr("os.execv", lambda program, words: become.append((program, words)))
    monkeypatch.setattr(sys, "__stdout__", sys.stdout)
    with pytest.raises(SystemExit) as left:
        commands.main(["run", "--cores", "1", TARGET, "--preset", "gpt2-cpu", "-n"])
    words = ["snakemake", "--cores", "1", TARGET, "-n", "--configfile", PRESET]
    assert become == [(sys.executable, [sys.executable, "-P", "-m", *words])]
    assert left.value.code == 0 and capsys.readouterr().out == f"cd .. && {' '.join(words)}\n"
    assert Path.cwd() == ROOT


def test_presets_are_listed_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        commands.main(["run", "--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [path.stem for path in sorted((ROOT / "presets").glob("*.yaml"))]
    assert all(len(line) > 40 for line in lines)
    with pytest.raises(UserError, match="there is no preset gpt2cpu\n  next: did you mean gpt2-cpu"):
        snakemake_command.command([], "gpt2cpu")


@pytest.mark.parametrize(("words", "topologies"), [([], ["1n1g"]), (["--topology", "1n2g", "4n8g"], ["1n2g", "4n8g"])])
def test_bench_takes_the_topologies_that_it_is_given(
    monkeypatch: pytest.MonkeyPatch, words: list[str], topologies: list[str]
) -> None:
    asked: list[bench.Bench] = []
    monkeypatch.setattr(bench.Bench, "run", lambda self, *_: asked.append(self) or 0)
    with pytest.raises(SystemExit):
        commands.main(["bench", *words, "--", "python", "train.py", "{devices}"])
    (made,) = asked
    assert made.block["topologies"] == topologies
    assert made.programs["train"]["command"] == ["python", "train.py", "{devices}"]
