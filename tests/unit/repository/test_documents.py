"""The commands, configurations and links in README and docs work, and the lines are short.

The tests leave out commands with words that a reader replaces (SHARD, mine.yaml, <benchmark>, ...). Text after `#` is a
comment.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from ruamel.yaml import YAML

from clones import ROOT, copy
from throughline import __version__, command, snakemake_command
from throughline.commands import run
from throughline.study import runs
from throughline.study.config import Config, load

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
GENERATED = ("configuration.md", "workloads.md", "records.md")
LONG = 2000
"""A page of more words begins with a table of its most asked questions."""
TOY = "patches"
"""The workload that add-a-workload.md adds. tests/workflow/test_new_workload.py runs what that page shows."""
CODE = ("examples", "src", "workflow/scripts", "tests", "benchmarks")
FOREIGN = ("bench.py",)
"""Programs of other projects that a page names."""
REPLACED = re.compile(r"<[^>]*>|\.\.\.|\b[A-Z]{2,}\b(?!=)|\bmine\b|\bX\b|\$PWD")
"""Matches words that a reader replaces."""
MARKDOWN = MarkdownIt("commonmark").enable("table")


class Snippet(NamedTuple):
    page: str
    text: str


def tokens(page: Path) -> Iterator[Token]:
    """Yield the page's blocks, and the parts of their lines."""
    for block in MARKDOWN.parse(page.read_text(encoding="utf-8")):
        yield block
        yield from block.children or ()


def commands(*first: str) -> list[Snippet]:
    """Return every command that begins with one of these words, in a code block or within a sentence."""
    snippets = []
    for page in PAGES:
        for token in tokens(page):
            shown = token.type in ("fence", "code_inline") and token.info in ("", "bash")
            for line in token.content.replace("\\\n", " ").splitlines() if shown else ():
                for part in re.split(r"&&|;(?= )", line):
                    words = re.sub(r"^\s*(\w+=\S+ +|sudo +)*|\s#.*", "", part).strip()
                    if words.split(" ")[0] in first and len(words.split()) > 1:
                        snippets.append(Snippet(page.name, words))
    assert snippets
    return snippets


def configurations() -> list[Snippet]:
    """Return every piece of a configuration: all yaml blocks, and code within a sentence that begins with a section."""
    section = re.compile(rf"({'|'.join(Config.model_fields)}): [{{\[]")
    snippets = []
    for page in PAGES:
        for token in tokens(page):
            begun = token.type == "code_inline" and section.match(token.content) and not REPLACED.search(token.content)
            if (begun or token.info == "yaml") and TOY not in token.content:
                snippets.append(Snippet(page.name, token.content))
    return snippets


@pytest.mark.parametrize(
    "snippet", configurations(), ids=lambda snippet: f"{snippet.page}: {snippet.text.strip()[:40]}"
)
def test_a_configuration_is_valid(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An indented snippet is a part of a benchmark's block, so the test puts it into such a block."""
    monkeypatch.chdir(tmp_path)
    described = tmp_path / "models/my-llama/config.json"
    described.parent.mkdir(parents=True)
    described.write_bytes((ROOT / "resources/shapes/llama-3.1-8b.json").read_bytes())
    indent = len(snippet.text) - len(snippet.text.lstrip())
    around = "benchmarks:\n  any:\n" if indent else ""
    Path("config.yaml").write_text(around + snippet.text, encoding="utf-8")
    runs.expand(load(["config.yaml"]))


@pytest.mark.slow
def test_snakemake_plans_what_is_shown(tmp_path: Path) -> None:
    """Snakemake knows the options, and the workflow knows the targets. All targets of config.yaml are planned in one
    call."""
    from snakemake.cli import get_argument_parser  # takes seconds, in every process that collects tests

    targets, needs_more_keys, gone = {"all"}, {"compare", "predictions"}, {"logs"}  # `gone`: CHANGELOG.md names it
    for page, line in commands("snakemake"):
        if REPLACED.search(line) or TOY in line:
            continue
        given, unknown = get_argument_parser().parse_known_args(shlex.split(line)[1:])
        assert not unknown, f"{page}: {line}: snakemake has no {unknown}"
        files = given.configfile or ["config.yaml"]
        settings = {
            key: YAML(typ="safe").load(value)
            for key, _, value in (setting.partition("=") for setting in given.config or [])
        }
        runs.expand(load([ROOT / path for path in files], settings))
        is_apart = given.configfile and given.targets != ["accept"]  # its target is the same in every file
        assert not (is_apart and given.targets), f"{page}: {line}: targets of another file are not planned here"
        targets.update(given.targets)
    clone = copy(tmp_path / "clone", (ROOT / "config.yaml").read_text(encoding="utf-8"))
    clone.made(*sorted(targets - needs_more_keys - gone), "--dry-run", "--quiet", "all")


def test_throughline_run_knows_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    parser = command.parser(run.main)
    for page, line in commands("throughline"):
        name, *words = shlex.split(line)[1:]
        if name == "run" and not REPLACED.search(line) and "=" not in line:
            known, others = parser.parse_known_args(words)
            assert known.list or snakemake_command.command(others, known.preset), f"{page}: {line}"


def test_make_has_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(VENV)", ".venv")
    targets = set(re.findall(r"^([\w./-]+):(?!=)", text, re.MULTILINE))
    for page, line in commands("make"):
        for word in shlex.split(line)[1:]:
            variable = word.partition("=")[0]
            known = f"$({variable}" in text if "=" in word else word in targets
            assert known or REPLACED.search(word), f"{page}: {line}: make knows no {word}"


@pytest.mark.slow
def test_python_finds_every_program_and_its_options() -> None:
    for page, line in commands("python"):
        words = shlex.split(line)[1:]
        if words[0] == "-m":
            assert importlib.util.find_spec(words[1]), f"{page}: {line}: no module {words[1]}"
            continue
        program = ROOT / words[0]
        assert program.is_file(), f"{page}: {line}: no program {words[0]}"
        known = program.read_text(encoding="utf-8")
        if words[0].startswith("benchmarks/"):  # the options that all benchmarks share
            known += (ROOT / "benchmarks/harness.py").read_text(encoding="utf-8")
        if words[0].startswith("workflow/scripts/"):
            known = " ".join(f'"{argument.option}"' for argument in command.arguments(command.loaded(str(program))))
        for option in (word for word in words if word.startswith("--")):
            assert f'"{option}"' in known, f"{page}: {line}: no option {option}"


def test_every_file_in_a_command_is_there() -> None:
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in ("data", "results"))
    for page, line in commands("python", "pip", "cp", "slurm/try/start.sh", "slurm/try/stop.sh"):
        for path in re.findall(rf"(?<![\w/])(?:{folders})/[\w./-]+", line.removeprefix("cp -r").split(" src/")[0]):
            assert (ROOT / path).exists(), f"{page}: {line}: no file {path}"


