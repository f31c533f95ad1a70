"""One kind of table, of which the page, CSV, Markdown and LaTeX each show the columns that are meant for them.

A column says once what it is called and how it is read from what a line is about. Most tables have a line for each
cell, with its figures, or why a figure is not known. In these a column without any figure is left out, and named below
the table with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from throughline import ratios
from throughline.numbers import percent
from throughline.report.analysis.cells import STATUS_MEANINGS, Cell, Group

NOT_KNOWN = "n/a"
PAGE, TEXT, CSV = "page", "text", "csv"
"""The forms of a table. TEXT: Markdown and LaTeX."""
PEOPLE, FORMS = (PAGE, TEXT), (PAGE, TEXT, CSV)
ZERO = ("0", "0.0", "0.0 %", "0.00")


@dataclass(frozen=True)
class Entry:
    """What stands in one line and column: `text` is for people, `value` for sorting and CSV; None if not known.

    reason: why it is not known; a title, if it is known. kind: a class on the page. chip: a status, if the page shows
    the text in its colour. html: what the page shows in place of the text. span: how many columns it takes there.
    """

    text: str = NOT_KNOWN
    value: float | str | None = None
    reason: str | None = None
    kind: str = ""
    chip: str = ""
    html: Markup | None = None
    span: int = 1

    @classmethod
    def of(cls, value: float | str | None, read: Callable[[Any], str], reason: str | None = None) -> Entry:
        return cls(reason=reason or "not recorded") if value is None else cls(read(value), value)

    @classmethod
    def words(cls, text: str, chip: str = "") -> Entry:
        """Return an entry that is the same text in every form."""
        return cls(text, text, chip=chip)

    @classmethod
    def verdict(cls, compared: Any) -> Entry:
        """Return the verdict of a comparison, in its colour."""
        return cls.words(compared.words, chip=compared.verdict.replace(" ", "-"))

    @classmethod
    def framework(cls, cell: Cell) -> Entry:
        """Return the name of a cell's framework, on the page with its colour."""
        return cls(cell.shown, cell.shown, html=Markup('<i class="swatch"></i>{}').format(cell.shown))

    @classmethod
    def outcome(cls, cell: Cell) -> Entry:
        """Return what stands in place of the figures of a cell without any."""
        return cls(cell.label, reason=STATUS_MEANINGS.get(cell.status), chip=cell.status)


@dataclass(frozen=True)
class Column:
    """A column: `key` is its name in the CSV, with the unit; `small` stands below the heading.

    read: returns the entry of what a line is about, or its value; then `show` makes the text of a number, and `reason`
    says why it is not known. forms: where the column is shown. whole: its values are whole numbers, even if some are
    missing. optional: it is left out if no line has a value. style: its classes on the page. by_value: the page sorts
    by value, not by text. names: its entries name their lines.
    """

    key: str = ""
    heading: str = ""
    small: str = ""
    read: Callable[[Any], Entry | float | str | None] = lambda subject: None
    show: Callable[[Any], str] = str
    reason: str | Callable[[Any], str | None] = "not recorded"
    forms: Collection[str] = FORMS
    whole: bool = False
    optional: bool = False
    style: str = ""
    by_value: bool = False
    names: bool = False

    @property
    def name(self) -> str:
        """Heading and small line in one text."""
        return f"{self.heading} ({self.small})" if self.small else self.heading

    def entry(self, subject: Any) -> Entry:
        """Return the entry of what a line is about."""
        value = self.read(subject)
        if isinstance(value, Entry):
            return value
        reason = self.reason if isinstance(self.reason, str) else self.reason(subject)
        return Entry.of(value, str if isinstance(value, str) else self.show, reason)


def in_csv(key: str, read: Callable[[Any], float | str | None]) -> Column:
    """Return a column that only the CSV has."""
    return Column(key, read=read, forms=(CSV,))


def ends_in_csv(first: str, last: str, read: Callable[[Any], Sequence[float | None] | None]) -> tuple[Column, Column]:
    """Return the columns of the first and the last of several values, such as a range; only the CSV has them."""
    return (
        in_csv(first, lambda subject: (read(subject) or [None])[0]),
        in_csv(last, lambda subject: (read(subject) or [None])[-1]),
    )


@dataclass(frozen=True)
class Line:
    """The entries of one line, one for each column; a cell without figures may have none.

    cell: the cell that the line is about. name, style: on the page, its name on narrow screens and its classes.
    """

    entries: Sequence[Entry]
    cell: Cell | None = None
    name: str = ""
    style: str = ""


