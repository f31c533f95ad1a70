"""What results are judged by and shown beside: the sections `goals`, `prices`, `imports` and `compare`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveFloat, model_validator

from throughline import spelling
from throughline.files import UserError, digest
from throughline.spec import canonical
from throughline.study.section import FilePath, PositiveInt, Section

Share = Annotated[float, Field(gt=0, le=1)]


class EfficiencyGoal(Section):
    from_nodes: PositiveInt = Field(1, description="topologies of so many nodes or more are judged")
    at_least: Share = Field(0.8, description="lowest speedup divided by devices")


class UtilizationGoal(Section):
    at_least: Share = Field(
        0.8,
        description="lowest mean utilization of devices (on a CPU: of the workers' threads) over the window",
    )


class MeanUtilizationGoal(Section):
    from_nodes: PositiveInt = Field(1, description="topologies of so many nodes or more count")
    gpu: Share | None = Field(None, description="lowest share of time in which GPUs were busy")
    cpu: Share | None = Field(None, description="lowest utilization of the nodes' processors")
    memory: Share | None = Field(None, description="lowest share of the nodes' memory in use")
    disk: Share | None = Field(None, description="lowest share of time in which a node's busiest disk worked")
    network: Share | None = Field(None, description="lowest share of its full speed on a node's busiest network link")

    @property
    def shares(self) -> dict[str, float]:
        """The goal of each part of the hardware that has one."""
        return self.model_dump(exclude={"from_nodes"}, exclude_none=True)


class Goals(Section):
    efficiency: EfficiencyGoal | None = Field(None, description="how well it has to scale")
    utilization: UtilizationGoal | None = Field(None, description="how busy devices have to be")
    mean_utilization: MeanUtilizationGoal | None = Field(
        None,
        description="how much hardware has to be used: means over the window and all cells",
        exclude_if=lambda value: value is None,  # a parameter that changes makes finished summaries again
    )


class Price(Section):
    per_hour: PositiveFloat | None = Field(None, description="of one device")
    per_month: PositiveFloat | None = Field(
        None,
        description="of a node, for 720 hours; beside per_hour, the table of costs has both",
    )
    devices: PositiveInt | None = Field(None, description="devices of that node; with per_month or purchase")
    purchase: PositiveFloat | None = Field(
        None,
        description="of one device, or with `devices` of a node, spread over all hours of its years",
        exclude_if=lambda value: value is None,
    )
    years: PositiveFloat | None = Field(
        None, description="years of use; with purchase", exclude_if=lambda value: value is None
    )
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = Field(description="three capital letters, such as EUR")

    @model_validator(mode="after")
    def _complete(self) -> Price:
        rented = self.per_hour is not None or self.per_month is not None
        if rented == (self.purchase is not None):
            raise ValueError("one of per_hour, per_month and purchase is needed; purchase goes with no other price")
        if self.per_month is not None and self.devices is None:
            raise ValueError("devices, the devices of that node, is needed with per_month")
        if self.per_hour is not None and self.per_month is None and self.devices:
            raise ValueError("devices, the devices of a node, goes with per_month or purchase")
        if (self.purchase is None) != (self.years is None):
            raise ValueError("purchase and years go together: the price is spread over the years of use")
        return self


class Import(Section):
    logs: FilePath = Field(description="folder with the logs and folders of logs, or one log")

    def state(self, name: str) -> str:
        """Return the digest of the logs. It is a parameter of the import's rule, so that a changed log is read again.

        Raise UserError if there is no such folder or file, or no file in it. name: of the import.
        """
        folder = Path(self.logs)
        if folder.is_file():
            return files_digest([folder])
        if not folder.is_dir():
            raise UserError(
                f"imports.{name}.logs: {folder} is no folder",
                next_step=f"{spelling.beside(folder)}name the folder with the logs",
            )
        if not any(path.is_file() for path in folder.rglob("*")):
            raise UserError(f"imports.{name}.logs: {folder} holds no file", next_step="put the logs into it")
        return files_digest(folder.rglob("*"))


def files_digest(paths: Iterable[Path]) -> str:
    """Return 12 hexadecimal digits that change with the names, sizes or times of the files among these paths."""
    stats = [(str(path), path.stat()) for path in sorted(paths) if path.is_file()]
    facts = canonical([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
    return digest(facts)


class Compare(Section):
    against: list[FilePath] = Field(
        default_factory=list,
        description="archives of `snakemake pack`, and folders `results/` of other machines. `snakemake compare` "
        "compares each cell with theirs",
    )

    def there(self) -> list[str]:
        """Return the archives and folders. UserError if one of them does not exist."""
        for path in self.against:
            if not Path(path).exists():
                meant = spelling.beside(Path(path), "correct the path; ")
                raise UserError(
                    f"compare.against names {path}, which does not exist",
                    next_step=f"{meant}`snakemake pack` makes an archive of finished results",
                )
        return list(self.against)

    def folders(self) -> list[Path]:
        return [Path(path) for path in self.against if Path(path).is_dir()]

    def state(self) -> list[str]:
        """Return digits that change with the results in the folders, for each of them."""
        return [files_digest(folder.rglob("*.json")) for folder in self.folders()]

    def some(self) -> str:
        """Return the target of a comparison. UserError if the configuration names nothing to compare with."""
        if not self.against:
            raise UserError(
                "compare.against names no archive and no folder",
                why="there is nothing to compare the results with",
                next_step="name archives of `snakemake pack`, or folders: --config 'compare={against: [old.zip]}'",
            )
        return "results/compare.html"
