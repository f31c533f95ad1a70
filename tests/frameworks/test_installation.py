"""Environments are locked, named after their pins, complete or absent, and say clearly what is missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from framework_lab import NAMES, ROOT
from throughline import frameworks, recipes
from throughline.files import UserError, write_json
from throughline.frameworks import reference
from throughline.installation import build, conda_files, uv

EMPTY = "#: python {version}\n#: check json\n"
OWN = [name for name in frameworks.NAMES if recipes.of(name)]


def has_torch(environment: str) -> bool:
    return any(line.startswith("torch==") for line in recipes.requirements(environment))


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of pins for a framework `try`, with a separate cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "envs"
    folder.mkdir()
    monkeypatch.setattr(recipes, "PINS", folder)
    return folder


def write(folder: Path, more: str = "") -> recipes.Recipe:
    (folder / "try.txt").write_text(EMPTY.format(version="3.11") + more)
    found = recipes.of("try")
    assert found is not None
    return found


def test_which_frameworks_have_an_environment_of_their_own() -> None:
    assert [name for name in frameworks.NAMES if name != "torch"] == OWN
    for name in OWN:
        found = recipes.of(name)
        assert found is not None and found.python == "3.11"
        every = [line for stage in found.stages for line in stage.requirements]
        assert all(re.match(r"[\w.-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})?$", line) for line in every)
        packages = frameworks.of(name).packages
        assert any(package in line for package in packages for line in every), "a package that no pin names"
        assert found.modules and found.lock.is_file()
    assert "fake" in NAMES


@pytest.mark.parametrize("name", conda_files.NAMES)
def test_the_files_of_conda_are_up_to_date(name: str) -> None:
    made = conda_files.files(name)
    assert {path: path.read_text() for path in made} == made, "make lock"
    endings = {"yaml", "post-deploy.sh"} if name in OWN else {"yaml"}
    assert set(made) == {ROOT / "envs" / f"{name}.{ending}" for ending in endings}


def test_an_environment_of_conda_has_the_builder_and_its_compilers() -> None:
    own = recipes.of("torch-horovod")
    texts = {path.name: text for path, text in conda_files.files("torch-horovod").items()}
    words = texts["torch-horovod.yaml"].splitlines()
    assert own is not None and f"# pins: {own.pins}" in words, "the conda file has to change with the pins"
    assert {"  - python=3.11", "  - cxx-compiler", "  - make", "  - patch", "  - openmpi"} <= set(words)
    assert any(re.fullmatch(r"  - uv=[\d.]+", word) for word in words)
    assert "environment.py torch-horovod --here" in texts["torch-horovod.post-deploy.sh"]


def pinned(*names: str) -> dict[str, str]:
    """Map each package in these files of pins to its version, without torch and compiled packages."""
    own = {*recipes.locked(), *recipes.locked_variants()}
    texts = [
        "\n".join(recipes.to_lock(name)) if name in own else (ROOT / "envs" / f"{name}.txt").read_text()
        for name in names
    ]
    pairs = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?===?(\S+)", "\n".join(texts), re.MULTILINE)
    return {re.sub(r"[._]", "-", name.lower()): version for name, version in pairs if name != "torch"}


@pytest.mark.parametrize(
    ("lock", "names"),
    [
        ("main", ("main", "torch", "test", "benchmarks")),
        *((name, (name,)) for name in [*recipes.locked(), *recipes.locked_variants()]),
    ],
)
def test_a_lock_has_what_is_pinned_with_its_hashes(lock: str, names: tuple[str, ...]) -> None:
    text = (ROOT / "envs/lock" / f"{lock}.txt").read_text()
    wanted = pinned(*names)
    entries = re.findall(r"^([\w.-]+)(?:\[[^\]]*\])?==(\S+).* \\\n    --hash=sha256:", text, re.MULTILINE)
    assert wanted.items() <= dict(entries).items(), "make lock"
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


@pytest.mark.parametrize("name", [name for name in recipes.locked() if has_torch(name)])
def test_all_that_is_on_torch_trains_on_the_same_one(name: str) -> None:
    assert pinned("torch").items() <= pinned(name).items()
    assert re.findall("^torch==.*", (ROOT / "envs/torch.txt").read_text(), re.MULTILINE) == re.findall(
        "^torch==.*", (ROOT / f"envs/{name}.txt").read_text(), re.MULTILINE
    )


def test_the_feature_matrix_is_up_to_date() -> None:
    for page, places in reference.tables().items():
        shown = page.read_text(encoding="utf-8")
        assert shown == reference.filled(page, places)
        assert all(shown.count(f"<!-- {name} -->") == 1 and content in shown for name, content in places.items())


def test_one_preset_has_every_framework() -> None:
    preset = (ROOT / "presets/frameworks.yaml").read_text()
    (listed,) = re.findall(r"^    frameworks: \[(.*)\]$", preset, re.MULTILINE)
    assert sorted(listed.split(", ")) == list(frameworks.NAMES)


def test_an_environment_is_named_by_its_pins_and_patches(pins: Path) -> None:
    source = "#: source x\n#: patch p.patch\n#: set A=1\nx==1\n"
    (pins / "p.patch").write_text("a")
    one = write(pins)
    names = [one.folder, write(pins, source).folder]
    names += [write(pins, source.replace(*change)).folder for change in (("A=1", "A=2"), ("x==1", "x==2"))]
    names.append(write(pins, source.replace("source", "step")).folder)
    (pins / "p.patch").write_text("b")
    names.append(write(pins, source).folder)
    lock = pins / "lock"
    lock.mkdir()
    (lock / "try.txt").write_text("y==1 \\\n    --hash=sha256:1\n")
    names.append(write(pins, source).folder)
    assert len(set(names)) == len(names)
    (lock / "try.txt").write_text("y==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n")
    assert write(pins, source).folder == names[-1], "a wheel for one more platform builds nothing again"
    assert one.folder.parent == recipes.environments()
    assert one.folder.parent.parts[-3:] == ("cache", "throughline", "environments")


def test_what_only_describes_an_environment_builds_nothing_again(pins: Path) -> None:
    one = write(pins, "#: step tools\nx==1\n")
    two = write(pins, "# Why so.\n\n#: step other words\nx==1  # the newest\n#: check math\n")
    assert one.folder == two.folder and one.pins == two.pins


def test_it_is_built_once_and_says_how_far_it_is(pins: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "logs" / "try.log"
    found = write(pins)
    found.folder.mkdir(parents=True)
    (found.folder / "half").touch()
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(build.build("try", log))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    said = capfd.readouterr().err
    assert folders == [found.folder, found.folder]
    assert "removing what an interrupted build left" in said and not (found.folder / "half").exists()
    assert said.count("virtual environment ...") == 1 and "another process builds it; waiting" in said
    assert re.search(r"try 2/2: check: \d+ s", said)
    assert json.loads((found.folder / "built.json").read_text())["framework"] == "try"
    marker = recipes.ready("try")
    assert marker is not None and marker.is_file()
    python = recipes.python_of(recipes.name_of(marker))
    assert subprocess.run([python, "-c", "import json"], check=False).returncode == 0
    assert "$ " in log.read_text()
    build.build("try", log)
    assert "virtual environment" not in capfd.readouterr().err


def test_a_failed_build_leaves_nothing_and_its_log(pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    found = write(pins, "#: step things\nthis-is-not-there==1.0\n")
    (pins / "lock").mkdir()
    (pins / "lock/try.txt").write_text(f"this-is-not-there==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    (pins / "apart.txt").touch()
    log = tmp_path / "try.log"
    with pytest.raises(UserError) as failed:
        build.build("try", log)
    assert "this-is-not-there was not found" in str(failed.value) and "pip's index" in str(failed.value)
    assert not found.folder.exists()
    assert "this-is-not-there" in log.read_text()


def test_a_missing_system_package_is_named_before_anything_starts(
    pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = write(pins, "#: source Thing\nthing==1.0\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as failed:
        build.build("try", tmp_path / "try.log")
    assert "install g++ (Debian, Ubuntu: g++; Fedora, RHEL: gcc-c++), make" in str(failed.value)
    assert "Thing is compiled from its source" in str(failed.value)
    assert not found.folder.exists()


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("x.c:1:10: fatal error: Python.h: No such file or directory", "python3-dev"),
        ("CMake Error: Could NOT find MPI (missing: MPI_CXX_FOUND)", "HOROVOD_WITHOUT_MPI=1"),
        ("OSError: [Errno 28] No space left on device", "XDG_CACHE_HOME"),
        ("g++: error: something else", "nothing half made is left behind"),
    ],
)
def test_what_a_build_fails_on_is_said_with_what_to_do(line: str, advice: str) -> None:
    error = build._failed("try", ["before", line, "after"], Path("logs/try.log"))
    assert line in str(error) and advice in str(error)


def test_a_build_compiles_side_by_side_under_make(pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEFLAGS", " -- PYTHON=python3.11")  # `make frameworks PYTHON=python3.11` sets this
    with (tmp_path / "log").open("w") as log:
        run = build._Runner(write(pins), tmp_path, log, tmp_path / "log")
    assert re.fullmatch(r"-j\d", run.variables["MAKEFLAGS"])


def test_another_home_folder_measures_nothing_again(tmp_path: Path) -> None:
    """A run's parameters name its environment, but no folder."""
    run = "results/frameworks/bz8_fp32/torch-horovod/1n1g/run1.json"
    options = [
        "--dry-run",
        "--nolock",
        "--printshellcmds",
        "--quiet",
        "host",
        "--configfile",
        "presets/frameworks.yaml",
    ]
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


