"""Format numbers for people: rounded, with prefixes. The text of an unknown number is empty."""

from collections.abc import Sequence

MIB = 2**20
PREFIXES = {1e15: " P", 1e12: " T", 1e9: " G", 1e6: " M"}


def reading(value: float | None) -> str:
    """Return a number with four significant digits, and commas between thousands."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:#.4g}".rstrip(".")


def percent(share: float | None, places: int = 0) -> str:
    return "" if share is None else f"{100 * share:.{places}f} %"


def signed(share: float) -> str:
    """Return a share with its sign, such as `+2.5 %`; never -0.0."""
    return f"{round(100 * share, 1) + 0.0:+.1f} %"


def mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / MIB:,.0f}"


def scaled(value: float | None) -> str:
    """Return a number with three significant digits and its SI prefix, such as `10.9 T`."""
    if value is None:
        return ""
    size = next((size for size in PREFIXES if value >= size), 1.0)
    return f"{value / size:#.3g}".rstrip(".") + PREFIXES.get(size, "")


def milliseconds(seconds: float) -> str:
    """Return seconds as milliseconds with three digits, or all digits of a whole number: 0.123, 12.3, 1,840."""
    value = 1000 * seconds
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def span(ends: Sequence[float] | None, places: int = 2) -> str:
    """Return the two ends of a range, such as `1.23 to 4.56`."""
    return f"{ends[0]:.{places}f} to {ends[1]:.{places}f}" if ends else ""


def counted(count: int, what: str) -> str:
    """Return a number of things in words, such as `1 node` or `3 nodes`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
