"""Print what is implausible about the results in resources/published.csv, or in a file with the same columns."""

from pathlib import Path

from throughline.command import run


def main(file: Path | None = None, /) -> None:
    from throughline.comparables import plausibility, published

    for doubt in plausibility.doubts(list(published.read(file or published.FILE))):
        row = doubt.row
        what = f"{row.source}, {row.framework}, {row.model}, {row.precision or 'precision not stated'}"
        print(f"{doubt.rule}: {what}, {row.devices} devices: {doubt.text} [{row.place}]")


if __name__ == "__main__":
    run(main)
