"""What is implausible about published results: resources/published.csv, or a file with the same columns.

`throughline check FILE.csv` prints each doubt with its rule. `python -m throughline.comparables.implausible` writes the
doubts into the column `implausible` of resources/published.csv. The report reads them there: published rows do not
change, so nothing derives their doubts again. The rules that also hold for measured and imported rows are
`throughline.comparables.plausibility`. The rules here are about the other figures that a publication prints: they have
to follow from each other.
"""

import csv
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from throughline import grouping
from throughline.comparables import flop_conventions, plausibility, published
from throughline.comparables.plausibility import Doubt, Rows, baseline, grouped, meet, more_than_devices, peak, quotient
from throughline.files import atomic
from throughline.numbers import counted, percent
from throughline.records import Result, ends

FORMULA = 0.01
"""Two counts of the same FLOPs may differ by this share: in how a vocabulary is padded, or whether norms count."""
ARITHMETIC, AGREE = "its own arithmetic", "unequal results that should be equal"
"""The names of rules."""


def printed_speedups(rows: Rows) -> Iterator[Doubt]:
    """Find printed speedups that do not follow from the printed speeds, or that are more than the devices can give."""
    for table in plausibility.series(rows):
        for row in table:
            printed, base = row.printed.get("speedup"), baseline(row, table)
            if printed and row.devices and base is None and (why := more_than_devices(ends(printed)[0], row.devices)):
                yield Doubt("speedup over devices", row, f"{why}: printed {printed}")
            ratio = quotient(row, base) if base and base.printed.get("speedup") in ("1", "1.0", "1.00") else None
            if printed and base and ratio and not meet(ends(printed), ratio):
                most_if_cut = 2 * ends(printed)[1] - float(printed)
                cut = " (cut off, not rounded)" if meet((float(printed), most_if_cut), ratio) else ""
                text = f"printed speedup {printed}: {row.shown} / {base.shown} = {sum(ratio) / 2:.4g}{cut}"
                yield Doubt(ARITHMETIC, row, text)


def steps(rows: Rows) -> Iterator[Doubt]:
    """Find seconds per step that do not fit the printed batch, and jobs whose runtime does not give their steps."""
    for row in rows:
        seconds, speed = row.printed.get("seconds_per_step"), row.samples_per_s
        if seconds and speed and row.global_batch:
            low, high = ends(seconds)
            if not meet((low * speed[0], high * speed[1]), (row.global_batch, row.global_batch)):
                text = f"{seconds} s a step x {row.shown} {row.unit}, and the batch is {row.global_batch}"
                yield Doubt(ARITHMETIC, row, text)
        count, rate = row.printed.get("global_step"), row.printed.get("train_steps_per_second")
        runtime = row.printed.get("train_runtime")
        if count and rate and runtime:
            (slow, fast), (short, long) = ends(rate), ends(runtime)
            if not meet((slow * short, fast * long), (int(count), int(count))):
                yield Doubt(ARITHMETIC, row, f"{rate} steps a second x {runtime} s, and the job has {count} steps")


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
    changed = [row for row in rows if any("change" in name for name in row.printed)]
    alone = {plausibility.configuration(row, options=False): row for row in rows if row not in changed}
    for row in changed:
        base = alone.get(plausibility.configuration(row, options=False))
        if base is None:
            continue
        memory, before = row.printed.get("memory_mib"), base.printed.get("memory_mib")
        for name, after, first in (
            ("memory_change_mib", memory, before),
            ("memory_change_share", memory, before),
            ("speed_change_share", row.value, base.value),
        ):
            printed = row.printed.get(name)  # type: ignore[call-overload]
            if printed and after and first:
                change, share = float(after) - float(first), name.endswith("share")
                exact = change / float(first) if share else change
                if abs(exact - float(printed)) > (ends(printed)[1] - float(printed)) * (1 + 1e-9):
                    how = f"({after} - {first}) / {first} = {exact:.4f}" if share else f"{after} - {first} = {exact:g}"
                    yield Doubt(ARITHMETIC, row, f"printed {name.replace('_', ' ')} {printed}: {how}")


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


