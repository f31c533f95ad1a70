"""Helper process, in the environment of torch-horovod: the calls of Horovod in a step of a model with batch norms.

Argument: a specification (JSON). It prints the names of the calls as JSON. One process is enough: it exchanges with
itself.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import horovod.torch as hvd

from throughline import frameworks, workloads
from throughline.frameworks.rank import load


def main() -> None:
    spec = frameworks.specification(json.loads(sys.argv[1]))
    hvd.init()
    rank: Any = load("torch-horovod")(spec, 0, 0, 1, "cpu")
    rank.exchanges = True
    rank.device()
    rank.model({})
    rank.optimizer()
    called: list[str] = []

    def noted(name: str) -> Any:
        own = getattr(rank.update if name == "synchronize" else hvd, name)
        return lambda *given, **more: called.append(name) or own(*given, **more)

    hvd.broadcast_parameters = noted("broadcast_parameters")
    rank.update.synchronize = noted("synchronize")
    batch = workloads.of(spec.model).synthetic(4, spec, 1)
    rank.step([rank.deliver(rank.data(batch))])
    print(json.dumps({"called": called, "statistics": len(rank.changing)}))


if __name__ == "__main__":
    main()
