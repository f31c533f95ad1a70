"""The package installs with all its files; `throughline` has commands; src/start.py needs no installation."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from throughline import __version__, commands
from throughline.processes import START, module

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's wheel, made without the network in a copy of the clone."""
    folder = tmp_path_factory.mktemp("package")
    for name in ("src", "resources", "envs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(folder / "made"), str(folder)], check=True, capture_output=True)
    return next((folder / "made").glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_library_and_its_tables(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    library = (path.relative_to(ROOT / "src") for path in (ROOT / "src/throughline").rglob("*") if path.is_file())
    assert {str(path) for path in library if path.suffix != ".pyc"} <= names
    shared = f"throughline-{__version__}.data/data/share/throughline"
    tables = [path for path in (ROOT / "resources").rglob("*") if path.is_file() and path.stem != "config.schema"]
    assert {f"{shared}/{path.relative_to(ROOT / 'resources')}" for path in tables} <= names
    pins = [line for line in (ROOT / "envs/main.txt").read_text().splitlines() if "==" in line]
    assert [f"Requires-Dist: {pin}" in metadata for pin in pins] == [True] * len(pins)


@pytest.mark.slow
def test_an_installation_without_a_clone_finds_its_tables(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path], check=True)
    python = str(tmp_path / "bin/python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    code = "from throughline import gpus; print(gpus.FILE); print(len(gpus._all()) > 10)"
    printed = subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.split() == [str(tmp_path / "share/throughline/gpus.csv"), "True"]
    said = subprocess.run([tmp_path / "bin/throughline"], env={}, check=True, capture_output=True, text=True).stdout
    assert "usage: throughline" in said and "doctor" in said


def test_every_command_has_a_line_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    commands.main([])
    lines = capsys.readouterr().out.splitlines()
    for name in commands.NAMES:
        assert any(line.startswith(f"  {name} ") and line.endswith(".") for line in lines)
    with pytest.raises(SystemExit, match="has no command nothing"):
        commands.main(["nothing"])
    with pytest.raises(SystemExit, match="did you mean accept"):
        commands.main(["acept"])
    with pytest.raises(SystemExit) as left:
        commands.main(["doctor"])
    assert left.value.code == 0 and "What it can do" in capsys.readouterr().out


def test_any_python_finds_the_library_of_this_clone(tmp_path: Path) -> None:
    """Neither an installed package nor a variable says where the library is."""
    command = module(sys.executable, "throughline.rank.worker")
    done = subprocess.run([command[0], "-S", *command[1:]], env={}, cwd=tmp_path, capture_output=True, text=True)
    assert "IndexError" in done.stderr and str(ROOT / "src/throughline/rank/worker.py") in done.stderr
    main = "def main(*words: str) -> None: print(*words, throughline.__file__, file=sys.__stdout__)"
    (tmp_path / "says.py").write_text(f"import sys, throughline\n{main}\n")
    words = [sys.executable, "-S", str(START), "says.py", "--a", "b"]
    printed = subprocess.run(words, env={}, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert printed == f"--a b {ROOT / 'src/throughline/__init__.py'}\n"


def test_what_snakedeploy_copies_is_the_default_configuration() -> None:
    """config/config.yaml is a link, which a tool that knows no links turns into a file with a path in it."""
    assert (ROOT / "config" / "config.yaml").read_bytes() == (ROOT / "config.yaml").read_bytes()
