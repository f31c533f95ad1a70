"""Questions that have no answer, each with its reason."""

from collections.abc import Sequence

from throughline.prediction.facts import Job, Point, Target


def why_not(points: Sequence[Point], target: Target, job: Job) -> str | None:
    """Return why nothing can be predicted for `target`; None if something can."""
    tensor = job.layout.tensor_parallel
    measured = {point.topology for point in points}
    if job.input_limited:
        return f"the input limits these runs ({job.input_limited}), and how fast it is elsewhere was not measured"
    if job.exchange == "lookups":
        return (
            "the ranks exchange rows of split tables, and how many depends on which rows they draw, so their time on "
            "other topologies does not follow from these"
        )
    if job.layout.hybrid_shard_groups != 1:
        return "weights travel within groups of replicas (options.hybrid_shard_groups), which no formula here knows"
    if job.layout.expert_parallel > 1:
        return "tokens travel between the ranks that hold experts, and no formula here knows such messages"
    if target.world % tensor or any(point.world % tensor for point in points):
        return f"the devices of {target.topology} do not divide into replicas of {tensor}"
    if not points:
        return "nothing was measured"
    if len(measured) == 1:
        return (
            f"only {points[0].topology} was measured, and nothing says how the exchange grows; from one topology and a "
            "datasheet alone nothing can be said"
        )
    if target.nodes > 1 and all(point.nodes == 1 for point in points):
        return (
            f"nothing was measured between nodes, and {target.topology} needs their network; one topology with 2 nodes "
            "is enough for a prediction"
        )
    if any(point.devices < tensor for point in points) or target.devices < tensor:
        return f"a replica of {tensor} devices lies on several nodes, and its exchange there does not follow from these"
    return None
