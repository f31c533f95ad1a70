"""Read a folder of other people's logs.

It writes imported.json, which says what came of every file, and tables and plots of the results.

name: name of the import, and of its folder under results/
logs: folder with the logs, or a log
output: imported.json
drawn: folder for tables and plots
"""

from pathlib import Path


def main(name: str, logs: Path, output: Path, drawn: Path) -> None:
    from throughline.comparables.imported import imported
    from throughline.records import Imported, write
    from throughline.report.render import imports

    content = imported(name, logs)
    write(Imported, content, output)
    read = Imported.model_validate(content)
    imports.write(read, drawn)
    print(read.outcome)
