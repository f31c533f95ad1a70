"""The section `compare`: archives with earlier results or those of other machines, which ours are compared with."""

from pathlib import Path

from pydantic import Field

from throughline.files import UserError
from throughline.study.config_paths import FilePath
from throughline.study.section import Section


class Compare(Section):
    against: list[FilePath] = Field(
        default_factory=list,
        description="archives that `snakemake pack` has made, here or elsewhere. `snakemake compare` compares each "
        "cell with theirs, and the report shows it",
    )

    def there(self) -> list[str]:
        """Return the archives. UserError if one of them does not exist."""
        for path in self.against:
            if not Path(path).is_file():
                raise UserError(
                    f"compare.against names {path}, which does not exist",
                    next_step="correct the path; `snakemake pack` makes an archive of finished results",
                )
        return list(self.against)

    def some(self) -> str:
        """Return the target of a comparison. UserError if the configuration names no archive."""
        if not self.against:
            raise UserError(
                "compare.against names no archive",
                why="there is nothing to compare the results with",
                next_step="name archives of `snakemake pack`: --config 'compare={against: [old.zip]}'",
            )
        return "results/compare.html"
