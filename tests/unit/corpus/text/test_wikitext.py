"""Our own extractor: what it keeps of wikitext, what it removes, and that no text makes it slow."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_helpers import CLOSING, HEADER, page
from throughline.corpus.source import dumps, pages
from throughline.corpus.text import extraction, wikitext
from throughline.corpus.text.wikitext import plain_text
from throughline.files import read_json

from .test_tokenization import sentences_of

MARKUP = {
    "'''Bold''', ''italic'' and '''''both'''''": "Bold, italic and both",
    "the ''Iliad'''s end\nl'''amour'' et\n'''b'''s ''a '''b''' c''": "the Iliad's end\nl'amour et\nbs a b c",
    "''a'' ''b and '''c'''": "a b and c",
    "''''four'''' and '''''both'' bold''' and it's": "'four' and both bold and it's",
    "The [[dog]]s of [[Paris|the city]], [[:Category:Dogs|all]] of them": "The dogs of the city, all of them",
    "[[Star Trek: Voyager|Voyager]] and [[Star Trek: Voyager]]": "Voyager and Star Trek: Voyager",
    "A [http://example.org/?a=b site] and [https://example.org]more": "A site and more",
    "One[[File:A.jpg|thumb|A [[big|large]] dog [http://a.b by C] {{d}}]] two": "One two",
    "One[[File:a.jpg|x [[b|y [[c]] z]] w]] end": "One end",
    "One [[Bild:A.jpg|thumb|left]] two": "One two",
    "Words\n[[Category:Dogs|*]]\n[[de:Hund]]\n[[zh-yue:Hund]]": "Words",
    "A {{template|with {{another|one}} and {{{parameter|}}}}} is gone": "A is gone",
    "{{{{{a}}} b}} c": "c",
    "One{{{1}}} two {{a|b={{{c|{{d}}}}}}} three": "One two three",
    "Before\n{| class=x\n| a\n|-\n| {{b|\n{|\n| inner\n|}\n}}\n|}\nAfter": "Before\nAfter",
    ":{|\n|-\n|}}\n|}\nAfter": "After",
    "Text.<ref>A {{cite}}</ref><ref name=a /> More.<ref name=b>B</ref>": "Text. More.",
    "Text<!-- a comment\n\nof lines --> goes on": "Text goes on",
    "where <math>E = mc^2</math> is the energy": "where is the energy",
    "H<sub>2</sub>O, x<sup>2</sup>, <small>small</small><br/>words": "H2O, x2, small words",
    "a<div class='x'>block</div>b": "a\nblock\nb",
    "* one\n** two\n# three\n: four\n; five : six\n*: seven": "one\ntwo\nthree\nfour\nfive : six\nseven",
    "Intro\n== Empty ==\n== Full ==\n=== Deep ===\nWords\n=== Last ===": "Intro\nFull.\nDeep.\nWords",
    "== Who is it? ==\nNobody": "Who is it?\nNobody",
    "== [[A]] ''b''<ref>c</ref> ==\nWords": "A b.\nWords",
    "__TOC__\nWords __NOEDITSECTION____目次__": "Words",
    "<code>__init__</code> and a&copy=1, AT&T; &copy;": "__init__ and a&copy=1, AT&T; ©",
    "a&nbsp;b &amp; c &mdash; d &lt;e&gt;": "a b & c — d <e>",
    "<nowiki>[[this]] {{is}} ''text''</nowiki> and <nowiki/>this": "[[this]] {{is}} ''text'' and this",
    "----\nWords\n-----": "Words",
    " indented\n\n\nwords": "indented\nwords",
    "#include <stdio.h> and a < b > c": "include <stdio.h> and a < b > c",
    "foo() and [1] and {x} and a|b and 5' tall": "foo() and [1] and {x} and a|b and 5' tall",
}
TAKEN_OUT = {
    "Anarchism ({{lang|a}}) is": "Anarchism is",
    "Aristotle ({{IPA|a}}; {{lang|b}}, ''Aristotélēs''; 384 BC) was": "Aristotle (Aristotélēs; 384 BC) was",
    "Foo (born {{date}}; {{age}}) was": "Foo (born) was",
    "Foo ( {{a}} , {{b}} ; ) was": "Foo was",
    "At {{convert|5|m}}, it is {{x}}.": "At, it is.",
    "One, {{a}}, two": "One, two",
    "a <ref>b</ref> c<ref>d</ref> .": "a c.",
    "* {{cite|a}}, 3rd edition": "3rd edition",
    "a function f() {{x}} (a)": "a function f() (a)",
}
DAMAGED = {
    "One {{two [[three]]\nFour": "One\nFour",
    "{{Infobox\n| a = b\n| c = {{d}}\nWords": "Words",
    "{| class=x\n|-\n| a\nWords": "Words",
    "{{a\n{|\n}} b\n|} c": "b",
    "One }} two |} three ]] four": "One two |} three four",
    "One [[two|three\nFour": "One two|three\nFour",
    "One [[File:A.jpg|thumb|a [[b]]\nTwo": "One\nTwo",
    "One <ref>two\nThree <ref>four</ref>": "One two\nThree",
    "One <!-- two\nThree <!-- four -->": "One two\nThree",
    "One <nowiki>[[two]]\nThree": "One two\nThree",
    "One '''two\nThree": "One two\nThree",
    "{{a|[[b}} c ]] d": "c d",
    "One {| two\nThree": "One {| two\nThree",
    "<ref>a</math> b": "a b",
    "== One": "One",
}


@pytest.mark.parametrize(("markup", "text"), (MARKUP | TAKEN_OUT | DAMAGED).items())
def test_what_is_left(markup: str, text: str) -> None:
    assert plain_text(markup) == text


def test_the_names_of_another_wiki() -> None:
    site = pages.Site.from_header('<namespace key="6">Datei</namespace><namespace key="14">Kategorie</namespace>')
    markup = "Hund[[Datei:Ein Hund|mini|Hund]] und[[Kategorie:Hund]][[Category:Dog]] [[Hilfe:Hund|Hilfe]]"
    assert plain_text(markup, site.silent_namespaces) == "Hund und Hilfe"


OPENERS = [
    "{{", "{{a|", "{|", "\n{|\n", "[[", "[[a|", "[[File:a|", "[http://a ", "<ref>", "<!--", "<nowiki>", "'''", "(",
]  # fmt: skip
CLOSERS = ["}}", "}", "|}", "\n|}\n", "]]", "]", "</ref>", "-->", ")"]
PIECES = [
    *OPENERS, *CLOSERS, "<", ">", "<b>", "<b", "</b>", "<br/>", "<math>", "</math>", "'", "''", "{", "[", "|", "-",
    "<!", "__", "__TOC__", "_TOC__", "=", "\n== ", " ==\n", "\n* ", "\n", " ", ",", ";", ":", "a", "word", "é",
    "\x01", "\xa0", "\r",
]  # fmt: skip
LEFT = re.compile(r"\{\{|\}\}|\[\[|\]\]|''|<!--|-->|</?(?:b|br|ref|math|nowiki)\s*/?>|__TOC__|[\x01\r\xa0]|\n\n|  ")


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.one_of(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.text(max_size=200)))
def test_no_markup_is_left(markup: str) -> None:
    assert not LEFT.search(plain_text(markup))


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(OPENERS), max_size=12).map("".join))
def test_what_is_never_closed_takes_no_line_but_its_own(markup: str) -> None:
    assert plain_text(f"First words\n{markup}\nSecond words\n\nLast words").endswith("\nSecond words\nLast words")


WORDS = st.sampled_from(["a", "b c", "x=1", "", "|", "''d''"])
NESTED = st.recursive(
    WORDS,
    lambda inner: st.builds(
        lambda form, parts: form % "|".join(parts),
        st.sampled_from(["{{t|%s}}", "{{{p|%s}}}", "\n{|\n| %s\n|}", "[[a|%s]]", "<ref>%s</ref>", "<!-- %s -->"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(NESTED)
def test_what_is_closed_goes_whole(inner: str) -> None:
    assert plain_text(f"Before {{{{t|\n{inner}\n}}}} after") == "Before after"


REPEATED = [
    *PIECES, "[[a|b", "{{a}}", "({{a}}", "{{a}} , ", "<ref>a<ref>", "<ref name=", "{{{}}", "\n{||}", "(\x01", "(,",
    " (", ",\x01,", "[[a]", "[[[", "=<", "&#", "&amp;", "<b ", "== a ==\n", "- ", "--",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("piece", REPEATED)
def test_a_long_repetition_takes_time_in_proportion(piece: str) -> None:
    """Each text takes about a tenth of a second. If a pass were quadratic, one text would take minutes, and all of them
    hours."""
    for markup in (piece * (200_000 // len(piece)), "x " + piece * 50_000 + "]]" * 50_000 + "}}" * 50_000):
        assert len(plain_text(markup)) <= len(markup)


def extracted(cut: dumps.Cut, folder: Path, extractor: str, part: int = 0) -> tuple[list[dict[str, str]], Any]:
    output, counts = folder / f"{extractor}.jsonl", folder / f"{extractor}.json"
    extraction.extract(cut, part, output, counts, extractor=extractor)
    return [json.loads(line) for line in output.open(encoding="utf-8")], read_json(counts)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The sample's articles, extracted by wikiextractor and by us."""
    folder, cut = tmp_path_factory.mktemp("both"), dumps.cut([dumps.find_sample()], 1)
    theirs, counted = extracted(cut, folder, "wikiextractor")
    ours, counted_here = extracted(cut, folder, "throughline")
    assert counted_here == {**counted, "characters": counted_here["characters"]}
    return theirs, ours


