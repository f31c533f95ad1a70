"""Read a folder of other people's logs.

It writes imported.json, which says what came of every file, and tables and plots of the results.
"""

import argparse
from pathlib import Path

from throughline.files import command_line
from throughline.imports.reading import imported
from throughline.records import Imported, write
from throughline.report.render import imports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="name of the import, and of its folder under results/")
    parser.add_argument("--logs", type=Path, required=True, help="folder with the logs")
    parser.add_argument("--output", type=Path, required=True, help="imported.json")
    parser.add_argument("--drawn", type=Path, required=True, help="folder for tables and plots")
    arguments = parser.parse_args()
    content = imported(arguments.name, arguments.logs)
    write(Imported, content, arguments.output)
    read = Imported.model_validate(content)
    imports.write(read, arguments.drawn)
    print(imports.outcome(read))


if __name__ == "__main__":
    command_line(main)
