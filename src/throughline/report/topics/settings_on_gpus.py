"""Settings with which a GPU is slower than it could be, so that nobody reads its figure as the most that it can do."""

from collections.abc import Iterator, Sequence

from throughline import frameworks, workloads
from throughline.report.analysis.cells import Group, eager
from throughline.report.topic import Finding, Scope, Topic


def findings(scope: Scope) -> Iterator[Finding]:
    """Yield a sentence if a step on GPUs was not compiled, although the framework can compile it."""
    groups = [group for group in scope.groups if group.measured and _on_gpus(group)]
    if not (uncompiled := list(dict.fromkeys(name for group in groups for name in _not_compiled(group)))):
        return
    asked = {group.summary.options.compile for group in groups if group.summary and any(_not_compiled(group))}
    slower = ["options.compile is false"] * (False in asked)
    slower += _reasons(groups)
    if any(group.summary and group.summary.options.dropout for group in groups):
        slower.append("options.dropout is on, as in training")
    yield Finding(
        f"The steps of {_listed(uncompiled)} were not compiled ({'; '.join(slower)}). So their figures are not the "
        "most that these GPUs can do: options.compile: true shows what a compiled step does."
    )


def _on_gpus(group: Group) -> bool:
    """True if a group trained on GPUs, and its workload trains something."""
    summary = group.summary
    known = summary is not None and workloads.folder(summary.model) is not None
    return (
        known
        and summary is not None
        and workloads.of(summary.model).trains
        and summary.device is not None
        and summary.device.kind != "cpu"
    )


def _not_compiled(group: Group) -> Iterator[str]:
    """Yield the measured frameworks of a group that can compile its model and did not."""
    summary = group.summary
    if summary is None or summary.options.compile is True:
        return
    left = group.frameworks if summary.options.compile is False else eager(summary)
    for name in left:
        measured = any(row.framework == name for row in group.measured)
        if measured and "compile" in frameworks.features(name, summary.model):
            yield name


def _reasons(groups: Sequence[Group]) -> list[str]:
    """Return why runs with `options.compile: auto` did not compile."""
    automatic = [group for group in groups if group.summary and group.summary.options.compile == "auto"]
    told = [(name, eager(group.summary)) for group in automatic if group.summary for name in _not_compiled(group)]
    return list(dict.fromkeys(f"{name}: {words[name]}" for name, words in told))


def _listed(names: Sequence[str]) -> str:
    return " and ".join(", ".join(names).rsplit(", ", 1))


TOPIC = Topic("settings", "Settings on GPUs", order=175, findings=findings)
