"""Say which steps on GPUs were not compiled, so that nobody reads their figures as the most that a GPU can do."""

from collections.abc import Iterator

from throughline import frameworks
from throughline.report.analysis.cells import Group
from throughline.report.analysis.titles import eager
from throughline.report.topic import Finding, Scope, Topic


def findings(scope: Scope) -> Iterator[Finding]:
    """Yield a sentence if a step on GPUs was not compiled, although the framework can compile it."""
    why = {name: reason for group in scope.groups for name, reason in _not_compiled(group).items()}
    if why:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in why.items())
        yield Finding(f"Not compiled, so slower than these GPUs could be: {reasons}. options.compile: true compiles.")


def _not_compiled(group: Group) -> dict[str, str]:
    """Map each measured framework that can compile the group's model on GPUs and did not to the reason."""
    summary = group.summary
    on_gpus = summary.device is not None and summary.device.kind != "cpu"
    if not (on_gpus and group.trains and group.measured) or summary.options.compile is True:
        return {}
    left = eager(summary)
    if summary.options.compile is False:
        left = dict.fromkeys(group.frameworks, "options.compile is false")
    return {
        name: reason
        for name, reason in left.items()
        if group.series(name) and "compile" in frameworks.features(name, summary.model)
    }


TOPIC = Topic("settings", "Settings on GPUs", order=175, findings=findings)