def printed_limits(rows: Rows) -> Iterator[Doubt]:
    """Find a printed MFU above 1, and more memory than the device has."""
    for row in rows:
        gpu, mfu, memory = row.gpu, row.printed.get("mfu"), row.printed.get("memory_mib")
        if mfu and ends(mfu)[0] > 1 and (not gpu or not row.printed.get("tflops")):
            yield Doubt(plausibility.DATASHEET, row, f"printed MFU {mfu}: more than all of the peak")
        if gpu and memory and ends(memory)[0] * 2**20 > gpu.memory_bytes:
            text = f"{memory} MiB of a device with {gpu.memory_bytes / 2**20:.0f} MiB ({gpu.name})"
            yield Doubt(plausibility.DATASHEET, row, text)


def unequal(rows: Rows) -> Iterator[Doubt]:
    """Find results of one configuration that differ."""
    for first, *others in grouped(rows, plausibility.configuration):
        for row in others:
            ratio = quotient(row, first) or _times(row, first)
            if ratio and not meet(ratio, (1, 1)):
                shown = [like.shown or f"{like.printed.get('seconds_per_step')} s" for like in (row, first)]
                share = percent(sum(ratio) / 2 - 1, 1)
                text = f"{shown[0]} and {shown[1]} ({first.place}) of one configuration: {share} apart"
                yield Doubt(AGREE, row, text)


def _times(row: Result, other: Result) -> tuple[float, float] | None:
    """Return how many times as fast a row is as another row, from the seconds of a step."""
    seconds, longer = row.printed.get("seconds_per_step"), other.printed.get("seconds_per_step")
    return (ends(longer)[0] / ends(seconds)[1], ends(longer)[1] / ends(seconds)[0]) if seconds and longer else None


def counting(rows: Rows) -> Iterator[Doubt]:
    """Find FLOPs of a sample that two tables of one source count differently."""
    for alike in grouped(rows, lambda row: (row.source, row.model, row.sequence_length, row.precision, row.device)):
        counted = [row for row in alike if row.printed.get("tflops") and row.samples_per_s and row.devices]
        for before, after in pairwise(sorted(counted, key=lambda row: row.date or "")):
            old, new = (sum(row.samples_per_s or (1, 1)) for row in (before, after))
            shown = float(after.printed["tflops"]) / float(before.printed["tflops"])
            if before.devices == after.devices and abs(shown / (new / old) - 1) > 3 * FORMULA:
                text = (
                    f"{percent(new / old - 1)} more speed than {before.software}, {percent(shown - 1)} more TFLOPS "
                    f"({before.printed['tflops']} to {after.printed['tflops']}): FLOPs are counted in another way"
                )
                yield Doubt(AGREE, after, text)


def doubts(rows: Rows) -> list[Doubt]:
    """Return every doubt about published rows, rule by rule."""
    rules = (
        plausibility.speedups, printed_speedups, steps, flops, changes, parameters, printed_limits,
        plausibility.above_datasheet, plausibility.above_products, plausibility.equal, unequal, counting,
    )  # fmt: skip
    return [doubt for rule in rules for doubt in rule(rows)]


def columns(path: Path) -> list[str]:
    """Return what the column `implausible` of each line has to say."""
    rows = list(published.read(path))
    by_row = grouping.grouped(doubts(rows), lambda doubt: id(doubt.row))
    return ["; ".join(doubt.text for doubt in by_row.get(id(row), ())) for row in rows]


def write_column(path: Path) -> None:
    """Write the column `implausible` of a file."""
    texts = columns(path)
    with path.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    with atomic(path) as file, file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys([*lines[0], "implausible"])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(line | {"implausible": text} for line, text in zip(lines, texts, strict=True))


def lines(rows: Rows, every: Sequence[Doubt], name: str) -> Iterator[str]:
    """Yield what to print about the rows of a file and the doubts about them."""
    for doubt in every:
        row = doubt.row
        what = f"{row.source}, {row.framework}, {row.model}, {row.precision or 'precision not stated'}"
        devices = "devices not stated" if row.devices is None else counted(row.devices, "device")
        place = f" [{row.place}]" if row.place else ""
        yield f"implausible: {what}, {devices}: {doubt.rule}: {doubt.text}{place}"
    count = len({id(doubt.row) for doubt in every})
    rows_of = f"{counted(len(rows), 'row')}, {count} implausible"
    yield f"{name}: {rows_of}. A plausible figure can still be wrong: an archive has the raw values"


if __name__ == "__main__":
    write_column(published.FILE)
