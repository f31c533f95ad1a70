"""Finished shards that another program made: find them in their folder and link them under our names.

We tell them apart by sequence length and split. A folder may hold several lengths, each in its own folder below it, as
NVIDIA's data script writes them. Token files for GPT-2 have other formats (bpe/foreign_files.py).
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from throughline import files
from throughline.corpus.bpe import foreign_files
from throughline.corpus.shards import layout
from throughline.datasets.shards import shard_name, split_of
from throughline.files import UserError
from throughline.study.corpus_section import BPE, PAIRS, Corpus, ShardFolder, finished_files


def of(corpus: Corpus, needed: Collection[str]) -> dict[str, dict[str, Path]] | None:
    """Map each folder that has finished shards to them: our name of each and its file.

    Folders that runs need (`needed`) have to be there. Other lengths of the corpus may be there. Returns None if the
    corpus makes its own shards.
    """
    if not isinstance(corpus.dump, ShardFolder):
        return None
    folder = corpus.dump.shards
    lengths = [length for length in corpus.sequences if f"seq{length}" in needed]
    pairs = find(folder, corpus.sequences, lengths) if lengths else {}
    shards = {f"seq{length}": named for length, named in pairs.items()}
    return shards | ({BPE: find_tokens(folder)} if BPE in needed else {})


def find(
    folder: str | Path, sequences: Mapping[int, int], needed: Collection[int] | None = None
) -> dict[int, dict[str, Path]]:
    """Map each length of `sequences` (length: predictions) to its shards: our name of each and its file.

    We open one file of each folder to see its length; verification opens the others. UserError if a needed length is
    absent, has other predictions or no training shard, or if a file's name does not tell its split. `needed`: the
    lengths that have to be there; None: all.
    """
    by_folder: dict[Path, list[Path]] = {}
    for path in sorted(finished_files(str(folder), PAIRS), key=files.natural):
        by_folder.setdefault(path.parent, []).append(path)
    by_length: dict[int, dict[str, Path]] = {}
    seen: dict[tuple[int, int], int] = {}
    for paths in by_folder.values():
        _, sequence_length, predictions = layout.size(paths[0])
        seen[sequence_length, predictions] = seen.get((sequence_length, predictions), 0) + len(paths)
        if sequences.get(sequence_length) == predictions:
            named = by_length.setdefault(sequence_length, {})
            for path in paths:
                _name(named, split_of(path.name), path)
    wanted = sequences if needed is None else needed
    lacking = [length for length in wanted if not any(n.startswith("training") for n in by_length.get(length, {}))]
    if lacking:
        listed = ", ".join(f"{length}: {predictions} in {count} files" for (length, predictions), count in seen.items())
        raise UserError(
            f"{folder} holds no training shards of "
            + ", ".join(f"{length} tokens with {sequences[length]} predictions" for length in lacking),
            why=f"it holds (length: predictions) {listed}",
            next_step="write into corpus.sequences what the shards have; name the folder that has these; or leave out "
            "the benchmarks that read them: benchmarks: {NAME: null}, in a second configuration file",
        )
    return by_length


def find_tokens(folder: str | Path) -> dict[str, Path]:
    """Map our name of each token file in a folder to the file.

    UserError as in foreign_files.py, or if no file is for training.
    """
    named: dict[str, Path] = {}
    for file in foreign_files.find(folder):
        _name(named, file.split, file.path)
    if "training_0000" not in named:
        raise UserError(
            f"{folder} holds no token file to train on",
            why="the names of all token files there say val or test",
            next_step="name a file train, or correct corpus.dump.shards in config.yaml",
        )
    return named


def _name(named: dict[str, Path], split: str, path: Path) -> None:
    """Add a file under our next name of its split."""
    named[shard_name(split, sum(name.startswith(split) for name in named))] = path


def link(shard: Path, path: Path) -> None:
    """Make `path` a link to `shard`. The link appears in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.link.partial{path.suffix}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.abspath(shard))
    os.replace(temporary, path)
