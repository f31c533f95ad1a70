"""Pack the log of every run of a benchmark into one archive.

summaries: bz<b>_<precision>.json of the benchmark
output: results/<benchmark>/logs.zip
"""

from pathlib import Path

from throughline.command import run


def main(summaries: list[Path], /, output: Path) -> None:
    from throughline.report.render import packed_logs

    print(packed_logs.write(summaries, output))


if __name__ == "__main__":
    run(main)
