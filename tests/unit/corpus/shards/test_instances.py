"""Pairs and masks equal a plain version of BERT's rules, for any documents, without the faults of BERT's program."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_helpers import any_parameters, documents, tiny_vocabulary
from throughline import randomness
from throughline.corpus.shards import Parameters, instances, row_checks, segment_pairs, text_lookup
from throughline.corpus.text.tokens import Documents
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.files import UserError

LENGTHS = st.lists(st.lists(st.one_of(st.integers(1, 12), st.integers(1, 200)), min_size=1, max_size=8), max_size=7)
PARAMETERS = any_parameters(dupe_factor=st.integers(1, 3))


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return tiny_vocabulary(tmp_path_factory.mktemp("vocabulary"), words=3000)


def plainly(found: Documents, parameters: Parameters, stream: randomness.Stream) -> list[tuple[int, ...]]:
    """Make pairs with a plain loop over documents, chunks and single tokens: (a, length, b, length, random)."""
    count, limit = len(found), parameters.sequence_length - 3
    of_document = stream.words(count, 2)
    of_sentence = stream.words(len(found.sentences) - 1, 5)
    begins, bounds = found.sentences.tolist(), found.documents.tolist()

    def below(word: int, bound: int) -> int:
        return (int(word) >> 32) * bound >> 32

    made = []
    for number in range(count):
        target = limit
        if (int(of_document[number, 0]) >> 32) / 2**32 < parameters.short_sequences:
            target = 2 + below(of_document[number, 1], limit - 1)
        i, end = bounds[number], bounds[number + 1]
        while i < end:
            draw, last = of_sentence[i], i
            while last < end and begins[last] - begins[i] < target:
                last += 1
            if count == 1 and last - i == 1 and last < end:
                last += 1
            middle = i + 1 + (below(draw[0], last - i - 1) if last - i > 1 else 0)
            is_random = count > 1 and (last - i == 1 or int(draw[1]) < 1 << 63)
            a = list(range(begins[i], begins[middle]))
            b = list(range(begins[middle], begins[last]))
            if is_random:
                other = below(draw[2], count - 1)
                other += other >= number
                start = bounds[other] + below(draw[3], bounds[other + 1] - bounds[other])
                stop = start + 1
                while stop < bounds[other + 1] and begins[stop] - begins[start] < target - len(a):
                    stop += 1
                b = list(range(begins[start], begins[stop]))
            if b:
                lengths = [len(a), len(b)]
                while sum(lengths) > limit:
                    lengths[0 if lengths[0] > lengths[1] else 1] -= 1
                made.append((a[0], a[-1] + 1, lengths[0], b[0], b[-1] + 1, lengths[1], int(is_random)))
            i = middle if is_random else last
    return made


def all_pairs(found: Documents, parameters: Parameters, stream: randomness.Stream) -> segment_pairs.Pairs:
    """Join all pairs of one copy; they are made in several pieces."""
    nothing = segment_pairs.Pairs(*(np.zeros(0, np.int64) for _ in range(4)), np.zeros(0, np.bool_))
    several = [nothing, *segment_pairs.pairs(found, parameters, stream)]
    columns = ([getattr(some, field.name) for some in several] for field in fields(segment_pairs.Pairs))
    return segment_pairs.Pairs(*(np.concatenate(column) for column in columns))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(lengths=LENGTHS, parameters=PARAMETERS)
def test_pairs_equal_a_plain_reading_of_the_rules(
    words: Vocabulary, lengths: list[list[int]], parameters: Parameters
) -> None:
    found = documents(lengths, words)
    made = all_pairs(found, parameters, randomness.Stream("test"))
    expected = plainly(found, parameters, randomness.Stream("test"))
    assert len(made) == len(expected)
    for i, (a, a_end, a_length, b, b_end, b_length, is_random) in enumerate(expected):
        assert (made.a_length[i], made.b_length[i], made.random_next[i]) == (a_length, b_length, is_random)
        assert a <= made.a[i] and made.a[i] + a_length <= a_end
        assert b <= made.b[i] and made.b[i] + b_length <= b_end


def all_rows(found: Documents, parameters: Parameters, words: Vocabulary, rows: int = 2048) -> instances.Arrays:
    order = segment_pairs.examples(found, parameters, "training", 0)
    blocks = list(instances.blocks(found, order, parameters, words, "training", 0, rows))
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]} if blocks else {}


@settings(max_examples=150, deadline=None)
@given(lengths=LENGTHS, parameters=PARAMETERS)
def test_any_documents_keep_every_promise(words: Vocabulary, lengths: list[list[int]], parameters: Parameters) -> None:
    found = documents(lengths, words)
    arrays = all_rows(found, parameters, words)
    if not arrays:
        assert all(len(document) == 1 for document in lengths) and len(lengths) <= 1
        return
    path = Path("shard")
    row_checks.check_layout(path, arrays, words)
    row_checks.check_promises(path, arrays, words, parameters)
    rows = len(arrays["input_ids"])
    assert text_lookup.Text(found).check(path, arrays, np.arange(rows)) == rows


def test_nothing_from_nothing(words: Vocabulary) -> None:
    assert all_rows(documents([], words), Parameters(16, 2), words) == {}
    assert all_rows(documents([[500]], words), Parameters(16, 2), words) == {}


def test_one_document_has_only_true_continuations(words: Vocabulary) -> None:
    found = documents([[3, 40, 5, 29, 30, 2, 2, 2, 100]], words)
    arrays = all_rows(found, Parameters(32, 5), words)
    assert len(arrays["input_ids"]) >= 5
    assert not arrays["next_sentence_labels"].any()


def test_a_giant_sentence_is_cut_at_both_ends(words: Vocabulary) -> None:
    found = documents([[5000], [5000], [5000]], words)
    made = all_pairs(found, Parameters(64, 9), randomness.Stream("giant"))
    assert made.random_next.all() and len(made) == 3
    assert (made.a_length + made.b_length == 61).all()
    front = np.concatenate([made.a % 5000, made.b % 5000])
    assert ((front > 2200) & (front < 2750)).all()  # a coin decides for each of 4,970 tokens: about half


def test_blocks_of_any_height_hold_the_same_rows(words: Vocabulary) -> None:
    found = documents([[4, 9, 30, 2], [7, 7, 7, 7, 50], [3, 3]], words)
    parameters = Parameters(24, 4, dupe_factor=4)
    whole = all_rows(found, parameters, words)
    for rows in (1, 7):
        parts = all_rows(found, parameters, words, rows)
        assert all((parts[name] == whole[name]).all() for name in whole)


def test_seed_split_shard_and_copy_all_count(words: Vocabulary) -> None:
    found = documents([[4, 9, 30, 2] * 5, [7, 7, 7, 7, 50] * 5, [3, 3] * 9], words)
    parameters = Parameters(24, 4, dupe_factor=1)

    def made(changed: Parameters, split: str = "training", shard: int = 0) -> bytes:
        order = segment_pairs.examples(found, changed, split, shard)
        (block,) = instances.blocks(found, order, changed, words, split, shard, 4096)
        return block["input_ids"].tobytes()

    variants = [
        made(parameters),
        made(replace(parameters, seed=1)),
        made(parameters, "test"),
        made(parameters, "training", 1),
    ]
    assert len(set(variants)) == 4
    assert made(parameters) == variants[0]
    one, two = (all_pairs(found, parameters, randomness.Stream(0, copy)) for copy in range(2))
    assert one.a.tolist() != two.a.tolist()


def test_shares_over_many_rows(words: Vocabulary) -> None:
    chance = np.random.default_rng(0)
    found = documents([chance.integers(1, 20, size=200).tolist() for _ in range(50)], words)
    arrays = all_rows(found, Parameters(64, 9, short_sequences=0.1), words)
    measured = row_checks.shares(row_checks.counted(arrays, words))
    assert abs(measured["replaced_by_mask_share"] - 0.8) < 0.01
    assert abs(measured["unchanged_share"] - 0.1) < 0.01
    assert abs(measured["random_next_share"] - 0.5) < 0.03
    used = arrays["masked_lm_ids"] != 0
    places = arrays["masked_lm_positions"][used]
    full = arrays["input_mask"].sum(axis=1) == 64
    by_place = np.bincount(places, minlength=64)
    assert by_place[0] == by_place[63] == 0
    middle = np.bincount(arrays["masked_lm_positions"][full][used[full]], minlength=64)[1:5]
    assert abs(middle / full.sum() - 9 / 61).max() < 0.01  # every position is equally likely
    replaced = arrays["input_ids"][np.nonzero(used)[0], places]
    assert not np.isin(replaced, [words.pad, words.unk, words.cls, words.sep, 1, 6]).any()


def test_random_words_come_from_all_words(words: Vocabulary) -> None:
    drawn = words.words[randomness.below(randomness.Stream("w").words(200_000), np.full(200_000, len(words.words)))]
    assert set(drawn.tolist()) == set(words.words.tolist())


@pytest.mark.parametrize("tosses", [0, 1, 10, 64, 65, 128, 1000])
def test_heads(tosses: int) -> None:
    count = randomness.heads(randomness.Stream("heads").words(4000), np.full(4000, tosses))
    assert count.min() >= 0 and count.max() <= tosses
    spread = (tosses / 4) ** 0.5
    assert abs(count.mean() - tosses / 2) <= 5 * spread / 4000**0.5
    assert abs(count.std() - spread) <= 0.06 * spread


def test_the_random_words_stay_what_they_are() -> None:
    assert randomness.Stream(12345, "training", 0).words(3).tolist() == [
        14804579646648241202,
        9139417035450871411,
        17569913181552494135,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"sequence_length": 32}', "missing 1 required"),
        ('{"sequence_length": 32, "predictions": 5, "dupe": 5}', "unexpected keyword argument 'dupe'"),
        ("[1]", "not the parameters of a shard"),
        ("{", "not the parameters of a shard"),
        ('{"sequence_length": 4, "predictions": 1}', "sequence_length 4"),
        ('{"sequence_length": 32, "predictions": 30}', "predictions 30"),
        ('{"sequence_length": 32, "predictions": 5, "probability": 1.5}', "probability 1.5"),
        ('{"sequence_length": 32, "predictions": 5, "dupe_factor": 0}', "dupe_factor 0"),
    ],
)
def test_wrong_parameters(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Parameters.from_json(text)
