"""The text of a log, what a kind of log declares, and the code that reads a log by its declaration."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from statistics import fmean
from typing import Any, Literal, TypeAlias

Outcome = Literal["ok", "foreign", "cut_off", "mixed", "broken", "binary", "too_large"]

# The mark that mpirun adds to each line (`Thu Dec 17 15:05:20 2020[1,0]<stdout>:`), at its start or in its middle.
MPIRUN = re.compile(r"(?:\w{3} \w{3} +\d{1,2} [\d:]{8} \d{4})?\[(?:[\w.-]+@)?\d+,(\d+)\]<std(?:out|err)>:")
LAUNCHERS = (
    re.compile(r"(?m)^ *\d+: "),  # srun -l
    re.compile(r"(?m)^[a-z][\w-]*[\d.][\w.-]* \d+: "),  # mpiexec of PBS and PALS: the host and the rank
    re.compile(r"(?m)^\[\d+\] "),  # mpirun -l of MPICH and Intel
)
"""What a launcher writes before each line. A log may have such lines without a launcher, but not most of them."""
TORCHRUN = re.compile(r"(?m)^\[(?:default|rank|trainer|worker)\d+\]:")
DLLL = re.compile(r'DLLL (\{.*"datetime": .*\})')
COLOURS = re.compile(r"\[\d{1,3}(?:;\d+)*m")  # the rest of a colour code without its escape character
NUMBER = r"[-+]?[\d.]+(?:[eE][-+]?\d+)?"


class Unusable(Exception):
    """A file gives no figure. `status` and `reason` say why."""

    def __init__(self, status: Outcome, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)


@dataclass(frozen=True)
class Log:
    """A log file. `name` is its path below the imported folder, and `raw` its text."""

    name: str
    raw: str

    @cached_property
    def ranks(self) -> int:
        """The number of ranks that the marks of mpirun name; 0 if mpirun did not start the run."""
        marks = MPIRUN.findall(self.raw) if "]<std" in self.raw else ()
        return 1 + max(map(int, marks), default=-1)

    @cached_property
    def text(self) -> str:
        """The lines that the programs wrote, as `plain` returns them."""
        return plain(self.raw)

    def find(self, pattern: str) -> str | None:
        """Return the first group of the first match in the text; None without a match."""
        match = re.search(pattern, self.text)
        return match[1] if match else None

    def has(self, pattern: str) -> bool:
        """Return whether a pattern matches in the text."""
        return re.search(pattern, self.text) is not None

    def named(self, pattern: str) -> str | None:
        """Return the first group of a pattern in the names of the file and its folders; None without a match."""
        match = re.search(pattern, self.name)
        return match[1] if match else None


def dllogger(line: re.Match[str]) -> str:
    """Return a line of DLLogger's JSON as DLLogger prints it: the step, and the figures with their names."""
    entry = json.loads(line[1])
    step, data = entry["step"], entry["data"]
    names = ("Training Epoch", "Training Iteration") if "step_loss" in data else ("Epoch", "Iteration")
    if isinstance(step, str):
        words = step
    else:
        words = " ".join(f"{name}: {number}" for name, number in zip(names, step, strict=False)) or "Summary:"
    return f"DLL {entry['datetime']} - {words} {' '.join(f'{name} : {value} ' for name, value in data.items())}"


def plain(text: str) -> str:
    """Return a log's text without colours and without what launchers add, which the patterns of kinds do not have.

    Lines of DLLogger's JSON become those that it prints.
    """
    if "DLLL {" in text:
        text = DLLL.sub(dllogger, text)
    text = MPIRUN.sub("", text) if "]<std" in text else text
    text = COLOURS.sub("", text.replace("\x1b", "")).replace("\r", "\n")
    lines = len(re.findall(r"(?m)^.*\S", text))
    for launcher in LAUNCHERS:
        if 2 * len(launcher.findall(text)) > lines:
            text = launcher.sub("", text)
    return TORCHRUN.sub("", text)


