"""Finished shards in NVIDIA's layout, which are used as they are: find them in their folder and name them as ours.

We tell them apart by sequence length and split. A folder may hold several lengths, each in its own folder below it, as
NVIDIA's data script writes them.
"""

import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from throughline import files
from throughline.corpus.shards import layout
from throughline.datasets.shards import shard_name, split_of
from throughline.files import UserError
from throughline.study.corpus_section import BPE, Corpus, ShardFolder, shard_files


def finished_shards(corpus: Corpus, needed: Collection[str]) -> dict[str, dict[str, Path]] | None:
    """Map each folder of the corpus, such as `seq128`, to its finished shards: our name of each and its file.

    Returns None if the corpus makes its own shards. We open one file of each folder to see its length; verification
    opens the others. UserError if a folder that runs need (`needed`) has other predictions or no training shard, or if
    a file's name does not tell its split. Other lengths of the corpus may be absent.
    """
    if not isinstance(corpus.dump, ShardFolder):
        return None
    if BPE in needed:
        raise UserError(
            "corpus.dump.shards holds pairs of sentences for BERT, and a benchmark reads running text",
            next_step="give the text as corpus.dump; or leave that benchmark out: benchmarks: {NAME: null}, in a "
            "second configuration file",
        )
    by_folder: dict[Path, list[Path]] = {}
    for path in sorted(shard_files(corpus.dump.shards), key=files.natural):
        by_folder.setdefault(path.parent, []).append(path)
    shards: dict[str, dict[str, Path]] = {}
    seen: Counter[tuple[int, int]] = Counter()
    for paths in by_folder.values():
        _, length, predictions = layout.size(paths[0])
        seen[length, predictions] += len(paths)
        if corpus.sequences.get(length) == predictions:
            named = shards.setdefault(f"seq{length}", {})
            for path in paths:
                split = split_of(path.name)
                named[shard_name(split, sum(name.startswith(split) for name in named))] = path
    lacking = [
        f"{length} tokens with {predictions} predictions"
        for length, predictions in corpus.sequences.items()
        if f"seq{length}" in needed and "training_0000" not in shards.get(f"seq{length}", {})
    ]
    if lacking:
        listed = ", ".join(f"{length}: {predictions} in {count} files" for (length, predictions), count in seen.items())
        raise UserError(
            f"{corpus.dump.shards} holds no training shards of {', '.join(lacking)}",
            why=f"it holds (length: predictions) {listed}",
            next_step="write into corpus.sequences what the shards have; name the folder that has these; or leave out "
            "the benchmarks that read them: benchmarks: {NAME: null}, in a second configuration file",
        )
    return shards


def link(shard: Path, path: Path) -> None:
    """Make `path` a link to `shard`. The link appears in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.link.partial{path.suffix}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.abspath(shard))
    os.replace(temporary, path)
