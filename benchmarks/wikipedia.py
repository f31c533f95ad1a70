"""Simulate how long the corpus of the English Wikipedia takes on so many cores, with the workflow's own graph of jobs.

    python benchmarks/wikipedia.py                               the costs of this machine, and 1 to 1,024 cores
    python benchmarks/wikipedia.py --parts 1024 --shards 1024    more and smaller pieces
    python benchmarks/wikipedia.py --per-job 0 3.4               a cluster too: core-seconds added to each job

The graph is what `snakemake corpus --dag dot` prints for a dump by name, with lengths 128 and 512 and five copies. The
cost of a job is measured on this machine: every step, on the sample and on a dump four times as large, gives a cost of
its start and a cost per MB. A job begins when its inputs are there, a core is free, and Snakemake has started it;
Snakemake does one thing at a time. Of several ready jobs, the one with the longest chain of later jobs begins first.
Nothing waits for a disk. The longest chain of jobs, with download and cut, is a time that no number of cores shortens.
"""

from __future__ import annotations

import bz2
import hashlib
import heapq
import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import harness
from corpus import ours_chain

from throughline.corpus.source import dumps
from throughline.corpus.text import vocabulary

LARGER = 4
PACKED_GB, XML_GB, TEXT_GB = 25, 100, 20
OF_XML = ("cut", "extract")
"""Steps that read the dump. All other steps read its text."""
Graph = tuple[dict[int, str], dict[int, list[int]]]
"""Job -> its step, and job -> the jobs that need it."""


def graph(parts: int, shards: int, folder: Path) -> tuple[Graph, float]:
    """Return the workflow's jobs, and the CPU-seconds that Snakemake needs to find them."""
    configuration = folder / "english.yaml"
    configuration.write_text(
        f"corpus: {{name: english, dump: enwiki-20261101, contact: me@example.org, parts: {parts}, "
        f"shards: {{training: {shards}, test: 0}}, sequences: {{128: 20, 512: 80}}}}\n"
    )
    found = harness.snakemake(harness.ROOT, "corpus", "--dag", "dot", "--configfile", configuration)
    steps: dict[int, str] = {}
    for number, label in re.findall(r'^\s*(\d+)\[label = "([^"]*)"', found.output, re.MULTILINE):
        steps[int(number)] = label.split("\\n")[0]
    needed = defaultdict(list)
    for job, then in re.findall(r"^\s*(\d+) -> (\d+)", found.output, re.MULTILINE):
        needed[int(job)].append(int(then))
    return (steps, needed), found.cpu_seconds


def measured(folder: Path) -> dict[str, tuple[float, float]]:
    """Map each step to (seconds of its start, seconds per MB that it reads), measured with two sizes of the sample."""
    words, plain, dump = folder / "vocabulary.txt", folder / "dump.xml", folder / "dump.xml.bz2"
    costs, sizes = [], []
    vocabulary.write_bert_base_uncased(words)
    for times in (1, LARGER):
        here = folder / str(times)
        here.mkdir()
        repeated(dumps.find_sample(), plain, times)
        dump.write_bytes(bz2.compress(plain.read_bytes()))
        costs.append({step: spent.cpu_seconds for step, spent in ours_chain(here, words, dump).items()})
        text = json.loads((here / "counts.json").read_text())["characters"] / 1e6
        sizes.append({step: plain.stat().st_size / 1e6 if step in OF_XML else text for step in costs[-1]})
    found = {}
    for step in costs[0]:
        slope = max(0.0, (costs[1][step] - costs[0][step]) / (sizes[1][step] - sizes[0][step]))
        found[step] = max(0.0, costs[0][step] - slope * sizes[0][step]), slope
    return found


def seconds_of_jobs(
    steps: dict[int, str], costs: dict[str, tuple[float, float]], fixed: dict[str, float], parts: int, shards: int
) -> list[float]:
    """Return the seconds that each job of the English Wikipedia takes on its core. For steps that depend on the
    sequence length, these are the mean over the lengths."""
    gigabytes = {"extract": XML_GB / parts, "tokenize": TEXT_GB / parts, "manifest": 0.0}
    found = {"vocabulary": 0.0, "corpus": 0.0, **fixed}
    for step in set(steps.values()) - found.keys():
        name = {"tokenize": "tokens"}.get(step, step)
        alike = [cost for measured, cost in costs.items() if measured.split()[0] == name]
        start, slope = (mean(each) for each in zip(*alike, strict=True))
        found[step] = start + slope * gigabytes.get(step, TEXT_GB / shards) * 1000
    return [found[steps[job]] for job in range(len(steps))]