def number(text: str) -> float:
    """Return a positive number, with or without commas between thousands. Raise Unusable for any other text."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise Unusable("broken", f"a figure in it is no positive number: {text[:40]!r}")
    return value


def only(values: Sequence[float]) -> float:
    """Return the figure at the end of a run, which the log may repeat. Raise Unusable if the log has different ones."""
    if len(set(values)) > 1:
        raise Unusable("mixed", f"it ends {len(set(values))} runs; give each a file of its own")
    return values[0]


Fact: TypeAlias = "str | tuple[Fact, ...] | Mapping[str, str] | Callable[[Log], str | int | None]"
"""Where a log states a fact: a pattern, whose first group is the fact; several places, of which the first that has it
counts; a mapping of facts to the patterns that show them; or a function of the log."""
Lines: TypeAlias = list[re.Match[str]]
Fields: TypeAlias = dict[str, Any]
"""Fields of a `records.ImportedRun`: value, unit, rule, framework and the facts."""

COUNTS = ("batch_size_per_device", "gradient_accumulation", "devices", "nodes")
FACTS = ("model", "precision", *COUNTS, "hardware", "software")
PRECISIONS = {
    **dict.fromkeys(("1", "true", "fp16", "float16", "amp", "o1", "o2", "16-true", "16-mixed"), "fp16"),
    **dict.fromkeys(("0", "false", "none", "o0", "fp32", "float32", "32-true"), "fp32"),
    **dict.fromkeys(("bf16", "bfloat16", "bf16-true", "bf16-mixed"), "bf16"),
    "transformer-engine": "fp8",
    **{precision: precision for precision in ("tf32", "fp8", "fp4")},
}
"""What the values of settings such as `fp16=True`, `dtype='float32'` and `precision: 'bf16-true'` mean."""
PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "per_s": 1, "clock": 1}
EPOCH = 10**9  # more steps than an epoch has


@dataclass(frozen=True)
class Rule:
    """What the source of a kind takes of a log: in words for people, and in fields for `read`.

    first: the first step that counts; drop: how many of the first lines after it do not count; until: how many of
    them the rule reads. at: the only steps that count. at_end: the figure is that of `end`. average: makes one figure
    of the times or rates that count, by default their mean, or the only figure at the end.

    The import removes from the words `the ... over` at the start if the log does not say what a step has, and `, times
    ...` at the end if it does not say how many devices there were.
    """

    words: str
    drop: int = 0
    until: int | None = None
    first: int = 0
    at: tuple[int, ...] = ()
    at_end: bool = False
    average: Callable[[Sequence[float]], float] | None = None


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of log.

    title: the name in imported.json and on pages. Of kinds with one title, the first that recognizes a log reads it.
    rule: the rule of the source, or a function of the log, its lines and its facts that chooses the rule.

    step: the pattern of a line that times a step, for `throughline bench --timing NAME`. Its named groups are `step`;
    one of `s`, `ms` and `us` (the time), `per_s` (a throughput: rate_of says whether of the job or of one device) and
    `clock` (the time of day, in an import as seconds); and perhaps `loss`. line: the pattern of the lines that an
    import reads, if it is another. It may also have the groups `epoch`; `samples`, those of a step of this line; and
    `dropped`, not empty if the line does not count. If several ranks print a step, its first line counts, and in a
    log of mpirun all of them.
    end: the pattern of the figure at the end, with `per_s`, or `amount` and `s`. A log without it is cut off.
    first_line: that of each run's first line, if a file may hold several. unless: that of a kind which reads such logs.

    per_step: where the log says how many samples or tokens a step has, by default a batch for each device; or_steps:
    if it does not say it, the figure is in steps/s. reader: reads a log without lines, such as a JSON file. The fields
    after it are the facts.
    """

    title: str
    unit: str = ""
    rule: Rule | Callable[[Log, Lines, dict[str, Any]], Rule] = Rule("")
    step: str = ""
    rate_of: Literal["job", "device"] = "job"
    line: str = ""
    end: str = ""
    first_line: str = ""
    unless: str = ""
    per_step: Fact = ()
    or_steps: bool = False
    reader: Callable[[Log], Iterable[Fields]] | None = None
    framework: Fact = ()
    model: Fact = ()
    precision: Fact = ()
    batch_size_per_device: Fact = ()
    gradient_accumulation: Fact = ()
    devices: Fact = ()
    nodes: Fact = ()
    hardware: Fact = ()
    software: Fact = ()

    @property
    def name(self) -> str:
        """What a user types: the title in lower case, such as `megatron-lm`."""
        return re.sub(r"\W+", "-", self.title.lower())


