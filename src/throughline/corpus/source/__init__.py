"""Where text comes from: a dump that is downloaded or at hand, checked and cut into parts, and the pages of a part."""

IDS = 1 << 40
"""Of several sources, k times this is added to the page ids of source k (from 0), so no two articles have one id."""


def within(part: int, parts: int) -> tuple[int, int]:
    """A part, counted over all sources, each of which has so many: what its page ids are raised by, and the part's
    number in its own source."""
    source, own = divmod(part, parts)
    return source * IDS, own
