"""An article's text as sentences: paragraph by paragraph, so that headings stay sentences of their own."""

from __future__ import annotations

import blingfire


def split(text: str) -> list[str]:
    """The sentences of a text in their order, none empty.

    A NUL (which BERT's tokenizer drops as well) would end the splitter's C string, and a lone surrogate has no UTF-8:
    both are removed.
    """
    text = text.replace("\0", "").encode("utf-8", "ignore").decode("utf-8")
    sentences: list[str] = []
    for paragraph in text.split("\n"):
        if paragraph and not paragraph.isspace():
            found = blingfire.text_to_sentences(paragraph) or paragraph
            sentences.extend(sentence for sentence in found.split("\n") if sentence)
    return sentences
