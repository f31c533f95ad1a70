"""Put somebody else's finished shard into its place, as a link or as an uncompressed copy."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", type=Path, required=True, help="the finished file")
    parser.add_argument("--unpacked", action="store_true", help="copy it, uncompressed, instead of linking it")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.corpus.shards import adopted, making

    (making.unpack if arguments.unpacked else adopted.link)(arguments.shard, arguments.output)


if __name__ == "__main__":
    command_line(main, single=True)