@pytest.mark.slow
def test_the_same_articles_in_the_same_form_from_any_parts(
    both: tuple[list[dict[str, str]], list[dict[str, str]]], tmp_path: Path
) -> None:
    theirs, ours = both
    assert len(ours) == 106 and [[*article.items()][:4] for article in theirs] == [[*a.items()][:4] for a in ours]
    assert list(theirs[0]) == list(ours[0]) == ["id", "revid", "url", "title", "text"]
    assert theirs[0]["title"] == "Anarchism" and not any("&lt;" in article["text"] for article in theirs)
    cut = dumps.cut([dumps.find_sample()], 3)
    parts = [extracted(cut, tmp_path, "throughline", part)[0] for part in range(3)]
    assert all(parts) and [article for part in parts for article in part] == ours


def test_less_is_lost_than_by_wikiextractor_and_no_markup_is_left_on_real_pages(
    both: tuple[list[dict[str, str]], list[dict[str, str]]],
) -> None:
    def clean(articles: list[dict[str, str]]) -> list[tuple[str, str]]:
        found = sentences_of([article["text"] for article in articles])
        pairs = ((article["id"], one) for article, split in zip(articles, found, strict=True) for one in split)
        return [(number, " ".join(sentence.replace('"', "").split())) for number, sentence in pairs]

    theirs, ours = clean(both[0]), set(clean(both[1]))
    assert sum(sentence in ours for sentence in theirs) > 0.98 * len(theirs) and len(ours) > 1.2 * len(theirs)
    text = "\n".join(article["text"] for article in both[1])
    markup = r"formula_\d|\{\{|\}\}|\[\[|\]\]|''|</?(?:ref|br|su[bp]|span|div|li|math)\b|&\w+;|\( ?[,;]"
    assert not re.findall(markup, text)
    assert len(re.findall(r"\(\s*\)", text)) == 1  # these two brackets are keys of a typewriter


