"""What to say of a file that Snakemake cannot make: a target that nothing makes, or an input that is not there."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from throughline import spelling
from throughline.files import UserError
from throughline.spec import Precision, Topology
from throughline.study.presets import of_a_preset
from throughline.workflow_call import WorkflowCall

LIST = "docs/outputs.md lists the files, and snakemake --list-target-rules the other targets"


def no_rule(call: WorkflowCall, rules: Sequence[str], target: str) -> UserError:
    """Return the error for a target that nothing makes, with the most similar targets.

    rules: the targets that are no files.
    """
    near = call.targets.by_benchmark.get(target) or spelling.similar(target, [*rules, *call.files()], 0.6)
    meant = f"did you mean {spelling.listed(near)}? " if near else ""
    return UserError(
        f"nothing makes {target}",
        why=_wrong_part(target) or "neither the workflow nor this configuration has a target of that name",
        next_step=of_a_preset(target) or meant + LIST,
    )


def _wrong_part(target: str) -> str | None:
    """Return what is wrong with a part of the name of a file below results/, such as its precision."""
    parts = target.removesuffix(".json").split("/")
    if parts[0] != "results" or len(parts) < 3:
        return None
    batch, _, precision = parts[2].partition("_")
    if batch.startswith("bz") and precision not in get_args(Precision):
        return f"{precision or 'nothing'} is no precision; allowed: {', '.join(get_args(Precision))}"
    if len(parts) > 4:
        try:
            Topology.parse(parts[4])
        except (UserError, ValueError):
            return f"{parts[4]} is no topology, which is <nodes>n<devices per node>g, such as 1n2g"
    return None


def no_input(values: Mapping[str, Any], output: str, missing: Sequence[str]) -> UserError | None:
    """Return the error for the files that `output` is made of and that are not there.

    values: the configuration. None if it names none of these files: then Snakemake's own error says more.
    """
    named = [(file, key) for file in sorted(missing) for key in _keys(values, file)]
    if not named:
        return None
    file, key = named[0]
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    near, folder = spelling.beside(Path(file)), Path(file).parent
    there = f"; there is {spelling.listed(near, 'and')}" if near else ""
    return UserError(
        f"{file} is not there{more}, and {output} is made of it",
        why=f"{key} names it" + (there if folder.is_dir() else f"; there is no folder {folder}/"),
        next_step=f"correct {key} in the configuration, or put the file there",
    )


def _keys(value: Any, text: str, key: str = "") -> Iterator[str]:
    """Yield the keys of a configuration whose value is a text, such as `corpus.dump`."""
    if value == text:
        yield key
    entries = value.items() if isinstance(value, Mapping) else ()
    for name, entry in entries:
        yield from _keys(entry, text, f"{key}.{name}".lstrip("."))
    for entry in value if isinstance(value, (list, tuple)) else ():
        yield from _keys(entry, text, key)