def simulated(of: Graph, seconds: list[float], cores: int, snakemake_s: float) -> float:
    """Return the seconds until the last job has ended."""
    steps, needed = of
    waits = [0] * len(steps)
    for later_jobs in needed.values():
        for job in later_jobs:
            waits[job] += 1
    behind = _behind(of, seconds)
    ready = [(-behind[job], job) for job in steps if not waits[job]]
    heapq.heapify(ready)
    running: list[tuple[float, int]] = []
    now = free_again = 0.0
    while ready or running:
        if ready and len(running) < cores:
            _, job = heapq.heappop(ready)
            free_again = max(now, free_again) + snakemake_s
            heapq.heappush(running, (free_again + seconds[job], job))
            continue
        now, job = heapq.heappop(running)
        for later in needed[job]:
            waits[later] -= 1
            if not waits[later]:
                heapq.heappush(ready, (-behind[later], later))
    return now


def _behind(of: Graph, seconds: list[float]) -> list[float]:
    """Return for each job the seconds of the longest chain of jobs that begins with it, itself included."""
    steps, needed = of
    found = [-1.0] * len(steps)

    def longest(job: int) -> float:
        if found[job] < 0:
            found[job] = seconds[job] + max(map(longest, needed[job]), default=0.0)
        return found[job]

    return [longest(job) for job in steps]


def repeated(dump: Path, path: Path, times: int) -> None:
    """Write a dump, uncompressed, that repeats the pages of another one, each time with other ids and titles."""
    head, *pages = bz2.decompress(dump.read_bytes()).split(b"  <page>\n")
    pages[-1], closing = pages[-1].split(b"</mediawiki>")
    with path.open("wb") as stream:
        stream.write(head)
        for turn in range(times):
            stream.writelines(_renamed(pages, turn))
        stream.write(b"</mediawiki>" + closing)


def _renamed(pages: list[bytes], turn: int) -> Iterator[bytes]:
    for page in pages:
        if turn:
            page = re.sub(rb"<title>(.*?)</title>", rb"<title>\1 (%d)</title>" % turn, page, count=1)
        before, number, after = re.split(rb"<id>(\d+)</id>", page, maxsplit=1)
        yield b"  <page>\n%b<id>%d</id>%b" % (before, int(number) + turn * 10**8, after)


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--parts", type=int, default=256)
    parser.add_argument("--shards", type=int, default=256)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 16, 128, 1024])
    parser.add_argument(
        "--per-job", type=float, nargs="+", default=[0.0], help="core-seconds that Snakemake adds to every job"
    )
    parser.add_argument(
        "--snakemake", type=float, default=0.07, help="seconds that Snakemake itself needs for every job"
    )
    parser.add_argument("--download", type=float, default=50, help="MB/s of the download")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        of, found_s = graph(asked.parts, asked.shards, Path(folder))
        costs = measured(Path(folder))
    data = os.urandom(1 << 27)
    digest_s = harness.timed(lambda: hashlib.sha1(data, usedforsecurity=False), "seconds")
    checked = digest_s / (len(data) / 1e6) * PACKED_GB * 1000
    # For each cut between parts, the step looks for a border near its place and unpacks one bz2 block there.
    fixed = {"download": PACKED_GB * 1000 / asked.download + checked, "cut": 1 + 0.08 * asked.parts}
    seconds = seconds_of_jobs(of[0], costs, fixed, asked.parts, asked.shards)
    table = harness.Table("step", "start, CPU-s", "CPU-s per MB of XML or text")
    for step, (start, slope) in costs.items():
        table.add(step, f"{start:.2f}", f"{slope:.4f}")
    started_s = len(of[0]) * asked.snakemake
    print(f"\n{len(of[0]):,} jobs, which Snakemake finds in {found_s:.0f} CPU-s and starts in {started_s:.0f} s")
    print(f"download and its SHA-1: {fixed['download'] / 60:.1f} min; cut: {fixed['cut']:.0f} s")
    for per_job in asked.per_job:
        whole = [job_s + per_job for job_s in seconds]
        longest = max(_behind(of, whole)) / 60
        print(f"\n{per_job:g} s more for a job: {sum(whole) / 3600:.1f} core-hours; longest chain: {longest:.1f} min\n")
        table = harness.Table("cores", "hours", "of all cores' time is work", left=0)
        for cores in asked.cores:
            took = found_s + simulated(of, whole, cores, asked.snakemake)
            table.add(f"{cores:,}", f"{took / 3600:.2f}", f"{sum(whole) / cores / took:.0%}")


if __name__ == "__main__":
    main()
