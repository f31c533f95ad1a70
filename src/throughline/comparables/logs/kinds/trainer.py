"""Hugging Face's Trainer: the file trainer_state.json, which the Trainer writes itself.

`train_samples_per_second` is the samples of all epochs divided by the runtime of `train()`. This runtime includes the
evaluations, the logging and the first steps; nothing is dropped.
"""

import json
from collections.abc import Iterator

from throughline.comparables.logs.figures import number
from throughline.comparables.logs.log import Log, Reading, Unusable

NAME = "Hugging Face Trainer"


def read(log: Log) -> Iterator[Reading]:
    """Yield the job of a trainer_state.json; none if the file is another one."""
    if not log.raw.lstrip().startswith("{") or '"log_history"' not in log.raw:
        return
    try:
        state = json.loads(log.raw)
        ends = [entry for entry in state["log_history"] if "train_samples_per_second" in entry]
    except (json.JSONDecodeError, RecursionError, TypeError, KeyError):
        raise Unusable("broken", "it is no whole JSON file with a log_history") from None
    if not ends:
        raise Unusable("cut_off", "it is the state of a job that had not ended: train_samples_per_second is missing")
    last, batch = ends[-1], state.get("train_batch_size")
    name = state.get("model_name") or state.get("_name_or_path")
    yield Reading(
        value=number(str(last["train_samples_per_second"])),
        unit="samples/s",
        rule="train_samples_per_second: all samples over the runtime of the whole job, nothing dropped",
        model=name if isinstance(name, str) else None,
        batch=batch if isinstance(batch, int) and batch > 0 else None,
        reasons={
            "devices": "the Trainer's state does not say it",
            "precision": "the Trainer's state does not say it",
        },
    )
