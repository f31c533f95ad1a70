"""What a run ran in and on, as facts with dotted keys, and in which of them two environments differ."""

from collections.abc import Mapping
from typing import Any

from throughline.records import Data, Device, RunRecord

UNLIKE_ANYWAY = ("tree_clean", "digest", "reasons", "binding")
"""Parts of an environment that say nothing about its speed, or that differ in every job, as the numbers of cores do."""
VARIABLES = "environment.variables."
BY_TOPOLOGY = (
    VARIABLES,
    *(
        f"environment.{name}"
        for name in ("packages.", "gpus", "gpu_topology", "commit", "cpu_cores", "cpu_quota_cores")
    ),
)
"""Facts that differ between topologies for good reasons: a cluster gives cores in proportion to devices. A commit in
between need not change what is measured."""
MEMORY = 0.02
"""Machines of one kind report sizes of memory that differ by up to this share."""


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested maps as one map with dotted keys."""
    result: dict[str, Any] = {}
    for key, inner in value.items():
        name = f"{prefix}{key}"
        result |= flat(inner, f"{name}.") if isinstance(inner, Mapping) else {name: inner}
    return result


def of_run(run: RunRecord) -> dict[str, Any]:
    """Return the device, the environment and the data of a run, by dotted keys."""
    return by_key(run.device, run.environment, run.data)


def by_key(device: Device | None, environment: Mapping[str, Any], data: Data | None) -> dict[str, Any]:
    """Return a device, an environment and data by dotted keys."""
    return flat({
        "device": {"kind": device.kind, "name": device.name} if device else {},
        "environment": {key: value for key, value in environment.items() if key not in UNLIKE_ANYWAY},
        "data": {"content_digest": data.content_digest} if data else {},
    })  # fmt: skip


def differing(
    here: Mapping[str, Any], there: Mapping[str, Any], ignoring: tuple[str, ...] = ()
) -> dict[str, tuple[Any, Any]]:
    """Map each fact in which two environments differ to both of its values.

    A fact that one side does not know is no difference; a variable that one side does not have is one. ignoring: the
    beginnings of keys that are left out.
    """
    return {
        key: (here.get(key), there.get(key))
        for key in dict.fromkeys([*here, *there])
        if not key.startswith(ignoring) and _differs(key, here.get(key), there.get(key))
    }


def _differs(key: str, one: Any, other: Any) -> bool:
    if one is None or other is None:
        return bool(one != other) and key.startswith(VARIABLES)
    if key.endswith("memory_bytes") and all(isinstance(value, int | float) for value in (one, other)):
        return bool(abs(one - other) > MEMORY * max(one, other))
    return bool(one != other)
