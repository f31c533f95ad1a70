"""Pages: their kinds and texts, and what no pages-articles dump has."""

import pytest

from throughline.corpus.source import pages
from throughline.files import UserError


def page(title: str = "Title", text: str = "Text", extra: str = "<ns>0</ns>", attributes: str = "") -> bytes:
    return (
        f"<page><title>{title}</title>{extra}<id>7</id><revision><id>8</id>"
        f"<timestamp>2014-10-26T04:50:23Z</timestamp><text{attributes}>{text}</text></revision></page>"
    ).encode()


@pytest.mark.parametrize(
    ("title", "text", "extra", "expected"),
    [
        ("Template:Title", "Text", "<ns>0</ns>", "article"),  # what the page says wins over its title
        ("Title", "Text", "<ns>10</ns>", "other"),
        ("Title", "#REDIRECT [[Elsewhere]]", "<ns>0</ns>", "article"),
        ("Title", "#REDIRECT [[Elsewhere]]", '<ns>0</ns><redirect title="Elsewhere" />', "redirect"),
    ],
)
def test_kinds(title: str, text: str, extra: str, expected: str) -> None:
    assert pages.parse(page(title, text, extra), "page 1").kind == expected


def test_text_stays_as_it_is() -> None:
    text = "a &lt;b&gt; &amp;amp; &lol; [SEP]\n\u2028\u0085 \U0001f600"
    assert pages.parse(page("T", text), "page 1") == pages.Page("article", 7, 8, b"T", text.encode())


def test_the_day_of_the_run_is_in_no_text() -> None:
    text = "{{CURRENTYEAR}} {{ currentmonth }} {{CurrentDay|x}} {{CURRENTTIME}} {{CURRENTHOUR}} "
    text += "{{#expr:{{CURRENTYEAR}}-9}}"
    assert pages.parse(page("T", text), "page 1").text == b"2014 10 26 04:50:23 04 {{#expr:2014-9}}"
    without = page("T", text).replace(b"timestamp", b"x")
    assert pages.parse(without, "page 1").text == b"     {{#expr:-9}}"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (page().replace(b"<id>7</id>", b"").replace(b"<id>8</id>", b""), "it has no id"),
        (page().replace(b"<title>", b"<titel>"), "it has no title"),
        (page(extra=""), "it has no <ns>"),
        (page().replace(b"<revision>", b"<revision><revision>"), "it has several revisions"),
        (page().replace(b">Text</text>", b' bytes="12" />'), "its text is left out"),
        (page("T", "a <b>c</b>"), "markup inside its text"),
        (page().replace(b"</text>", b""), "markup inside its text"),
        (page().replace(b"Text", b"\xc3\x28"), "its text is not UTF-8"),
    ],
)
def test_pages_that_are_refused(changed: bytes, message: str) -> None:
    with pytest.raises(UserError, match=rf"(?s)page 1 .*is not from a pages-articles dump.*{message}"):
        pages.parse(changed, "page 1")
    with pytest.raises(UserError, match=r"page 1 \(id 7\) is not from"):
        pages.parse(page().replace(b"<title>", b"<titel>"), "page 1")
    assert pages.parse(page().replace(b"<title>Title</title>", b"<title />"), "page 1").title == b""


@pytest.mark.parametrize("end", [b"<text />", b'<text bytes="0" />', b'<text bytes="9" deleted="deleted" />', b""])
def test_pages_without_text(end: bytes) -> None:
    changed = page().replace(b"<text>Text</text>", end)
    assert pages.parse(changed, "page 1") == pages.Page("article", 7, 8, b"Title", b"")
