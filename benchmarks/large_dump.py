"""Make the corpus of a dump of a gigabyte on a few cores. Measure time, memory and disk, and whether they grow in
proportion. Check that the bytes are the same if Snakemake is killed on the way.

    python benchmarks/large_dump.py                           0.5 and 1 GB of XML on 2 cores, three kills
    python benchmarks/large_dump.py --megabytes 60 --kills 1

The dump repeats the sample's pages, each time with another id and title. It is made in a temporary folder. The script
removes data/ and logs/ of these corpora at the end. Memory is the sum over all processes of the job (proportional set
size: shared pages count once), read twice a second. A kill sends SIGKILL to Snakemake and to all processes that it
started, after a quarter, a half and three quarters of the time that the undisturbed run took.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import harness
from corpus_steps import repeated
from harness import ROOT

from throughline import files, processes
from throughline.corpus.source import dumps

PER_PART_MB = 32
"""MB of XML in a part. There is one shard for each part."""


def memory_mb(root: int) -> float:
    """Return the memory of a process and all its descendants."""
    total = 0
    for pid in [root, *processes.descendants(root)]:
        try:
            found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        except OSError:
            continue
        total += int(found[1]) if found else 0
    return total / 1024


def made(configuration: Path, cores: int, at_most_s: float | None = None) -> tuple[float, float]:
    """Run `snakemake corpus`; return its seconds and its largest memory in MB. After `at_most_s` it is killed with all
    its descendants."""
    command = [sys.executable, "-m", "snakemake", "corpus", "--cores", str(cores), "--configfile", str(configuration)]
    with tempfile.TemporaryFile() as said:
        job = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        begun, largest = time.monotonic(), 0.0
        while job.poll() is None:
            largest = max(largest, memory_mb(job.pid))
            if at_most_s and time.monotonic() - begun > at_most_s:
                for pid in [job.pid, *processes.descendants(job.pid)]:
                    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                        os.kill(pid, signal.SIGKILL)
                job.wait()
                subprocess.run([*command, "--unlock"], cwd=ROOT, check=True, capture_output=True)
                return time.monotonic() - begun, largest
            time.sleep(0.5)
        if job.returncode:
            said.seek(0)
            sys.exit(said.read().decode()[-3000:])
    return time.monotonic() - begun, largest


def shards(name: str) -> dict[str, str]:
    """Map each shard of a corpus to its SHA-256."""
    place = ROOT / "data" / name
    return {str(path.relative_to(place)): files.sha256(path) for path in sorted(place.glob("seq*/*.hdf5"))}


def disk(name: str) -> Iterator[str]:
    """Yield the folders of a corpus with their MB."""
    for folder in sorted(path for path in (ROOT / "data" / name).iterdir() if path.is_dir()):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        yield f"{folder.name} {size / 1e6:.0f} MB"


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument(
        "--megabytes", type=int, default=1000, help="MB of XML; a corpus of half the size is made first"
    )
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--kills", type=int, default=3)
    asked = parser.parse_args()
    names = []
    with tempfile.TemporaryDirectory() as place:

        def configured(name: str, dump: Path, parts: int) -> Path:
            names.append(name)
            corpus = f"name: {name}, dump: {json.dumps(str(dump))}, parts: {parts}, sequences: {{128: 20, 512: 80}}"
            path = Path(place) / f"{name}.yaml"
            path.write_text(f"corpus: {{{corpus}, shards: {{training: {parts}, test: 1}}}}\n")
            return path

        try:
            table = harness.Table("MB of XML", "parts", "seconds", "s per MB", "memory, MB", "disk", left=0)
            for number, megabytes in enumerate((asked.megabytes // 2, asked.megabytes)):
                dump, parts = Path(place) / f"dump{number}.xml", -(-megabytes // PER_PART_MB)
                repeated(dumps.find_sample(), dump, megabytes=megabytes)
                seconds, memory = made(configured(f"large_{number}", dump, parts), asked.cores)
                cells = [megabytes, parts, f"{seconds:.0f}", f"{seconds / megabytes:.3f}", f"{memory:.0f}"]
                table.add(*cells, ", ".join(disk(names[-1])))
            undisturbed, whole = shards(names[-1]), seconds
            configuration = configured("large_killed", dump, parts)
            for number in range(asked.kills):
                made(configuration, asked.cores, whole / (asked.kills + 1))
                there = sum(path.suffix == ".hdf5" for path in (ROOT / "data" / names[-1]).glob("seq*/*"))
                print(f"killed, the {number + 1}. time: {there} of {len(undisturbed)} shards are there", flush=True)
            made(configuration, asked.cores)
            same = shards(names[-1]) == undisturbed
            print(f"{len(undisturbed)} shards, {'the same bytes' if same else 'OTHER BYTES'} as undisturbed")
            sys.exit(not same)
        finally:
            for name in names:
                for folder in (ROOT / "data" / name, ROOT / "logs" / name):
                    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
