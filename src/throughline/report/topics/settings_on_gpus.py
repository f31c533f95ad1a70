"""Say which steps on GPUs were not compiled, so that nobody reads their figures as the most that a GPU can do."""

from collections.abc import Iterator

from throughline import frameworks
from throughline.report.analysis.cells import Group
from throughline.report.analysis.notes import Note
from throughline.report.analysis.titles import eager
from throughline.report.topic import Scope, Topic


def notes(_: Scope, group: Group) -> Iterator[Note]:
    """Yield a note for each framework whose steps on GPUs were not compiled, although it can compile them."""
    summary = group.summary
    on_gpus = summary.device is not None and summary.device.kind != "cpu"
    if not (on_gpus and group.trains) or summary.options.compile is True:
        return
    why = eager(summary)
    if summary.options.compile is False:
        why = dict.fromkeys(group.frameworks, "options.compile is false")
    for name, reason in why.items():
        if group.series(name) and "compile" in frameworks.features(name, summary.model):
            yield Note(name, f"slower than these GPUs could be, because the step is not compiled: {reason}", "reason")


TOPIC = Topic("settings", "Settings on GPUs", order=175, notes=notes)
