"""List the pictures of a source, with the class of each and the shard that it goes into."""

import argparse
from pathlib import Path

from throughline.files import command_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True, help="a folder, or `sample`")
    parser.add_argument("--training", type=int, required=True, help="training shards in all")
    parser.add_argument("--test", type=int, required=True, help="test shards in all")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    from throughline.images import listing

    shards = {"training": arguments.training, "test": arguments.test}
    listed = listing.write(arguments.source, shards, arguments.output)
    print(f"{listed['images']:,} pictures of {len(listed['classes']):,} classes")


if __name__ == "__main__":
    command_line(main, single=True)