def read(kind: Kind, log: Log) -> list[Fields]:
    """Return the runs in a log; none if it is of another kind. Raise Unusable if the kind's rule gives no figure."""
    if kind.reader:
        return list(kind.reader(log))
    if not any(pattern and log.has(pattern) for pattern in (kind.line or kind.step, kind.end)):
        return []
    if kind.unless and log.has(kind.unless):
        return []
    starts = [match.start() for match in re.finditer(kind.first_line, log.text)] if kind.first_line else []
    parts = [Log(log.name, log.text[start:end]) for start, end in pairwise([*starts, len(log.text)])]
    return [_run(kind, part) for part in (parts if starts else [log])]


def _run(kind: Kind, log: Log) -> Fields:
    pattern = kind.line or kind.step
    facts = {key: fact_of(key, getattr(kind, key), log) for key in ("framework", *FACTS)}
    lines = list(re.finditer(pattern, log.text)) if pattern else []
    if "(?P<step>" in pattern:
        lines = _in_order(lines, facts["devices"], every=log.ranks > 0)
    ends = [_figure(match) for match in re.finditer(kind.end, log.text)] if kind.end else []
    if kind.end and not ends:
        raise Unusable("cut_off", f"it breaks off after {len(lines)} lines: the figure at its end is missing")
    rule = kind.rule if isinstance(kind.rule, Rule) else kind.rule(log, lines, facts)
    average = rule.average or (only if rule.at_end else fmean)
    value, unit, words = average(ends if rule.at_end else _counting(rule, lines, _figure)), kind.unit, rule.words
    if not rule.at_end and "(?P<per_s>" not in pattern:
        batch, devices = facts["batch_size_per_device"], facts["devices"]
        per_step: float | None = count(kind.per_step, log) or (batch and devices and batch * devices)
        if lines and all(line.groupdict().get("samples") for line in lines):
            per_step = fmean(_counting(rule, lines, lambda line: number(line["samples"])))
        if not (per_step or kind.or_steps):
            raise Unusable("broken", "it prints times alone, and not how many samples a step has")
        value = (per_step or 1) / value
        if not per_step:
            unit, words = "steps/s", f"one{words[words.index(' over ') :]}"
    elif kind.rate_of == "device" and facts["devices"]:
        value *= facts["devices"]
    elif kind.rate_of == "device":
        if unit != "tokens/s":
            raise Unusable("broken", "its figures are of one device, and it does not say how many there were")
        unit, words = "tokens/s/device", words.partition(", times")[0]
    return {"value": value, "unit": unit, "rule": words, **facts}


def _in_order(lines: Lines, devices: int | None, every: bool) -> Lines:
    """Return the lines in the order of their steps: every line, or the first of each step.

    Several ranks may print, and one of them late. Then the first step is there several times before the second. Raise
    Unusable if the log holds several runs.
    """
    places = [_place(line) for line in lines]
    printed = next((at for at, place in enumerate(places) if place != places[0]), len(places))
    most = min(devices or len(places), 2 * printed - 1)
    if places != sorted(places) and max(Counter(places).values()) > most:
        raise Unusable("mixed", "its steps begin again: it holds several runs; give each a file of its own")
    ordered = sorted(lines, key=_place)
    return ordered if every else [next(group) for _, group in groupby(ordered, key=_place)]


