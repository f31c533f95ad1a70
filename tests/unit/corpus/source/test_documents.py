"""Plain text as a source: the same documents in any number of parts, and errors that help."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from throughline import files
from throughline.corpus.source import documents
from throughline.corpus.text import extraction, tokens, vocabulary
from throughline.files import UserError
from throughline.study.config import ConfigError, load

SENTENCES = [
    [f"Sentence {number} of book {book}, by Mr. Smith." for number in range(1 + book % 4)] for book in range(23)
]


def sources(folder: Path, ending: str) -> list[Path]:
    """Write two files with all books. Blank lines of every kind separate the books, and the second file does not end
    with a line break."""
    paths = [folder / f"one{ending}", folder / f"two{ending}"]
    for path, books in zip(paths, (SENTENCES[:9], SENTENCES[9:]), strict=True):
        if ending == ".jsonl":
            text = "\n\n".join(json.dumps({"text": " ".join(book), "source": "é"}) for book in books)
        else:
            text = "\n" + "\r\n \n\n".join("\n".join(book) for book in books)
        path.write_bytes(text.encode())
    return paths


def read(cut: Path, parts: int) -> list[dict[str, Any]]:
    return [document for part in range(parts) for document in documents.articles(cut, part)]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["c4-train.00000.json", "dolma.json.gz", "a.ndjson", "a.txt"])
def test_json_lines_are_told_by_their_content(
    tmp_path: Path, name: str, mark: bytes, pack: Callable[[bytes], bytes], parts: int
) -> None:
    path, cut = tmp_path / name, tmp_path / "parts.json"
    texts = [f"Text {number}." for number in range(9)]
    path.write_bytes(pack(mark + b"".join(json.dumps({"id": 1, "text": text}).encode() + b"\n" for text in texts)))
    documents.write_cut([path], parts, cut)
    assert [document["text"] for document in read(cut, parts)] == texts
    (source,) = load([], {"corpus": {"dump": {"text": str(path)}}}).corpus.sources
    assert not source.has_sentences


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\ufeff\n\nOne.\nTwo.\n\n\ufeffThree.\n", encoding="utf-8")
    documents.write_cut([tmp_path / "a.jsonl"], 1, tmp_path / "parts.json")
    assert [document["text"] for document in read(tmp_path / "parts.json", 1)] == ["One.\nTwo.", "Three."]


@pytest.mark.parametrize("parts", [1, 2, 5, 100])
@pytest.mark.parametrize(("ending", "between"), [(".txt", "\n"), (".jsonl", " ")])
def test_the_same_documents_in_any_number_of_parts(tmp_path: Path, parts: int, ending: str, between: str) -> None:
    cut = tmp_path / "parts.json"
    documents.write_cut(sources(tmp_path, ending), parts, cut)
    found = read(cut, parts)
    assert [document["text"] for document in found] == [between.join(book) for book in SENTENCES]
    assert [document["id"] for document in found] == [str(number) for number in range(1, 24)]


def test_every_line_stays_a_sentence(tmp_path: Path) -> None:
    cut, articles, counts = (tmp_path / name for name in ("parts.json", "part_0000.jsonl", "counts.json"))
    documents.write_cut(sources(tmp_path, ".txt"), 1, cut)
    extraction.write(documents.articles(cut, 0), 0, articles, counts)
    assert files.read_json(counts)["articles"] == 23
    vocabulary.write_bert_base_uncased(tmp_path / "words.txt")
    tokens.tokenize(articles, tmp_path / "words.txt", tmp_path / "tokens.hdf5", lines=True)
    made, _ = tokens.read(tmp_path / "tokens.hdf5")
    assert len(made) == 23 and len(made.sentences) - 1 == sum(map(len, SENTENCES))


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("a.txt", b"\n \n", "holds no document"),
        ("a.txt", b"BZh91AY", "is no text file"),
        ("a.txt", b"A\0B", "is no text file"),
        ("a.txt", b"caf\xe9 is Latin-1.\n", "document 1 .* is not what it should be"),
        ("a.jsonl", b'{"text": "Good."}\n{"body": "Bad."}\n', r"document 2 .*byte 18.* is not what it should be"),
        ("a.jsonl", b'{"text": "Good."}\nBad.\n', "document 2 .* is not what it should be"),
        ("a.json", b'[{"text": "A"},\n{"text": "B"}]\n', "is one JSON list"),
        ("a.json.gz", gzip.compress(b'{"text": "A"}\n', mtime=0)[:-9], "cannot be read"),
        ("a.jsonl", b'{"text": 7}\n', "is no text"),
        ("none.txt", None, r"none\.txt cannot be read"),
    ],
)
def test_what_is_no_text(tmp_path: Path, name: str, data: bytes | None, error: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=error):
        documents.write_cut([tmp_path / name], 1, tmp_path / "parts.json")
        read(tmp_path / "parts.json", 1)


@pytest.mark.parametrize(("text", "count"), [("One.\n\nTwo.\n", 2), ("x\n\n" * 20, 19)])
def test_a_file_that_changed_after_it_was_cut(tmp_path: Path, text: str, count: int) -> None:
    first, second = sources(tmp_path, ".txt")
    documents.write_cut([first, second], 1, tmp_path / "parts.json")
    second.write_text(text)
    with pytest.raises(UserError, match=f"has {count} documents where it had 14"):
        read(tmp_path / "parts.json", 1)


@pytest.mark.parametrize(
    ("corpus", "mistake"),
    [
        ({"dump": {"text": ["a.txt", "b.jsonl"]}}, r"corpus\.dump\.text: some files are JSON lines"),
        ({"dump": {"text": ["a.txt", "a.txt"]}}, r"corpus\.dump\.text: a file is listed twice"),
        ({"dump": ["a.txt", {"text": "./a.txt"}]}, r"corpus\.dump: a file is listed twice: a\.txt"),
        ({"dump": ["sample", "enwiki-20261101"]}, r"corpus\.dump: 2 dumps of enwiki, which have the same articles"),
        ({"dump": ["sample", {"txt": "a"}]}, r"corpus\.dump\.1\.txt: unknown key; allowed: text"),
        ({"dump": ["sample", 3]}, r"corpus\.dump\.1 = 3: allowed: a valid string"),
        ({"dump": ["sample", {"text": "a"}], "parts": 5001}, r"corpus\.parts: 2 sources of 5001 parts are more"),
        ({"dump": "wiki.json"}, r"corpus\.dump: .*wiki\.json is no \.xml .* as \{text: .*wiki\.json\}"),
        ({"dump": {"text": 3}}, r"corpus\.dump\.text = 3: allowed: a valid string"),
        ({"dump": {"text": "a.txt"}, "extractor": "throughline"}, r"corpus\.extractor: text files hold no wikitext"),
    ],
)
def test_mistakes(corpus: dict[str, Any], mistake: str) -> None:
    with pytest.raises(ConfigError, match=mistake):
        load([], {"corpus": corpus})


def test_what_decides_the_shards_is_the_order_and_the_names_of_the_files() -> None:
    dump = ["enwiki-20261101", {"text": ["books/a.txt", "b.txt"]}, ["part/1.xml", "part/2.xml"]]
    parameters = load([], {"corpus": {"dump": dump, "extractor": "throughline"}}).corpus.decided_by("bpe")
    sources = [{"dump": ["enwiki-20261101"]}, {"text": ["a.txt", "b.txt"]}, {"dump": ["1.xml", "2.xml"]}]
    assert parameters["sources"] == sources and parameters["extractor"] == "throughline"
    assert not {"dump", "text"} & parameters.keys()
    for source in dump:  # a list of one source is that source
        alone, listed = (load([], {"corpus": {"dump": each}}).corpus.decided_by("seq32") for each in (source, [source]))
        assert alone == listed and "sources" not in alone
