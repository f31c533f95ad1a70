"""Rules about the figures of one row, or of one job: they have to follow from each other."""

from collections.abc import Iterator

from throughline.comparables import flop_conventions
from throughline.comparables.plausibility.rows import ARITHMETIC, FORMULA, Doubt, Rows, configuration, meet, peak
from throughline.records import Result, RunRecord, ends


def sums(run: RunRecord) -> list[str]:
    """Return what does not add up in the figures of a whole job."""
    job, size = run.spec.job, run.spec.size
    figures = {figure.name: figure.value for figure in run.figures if figure.value is not None}
    return job.faults(size.replicas, size.batch_per_replica, size.gradient_accumulation, figures) if job else []


def steps(rows: Rows) -> Iterator[Doubt]:
    """Find seconds per step and samples per second that do not fit the printed batch."""
    for row in rows:
        seconds, speed = row.printed.get("seconds_per_step"), row.samples_per_s
        if seconds and speed and row.global_batch:
            low, high = ends(seconds)
            if not meet((low * speed[0], high * speed[1]), (row.global_batch, row.global_batch)):
                text = f"{seconds} s a step x {row.shown} {row.unit}, and the batch is {row.global_batch}"
                yield Doubt(ARITHMETIC, row, text)


def flops(rows: Rows) -> Iterator[Doubt]:
    """Find printed TFLOPS that no convention of counting gives, and MFUs that do not follow from them."""
    for row in rows:
        tflops, mfu = row.printed.get("tflops"), row.printed.get("mfu")
        each, speed, most = flop_conventions.of_row(row), row.samples_per_s, peak(row)
        if tflops and each and speed and row.devices:
            counted = {name: [end * count / row.devices / 1e12 for end in speed] for name, count in each.items()}
            if not any(meet(ends(tflops), (low, high), FORMULA) for low, high in counted.values()):
                by = ", ".join(f"{name} {sum(range_) / 2:.4g}" for name, range_ in counted.items())
                text = f"printed {tflops} TFLOPS; {row.shown} {row.unit} on {row.devices} devices are: {by}"
                yield Doubt(ARITHMETIC, row, text)
        if tflops and mfu and most:
            low, high = (end * 1e12 / most for end in ends(tflops))
            if not meet(ends(mfu), (low, high)):
                sparse = " (the peak with sparsity was taken)" if meet(ends(mfu), (low / 2, high / 2)) else ""
                text = f"printed MFU {mfu}: {tflops} of {most / 1e12:g} TFLOPS are {(low + high) / 2:.4f}{sparse}"
                yield Doubt(ARITHMETIC, row, text)


def changes(rows: Rows) -> Iterator[Doubt]:
    """Find printed changes that do not follow from the figures with and without an option."""
    alone = {configuration(row, options=False): row for row in rows if not _changed(row)}
    for row in filter(_changed, rows):
        base = alone.get(configuration(row, options=False))
        if base is None:
            continue
        memory, before = row.printed.get("memory_mib"), base.printed.get("memory_mib")
        facts: list[tuple[str, str | None, str | None, bool]] = [
            ("memory_change_mib", memory, before, False),
            ("memory_change_share", memory, before, True),
            ("speed_change_share", row.value, base.value, True),
        ]
        for name, after, first, is_share in facts:
            printed = row.printed.get(name)  # type: ignore[call-overload]
            if printed and after and first:
                change = float(after) - float(first)
                found = change / float(first) if is_share else change
                if abs(found - float(printed)) > (ends(printed)[1] - float(printed)) * (1 + 1e-9):
                    by = f" / {first} = {found:.4f}" if is_share else f" = {found:g}"
                    words, left = name.replace("_", " "), f"{after} - {first}"
                    text = f"printed {words} {printed}: {f'({left})' if is_share else left}{by}"
                    yield Doubt(ARITHMETIC, row, text)


def _changed(row: Result) -> bool:
    return any("change" in name for name in row.printed)


def parameters(rows: Rows) -> Iterator[Doubt]:
    """Find printed numbers of parameters that the model does not have."""
    for row in rows:
        printed = row.printed.get("parameters_billion")
        stated = {"sequence_length": row.sequence_length, **row.parameters}
        parts = flop_conventions.parts(row.model, stated) if printed else None
        if printed and parts:
            count = parts[0].parameters
            if not meet(ends(printed), (count / 1e9, count / 1e9), FORMULA):
                binary = ", which is x 2^30" if meet(ends(printed), (count / 2**30,) * 2, FORMULA) else ""
                text = f"printed {printed} billion parameters{binary}; {row.model} has {count / 1e9:.4g} x 10^9"
                yield Doubt(ARITHMETIC, row, text)


def job_steps(rows: Rows) -> Iterator[Doubt]:
    """Find whole jobs whose steps per second and runtime do not give their steps."""
    for row in rows:
        count, rate, runtime = (
            row.printed.get(name) for name in ("global_step", "train_steps_per_second", "train_runtime")
        )
        if count and rate and runtime:
            (slow, fast), (short, long) = ends(rate), ends(runtime)
            if not meet((slow * short, fast * long), (int(count), int(count))):
                text = f"{rate} steps a second x {runtime} s, and the job has {count} steps"
                yield Doubt(ARITHMETIC, row, text)


RULES = (steps, job_steps, flops, changes, parameters)