def test_an_environment_for_gpus_has_another_name(pins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_GPU_OPERATIONS", raising=False)
    cpu = write(pins, "#: step w\ny==1\n#: source x\nx==1\n#: variant cuda13\n#: driver 580\ny-gpu==1\n#: without y\n")
    assert "cuda" not in cpu.name and "nccl" not in cpu.name
    gpu = recipes.of("try", "cuda13")
    assert gpu is not None and gpu.name.endswith("-cuda13-nccl") and gpu.pins != cpu.pins
    assert [stage.requirements for stage in gpu.stages] == [["y-gpu==1"], ["x==1"]]
    assert recipes.of("try", "none") == cpu
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "")
    assert gpu.name.endswith("-cuda13")
    rule = re.search(r'pins=r"(.*)"', (ROOT / "rules/wildcards.smk").read_text())
    assert rule and re.fullmatch(f"try-{rule[1]}", gpu.name) and re.fullmatch(f"try-{rule[1]}", cpu.name)


def test_a_build_without_mpi_gets_one_with_mpi_beside_it(pins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished environment never changes, and runs in an environment that has MPI stay as they are."""
    one = write(pins, "#: source x\nx==1\n")
    monkeypatch.delenv("HOROVOD_WITHOUT_MPI", raising=False)
    has: set[str] = set()
    monkeypatch.setattr(shutil, "which", lambda name, path=None: name if name in has else None)
    name, folder = one.name, one.folder
    folder.mkdir(parents=True)
    write_json(folder / recipes.BUILT, {"mpi": False})
    assert one.name == name
    has.add("mpicxx")
    assert one.name == f"{name}-mpi"
    monkeypatch.setenv("HOROVOD_WITHOUT_MPI", "1")
    assert one.name == name
    one.folder.with_name(f"{name}-mpi").mkdir()
    (one.folder.with_name(f"{name}-mpi") / recipes.READY).touch()
    assert one.name == f"{name}-mpi"  # like a head node that shares the home folder
    write_json(folder / recipes.BUILT, {"mpi": True})
    assert one.name == name


def test_another_python_is_looked_for(pins: Path, tmp_path: Path) -> None:
    (pins / "try.txt").write_text(EMPTY.format(version="2.99"))
    with pytest.raises(UserError, match=r"needs Python 2\.99, which was not found.*UV_PYTHON_DOWNLOADS=automatic"):
        build.build("try", tmp_path / "try.log")
