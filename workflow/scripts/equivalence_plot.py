"""Plot results/<benchmark>/equivalence.json as SVG and PNG.

output: equivalence.svg; the .png goes beside it
"""

from pathlib import Path


def main(equivalence: Path, /, output: Path) -> None:
    from throughline.records import read_equivalence
    from throughline.report.topics import checks

    checks.write_equivalence(read_equivalence(equivalence), output)
