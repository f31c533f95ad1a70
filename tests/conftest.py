"""Programs that tests start find the library of this clone, in every environment; and which tests run side by side.

Snakemake speaks itself; tests of the console ask for the console (`Clone.console`).

With pytest-xdist (`pytest -n 3`, as `make test` does) several workers share the processor. Tests that share something
dear (a Slurm cluster, a clone after its whole job) stay in one worker, which makes it once; every other test goes to
whoever is free. What takes longest begins first, so that no worker is alone at the end. A test that looks at times or
at the machine's load has the mark `alone`: it runs later, with the machine for itself.

Outside unit/ tests have real processes with real time limits: what fails there is tried once more. At most three tests
of a call are tried again (pyproject.toml). pytest prints their first errors, and names them at its end (RERUN).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "src"), str(HERE)])  # nothing else sets it
os.environ["THROUGHLINE_CONSOLE"] = "snakemake"

SHARED = {
    "slurm/": "cluster",
    "workflow/test_all_frameworks.py": "whole job",
    "workflow/test_main_job.py": "whole job",
    "workflow/test_configuration_errors.py::test_a_target_that_is_not_configured": "whole job",
    "workflow/test_console.py": "whole job",
}
"""How tests of several modules begin that share a fixture -> its name."""
IN_ONE_MODULE = (
    "slurm/test_guard.py",
    "workflow/test_convergence.py",
    "workflow/test_elsewhere.py",
    "workflow/test_report_browser.py",
    "frameworks/test_contract.py",
    "frameworks/test_decoder_layouts.py",
    "frameworks/test_decoders.py",
    "frameworks/test_equivalence.py::test_fifty_steps",
    "frameworks/test_jax.py",
    "frameworks/test_paddle_on_gpus.py",
    "frameworks/test_reading.py",
    "frameworks/test_resnet.py::test_training_on_two",
    "frameworks/test_tensorflow.py",
    "frameworks/test_torch_collectives.py::test_an_operation",
    "frameworks/test_torch_faces.py",
    "frameworks/test_torch_sharding.py",
    "frameworks/test_torch_tensor.py",
    "frameworks/test_torch_untrained.py",
    "frameworks/test_torch_wide_deep.py",
    "faults/test_corpus_faults.py",
    "faults/test_sanitizers.py",
    "faults/test_workflow_faults.py::test_invalid_records",
    "faults/test_workflow_faults.py::test_hostile",
    "unit/",
)
"""How tests begin that share the fixtures of their module."""

FOLDERS = ("slurm", "gpu", "workflow", "frameworks", "faults", "unit")
"""In the order in which they begin side by side: who waits longest first, what is short last."""


def shared(test: str) -> str:
    """What the test shares with others, which have to run in the same worker; else its own name."""
    place = test.split("tests/", 1)[-1]
    if place.startswith(IN_ONE_MODULE):
        return place.partition("::")[0]
    return next((name for start, name in SHARED.items() if place.startswith(start)), place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        # xdist's own marks for this (`--dist loadgroup`) are lost with pytest 9.2.
        def _split_scope(self, nodeid: str) -> str:
            return shared(nodeid)

        # A worker begins a test once it knows the next one; to hold more would keep them from who is free.
        def _reschedule(self, node: Any) -> None:
            if node.shutting_down:
                return
            while self.workqueue and self._pending_of(self.assigned_work[node]) < 2:
                self._assign_work_unit(node)
            if not self.workqueue:
                node.shutdown()

        # xdist's own waits for ever where a worker dies: it hands finished tests on, and the one that ended it.
        def remove_node(self, node: Any) -> str | None:
            work = self.assigned_work.pop(node)
            left = [(unit, test) for unit in work.values() for test, done in unit.items() if not done]
            if not left:
                return None
            unit, died = left[0]
            unit[died] = True
            self.workqueue.update((name, unit) for name, unit in work.items() if not all(unit.values()))
            for other in self.assigned_work:
                self._reschedule(other)
            return died

    config.option.loadscopereorder = False  # the order is ours
    return Sharing(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    folder = {item: item.path.relative_to(HERE).parts[0] for item in items}
    for item in items:
        if folder[item] != "unit":
            item.add_marker(pytest.mark.flaky(reruns=1))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: FOLDERS.index(folder[item]))


def pytest_configure(config: pytest.Config) -> None:
    # Behind `command &` or nohup Ctrl-C is ignored, by every process below as well; tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):  # one thread each: their neighbours want the other cores
        os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """Undo what holds for the whole process: the launcher's names of nodes, and PyTorch's chosen attention kernel."""
    yield
    os.environ.pop("THROUGHLINE_NODES", None)
    if torch := sys.modules.get("torch"):
        for name in ("flash", "mem_efficient", "math", "cudnn"):
            getattr(torch.backends.cuda, f"enable_{name}_sdp")(True)


@pytest.fixture(scope="session", autouse=True)
def own_devices(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test waits for somebody else's run: that lock keeps figures apart, and nobody looks at figures here."""
    os.environ["THROUGHLINE_LOCKS"] = str(tmp_path_factory.mktemp("locks"))
