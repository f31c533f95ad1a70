"""Write a corpus's vocabulary: the published bert-base-uncased, or a file that is checked by its SHA-256.

name: a vocabulary that comes with the packages
path: a file of one entry per line
tokenizer: a tokenizer.json, whose entries become the vocabulary
url: where the vocabulary is published
sha256: the SHA-256 that the file must have
cased: text keeps its capitals and accents
contact: an e-mail or web address that a request carries (default: $THROUGHLINE_CONTACT)
"""

import os
from pathlib import Path
from typing import Literal

from throughline.command import run
from throughline.files import UserError


def main(
    output: Path,
    name: Literal["bert-base-uncased"] | None = None,
    path: Path | None = None,
    tokenizer: Path | None = None,
    url: str | None = None,
    sha256: str | None = None,
    cased: bool = False,
    contact: str | None = os.environ.get("THROUGHLINE_CONTACT") or None,
) -> None:
    from throughline.corpus.source.fetch import Client
    from throughline.corpus.text import own_tokenizer, vocabulary

    if sum(map(bool, (name, path, url, tokenizer))) != 1:
        raise UserError(
            "a vocabulary has exactly one source", next_step="give one of --name, --path, --url and --tokenizer"
        )
    if tokenizer:
        own_tokenizer.write_vocabulary(tokenizer, output)
    elif name:
        vocabulary.write_bert_base_uncased(output)
    elif not sha256:
        raise UserError("--path and --url need --sha256", next_step="give the SHA-256 that the file must have")
    elif path:
        vocabulary.copy_checked(path, sha256, output, not cased)
    elif url:
        vocabulary.download(url, sha256, Client(contact), output, not cased)


if __name__ == "__main__":
    run(main)
