"""The result of a shard's verification, which the manifest repeats in parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from throughline import files

SCHEMA = 1


def result(path: Path, facts: dict[str, Any], content_digest: str, **further: Any) -> dict[str, Any]:
    """Return the result for a shard that passed: its names, `facts`, digests of file and content, then `further`.

    If the shard is a link to a file of another maker, `source` is the name of that file.
    """
    source = {"source": Path(os.readlink(path)).name} if path.is_symlink() else {}
    digests = {"sha256": files.sha256(path), "content_digest": content_digest}
    return {"schema": SCHEMA, "file": path.name, **source, **facts, **digests, **further}
