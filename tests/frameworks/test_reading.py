"""Every framework's environment reads the same batches, whatever its version of numpy, even if masks are drawn while
reading."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from corpus_helpers import documents, tiny_vocabulary, write_tokens
from framework_lab import python
from throughline import files, frameworks
from throughline.corpus import manifest
from throughline.corpus.shards import Parameters, making, verification

PARAMETERS = Parameters(32, 5, dupe_factor=1, dynamic=True)
CODE = """
import hashlib, itertools, sys
from pathlib import Path
from throughline.corpus.shards import layout
from throughline.rank import data
for rank in range(2):
    digest = hashlib.sha256()
    for batch in itertools.islice(data.batches(data.Manifest(Path(sys.argv[1]), "corpus"), 1, rank, 2, 32), 40):
        for name in layout.TYPES:
            digest.update(batch[name].tobytes())
    print(digest.hexdigest())
"""


@functools.cache
def read(manifest: Path, interpreter: str) -> list[str]:
    """Return the digests of what two ranks read. Frameworks that share an environment read once."""
    run = subprocess.run([interpreter, "-c", CODE, manifest], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reading")
    words = tiny_vocabulary(folder, words=3000)
    verified = []
    for shard in range(2):
        lengths = np.random.RandomState(shard).randint(1, 20, (40, 30)).tolist()
        write_tokens(folder / "tokens.hdf5", documents(lengths, words), words)
        path = folder / f"training_{shard:04d}.hdf5"
        making.make(folder / "tokens.hdf5", folder / "tiny.txt", PARAMETERS, "training", shard, path)
        files.write_json(path.with_suffix(".json"), verification.verify(path, words, PARAMETERS))
        verified.append(path.with_suffix(".json"))
    manifest.merge_pairs("sample", verified, words, PARAMETERS.described(), folder / "manifest.json")
    assert json.loads((folder / "manifest.json").read_text())["rows"] < 40 * 32 * 2, "40 batches are more than an epoch"
    return folder / "manifest.json"


@pytest.mark.parametrize("framework", frameworks.NAMES)
def test_the_same_batches_everywhere(corpus: Path, framework: str) -> None:
    digests = read(corpus, python(framework))
    assert digests == read(corpus, sys.executable) and len(set(digests)) == 2
