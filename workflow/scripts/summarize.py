"""Summarize the run records of one benchmark, batch size and precision.

It writes results/<benchmark>/bz<b>_<precision>.json.

records: run<k>.json of every framework and topology
asked: repeats that were asked for per cell
output: the summary
spec: specification of one of the runs, as JSON; records that do not fit it are refused
remarks: text to show under every table
equivalence: equivalence.json, if the benchmark has one
strict: fail on warnings instead of writing them down
terms: goals, prices and total_samples, as JSON
"""

from pathlib import Path


def main(
    records: list[Path],
    /,
    asked: int,
    output: Path,
    spec: str | None = None,
    remarks: str | None = None,
    equivalence: Path | None = None,
    strict: bool = False,
    terms: str = "{}",
) -> None:
    from throughline.report.analysis import summary
    from throughline.study.runs import read_spec

    fits = read_spec(spec) if spec else None
    summary.write(records, output, asked, remarks, strict, equivalence, summary.read_terms(terms), fits)
