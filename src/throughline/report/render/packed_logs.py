"""Pack the log of every run of a benchmark into one archive. The same logs give the same bytes."""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

from throughline.files import UserError, atomic, scrub, snakemake
from throughline.records import read_summary

EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the archive: the earliest that the format has. So the time of packing changes no byte."""
READABLE = 0o644 << 16
ON_UNIX = 3


def write(summaries: Sequence[Path], output: Path) -> str:
    """Write the logs of the runs behind these summaries to `output`, and return a sentence that says how many.

    Every log is scrubbed again: a log may have been copied here from anywhere. Names in the archive are those below the
    benchmark's folder. UserError if no run has a log.
    """
    found, missing = {}, []
    for path in summaries:
        for _, _, cell in read_summary(path).cells():
            for log in cell.logs:
                file = path.with_suffix("") / log
                if file.is_file():
                    found[f"{path.stem}/{log}"] = scrub(file.read_text(encoding="utf-8", errors="replace"))
                else:
                    missing.append(str(file))
    if not found:
        raise UserError(
            f"no run behind {', '.join(map(str, summaries))} has a log",
            why="logs stand beside the records as run<k>.log, and they were removed or not copied",
            next_step=f"copy them back, or measure a run again: {snakemake('--force', 'RECORD')}",
        )
    with atomic(output) as path:
        path.write_bytes(_packed(found))
    left_out = f"; missing: {len(missing)}, such as {missing[0]}" if missing else ""
    return f"{output}: the logs of {len(found)} runs{left_out}"


def _packed(texts: dict[str, str]) -> bytes:
    """Return an archive of these texts by name, the same bytes whenever and wherever it is made."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(texts):
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.create_system, entry.external_attr, entry.compress_type = ON_UNIX, READABLE, zipfile.ZIP_DEFLATED
            archive.writestr(entry, texts[name].encode())
    return stream.getvalue()
