"""Pairs, masks and checks of rows equal a plain version of BERT's rules, without the faults of BERT's program."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_helpers import any_parameters, documents, tiny_vocabulary
from throughline import randomness
from throughline.corpus.shards import Parameters, layout, making, pairs, verification
from throughline.corpus.text.tokens import Documents
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError

from . import plain

LENGTHS = st.lists(st.lists(st.one_of(st.integers(1, 12), st.integers(1, 200)), min_size=1, max_size=8), max_size=7)
PARAMETERS = any_parameters(dupe_factor=st.integers(1, 3))
SHARD = Path("shard")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return tiny_vocabulary(tmp_path_factory.mktemp("vocabulary"), words=3000)


def all_pairs(found: Documents, parameters: Parameters, stream: randomness.Stream) -> list[list[int]]:
    """Return the pairs of one copy, which are made in several pieces, as `plain.pairs` returns them."""
    several = list(pairs.pairs(found, parameters, stream))
    columns = ([getattr(some, field.name) for some in several] for field in fields(pairs.Pairs))
    return np.stack([np.concatenate([np.zeros(0, np.int64), *column]) for column in columns], axis=1).tolist()


def all_rows(found: Documents, parameters: Parameters, words: Vocabulary, rows: int = 2048) -> making.Arrays:
    order = pairs.shuffled(found, parameters, "test", 3)
    blocks = list(making.examples(found, order, parameters, words, "test", 3, rows))
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]} if blocks else {}


def rows_of(arrays: making.Arrays) -> list[plain.Row]:
    return [
        {name: np.atleast_1d(array[at]).tolist() for name, array in arrays.items()}
        for at in range(len(arrays["input_ids"]))
    ]


def equal_the_plain_rows(found: Documents, parameters: Parameters, words: Vocabulary) -> None:
    """Check the pairs of every copy, and the rows that are made of them with masks and without."""
    names = (parameters.seed, "test", 3, parameters.sequence_length)
    made: list[list[int]] = []
    for copy in range(parameters.dupe_factor):
        some = plain.pairs(found, parameters, randomness.Stream(*names, copy, "pairs"))
        assert all_pairs(found, parameters, randomness.Stream(*names, copy, "pairs")) == some
        made += some
    order = np.argsort(randomness.Stream(*names, "order").words(len(made)), kind="stable")
    unmasked = [plain.unmasked(found, made[at], parameters.sequence_length, words) for at in order]
    drawn = randomness.Stream(*names, "masks").words(len(made), parameters.predictions, 2).tolist()
    masked = [plain.masked(row, some, parameters, words) for row, some in zip(unmasked, drawn, strict=True)]
    for dynamic, expected in ((False, masked), (True, unmasked)):
        arrays = all_rows(found, replace(parameters, dynamic=dynamic), words, 7)
        assert list(arrays) == list(layout.UNMASKED if dynamic else layout.TYPES) * bool(made)
        kinds = layout.UNMASKED | layout.TYPES
        assert all(array.dtype == kinds[name] for name, array in arrays.items())
        if made:
            assert rows_of(arrays) == [{name: row[name] for name in arrays} for row in expected]
    if made:
        counts = verification.check(SHARD, all_rows(found, parameters, words), words, parameters)
        each = [plain.counted(row, words) for row in masked]
        assert counts == {name: sum(row[name] for row in each) for name in verification.COUNTED}


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS, parameters=PARAMETERS, wide=st.booleans())
def test_any_documents(words: Vocabulary, lengths: list[list[int]], parameters: Parameters, wide: bool) -> None:
    found = documents(lengths, words)
    if wide:
        found = replace(found, tokens=found.tokens.astype(np.uint32))
    equal_the_plain_rows(found, parameters, words)


def test_the_longest_sequence_and_giant_sentences(words: Vocabulary) -> None:
    found = documents([[40_000, 3], [50_000], [7]], words)
    equal_the_plain_rows(found, Parameters(1 << 15, 5000, dupe_factor=1), words)
    equal_the_plain_rows(found, Parameters(64, 9, dupe_factor=1), words)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_changed_row_is_judged_as_by_the_plain_rules(data: st.DataObject, words: Vocabulary) -> None:
    """One value of a valid block is changed. Either both name the same fault and row, or neither finds a fault."""
    found, parameters = documents([[4, 9, 30, 2] * 3, [7, 7, 50], [3, 3, 1]], words), Parameters(24, 4, dupe_factor=2)
    block = all_rows(found, parameters, words)
    array = block[data.draw(st.sampled_from(sorted(block)))].reshape(-1)
    place = data.draw(st.integers(0, len(array) - 1))
    value = st.sampled_from([-1, 0, 1, 2, 3, words.cls, words.sep, words.mask, len(words), int(array[place])])
    array[place] = data.draw(st.one_of(st.integers(0, 30), value)) % (1 << 7 if array.itemsize == 1 else 1 << 31)
    rows = rows_of(block)
    for promised in (parameters, None):
        faults = [plain.fault_of(row, words, promised) for row in rows]
        wrong = next((number for number, fault in enumerate(faults) if fault), None)
        if wrong is None:
            each = [plain.counted(row, words) for row in rows]
            counts = verification.check(SHARD, block, words, promised)
            assert counts == {name: sum(row[name] for row in each) for name in verification.COUNTED}
        else:
            with pytest.raises(UserError) as caught:
                verification.check(SHARD, block, words, promised, 70)
            assert f"has {faults[wrong]}\n" in str(caught.value) and f"first in row {70 + wrong} " in str(caught.value)


def test_the_random_words_stay_what_they_are() -> None:
    assert randomness.Stream(12345, "training", 0).words(3).tolist() == [
        14804579646648241202,
        9139417035450871411,
        17569913181552494135,
    ]
