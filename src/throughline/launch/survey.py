"""What a node has, and whether it is fit for a run just now, as one line of JSON; it runs there.

    python -m throughline.launch.survey QUESTION        (messages.Question as JSON; the answer is a messages.Answer)

Standard library only.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path

from throughline import messages
from throughline.files import UserError
from throughline.launch import machine, preflight
from throughline.messages import Answer, Fault, Question
from throughline.observe import environment

PACKAGES = ("torch", "transformers", "numpy", "h5py", "horovod", "mxnet", "gluonnlp")
SEEN_WITHIN_S = 10.0
"""How long a shared file system may take to show a file."""


def software(question: Question) -> dict[str, str | None]:
    """Versions of all that decides what is measured; `throughline` is a digest of what a rank runs of it."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {**versions, "throughline": environment.code(question.framework, question.model)}


def answer(question: Question) -> Answer:
    others, sees = environment.Others(), _sees(Path(question.seen))
    cpu = machine.processor()
    warnings, refused = _fitness(question, others, cpu.count) if sees else ([], None)
    gpus = machine.gpus(question.framework, sys.executable, os.environ) if question.gpus else machine.NO_GPUS
    return Answer(
        node=int(os.environ.get("SLURM_NODEID", "0")),
        sees_files=sees,
        software=software(question),
        gpus=gpus,
        cpu=cpu,
        environment=environment.describe(question.framework, question.model),
        warnings=warnings,
        refused=refused,
    )


def _fitness(question: Question, others: environment.Others, cores: int) -> tuple[list[str], Fault | None]:
    """What marks, and what refuses a run on this node now."""
    record = Path(question.record)
    earlier = preflight.siblings(record)
    try:
        marks = preflight.look(record, others, question.ranks, question.threads, cores, earlier, question.strict)
    except UserError as error:
        return [], Fault(error.what, error.why, error.next_step)
    return marks, None


def _sees(path: Path) -> bool:
    deadline = time.monotonic() + SEEN_WITHIN_S
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


if __name__ == "__main__":
    print(messages.text(answer(messages.parsed(Question, json.loads(sys.argv[1])))))
