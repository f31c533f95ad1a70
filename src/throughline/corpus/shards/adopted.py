"""Finished shards of another maker: found in their folder, told apart by length and split, linked under our names.

A folder may hold several lengths, each in a folder of its own below it, as NVIDIA's data script writes them.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from throughline.corpus.shards import layout, manifest
from throughline.files import UserError
from throughline.study.corpus_section import Corpus, ShardFolder, finished_shards


def of(corpus: Corpus) -> dict[int, dict[str, Path]] | None:
    """The finished shards that a configuration names; None where shards are made here."""
    return find(corpus.dump.shards, corpus.sequences) if isinstance(corpus.dump, ShardFolder) else None


def find(folder: str | Path, sequences: Mapping[int, int]) -> dict[int, dict[str, Path]]:
    """For each length of `sequences` (length: predictions), our name of each shard and the file it is.

    One file of each folder is opened to see its length; the others are looked into when they are verified. UserError
    where a length is absent, has other predictions, has no training shard, or a file's name says no split.
    """
    by_folder: dict[Path, list[Path]] = {}
    for path in sorted(finished_shards(str(folder)), key=_natural):
        by_folder.setdefault(path.parent, []).append(path)
    by_length: dict[int, dict[str, Path]] = {}
    seen: dict[tuple[int, int], int] = {}
    for paths in by_folder.values():
        _, sequence, predictions = layout.size(paths[0])
        seen[sequence, predictions] = seen.get((sequence, predictions), 0) + len(paths)
        if sequences.get(sequence) == predictions:
            named = by_length.setdefault(sequence, {})
            for path in paths:
                split = manifest.split_of(path.name)
                number = sum(name.startswith(split) for name in named)
                named[f"{split}_{number:04d}"] = path
    lacking = [length for length in sequences if not any(n.startswith("training") for n in by_length.get(length, {}))]
    if lacking:
        listed = ", ".join(f"{length}: {predictions} in {count} files" for (length, predictions), count in seen.items())
        raise UserError(
            f"{folder} holds no training shards of "
            + ", ".join(f"{length} tokens with {sequences[length]} predictions" for length in lacking),
            why=f"it holds (length: predictions) {listed}",
            next_step="write into corpus.sequences what the shards have, or name the folder that has these",
        )
    return by_length


def link(shard: Path, path: Path) -> None:
    """Make `path` a link to `shard`, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.link.partial{path.suffix}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.abspath(shard))
    os.replace(temporary, path)


def _natural(path: Path) -> list[tuple[str, int]]:
    """`_2` before `_10`."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", str(path))]
