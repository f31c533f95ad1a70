"""Numbers as people read them: rounded, with their prefixes; nothing for what is not known."""

from __future__ import annotations

MIB = 2**20


def speed(value: float | None, places: int = 2) -> str:
    """Samples per second for tables: two places, as DLPerf prints them."""
    return "" if value is None else f"{value:.{places}f}"


def reading(value: float | None) -> str:
    """Four significant digits and commas between thousands, for people."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:#.4g}".rstrip(".")


def percent(share: float | None, places: int = 0) -> str:
    return "" if share is None else f"{100 * share:.{places}f} %"


def mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / MIB:.0f}"


def scaled(value: float | None) -> str:
    """Three significant digits and the SI prefix: 10.9 T."""
    if value is None:
        return ""
    size, prefix = next(
        ((10.0**e, p) for e, p in ((15, "P"), (12, "T"), (9, "G"), (6, "M")) if value >= 10**e), (1.0, "")
    )
    return f"{value / size:#.3g}".rstrip(".") + (f" {prefix}" if prefix else "")
