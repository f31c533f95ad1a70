"""Put load on a real Slurm cluster: 1,000 shards and 200 runs of a second. Check that none is lost or made twice.

    sudo slurm/try/start.sh /tmp/cluster && . /tmp/cluster/environment
    python benchmarks/slurm_load.py                    # --shards 1000 --runs 200 --per-job 100
    sudo slurm/try/stop.sh /tmp/cluster

It uses the workflow's own profile, and rules like those of the workflow. Their commands only wait and write a line into
a ledger, so the script measures Snakemake and Slurm. Shards share jobs (`--group-components`). Each run is one job.
"""

from __future__ import annotations

import collections
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import harness

PROFILE = harness.ROOT / "slurm" / "config.yaml"

SNAKEFILE = """
SHARDS, RUNS = int(config["shards"]), int(config["runs"])

rule all:
    localrule: True
    input: expand("results/run{number}.json", number=range(RUNS))

rule shard:
    output: "data/{number}.hdf5"
    group: "shards"
    resources: mem_mb=100, runtime=5
    shell: "echo data/{wildcards.number} >> ledger && touch {output}"

rule manifest:
    localrule: True
    input: expand("data/{number}.hdf5", number=range(SHARDS))
    output: "data/manifest.json"
    shell: "ls data | wc -l > {output}"

rule run:
    input: ancient("data/manifest.json")
    output: "results/run{number}.json"
    resources: mem_mb=200, runtime=5
    shell: "sleep 1; echo run/{wildcards.number} >> ledger && touch {output}"
"""


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--per-job", type=int, default=100, help="shards that share a job of Slurm's")
    parser.add_argument("--folder", type=Path, help="work in this folder and keep it; another call goes on there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slurm-load-") as temporary:
        folder = given.folder or Path(temporary)
        (folder / "slurm").mkdir(parents=True, exist_ok=True)
        shutil.copy(PROFILE, folder / "slurm")
        (folder / "Snakefile").write_text(SNAKEFILE)
        command = [sys.executable, "-m", "snakemake", "--cores", "all", "--profile", "slurm", "--quiet", "all"]
        command += ["--group-components", f"shards={given.per_job}"]
        command += ["--slurm-init-seconds-before-status-checks", "5"]
        command += ["--config", f"shards={given.shards}", f"runs={given.runs}", "--"]
        for what, target in ((f"{given.shards} shards", "data/manifest.json"), (f"{given.runs} runs", "all")):
            timed(what, [*command, target], folder)
        signed = collections.Counter((folder / "ledger").read_text().split())
    expected = given.shards + given.runs
    twice = [line for line, count in signed.items() if count > 1]
    print(f"lost: {expected - len(signed)}; twice: {len(twice)}")
    sys.exit(len(signed) != expected or bool(twice))


def timed(what: str, command: list[str], folder: Path) -> None:
    """Call Snakemake; print how long the call took and how many Slurm jobs it needed."""
    before = jobs()
    seconds = harness.run(command, folder).seconds
    print(f"{what} in {seconds:.0f} s, {jobs() - before} jobs of Slurm's", flush=True)


def jobs() -> int:
    """Return the number of the cluster's next job, which says how many jobs it has had so far."""
    shown = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=True).stdout
    return next(int(line.split("=")[1]) for line in shown.splitlines() if line.startswith("NEXT_JOB_ID"))


if __name__ == "__main__":
    main()
