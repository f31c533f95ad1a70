"""Mistakes in a configuration that only two of its places together show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from throughline import workloads
from throughline.files import UserError
from throughline.study.benchmark import Benchmark
from throughline.study.config_errors import allowed
from throughline.topology import StepSize, Topology

if TYPE_CHECKING:
    from throughline.study.config import Config


def mistakes(config: Config, frameworks: list[str]) -> Iterable[str]:
    """A line for each mistake; `frameworks` are the names there are."""
    for name, section in config.data_sections().items():
        yield from (f"{name}.{mistake}" for mistake in section.mistakes())
    for name, block in config.benchmarks.items():
        where = f"benchmarks.{name}"
        if "__" in name:
            yield f"{where}: two underscores in a row are kept for derived runs, such as <name>__aa"
        yield from (f"{where}.{mistake}" for mistake in _of_block(config, block, frameworks))


def _of_block(config: Config, block: Benchmark, frameworks: list[str]) -> Iterable[str]:
    workload = workloads.of(block.model)
    section = config.data_of(block)
    if section is not None:
        yield from section.mistakes_of(block.own, held_out=block.convergence is not None)
    if block.convergence and (block.options.data != "real" or not block.options.exchange):
        yield "convergence: it trains on real data and exchanges gradients, and options say otherwise"
    if block.convergence and not workload.HELD_OUT:
        yield f"convergence: {block.model} has no figures of held-out data"
    for position, framework in enumerate(block.frameworks):
        if frameworks and framework not in frameworks:
            yield f"frameworks.{position} = {framework!r}: {allowed(framework, frameworks)}"
    yield from _indivisible(block)


def _indivisible(block: Benchmark) -> Iterable[str]:
    """Topologies and batch sizes that do not divide into replicas."""
    for topology in map(Topology.parse, block.topologies):
        for precision, batches in block.batch.items():
            for batch in batches:
                try:
                    StepSize.of(topology, block.options.layout, batch, block.scaling)
                except UserError as error:
                    yield f"batch.{precision}: {error.what}; {error.next_step}"
