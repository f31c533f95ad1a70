"""The columns of a table that compares two sides: both medians, their ratio, its interval, the test and its verdict."""

from throughline import ratios, statistics
from throughline.numbers import percent, reading, span
from throughline.records.compared import TestedRatio
from throughline.report.render.tables import CSV, NOT_KNOWN, PAGE, Column, Entry

COLUMNS = (
    Column("here", "here", "median"),
    Column("there", "there", "median"),
    Column("ratio", forms=(CSV,)),
    Column("tested_ratio", "tested ratio"),
    Column("tested_at_least", forms=(CSV,)),
    Column("tested_at_most", forms=(CSV,)),
    Column(heading="its interval", small=percent(ratios.INTERVAL), forms=(PAGE,)),
    Column("p", forms=(CSV,)),
    Column("p_holm", forms=(CSV,)),
    Column("verdict", "verdict"),
    Column("because", "because"),
)


def entries(tested: TestedRatio) -> list[Entry]:
    """Return the entries of COLUMNS."""
    low, high = tested.tested_at_least, tested.tested_at_most
    return [
        Entry.of(statistics.median(tested.ours), reading),
        Entry.of(statistics.median(tested.theirs), reading),
        Entry(value=tested.ratio),
        Entry.of(tested.tested_ratio, lambda ratio: f"{ratio:.3f}", tested.because),
        Entry(value=low),
        Entry(value=high),
        Entry.words(span((low, high), 3) if low and high else NOT_KNOWN),
        Entry(value=tested.p),
        Entry(value=tested.p_holm),
        Entry.words(tested.words, chip=tested.verdict.replace(" ", "-")),
        Entry.words(tested.because),
    ]
