"""What a summary's runs had on and off, in DLPerf's words, as the title of its table."""

from throughline import workloads
from throughline.records import Summary
from throughline.report.analysis import workload_figures
from throughline.report.analysis.advice import eager
from throughline.report.analysis.cells import Group, synthetic_files
from throughline.spec.program import DECIDES

CHECKPOINTED = {True: "W/ checkpointing", "selective": "W/ selective checkpointing"}


def switches(summary: Summary) -> str:
    """Return what is on and off in DLPerf's words, such as `W/O compile & W/O clip & W/O checkpointing`.

    Empty for programs of somebody else, which decide it themselves, and for runs that train nothing.
    """
    options, groups = summary.options, summary.options.hybrid_shard_groups
    if summary.model == DECIDES or not workloads.trains(summary.model) or options.data == "reading":
        return ""
    always = [
        _compiling(summary) if options.compile == "auto" else "W/ compile" if options.compile else "W/O compile",
        "W/O clip" if options.clip == "none" else f"W/ clip by {options.clip.replace('_', ' ')}",
        "W/O checkpointing" if not options.activation_checkpointing else CHECKPOINTED[options.activation_checkpointing],
    ]
    # The device has no units for the precision, so these multiply in fp32.
    emulate = [name for name, built in (summary.settings or {}).items() if (built or {}).get("emulated_products")]
    unusual = {
        "W/ CUDA graph of the whole step": options.cuda_graph == "step",
        "W/O padding": options.remove_padding is True,
        "W/O padding where a GPU can leave it out": options.remove_padding == "auto",
        f"W/ accumulation of {options.gradient_accumulation}": options.gradient_accumulation > 1,
        f"W/ accumulation to {summary.global_batch or 0:,} samples": summary.global_batch is not None,
        "W/O exchange of gradients": not options.gradient_sync,
        f"W/ exchange in {options.reduce_dtype}": options.reduce_dtype != "fp32",
        f"W/ sharding: {options.sharding}": options.sharding != "none",
        f"W/ sharding in {'each node' if groups == 'nodes' else f'{groups} groups'}": groups != 1,
        f"W/ products in fp32, rounded to {summary.precision}, in {', '.join(emulate)}": bool(emulate),
        f"W/ fp8 scaled {options.fp8_scaling}": summary.precision == "fp8",
        f"W/ tensor parallelism over {options.tensor_parallel} devices": options.tensor_parallel > 1,
        f"W/ experts spread over {options.expert_parallel} devices": options.expert_parallel > 1,
        f"W/ {options.data} data": options.data != "real",
        "W/ synthetic files": synthetic_files(summary),
    }
    return " & ".join([*always, *(words for words, holds in unusual.items() if holds)])


def _compiling(summary: Summary) -> str:
    """Return what `compile: auto` did: with or without, and for which frameworks if they differ."""
    built = [name for name, settings in (summary.settings or {}).items() if settings]
    left = [name for name in built if name in eager(summary)]
    if not built:
        return "compile: auto"
    if left and len(left) < len(built):
        return f"W/ compile (auto), but W/O compile in {', '.join(left)}"
    return f"{'W/O' if left else 'W/'} compile (auto)"


def title(group: Group) -> str:
    """Return a table's title as DLPerf writes it."""
    start = ", ".join(reversed(group.stated(f"{'Total batch' if group.strong else 'Batch'} size = {group.batch}")))
    start = start or group.settings.capitalize()
    start += ", strong scaling" if group.strong else ""
    parts = start, workload_figures.titled(group.summary), switches(group.summary)
    return ", ".join(part for part in parts if part)