def test_every_program_that_a_page_names_is_there() -> None:
    """A page may leave out the first folders of a path. CHANGELOG.md also names programs of earlier versions."""
    known = [f"/{path.relative_to(ROOT)}" for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    for page in PAGES:
        for token in tokens(page) if page.name != "CHANGELOG.md" else ():
            for name in re.findall(r"(?<![\w<>/.*-])[\w/-]+\.py\b", token.content * (token.type == "code_inline")):
                there = name in FOREIGN or any(path.endswith(f"/{name}") for path in known)
                assert there, f"{page.name}: {token.content}: no file {name}"


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes from the headings of a page."""
    blocks = MARKDOWN.parse(page.read_text(encoding="utf-8"))
    headings = (after.children or [] for block, after in itertools.pairwise(blocks) if block.type == "heading_open")
    texts = ("".join(child.content for child in children) for children in headings)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for token in tokens(page):
        link = str(token.attrs.get("href") or token.attrs.get("src") or "")
        if not link or "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}: no such file"
        assert not heading or heading in anchors(target), f"{page.name}: {link}: no such heading"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=lambda page: page.name)
def test_sentences_stand_in_short_lines(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = [
        block for block in MARKDOWN.parse(text) if block.type in ("fence", "code_block", "table_open") and block.map
    ]
    apart = {number for block in blocks for number in range(*block.map)}
    lines = enumerate(re.sub(r"\]\([^)]*\)", "]", text).splitlines())  # without the addresses of links
    wide = [f"{number + 1}: {line}" for number, line in lines if len(line) > 100 and number not in apart]
    assert not wide, f"{page.name}: lines of more than 100 characters:\n" + "\n".join(wide)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_a_long_page_begins_with_its_most_asked_questions(page: Path) -> None:
    """A reader with a question finds its answer, and the way to more, on the first screen."""
    text = page.read_text(encoding="utf-8")
    start, _, rest = text.partition("\n## ")
    written = re.sub(r"<!-- \w+ -->.*?<!-- end -->", "", text, flags=re.DOTALL)  # without generated tables
    if page.name not in ("README.md", *GENERATED) and len(written.split()) > LONG:
        questions = start.partition("| asked most | in short |")[2].count("\n| ")
        assert 3 <= questions <= 6 and rest


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").glob("*/*.md")]
    assert pages and [page for page in pages if f"]({page}" not in index] == []


def test_the_walk_of_a_key_names_what_is_there() -> None:
    text = (ROOT / "docs/contributing/architecture.md").read_text(encoding="utf-8")
    passes = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", text, re.MULTILINE)
    assert passes
    for file, name in passes:
        path = next(folder / file for folder in (ROOT, ROOT / "src/throughline") if (folder / file).is_file())
        assert name in path.read_text(encoding="utf-8"), f"{file} has no {name}"


def test_the_version_is_the_same_everywhere() -> None:
    versions = {
        "CHANGELOG.md": r"^## ([\d.]+)", "CITATION.cff": r"^version: (.+)", "pyproject.toml": r'^version = "(.+)"',
    }  # fmt: skip
    for name, pattern in versions.items():
        (first, *_) = re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert first == __version__, f"{name}: {first}"
