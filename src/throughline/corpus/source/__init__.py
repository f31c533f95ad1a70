"""Where text comes from: download a dump or use local files, check it, cut it into parts, and read their pages."""

IDS = 1 << 40
"""With several sources, k times this number is added to the page ids of source k (from 0), so every id is unique."""


def within(part: int, parts: int) -> tuple[int, int]:
    """Locate a part that is counted over all sources, each of which has `parts` parts.

    Returns the number to add to the part's page ids, and the part's number within its own source.
    """
    source, number = divmod(part, parts)
    return source * IDS, number