def test_counts_and_an_article_without_text(tmp_path: Path) -> None:
    escaped = "&lt;b&gt;A&lt;/b&gt; &amp;amp; &amp;lt;b&amp;gt; &quot;[[c]]&quot;"
    pages = page(1, escaped, title="A &amp; B") + page(2, "#REDIRECT [[A]]", redirect=True)
    pages += page(3, "Talk.", namespace=1) + page(4, "{{only a template}}")
    (tmp_path / "dump.xml").write_text(HEADER + pages + CLOSING)
    found, counts = extracted(dumps.cut([tmp_path / "dump.xml"], 1), tmp_path, "throughline")
    shown = [(article["id"], article["title"], article["text"]) for article in found]
    assert shown == [("1", "A & B", 'A & <b> "c"'), ("4", "Page 4", "")]
    kinds = {"pages": 4, "articles": 2, "redirects": 1, "other_namespaces": 1, "repeated": 0}
    assert counts == {"schema": 1, "part": 0, **kinds, "characters": len('A & <b> "c"')}


def test_no_group_is_repeated_possessively() -> None:
    """Python 3.11.0 to 3.11.4 silently match too little with such a pattern."""
    patterns = [value.pattern for value in vars(wikitext).values() if isinstance(value, re.Pattern)]
    assert len(patterns) > 10
    assert not [pattern for pattern in patterns if re.search(r"(?<!\\)\)(?:[*+?]|\{[\d,]+\})\+", pattern)]