def _place(line: re.Match[str]) -> int:
    """Return the number of a line's step in the order of all epochs; 0 if the line has no step."""
    groups = line.groupdict()
    return int(groups.get("epoch") or 0) * EPOCH + int(groups.get("step") or 0)


def _figure(line: re.Match[str]) -> float:
    """Return the seconds of a step, a throughput, or a time of day."""
    groups = {name: number(text) for name, text in line.groupdict().items() if text and name in (*PER_SECOND, "amount")}
    if "amount" in groups:
        return groups["amount"] / groups["s"]
    ((unit, figure),) = groups.items()
    return figure / PER_SECOND[unit]


def _counting(rule: Rule, lines: Lines, of_line: Callable[[re.Match[str]], float]) -> Sequence[float]:
    """Return the times, rates or samples of the lines that count. Raise Unusable if the log is too short."""
    figures = [(_place(line), of_line(line)) for line in lines if not line.groupdict().get("dropped")]
    if rule.at:
        if missing := [step for step in rule.at if step not in dict(figures)]:
            last = _place(lines[-1])
            raise Unusable("cut_off", f"the rule reads the line of step {missing[0]}; its last is that of step {last}")
        figures = [(step, dict(figures)[step]) for step in rule.at]
    figures = [(step, figure) for step, figure in figures if step >= rule.first]
    if lines and "clock" in lines[0].groupdict():
        figures = [(later, (until - since) / (later - step)) for (step, since), (later, until) in pairwise(figures)]
        if any(seconds <= 0 for _, seconds in figures):
            raise Unusable("broken", "the times of day in its lines do not rise")
    needed = rule.until or rule.drop + 1
    if len(figures) < needed:
        since = f" from step {rule.first} on" if rule.first else ""
        raise Unusable("cut_off", f"it has {len(figures)} lines that count{since}, and the rule needs {needed}")
    return [figure for _, figure in figures[rule.drop : rule.until]]


def fact_of(key: str, fact: Fact, log: Log) -> Any:
    """Return a fact of a log in the form of imported.json; None if the log does not state it."""
    if key in COUNTS:
        return count(fact, log)
    text = text_of(fact, log)
    return PRECISIONS.get(text.lower()) if text and key == "precision" else text


def text_of(fact: Fact, log: Log) -> str | None:
    """Return a fact as the log states it; None if the log does not state it."""
    if isinstance(fact, str):
        return log.find(fact)
    if isinstance(fact, tuple):
        return next(filter(None, (text_of(place, log) for place in fact)), None)
    if isinstance(fact, Mapping):
        return next((text for text, pattern in fact.items() if log.has(pattern)), None)
    value = fact(log)
    return None if value is None else str(value)


def count(fact: Fact, log: Log) -> int | None:
    """Return a fact as a whole number above 0; None if the log does not state it."""
    return int((text_of(fact, log) or "0").replace(",", "")) or None


def named(pattern: str) -> Fact:
    """Return the fact that the first group of a pattern finds in the names of the file and its folders."""
    return lambda log: log.named(pattern)


def listed(pattern: str) -> Fact:
    """Return how many entries, with commas between them, the first group of a pattern has."""
    return lambda log: len(text.split(",")) if (text := log.find(pattern)) else None


def form(words: str, *facts: Fact) -> Fact:
    """Return the text that other facts complete, such as `gpt-{}x{}`."""
    return lambda log: words.format(*texts) if all(texts := [text_of(fact, log) for fact in facts]) else None


def computed(function: Callable[[int, int], int], *counts: Fact) -> Fact:
    """Return what a function makes of two counts, such as their product."""
    return lambda log: function(*numbers) if all(numbers := [count(fact, log) or 0 for fact in counts]) else None
