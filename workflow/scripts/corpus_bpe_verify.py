"""Check one shard of GPT-2's tokens, whoever made it, and write its digests.

vocabulary: folder of encoder.json and vocab.bpe, or the user's own tokenizer.json, if we made the shard
digest: SHA-256 of what decides the shard, if we made it (then both are given)
"""

from pathlib import Path

from throughline import files
from throughline.command import run


def main(shard: Path, output: Path, vocabulary: Path | None = None, digest: str | None = None) -> None:
    from throughline.corpus.bpe import verification
    from throughline.corpus.bpe.vocabulary import read
    from throughline.corpus.text.own_tokenizer import OwnTokenizer

    if vocabulary and digest and vocabulary.is_file():
        result = verification.verify_own(shard, OwnTokenizer(vocabulary), digest)
        proven = f"{result['texts_proven']} of {result['texts_decoded']} are decoded to their article's text"
    elif vocabulary and digest:
        result, proven = verification.verify(shard, read(vocabulary), digest), "each is its article's text"
    else:
        result, proven = verification.verify_foreign(shard), "there is no text to hold them against"
    print(f"{result['file']}: {result['tokens']:,} tokens in {result['documents']:,} documents checked; {proven}")
    files.write_json(output, result)


if __name__ == "__main__":
    run(main, single=True)
