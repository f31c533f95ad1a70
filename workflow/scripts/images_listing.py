"""List the pictures of a source, with the class of each and the shard that it goes into.

source: a folder, or `sample`
training: training shards in all
test: test shards in all
"""

from pathlib import Path

from throughline.command import run


def main(source: str, training: int, test: int, output: Path) -> None:
    from throughline.images import listing

    listed = listing.write(source, {"training": training, "test": test}, output)
    print(f"{listed['images']:,} pictures of {len(listed['classes']):,} classes")


if __name__ == "__main__":
    run(main, single=True)
