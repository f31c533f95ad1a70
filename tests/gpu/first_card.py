"""What a card gives in its first ten minutes, without a network: `make first-card`, or

    python3 tests/gpu/first_card.py --output FOLDER      in a Python from 3.11 to 3.13 that has its own torch from
                                                         2.11 on (and transformers and jax, as images for GPUs have)

Packages that this Python lacks come from wheels/<version>/, which `make wheels` has filled on a machine with a network.
The parts, each a process of its own that ends at its time, whatever the others did (first_card_parts.py):

    losses     of three models in fp32 and bf16, compiled and recorded, against each other
    rows       usual batches in bf16: our step, a loop around Hugging Face's model, and one around PyTorch's modules
    workflow   the blocks for GPUs of config.yaml, shortened: the whole workflow to report.html and archive.zip
    bench      `throughline bench` on two variants of the example program
    tests      on_card.py: what only a card can show

A part that needs less than its time leaves the rest to the parts after it. first-card.json and first-card.md are
written after each line. They say what found no time. Compiled kernels are kept in one folder for all parts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "src"), str(HERE)]

from first_card_page import markdown  # noqa: E402
from wheels import FOLDER, unpack  # noqa: E402

from throughline.installation import choose, recipe  # noqa: E402

LIMITS_S = {"losses": 60, "rows": 200, "workflow": 200, "bench": 60, "tests": 60}
"""The seconds of each part, of the 600 of all: the others are for what lies between."""
ALL_S = 600
GRACE_S = 5
"""So long a part may take to end when it is asked to. Then it is killed."""
OLDEST_TORCH = (2, 11)
PACKAGES = ("torch", "triton", "transformers", "jax", "torchvision", "numpy", "snakemake")


class Results:
    """The content of first-card.json as it grows. `save` writes it and the page again."""

    def __init__(self, folder: Path, given: argparse.Namespace, variables: dict[str, str]) -> None:
        self.folder, self.start = folder, time.monotonic()
        self.value: dict[str, Any] = {
            "schema": 1, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "device": given.device,
            "tiny": given.tiny, "limit_s": given.seconds, "seconds": None, "python": platform.python_version(),
            "cards": [vars(card) for card in choose.facts().cards], "driver": choose.facts().driver,
            "packages": versions(), "compiled_kernels": variables["TORCHINDUCTOR_CACHE_DIR"],
            "compiled_kernels_at_start": Path(variables["TORCHINDUCTOR_CACHE_DIR"]).exists(),
            "parts": {name: {"outcome": "no time", "seconds": None, "plan": [], "rows": []} for name in given.parts},
        }  # fmt: skip

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def save(self) -> None:
        self.value["seconds"] = round(self.elapsed(), 1)
        for kind, text in ("json", json.dumps(self.value, indent=1)), ("md", markdown(self.value)):
            partial = self.folder / f".first-card.{kind}"
            partial.write_text(text + "\n", encoding="utf-8")
            partial.replace(self.folder / f"first-card.{kind}")


def main() -> int:
    given = arguments()
    if reason := unfit():
        sys.exit(f"error: {reason}")
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="first-card-") as work:
        site = Path(work, "site")
        if (added := unpack(given.wheels, site)) or not given.wheels.exists():
            print(f"from {given.wheels}: {', '.join(added) or 'nothing, the folder does not exist'}", flush=True)
        variables = environment(site)
        results = Results(given.output, given, variables)
        results.save()
        for number, name in enumerate(given.parts):
            until = sum(LIMITS_S[part] for part in given.parts[: number + 1]) * given.seconds / ALL_S
            run(name, results, until - results.elapsed(), given, variables | {"FIRST_CARD_WORK": work})
            results.save()
    print((given.output / "first-card.md").read_text())
    return int(any(part["outcome"] != "finished" for part in results.value["parts"].values()))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    version = "{}.{}".format(*sys.version_info)
    parser.add_argument("--seconds", type=float, default=ALL_S, help="seconds for everything; parts have their shares")
    parser.add_argument("--output", type=Path, default=ROOT / "results/first-card", help="folder for the results")
    parser.add_argument("--wheels", type=Path, default=FOLDER / version, help="folder of wheels")
    parser.add_argument("--parts", nargs="+", choices=list(LIMITS_S), default=list(LIMITS_S), help="only these parts")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try it: figures without a meaning")
    given = parser.parse_args()
    given.output = given.output.resolve()
    return given


def versions() -> dict[str, str | None]:
    """Map each package to its version; None if this Python lacks it."""
    found: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def unfit() -> str | None:
    """Return why this Python cannot take part; None if it can."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return f"this is Python {platform.python_version()}; take 3.11, 3.12 or 3.13 (make first-card PYTHON=...)"
    torch = versions()["torch"]
    if torch is None or tuple(map(int, torch.split(".")[:2])) < OLDEST_TORCH:
        return f"{sys.executable} has torch {torch or '(none)'}; take a Python with torch 2.11 or newer"
    return None


def environment(site: Path) -> dict[str, str]:
    """Return the variables of all parts: where unpacked packages are, one folder of compiled kernels, no network."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    kernels = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(recipe.environments().parent / "first-card-compiled")
    ours = {"PYTHONPATH": os.pathsep.join(paths), "TORCHINDUCTOR_CACHE_DIR": kernels, "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **ours, "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}


def run(name: str, results: Results, limit_s: float, given: argparse.Namespace, variables: dict[str, str]) -> None:
    """Run a part in a session of its own, for at most `limit_s`. Each line of JSON that it prints is a row."""
    part = results.value["parts"][name]
    if limit_s < 1:
        return
    print(f"{name}: at most {limit_s:.0f} s", flush=True)
    part["outcome"] = "not finished"
    begin, log = time.monotonic(), results.folder / f"{name}.log"
    order = {"device": given.device, "tiny": given.tiny, "limit_s": limit_s - GRACE_S, "output": str(results.folder)}
    command = [sys.executable, str(HERE / "first_card_parts.py"), name, json.dumps(order)]
    with log.open("w") as errors, subprocess.Popen(
        command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
    ) as process:  # fmt: skip
        rang = threading.Event()
        timers = [threading.Timer(max(0.1, limit_s - GRACE_S), stop, (process, signal.SIGTERM, rang)),
                  threading.Timer(limit_s, stop, (process, signal.SIGKILL, rang))]  # fmt: skip
        for timer in timers:
            timer.daemon = True
            timer.start()
        for text in process.stdout:
            line = json.loads(text)
            part.update(line) if "plan" in line else part["rows"].append(line)
            results.save()
        process.wait()
        for timer in timers:
            timer.cancel()
        stop(process, signal.SIGKILL, threading.Event())  # what it started and left
    part["seconds"] = round(time.monotonic() - begin, 1)
    part["outcome"] = outcome(process.returncode, rang.is_set(), limit_s, log)
    print(f"{name}: {part['outcome']}, {part['seconds']} s", flush=True)


def stop(process: subprocess.Popen[str], number: int, rang: threading.Event) -> None:
    """Send a signal to a part and all that it started."""
    rang.set()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def outcome(status: int, stopped: bool, limit_s: float, log: Path) -> str:
    """Return how a part ended, in words."""
    if stopped:
        return f"stopped after {limit_s:.0f} s"
    last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
    return "finished" if status == 0 else f"ended with status {status}: {''.join(last)[:300]}"


if __name__ == "__main__":
    sys.exit(main())
