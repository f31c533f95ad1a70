"""Throughput over devices of several machines in one plot, for each benchmark, precision and batch that they share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup
from matplotlib.figure import Figure as Plot

from throughline.numbers import reading
from throughline.report.analysis.cells import Group
from throughline.report.analysis.values import Series, of_cell
from throughline.report.render import plots
from throughline.report.render.plots import PAGE, Theme, inline
from throughline.report.render.throughput_plots import settings

Groups = Mapping[str, Sequence[Group]]


@dataclass(frozen=True)
class Shared:
    """What several machines have measured: lines of one plot, each of one machine and framework."""

    title: str
    unit: str
    lines: tuple[Series, ...]

    @property
    def words(self) -> str:
        """The plot's numbers in words, for people who cannot see it."""
        return " ".join(
            f"{line.name}: {', '.join(f'{p.topology} {reading(p.value.median)} {self.unit}' for p in line.points)}."
            for line in self.lines
        )

    def draw(self, theme: Theme) -> Plot:
        figure, axes = plots.blank(theme, self.title, self.unit)
        labels = []
        for index, line in enumerate(self.lines):
            colour, marker = theme.colour(index), theme.marker(index)
            labels.append(plots.line(axes, line, colour, theme, marker, marked=False))
            for point in line.points:
                plots.repeats(axes, point, colour, theme, marker)
        plots.device_axis(axes, [point.topology for line in self.lines for point in line.points], theme)
        return plots.finish(figure, axes, labels, theme, "dots: repeats")


def shared(machines: Groups) -> Iterator[Shared]:
    """Yield what at least two machines have measured on several numbers of devices."""
    by_name: dict[tuple[str, str], list[tuple[str, Group]]] = {}
    for machine, groups in machines.items():
        for group in groups if len(machines) > 1 else ():
            if "__" not in group.benchmark and group.exchanges:
                by_name.setdefault((group.benchmark, group.name), []).append((machine, group))
    for (benchmark, _), found in by_name.items():
        lines = tuple(
            line
            for machine, group in found
            for name in group.frameworks
            if (line := plots.series(group, name, partial(of_cell, name), f"{name}, {machine}")).points
        )
        group = found[0][1]
        if len(found) > 1 and len({point.topology.world for line in lines for point in line.points}) > 1:
            yield Shared(f"{benchmark}: throughput, {settings(group)}", group.unit, lines)


def drawn(machines: Groups) -> list[Markup]:
    """Return these plots as the page shows them."""
    return [
        inline(one.draw(PAGE), f"machines-{number}", one.title, one.words)
        for number, one in enumerate(shared(machines), start=1)
    ]
