"""Put somebody else's finished shard into its place, as a link or as an uncompressed copy.

shard: the finished file
unpacked: copy it, uncompressed, instead of linking it
"""

from pathlib import Path

from throughline.command import run


def main(shard: Path, output: Path, unpacked: bool = False) -> None:
    from throughline.corpus.shards import finished_files, making

    (making.unpack if unpacked else finished_files.link)(shard, output)


if __name__ == "__main__":
    run(main, single=True)