@dataclass(frozen=True)
class Table:
    """A table; below it stand the `facts` (name and text) and the `notes` (sentences).

    heading: stands above it in Markdown and LaTeX. forms: where it is shown. style: its classes on the page. of_cells:
    each line is about a cell; what the cell is stands at the left, without columns for it.
    """

    columns: Sequence[Column]
    lines: Sequence[Line]
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    heading: str = ""
    forms: Collection[str] = FORMS
    style: str = "grid words"
    of_cells: bool = False

    @classmethod
    def of(cls, subjects: Iterable[Any], columns: Sequence[Column], **fields: Any) -> Table:
        """Return a table with a line for each subject. A subject may be a cell, or have one."""
        lines = [Line([column.entry(subject) for column in columns], _cell_of(subject)) for subject in subjects]
        return cls(columns, lines, **fields)._without_optional()

    @classmethod
    def if_any(cls, subjects: Iterable[Any], columns: Sequence[Column], **fields: Any) -> Table | None:
        """Return a table with a line for each subject; None without any."""
        shown = cls.of(subjects, columns, **fields)
        return shown if shown.lines else None

    @classmethod
    def of_groups(cls, groups: Iterable[Group], columns: Sequence[Column], **fields: Any) -> Table:
        """Return a table with a line for each cell of `groups`. A cell without a valid repeat has no figures."""
        cells = [cell for group in groups for cell in group.cells]
        lines = [Line([column.entry(cell) for column in columns] if cell.ok else (), cell) for cell in cells]
        return cls(columns, lines, of_cells=True, **fields)._without_optional()

    @property
    def tells(self) -> bool:
        """True if there is something to show, or if a measured cell says why there is none."""
        known = any(entry.value is not None for line in self.lines for entry in line.entries)
        return known or any(line.cell.ok for line in self.lines if line.cell)

    @property
    def below(self) -> list[str]:
        """The lines below the table."""
        return [*(f"{name}: {text}" for name, text in self.facts), *self.notes]

    def in_form(self, form: str) -> Table | None:
        """Return the table with the columns of one form; None if it does not have this form.

        For people, a table of cells has no columns without a figure; the notes name these. On the page, what each cell
        is stands on the left.
        """
        if form not in self.forms:
            return None
        shown = self._kept([index for index, column in enumerate(self.columns) if form in column.forms])
        if form == CSV or not self.of_cells:
            return shown
        return shown._condensed()._identified() if form == PAGE else shown._condensed()

    def _kept(self, kept: Sequence[int], notes: Sequence[str] = ()) -> Table:
        lines = [replace(line, entries=[line.entries[i] for i in kept] if line.entries else ()) for line in self.lines]
        return replace(self, columns=[self.columns[i] for i in kept], lines=lines, notes=[*self.notes, *notes])

    def _without_optional(self) -> Table:
        found = {index for line in self.lines for index, entry in enumerate(line.entries) if entry.value is not None}
        return self._kept([index for index, column in enumerate(self.columns) if index in found or not column.optional])

    def _condensed(self) -> Table:
        """Return the table without columns that have no figure, or only 0. Notes say why, also of single figures."""
        measured = [line.entries for line in self.lines if line.entries]
        kept, missing, partly, zero = [], dict[str, list[str]](), dict[str, dict[str, None]](), list[str]()
        for index, column in enumerate(self.columns):
            unknown = [entries[index].reason for entries in measured if entries[index].value is None]
            if measured and all(entries[index].text in ZERO for entries in measured):
                zero.append(column.name)
            elif len(unknown) < len(measured):
                kept.append(index)
                for reason in filter(None, unknown):
                    partly.setdefault(reason, {})[column.name] = None
            elif measured:
                reasons = dict.fromkeys(reason or "not recorded" for reason in unknown)
                missing.setdefault("; ".join(reasons), []).append(column.name)
        notes = [f"{NOT_KNOWN}: {', '.join(names)}. Reason: {reason}" for reason, names in missing.items()]
        notes += [f"{', '.join(names)}: {NOT_KNOWN} where {reason}" for reason, names in partly.items()]
        notes += [f"0 in every line: {', '.join(zero)}"] if zero else []
        return self._kept(kept, notes)

    def _identified(self) -> Table:
        """Return a table of cells with columns that say what each cell is, if it has columns of figures."""
        batch = batch_heading([line.cell.group for line in self.lines if line.cell])
        identity = [
            Column(heading="framework", names=True),
            Column(heading="topology", style="text named"),
            Column(heading="precision", small=batch, style="text named"),
        ]
        return replace(
            self,
            columns=[*identity, *self.columns] if self.columns else (),
            lines=[_identified(line, line.cell, len(self.columns)) for line in self.lines if line.cell],
            style="grid",
            of_cells=False,
        )


def _identified(line: Line, cell: Cell, width: int) -> Line:
    """Return the line of a cell on the page. If it has no figures, its outcome takes the `width` of their columns."""
    figures = [replace(entry, kind="quiet") if entry.value is None else entry for entry in line.entries]
    if not cell.ok:
        figures = [replace(Entry.outcome(cell), kind="text", span=width)]
    precision = Markup('{}<span class="quiet">, {}</span>').format(cell.group.precision, cell.batch)
    return Line(
        [Entry.framework(cell), Entry.words(str(cell.topology)), Entry(html=precision), *figures],
        name=f"{cell.topology}, {cell.group.precision}, {cell.batch}",
        style=series(cell) + (" first" if cell is cell.group.cells[0] else ""),
    )


def _cell_of(subject: Any) -> Cell | None:
    cell = getattr(subject, "cell", subject)
    return cell if isinstance(cell, Cell) else None


def series(cell: Cell) -> str:
    """Return the class that gives a cell's line the colour of its framework."""
    return f"series-{cell.group.frameworks.index(cell.framework) % 6}"


def batch_heading(groups: Sequence[Group]) -> str:
    if any(group.by_iteration for group in groups):
        return "batch per device / global batch"
    return "batch per device" if all(group.per_device for group in groups) else "batch"


def interval(read: Callable[[Any], str]) -> Column:
    """Return the column of the interval of a tested ratio, at the level 1 - 5 % / tests (Bonferroni)."""
    return Column(heading="interval", small=f"{percent(1 - ratios.SURE)}, corrected", read=read, forms=(PAGE,))


def texts(rows: Sequence[Mapping[str, str | Entry | None]], style: str = "grid words") -> Table | None:
    """Return a table of words for the page, of rows that map each heading to its text; None without rows."""

    def entry(text: str | Entry | None) -> Entry:
        return text if isinstance(text, Entry) else Entry.words(NOT_KNOWN if text is None else text)

    lines = [Line([entry(text) for text in row.values()]) for row in rows]
    return Table([Column(heading=heading) for heading in rows[0]], lines, forms=(PAGE,), style=style) if rows else None
