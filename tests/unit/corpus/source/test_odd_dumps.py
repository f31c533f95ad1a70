"""Dumps in unusual forms give all their articles."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus_odd_dumps import ARTICLES, ODD, Odd, articles

TEXT_DIFFERS = {"a title that begins with `Template`": 0, "uncompressed, a flipped bit in a text": 1}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    return articles(ODD[0], tmp_path_factory.mktemp("published"), 1)


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.what)
def test_an_odd_dump(odd: Odd, tmp_path: Path, published: dict[int, str]) -> None:
    found = articles(odd, tmp_path)
    assert len(found) == odd.articles
    if len(found) == ARTICLES:
        assert found.keys() == published.keys()
        differ = sum(found[number] != published[number] for number in found)
        assert differ == TEXT_DIFFERS.get(odd.what, 0)
