"""archive.json, the first file of an archive: what the archive holds, and what its summaries were made with."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from throughline import sources
from throughline.records.entry import SCHEMA, Count, Entry, Whole

NAME = "archive.json"
Format = Literal["archive", "results"]
FORMATS: Final[dict[Format, int]] = {"archive": 2, "results": SCHEMA}
"""The version of every format in an archive that we write, and the only one that we read.

All files under results/ share one, which is their schema.
"""
RULES = (
    "throughline.report.analysis.summary", "throughline.report.topics", "throughline.comparables.exports",
    "throughline.acceptance.verdict", "throughline.report.render.page", "throughline.observe.environment",
)  # fmt: skip
"""The modules that make summaries, tables and verdicts. An archive names the digest of everything that they import."""

# Benchmarks and summaries are paths below the archive's folder. Their names lead nowhere else.
Benchmark = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
SummaryName = Annotated[str, Field(pattern=r"^results/[A-Za-z0-9_][A-Za-z0-9_.-]*/bz[0-9]+_[a-z0-9]+\.json$")]


class Held(Entry):
    """One file of an archive, unpacked."""

    bytes: Whole
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Made(Entry):
    """What the summaries and tables of a benchmark were made with, other than the records.

    repeats: asked for in each cell; terms: goals, prices, margin and task (summary.Terms) as JSON values; compared:
    summaries of other benchmarks that its tables use; equivalence: True if the benchmark has a numerical equivalence
    check; predict: what its predictions are asked for (predictions.Asked), None without any.
    """

    repeats: Count
    terms: dict[str, Any]
    remarks: str | None
    summaries: list[SummaryName]
    compared: list[SummaryName]
    equivalence: bool
    predict: dict[str, Any] | None = Field(None, exclude_if=lambda value: value is None)


class Contents(Entry):
    """archive.json. `version` and `rules` say which program made the summaries and tables.

    drawn_with: the version of the library that drew the plots.
    """

    formats: dict[Format, Count]
    version: str
    rules: str
    drawn_with: str
    configuration: dict[str, Any] | None
    benchmarks: dict[Benchmark, Made]
    files: dict[str, Held]

    @field_validator("files")
    @classmethod
    def _holds_every_summary(cls, value: dict[str, Held], info: ValidationInfo) -> dict[str, Held]:
        """A summary is a file of the archive, and lies below the folder of its benchmark."""
        for benchmark, made in info.data.get("benchmarks", {}).items():
            for name in (*made.summaries, *made.compared):
                if name not in value:
                    raise ValueError(f"{name} is not among them, and {benchmark} asks for it")
            for name in made.summaries:
                if not name.startswith(f"results/{benchmark}/"):
                    raise ValueError(f"{name} is no summary of {benchmark}")
        return value


def rules() -> str:
    """Return a digest of our own code that makes summaries and tables from records."""
    return sources.digest(sources.closure(*RULES))
