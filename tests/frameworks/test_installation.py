"""Environments are locked, named after their pins, complete or absent, and say clearly what is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from framework_lab import NAMES, ROOT
from throughline import frameworks
from throughline.files import UserError, write_json
from throughline.installation import build, choose, conda_files, horovod, recipe, uv

OWN = [name for name in frameworks.NAMES if recipe.read(name).python]
LOCKS = recipe.locks()


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of pins for a framework `try`, with a separate cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "envs"
    (folder / "lock").mkdir(parents=True)
    (folder / "apart.txt").touch()
    for module in (recipe, build):
        monkeypatch.setattr(module, "PINS", folder)
    return folder


def write(folder: Path, more: str = "", requirements: str = "", python: str = "3.11") -> recipe.Recipe:
    (folder / "try.toml").write_text(f'python = "{python}"\ncheck = ["json"]\n{more}')
    (folder / "try.txt").write_text(requirements)
    return recipe.read("try")


@pytest.mark.parametrize("name", OWN)
def test_every_package_of_an_environment_has_one_version(name: str) -> None:
    own, packages = recipe.read(name), frameworks.of(name).packages
    assert own.check and own.lock and {*OWN, "torch", "fake"} == {*NAMES}
    assert all(re.match(r"[\w.-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})?$", line) for line in own.pinned)
    assert any(package in line for package in packages for line in own.pinned), "a package that no pin names"


def test_the_files_of_conda_are_up_to_date() -> None:
    made = {path: text for name in conda_files.NAMES for path, text in conda_files.files(name).items()}
    assert {path: path.read_text() for path in made} == made, "make lock"
    names = [*(f"{name}.yaml" for name in conda_files.NAMES), *(f"{name}.post-deploy.sh" for name in OWN)]
    assert set(made) == {ROOT / "envs" / name for name in names}
    words = made[ROOT / "envs/torch-horovod.yaml"].splitlines()
    assert {"  - python=3.11", "  - cxx-compiler", "  - make", "  - patch", "  - openmpi"} <= set(words)
    assert f"# pins: {recipe.read('torch-horovod').pins}" in words, "the conda file has to change with the pins"
    assert "environment.py torch-horovod --here" in made[ROOT / "envs/torch-horovod.post-deploy.sh"]


def pinned(*names: str) -> dict[str, str]:
    """Map each package in these files of pins to its version, without torch and compiled packages."""
    texts = [
        "\n".join(recipe.to_lock(name)) if name in LOCKS else (ROOT / "envs" / f"{name}.txt").read_text()
        for name in names
    ]
    pairs = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?===?(\S+)", "\n".join(texts), re.MULTILINE)
    return {re.sub(r"[._]", "-", name.lower()): version for name, version in pairs if name != "torch"}


@pytest.mark.parametrize(
    ("lock", "names"), [("main", ("main", "torch", "test", "benchmarks")), *((name, (name,)) for name in LOCKS)]
)
def test_a_lock_has_what_is_pinned_with_its_hashes(lock: str, names: tuple[str, ...]) -> None:
    text = (ROOT / "envs/lock" / f"{lock}.txt").read_text()
    entries = re.findall(r"^([\w.-]+)(?:\[[^\]]*\])?==(\S+).* \\\n    --hash=sha256:", text, re.MULTILINE)
    assert pinned(*names).items() <= dict(entries).items(), "make lock"
    assert len(entries) == len(re.findall("^[a-z]", text, re.MULTILINE)), "a package without a hash"
    assert "torch" not in dict(entries) and "://" not in text


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_lock_is_complete_for_every_python(version: str, tmp_path: Path) -> None:
    """uv also resolves the pins for another Python, and refuses a package that has no hash in the lock."""
    pins = tmp_path / "pins.txt"
    both = (ROOT / "envs" / name for name in ("main.txt", "torch.txt", "test.txt"))
    pins.write_text(re.sub("^(torch==.*|-r .*)$", "", "\n".join(one.read_text() for one in both), flags=re.MULTILINE))
    command = uv.command(
        "pip", "install", "--dry-run", "--target", str(tmp_path / "there"), "--require-hashes",
        "--python-version", version,
        "--excludes", str(ROOT / "envs/apart.txt"), "-c", str(ROOT / "envs/lock/main.txt"),
        "-r", str(pins), "-r", str(ROOT / "envs/benchmarks.txt"),
    )  # fmt: skip
    done = subprocess.run(command, env=uv.variables(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Would install" in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["torch-horovod", "transformers"])
def test_all_that_is_on_torch_trains_on_the_same_one(name: str) -> None:
    assert pinned("torch").items() <= pinned(name).items()
    assert recipe.read("torch").torch == recipe.read(name).torch is not None


def test_an_environment_is_named_by_its_pins_and_patches(pins: Path) -> None:
    """What only describes it, and a wheel for one more platform, build nothing again."""
    source = '[[source]]\nrequirement = "x==1"\npatch = "p.patch"\nvariables = { A = "1" }\n'
    (pins / "p.patch").write_text("a")
    names = [write(pins).name, write(pins, requirements="x==1").name, write(pins, source).name]
    names += [write(pins, source.replace(*change)).name for change in (('"1" }', '"2" }'), ("x==1", "x==2"))]
    (pins / "p.patch").write_text("b")
    names.append(write(pins, source).name)
    (pins / "lock/try.txt").write_text("y==1 \\\n    --hash=sha256:1\n")
    names.append(write(pins, source).name)
    assert len(set(names)) == len(names)
    (pins / "lock/try.txt").write_text("y==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n")
    assert write(pins, f"# Why so.\n{source}", "# and so\n").name == names[-1]
    assert recipe.read("try").folder.parent.parts[-3:] == ("cache", "throughline", "environments")


def test_an_environment_for_gpus_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = re.search(r'pins=r"(.*)"', (ROOT / "rules/wildcards.smk").read_text())
    cpu = recipe.read("torch-horovod")
    for operations, ending in (("NCCL", "-cuda13-nccl"), ("", "-cuda13")):
        monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", operations)
        name = cpu.for_gpus(cpu.builds[0]).name
        assert name.endswith(ending) and rule and re.fullmatch(f"torch-horovod-{rule[1]}", name)


@pytest.mark.parametrize("text", ["[gpu.cuda13]\ndrivr = 580\n", "python = \n"])
def test_a_damaged_description_names_its_file(pins: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"try\.toml describes no environment"):
        write(pins, text)


def test_it_is_built_once_and_says_how_far_it_is(
    pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAKEFLAGS", " -- PYTHON=python3.11")  # `make frameworks PYTHON=python3.11` sets this
    flags = build._Runner(write(pins), tmp_path, sys.stderr, tmp_path / "log").variables["MAKEFLAGS"]
    assert re.fullmatch(r"-j\d", flags), "a build compiles side by side"
    log = tmp_path / "logs" / "try.log"
    folder = write(pins).folder
    folder.mkdir(parents=True)
    (folder / "half").touch()
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(build.build("try", log))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    said = capfd.readouterr().err
    assert folders == [folder, folder] and folder.parent == recipe.environments()
    assert "removing what an earlier build left" in said and not (folder / "half").exists()
    assert said.count("virtual environment ...") == 1 and "another process builds it; waiting" in said
    assert re.search(r"try 2/2: check: \d+ s", said)
    assert json.loads((folder / "built.json").read_text())["framework"] == "try"
    marker = choose.ready("try")
    assert marker is not None and marker.is_file()
    python = recipe.python_of(recipe.name_of(marker))
    assert subprocess.run([python, "-c", "import json"], check=False).returncode == 0 and "$ " in log.read_text()
    build.build("try", log)
    assert "virtual environment" not in capfd.readouterr().err


def test_a_failed_build_leaves_nothing_and_its_log(pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (pins / "lock/try.txt").write_text(f"this-is-not-there==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    folder = write(pins, requirements="this-is-not-there==1.0\n").folder
    log = tmp_path / "try.log"
    with pytest.raises(UserError) as failed:
        build.build("try", log)
    assert "this-is-not-there was not found" in str(failed.value) and "pip's index" in str(failed.value)
    assert not folder.exists() and "this-is-not-there" in log.read_text()
    unknown = str(build.failure("try", ["before", "g++: error: something", "after"], log))
    assert "g++: error: something" in unknown and "nothing half made is left behind" in unknown


def test_what_is_missing_is_named_before_anything_starts(
    pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(pins, python="2.99")
    with pytest.raises(UserError, match=r"needs Python 2\.99, which was not found.*UV_PYTHON_DOWNLOADS=automatic"):
        build.build("try", tmp_path / "try.log")
    folder = write(pins, '[[source]]\nrequirement = "thing==1.0 --hash=sha256:1"\n').folder
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as failed:
        build.build("try", tmp_path / "try.log")
    assert "packages that are compiled (thing 1.0), and this machine lacks g++, make" in str(failed.value)
    assert not folder.exists()


@pytest.mark.parametrize(("before", "now", "again"), [(False, False, False), (False, True, True), (True, True, False)])
def test_horovod_without_mpi_is_built_again_when_mpi_is_there(
    pins: Path, monkeypatch: pytest.MonkeyPatch, before: bool, now: bool, again: bool
) -> None:
    own = write(pins, '[[source]]\nrequirement = "x==1"\n')
    monkeypatch.setattr(horovod, "builds_mpi", lambda: now)
    monkeypatch.setattr(build, "_make", lambda recipe, folder, log: folder.mkdir())
    write_json(own.folder / recipe.BUILT, {"mpi": before})
    build.build("try", pins / "log")
    assert (own.folder / recipe.BUILT).exists() != again and (own.folder / recipe.READY).exists()


def test_another_home_folder_measures_nothing_again(tmp_path: Path) -> None:
    """A run's parameters name its environment, but no folder."""
    run = "results/frameworks/bz8_fp32/torch-horovod/1n1g/run1.json"
    options = ["--dry-run", "--nolock", "--printshellcmds", "--quiet", "host"]
    options += ["--configfile", "presets/frameworks.yaml"]
    said = []
    for home in ("one", "two"):
        variables = os.environ | {"XDG_CACHE_HOME": str(tmp_path / home)}
        done = subprocess.run(
            ["snakemake", run, *options], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        said += re.findall("run_training.py .*", done.stdout + done.stderr)
    assert len(said) == 2 and said[0] == said[1]
    assert re.search(r"--environment torch-horovod-[0-9a-f]{12}( |$)", said[0])
