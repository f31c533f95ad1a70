"""Processes that tests start find the library, as those that Snakemake starts do; and which tests run side by side.

With pytest-xdist (`make test`) several workers share the processor. Tests that share something dear (a Slurm cluster, a
clone after its whole job) stay in one worker, which makes it once; every other test goes to whoever is free. What takes
longest begins first, so that no worker is alone at the end. A test that looks at times or at the machine's load has the
mark `alone`, and the machine for itself.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
os.environ["PYTHONPATH"] = str(HERE.parent / "src")

FOLDERS = ("slurm", "workflow", "frameworks", "faults", "unit")
"""In the order in which side by side they begin: who waits longest first, what is short last."""

WHOLE_JOB = {"project", "finished"}
"""Fixtures that a whole folder of tests shares."""


def _group(item: pytest.Item) -> str | None:
    """The tests that belong into the same worker; None where it does not matter."""
    path = item.path.relative_to(HERE)
    used = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - pytest has no public way to ask
    if WHOLE_JOB & set(used):
        return path.parts[0]
    own = (definitions[-1] for definitions in used.values())
    shared = any(one.scope == "module" for one in own)
    return path.with_suffix("").as_posix().replace("/", ".") if shared or path.parts[0] == "unit" else None


def _place(item: pytest.Item) -> tuple[int, bool]:
    folder = item.path.relative_to(HERE).parts[0]
    return (FOLDERS.index(folder) if folder in FOLDERS else -1), next(item.iter_markers("xdist_group"), None) is None


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker:
        # One thread each, as their neighbours want the other cores. And no test waits for a neighbour's run: the lock
        # on the devices is there to keep figures apart, and no test looks at figures while others run.
        os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def own_devices(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    if hasattr(request.config, "workerinput"):
        os.environ["THROUGHLINE_LOCKS"] = str(tmp_path_factory.mktemp("locks"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        group = _group(item)
        if group and not next(item.iter_markers("xdist_group"), None):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_place)
