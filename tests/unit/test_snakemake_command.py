"""`throughline run`: words in any order become one command of Snakemake; a mistake gets a suggestion."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from throughline import commands, snakemake_command
from throughline.files import UserError
from throughline.snakemake_inside import options
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
        (["-n", TARGET], "presets/gpt2-cpu.yaml", f"snakemake {TARGET} -n --configfile {PRESET}"),
        (["--configfile", PRESET, TARGET], None, f"snakemake {TARGET} --configfile {PRESET}"),
        ([f"--configfile={PRESET}", TARGET, "corpus"], None, f"snakemake {TARGET} corpus --configfile {PRESET}"),
        ([PRESET, TARGET], None, f"snakemake {TARGET} --configfile {PRESET}"),
        (["--configfile", "config.yaml"], "gpt2-cpu", f"snakemake --configfile {PRESET} config.yaml"),
        (["--config", "a=1", "b=2", TARGET, "-n"], None, f"snakemake {TARGET} --config a=1 b=2 -n"),
        (["--profile", "slurm", TARGET], None, f"snakemake {TARGET} --profile slurm"),
        (["--dry-run", "--quiet", "all"], None, "snakemake --dry-run --quiet all"),
        (["-R", "run", TARGET], None, f"snakemake {TARGET} -R run"),
        (["-c2", "--", TARGET], None, f"snakemake {TARGET} -c2"),
        (["-j", "2", TARGET], None, f"snakemake {TARGET} -j 2"),
        (["--rerun-incomplete", "corpus"], None, "snakemake corpus --rerun-incomplete"),
        ([], None, "snakemake"),
    ],
)
def test_words_in_any_order_become_one_command(words: list[str], preset: str | None, command: str) -> None:
    assert str(snakemake_command.meant(words, preset)) == command


def test_cores_are_a_number_or_all() -> None:
    assert str(snakemake_command.meant([], cores="2")) == "snakemake --cores 2"
    for wrong in ("many", "0", "-1", "1.5"):
        with pytest.raises(UserError, match="is no number of cores"):
            snakemake_command.meant([], cores=wrong)


@pytest.mark.parametrize(
    ("words", "preset", "said"),
    [
        ([], "gpt2cpu", "there is no preset gpt2cpu\n  next: did you mean gpt2-cpu"),
        (["confg.yaml"], None, "configuration confg.yaml does not exist\n  next: did you mean config.yaml"),
        (["--configfile", "gpt2-cpu.yaml"], None, "throughline run --preset gpt2-cpu"),
        (["--configfile", "docs"], None, "configuration docs is a folder"),
        (["gpt2-cpu"], None, "gpt2-cpu is no target\n  next: it is a preset: throughline run --preset gpt2-cpu"),
        (["--cnfigfile", "config.yaml"], None, "no option --cnfigfile\n  next: did you mean --configfile"),
        (["-configfile", "config.yaml"], None, "no option -configfile\n  next: did you mean --configfile"),
        (["--config", "runs.repeats=3"], None, "write --config 'runs={repeats: 3}'"),
        (["--config", "a.b.c=3"], None, "write --config 'a={b: {c: 3}}'"),
        (["--config", "repeats"], None, "write --config 'runs={repeats: 3}'"),
    ],
)
def test_a_mistake_gets_a_suggestion(words: list[str], preset: str | None, said: str) -> None:
    with pytest.raises(UserError) as caught:
        snakemake_command.meant(words, preset)
    assert said in str(caught.value)


def test_below_the_clone_it_works_in_the_clone_and_elsewhere_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT / "docs")
    assert str(snakemake_command.meant(["../config.yaml"])) == "cd .. && snakemake --configfile config.yaml"
    monkeypatch.chdir(tmp_path)
    preset = ROOT / PRESET
    command = str(snakemake_command.meant([TARGET], "gpt2-cpu"))
    assert command == f"snakemake {TARGET} --snakefile {ROOT / 'Snakefile'} --configfile {preset}"
    assert str(snakemake_command.meant(["-s", "other"])) == "snakemake -s other"
    monkeypatch.setattr(presets, "WORKFLOW", tmp_path)
    with pytest.raises(UserError, match="this folder has no Snakefile"):
        snakemake_command.meant([])


def test_it_becomes_the_command_that_it_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    become: list[tuple[Path, list[str]]] = []
    monkeypatch.setattr("os.execv", lambda program, words: become.append((program, words)))
    monkeypatch.setattr(sys, "__stdout__", sys.stdout)
    with pytest.raises(SystemExit) as left:
        commands.main(["run", "--cores", "1", TARGET, "--preset", "gpt2-cpu", "-n"])
    words = ["snakemake", TARGET, "-n", "--cores", "1", "--configfile", PRESET]
    assert become == [(Path(sys.executable).with_name("snakemake"), words)]
    assert left.value.code == 0 and capsys.readouterr().out == f"{' '.join(words)}\n"


def test_every_preset_is_listed_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        commands.main(["run", "--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [path.stem for path in sorted((ROOT / "presets").glob("*.yaml"))]
    assert all(len(line) > 40 for line in lines)


def test_the_options_of_snakemake_have_their_numbers_of_values() -> None:
    known = options()
    assert [known[name] for name in ("-n", "--profile", "--cores", "--configfile", "--config")] == list("011++")
