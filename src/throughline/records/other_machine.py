"""Read the results folder of another machine. Nothing in it is written, and nothing of it is made again."""

from pathlib import Path

from throughline.files import UserError
from throughline.records.reading import read_run, read_summary
from throughline.records.summary import Summary

NEXT = (
    "copy the folder results/ of a finished workflow of that machine again, or make the file again on that machine; "
    "this workflow only reads the folder"
)


def read(name: str, folder: Path, own: Path = Path("results")) -> dict[Path, Summary]:
    """Return the summaries in the results folder of the machine `name`, by path.

    UserError if there is no such folder, if it is this workflow's `own`, if a summary or a record in it is invalid or
    of another version, or if a summary does not have the throughput of its records. Records may be missing.
    """
    where = f"machines.{name}: {folder}"
    if not folder.is_dir():
        why = "a file has this name" if folder.exists() else "there is no such folder"
        raise UserError(f"{where} is no folder of results", why=why, next_step=NEXT)
    if own.is_dir() and folder.samefile(own):
        raise UserError(
            f"{where} is the folder in which this workflow writes its own results",
            next_step="remove the key: the report has these results anyway",
        )
    paths = sorted(folder.glob("*/bz*_*.json"))
    if not paths:
        raise UserError(
            f"{where} has no results",
            why="a folder of results has summaries, such as bert/bz32_fp32.json",
            next_step="name the folder results/ of a finished workflow, not the folder around it",
        )
    try:
        return {path: _checked(path) for path in paths}
    except UserError as error:
        raise UserError(f"machines.{name}: {error.what}", why=error.why, next_step=NEXT) from None


def _checked(path: Path) -> Summary:
    """Return a summary whose records, as far as they are there, are valid and have its throughputs."""
    summary = read_summary(path)
    expected = f"{summary.benchmark}/bz{summary.batch}_{summary.precision}.json"
    if not path.as_posix().endswith("/" + expected):
        raise UserError(f"{path} is the summary of other runs", why=f"its content belongs at {expected}")
    for file in sorted(path.with_suffix("").glob("*/*/run*.json")):
        record = read_run(file)
        series = summary.frameworks.get(record.spec.framework, {})
        cell, number = series.get(str(record.spec.topology)), record.spec.repeat
        if cell is None or not record.samples_per_s or any(number in part.repeats for part in cell.left_out):
            continue
        stated = cell.values[number - 1] if number <= len(cell.values) else None
        if stated != record.samples_per_s:
            raise UserError(
                f"{path} does not fit its record {file}",
                why=f"repeat {number} has {record.samples_per_s:g} {record.unit}, and the summary says {stated}",
            )
    return summary
