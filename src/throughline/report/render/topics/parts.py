"""A training step compared with its layers alone, on the page: a table with the conditions, and a sentence."""

from collections.abc import Iterator

from throughline.numbers import percent, reading
from throughline.report.analysis.parts import parts
from throughline.report.render.tables import Table
from throughline.report.topics import Finding, Scope, Topic
from throughline.workloads.layers import HIDDEN

HEADER = ["precision", "batch", "framework", "topology", "TFLOPS a device", "layer alone", "share", "layer's batch",
          "layer's attention", "measured in"]  # fmt: skip
REMARKS = (
    "The layer alone is a forward and backward pass of one layer, with the same device, precision, sequence and "
    "dropout, and the nearest batch size that was measured, at most twice or half as large.",
    f"That layer is {HIDDEN:,} wide, whatever the model's width. It keeps its weights in the run's precision, where a "
    "training casts them. A step also has embeddings, the vocabulary's head, the exchange and the update.",
)


def table(scope: Scope) -> Table | None:
    """Return a row for each cell whose layers were measured in this report."""
    rows = [
        [
            *(one.group.precision, str(one.group.batch), one.row.shown, str(one.row.topology)),
            *(reading(one.value), reading(one.layer.value), percent(one.share), str(one.layer.size)),
            *(str(one.layer.parameters["attention"]), one.layer.group.benchmark),
        ]
        for one in parts(scope.groups, scope.everything)
    ]
    return (HEADER, rows) if rows else None


def findings(scope: Scope) -> Iterator[Finding]:
    """Yield a sentence on the configuration with the smallest topology that comes closest to its layers."""
    found = parts(scope.groups, scope.everything)
    if found:
        one = max(found, key=lambda one: (-one.row.topology.world, one.share))
        yield Finding(
            f"{one.model} reaches {percent(one.share)} of what its layers reach alone: {reading(one.value)} of "
            f"{reading(one.layer.value)} TFLOPS a device ({one.row.shown} {one.row.topology}, {one.group.precision}, "
            f"{one.group.batch_text}; {one.layer.model} at batch {one.layer.size})."
        )


TOPIC = Topic("parts", "A step and its layers alone", table=table, remarks=lambda scope: REMARKS, findings=findings)
