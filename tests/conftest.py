"""Programs that tests start find the library of this clone, in every environment; and which tests run side by side.

Snakemake speaks itself, whether the console is installed or not; tests of the console ask for it (`Clone.console`).

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
    "slurm/test_guard.py": "",
    "slurm/": "cluster",
    "workflow/test_all_frameworks.py": "whole job",
    "workflow/test_main_job.py": "whole job",
    "workflow/test_configuration_errors.py::test_a_target_that_is_not_configured": "whole job",
    "workflow/test_console.py": "whole job",
    "workflow/test_convergence.py": "corpus to learn from",
    "workflow/test_report_browser.py": "report",
    "workflow/test_elsewhere.py": "elsewhere",
    "frameworks/test_contract.py": "steps of two frameworks",
    "frameworks/test_equivalence.py::test_fifty_steps": "proof of all frameworks",
    "frameworks/test_reading.py": "dynamic corpus",
    "frameworks/test_jax.py": "steps of JAX",
    "frameworks/test_tensorflow.py": "steps of TensorFlow",
    "frameworks/test_decoders.py": "decoders in transformers",
    "frameworks/test_decoder_layouts.py": "layouts of decoders",
    "frameworks/test_resnet.py::test_training_on_two": "proof of ResNet",
    "frameworks/test_independent_reference.py": "gradients in transformers",
    "frameworks/test_paddle_on_gpus.py": "Paddle as on GPUs",
    "frameworks/test_torch_collectives.py::test_an_operation": "collective operations",
    "frameworks/test_torch_wide_deep.py": "ranks that split tables",
    "frameworks/test_torch_sharding.py": "ranks that split states",
    "frameworks/test_torch_tensor.py": "ranks that share a replica",
    "frameworks/test_torch_faces.py": "ranks that split a classifier",
    "frameworks/test_torch_untrained.py": "run without training",
    "faults/test_corpus_faults.py": "large shard",
    "faults/test_sanitizers.py": "kernel with sanitizers",
    "faults/test_workflow_faults.py::test_records_that": "planted records",
    "faults/test_workflow_faults.py::test_without_a_baseline": "planted records",
    "faults/test_workflow_faults.py::test_hostile": "planted records",
    "unit/": "",
}
"""How tests begin that share a fixture -> its name. Those without a name share the fixtures of their module."""

FOLDERS = ("slurm", "gpu", "workflow", "frameworks", "faults", "unit")
"""In the order in which they begin side by side: who waits longest first, what is short last."""


def shared(test: str) -> str:
    """What the test shares with others, which have to run in the same worker; else its own name."""
    place = test.split("tests/", 1)[-1]
    found = next((name for start, name in SHARED.items() if place.startswith(start)), place)
    return found or place.partition("::")[0]


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
def kernels_as_they_were() -> Iterator[None]:
    """Undo a form's choice of an attention kernel in PyTorch, which holds for the whole process."""
    yield
    if torch := sys.modules.get("torch"):
        for name in ("flash", "mem_efficient", "math", "cudnn"):
            getattr(torch.backends.cuda, f"enable_{name}_sdp")(True)


@pytest.fixture(scope="session", autouse=True)
def own_devices(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test waits for a neighbour's run: that lock keeps figures apart, and nobody looks at figures here."""
    if hasattr(request.config, "workerinput"):
        os.environ["THROUGHLINE_LOCKS"] = str(tmp_path_factory.mktemp("locks"))
