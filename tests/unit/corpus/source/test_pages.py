"""Pages: their namespaces, redirects and texts, in all forms that dumps have had."""

from __future__ import annotations

import pytest

from throughline.corpus.source import pages
from throughline.corpus.source.pages import Site
from throughline.files import UserError

OLD = Site.from_header(
    '<mediawiki version="0.3"><siteinfo><base>http://x/wiki/Y</base><namespace key="0" />'
    '<namespace key="1">Talk &amp; more</namespace><namespace key="10">Template</namespace></siteinfo>'
)
NEW = Site.from_header('<mediawiki xmlns="x" version="0.10">')


def page(title: str = "Title", text: str = "Text", extra: str = "", attributes: str = "") -> bytes:
    return (
        f"<page><title>{title}</title>{extra}<id>7</id><revision><id>8</id>"
        f"<timestamp>2014-10-26T04:50:23Z</timestamp><text{attributes}>{text}</text></revision></page>"
    ).encode()


def kind(site: Site, *arguments: str) -> str:
    return pages.parse(page(*arguments), site, "page 1").kind


def test_the_header() -> None:
    assert OLD.other_namespaces == {"Talk & more", "Template"}
    assert (OLD.marks_redirects, OLD.base) == (False, "http://x/wiki/Y")
    assert Site.from_header('<mediawiki version="0.4">').marks_redirects
    assert NEW.marks_redirects and not NEW.other_namespaces and NEW.base is None


@pytest.mark.parametrize(
    ("title", "extra", "expected"),
    [
        ("Talk &amp; more:Title", "", "other"),
        ("Talk:Title", "", "article"),  # `Talk` is not a namespace of this wiki
        ("Kill Bill: Volume 1", "", "article"),
        ("Template", "", "article"),
        ("Template:Title", "<ns>0</ns>", "article"),  # what the page says wins over its title
        ("Title", "<ns>10</ns>", "other"),
    ],
)
def test_namespaces(title: str, extra: str, expected: str) -> None:
    assert kind(OLD, title, "Text", extra) == expected


@pytest.mark.parametrize(
    "text",
    [
        "#REDIRECT [[Elsewhere]]",
        "#redirect[[Elsewhere#there|x]]\n\n[[Category:x]]",
        "\n #REDIRECT: [[Elsewhere]]",
        "#WEITERLEITUNG [[x]]",
        "#перенаправление [[x]]",
        "#अनुप्रेषित [[x]]",
        "#تغییر_مسیر [[x]]",
        "#重定向 [[x]]",
        "#ail-cyfeirio [[x]]",
    ],
)
def test_redirects_of_old_dumps_are_told_by_their_text(text: str) -> None:
    assert kind(OLD, "Title", text) == "redirect"
    assert kind(NEW, "Title", text, "<ns>0</ns>") == "article"
    assert kind(NEW, "Title", text, '<ns>0</ns><redirect title="x" />') == "redirect"


@pytest.mark.parametrize(
    "text", ["# [[One]]\n# [[Two]]", "#[[One]]", "#REDIRECT nowhere", "A #REDIRECT [[x]]", "## [[x]]"]
)
def test_a_list_is_no_redirect(text: str) -> None:
    assert kind(OLD, "Title", text) == "article"


def test_text_stays_as_it_is() -> None:
    text = "a &lt;b&gt; &amp;amp; &lol; [SEP]\n\u2028\u0085 \U0001f600"
    found = pages.parse(page("T", text), OLD, "page 1")
    assert found == pages.Page("article", 7, 8, b"T", text.encode())


def test_the_day_of_the_run_is_in_no_text() -> None:
    text = "{{CURRENTYEAR}} {{ currentmonth }} {{CurrentDay|x}} {{CURRENTTIME}} {{CURRENTHOUR}} "
    text += "{{#expr:{{CURRENTYEAR}}-9}}"
    found = pages.parse(page("T", text), OLD, "page 1")
    assert found.text == b"2014 10 26 04:50:23 04 {{#expr:2014-9}}"
    without = page("T", text).replace(b"timestamp", b"x")
    assert pages.parse(without, OLD, "page 1").text == b"     {{#expr:-9}}"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (page().replace(b"<id>7</id>", b"").replace(b"<id>8</id>", b""), "it has no id"),
        (page().replace(b"<title>", b"<titel>"), "it has no title"),
        (page().replace(b"<revision>", b"<revision><revision>"), "it has several revisions"),
        (page().replace(b">Text</text>", b' bytes="12" />'), "its text is left out"),
        (page("T", "a <b>c</b>"), "markup inside its text"),
        (page().replace(b"</text>", b""), "markup inside its text"),
        (page().replace(b"Text", b"\xc3\x28"), "its text is not UTF-8"),
    ],
)
def test_pages_that_are_refused(changed: bytes, message: str) -> None:
    with pytest.raises(UserError, match=rf"(?s)page 1 .*is not from a pages-articles dump.*{message}"):
        pages.parse(changed, OLD, "page 1")
    with pytest.raises(UserError, match=r"page 1 \(id 7\) is not from"):
        pages.parse(page().replace(b"<title>", b"<titel>"), OLD, "page 1")
    assert pages.parse(page().replace(b"<title>Title</title>", b"<title />"), OLD, "page 1").title == b""
    with pytest.raises(UserError, match="it has no <ns>, and the dump has no <siteinfo>"):
        kind(NEW)


@pytest.mark.parametrize("end", [b"<text />", b'<text bytes="0" />', b'<text bytes="9" deleted="deleted" />', b""])
def test_pages_without_text(end: bytes) -> None:
    changed = page().replace(b"<text>Text</text>", end)
    assert pages.parse(changed, OLD, "page 1") == pages.Page("article", 7, 8, b"Title", b"")
