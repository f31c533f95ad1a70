"""Benchmarks of training and of networks: MLPerf's logs (MLLOG), and the tables and JSON of nccl-tests.

* *MLPerf*: blocks of training stand between evaluations. The samples are counted from the start, so a block has the
  difference of its two counts. A block without a start of its own, whose time includes an evaluation, does not count.
  Several ranks may print a line. The platform is a name that people chose, and says nothing about devices.
* *nccl-tests*: the bus bandwidth at the largest size, out of place, in GB/s. Its "Avg" is over all sizes, small ones
  too, and says nothing about a network.
"""

import json
import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from throughline.log_kinds.kind import NUMBER, Fields, Kind, Log, Rule, Unusable, number

PARALLEL = ("tensor", "pipeline", "context")
BEGINNINGS = ("cache_clear", "submission_benchmark", "init_start", "run_start")


def mllog(log: Log) -> Iterator[Fields]:
    """Yield the runs of an MLPerf log. One begins after the end of the one before."""
    runs, ended = list[list[dict[str, Any]]](), True
    for text in re.findall(r":::MLLOG (\{.*\})", log.text):
        entry = json.loads(text)
        if not runs or (ended and entry["key"] in BEGINNINGS):
            runs.append([])
            ended = False
        ended = ended or entry["key"] == "run_stop"
        runs[-1].append(entry)
    yield from map(_mlperf, runs)


def _mlperf(entries: Sequence[dict[str, Any]]) -> Fields:
    said = {entry["key"]: entry["value"] for entry in entries}
    samples = milliseconds = 0
    begun: tuple[int, int] | None = None
    for entry in entries:
        count = entry["metadata"].get("samples_count")
        if entry["key"] == "block_start" and count is not None:
            begun = begun or (count, entry["time_ms"])
        elif entry["key"] == "block_stop" and begun and count is not None:
            samples, milliseconds = samples + count - begun[0], milliseconds + entry["time_ms"] - begun[1]
            begun = None
    if not samples or not milliseconds:
        raise Unusable("cut_off", "it has no block with the count of its samples at its start and its end")
    micro, accumulated = said.get("micro_batch_size"), said.get("gradient_accumulation_steps")
    sizes = [said.get(f"{kind}_parallelism", said.get(f"{kind}_model_parallelism")) or 1 for kind in PARALLEL]
    replicas = said["global_batch_size"] // (micro * accumulated) if micro and accumulated else 0
    precision = re.search(r"fp4|fp8|bf16|fp16|tf32|fp32", str(said.get("lowest_numerical_precision_linear")).lower())
    return Fields(
        value=1000 * samples / milliseconds,
        unit="samples/s",
        rule="the samples of all blocks over their time, without evaluations and without blocks that have no start",
        model=said.get("submission_benchmark"),
        precision=precision[0] if precision else None,
        batch_size_per_device=micro,
        gradient_accumulation=accumulated,
        devices=replicas * prod(sizes) or None,
    )


def nccl_json(log: Log) -> Iterator[Fields]:
    """Yield the result of nccl-tests as JSON."""
    if '"nccl-tests structured output"' not in log.raw:
        return
    content = json.loads(log.raw)
    sizes = {int(size): row for part in content["benchmark"] for size, row in part.items()}
    if not sizes:
        raise Unusable("cut_off", "it has no size")
    yield Fields(
        value=number(str(sizes[max(sizes)]["oop_busbw"])),
        unit="GB/s",
        rule=LARGEST.words,
        software=f"NCCL {content['version']}" if "version" in content else None,
    )


def nccl_ranks(log: Log) -> int | None:
    """Return the ranks of the table's list or of NCCL's own lines, or those of one process if neither has them."""
    listed = max((int(number) + 1 for number in re.findall(r"# +Rank +(\d+)\b", log.text)), default=0)
    threads, gpus = log.find(r"nThread (\d+) nGpus \d+"), log.find(r"nThread \d+ nGpus (\d+)")
    of_process = int(threads) * int(gpus) if threads and gpus else 0
    return max(listed, int(log.find(r"\bnranks (\d+)\b") or 0), of_process) or None


LARGEST = Rule("the bus bandwidth at the largest size, out of place", average=lambda bandwidths: bandwidths[-1])
MLPERF = Kind(title="MLPerf (MLLOG)", reader=mllog)
NCCL_TESTS_JSON = Kind(title="nccl-tests", reader=nccl_json)
NCCL_TESTS = Kind(
    title="nccl-tests",
    line=r"(?m)^ *(?P<step>\d+) +\d+ +(?:u?int\d*|float8?\w*|half|double|bfloat16)(?: +[a-z]+)?(?: +-?\d+)?"
    rf" +[\d.]+ +[\d.]+ +(?P<per_s>{NUMBER}) +\S+(?: +[\d.]+ +[\d.]+ +[\d.]+ +\S+)? *$",
    unit="GB/s",
    rule=LARGEST,
    model=r"\b(all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv|gather|scatter)_perf",
    devices=nccl_ranks,
    hardware=r"# +Rank .*\[[\w:.]+\] (\S.*\S)",
)
