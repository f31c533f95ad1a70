"""Check every promise of one shard, whoever made it, and write its digests and statistics.

parameters: JSON: what the shard must have; left out if its maker is unknown
size: sequence length and predictions, if nothing else is known of the shard
tokens: the tokens that the shard was made from; its pairs are looked up there
memory_mb: data to hold in memory at a time; the rest goes through files
"""

from pathlib import Path

from throughline import files
from throughline.command import run


def main(
    shard: Path,
    vocabulary: Path,
    output: Path,
    parameters: str | None = None,
    size: tuple[int, int] | None = None,
    tokens: Path | None = None,
    memory_mb: int = 256,
) -> None:
    from throughline.corpus.shards import Parameters, verification
    from throughline.corpus.text.vocabulary import read

    expected = Parameters.from_json(parameters) if parameters else None
    result = verification.verify(shard, read(vocabulary), expected, tokens, size, memory_mb << 20)
    looked_up = result["statistics"].get("pairs_looked_up")
    text = "no text to look them up in" if looked_up is None else f"{looked_up:,} of them looked up in the text"
    print(f"{result['file']}: {result['rows']:,} rows checked, {text}")
    files.write_json(output, result)


if __name__ == "__main__":
    run(main, single=True)
