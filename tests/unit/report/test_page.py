"""The report needs no network, says what is missing, and never runs anything that is written in records."""

import base64
import json
import os
import pickle
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from report_fixture import (
    CPU,
    asked,
    group_of,
    jitter,
    page_of,
    summarized,
    write_record,
    write_series,
    write_study,
    write_summaries,
)
from throughline.report.analysis import advice, cells, summary
from throughline.report.render import cell_columns, page, run_environment
from throughline.study import config

ROOT = Path(__file__).parents[3]
ASKED = (
    asked(["1n1g", "4n8g"], repeats=7, frameworks=["mxnet-horovod", "torch"]),
    asked(["1n1g"], benchmark="gpt2", batch=4, precision="fp16"),
)
EXPECTED = [one for text in ASKED for one in cells.read_asked(text)]


class Reader(HTMLParser):
    """Collect visible text, links, ids, and every attribute that loads something."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.loads: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if tag == "a" and name == "href":
                self.links.append(value or "")
            elif name in {"src", "srcset", "href", "data", "action", "poster"} and not (value or "").startswith("#"):
                self.loads.append((tag, value or ""))
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        if not self.tags or self.tags[-1] not in {"style", "script"}:
            self.text.append(data)


def read(path: Path) -> tuple[str, Reader]:
    html = path.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(html)
    return " ".join(" ".join(reader.text).split()), reader


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study") / "results"
    summaries = write_summaries(root, write_study(root), remarks="Shown under the tables.")
    write_summaries(root, {"bz8_bf16": write_series(
        root, {"1n1g": jitter(50.0)}, benchmark="old", precision="bf16", batch=8)}, repeats=5)  # fmt: skip
    (root / "broken").mkdir()
    (root / "broken/bz1_fp32.json").write_text('{"schema": 1')
    (root / "broken/bz2_fp32.json").write_text('{"schema": 99}')
    manifest = root.parent / "data/sample/seq128/manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({
        "schema": 1, "corpus": "sample", "sequence_length": 128, "predictions": 20, "content_digest": "c0ffee",
        "vocabulary": {"size": 30522, "sha256": "07eced375cec"}, "parameters": {"dupe_factor": 5, "dynamic": True},
        "shards": [{"split": s, "rows": n} for s, n in (("training", 1200), ("training", 1300), ("test", 70))],
    }))  # fmt: skip
    page.write(root, summaries, [manifest, root / "no/manifest.json"], EXPECTED, root / "report.html")
    return root


@pytest.mark.slow
def test_it_is_one_file_that_loads_nothing(results: Path) -> None:
    html = (results / "report.html").read_text(encoding="utf-8")
    _, reader = read(results / "report.html")
    assert (reader.loads, reader.handlers) == ([("link", "data:,")], [])
    assert not re.findall(r"https?://|@import|url\((?!#)", html)
    assert "default-src 'none'" in html
    assert reader.tags.count("script") == 1


def test_ids_are_unique_and_local_links_lead_somewhere(results: Path) -> None:
    _, reader = read(results / "report.html")
    assert len(reader.ids) == len(set(reader.ids))
    for link in reader.links:
        if link.startswith("#"):
            assert link[1:] in reader.ids
        elif not link.startswith("data:application/json;base64,"):
            assert not link.startswith("/")
            assert (results / link).exists(), link


OOM, UNSUPPORTED = "out of memory: the configuration does not fit this device", "this framework cannot do this here"


@pytest.mark.parametrize(
    "said",
    [
        "mxnet-horovod trains bert-base at 11,269 samples/s on 32 devices (4n8g) in fp16 with batch 64 per device.",
        "Scales 23.79 times one device on 32 devices (4n8g) (range 23.58 to 24.00), 74 % of the ideal.",
        "spread of 7 of 7 repeats 0.9 %",
        f"bert, fp32, batch 96, mxnet-horovod, 1n1g OOM {OOM} the device's memory (16160 MiB) did not hold batch 96",
        f"bert, fp16, batch 64, torch, 1n4g n/a {UNSUPPORTED} torch has no fp16 all-reduce on this device",
        "bert, fp32, batch 32, torch, 4n8g failed no record: the run failed or has not run yet",
        "gpt2, fp16, batch 4, torch, 1n1g failed",
        "Nothing could be measured yet.",
        "Tesla V100-SXM2-16GB",
        "commit 5f0c1e2d3b4a",
        "tree clean yes",
        "OMP_NUM_THREADS 1",
        "2,500 in 2 shards",
        "70 in 1 shard ",
        "30,522 entries",
        "masks drawn while reading, anew in each epoch",
        "not readable FileNotFoundError",
        "Shown under the tables.",
        "2026-11-20 12:00 to 12:07 UTC",
        "snakemake results/bert/bz32_fp32.json",
    ],
)
def test_the_page_says(results: Path, said: str) -> None:
    assert said in read(results / "report.html")[0]


def test_comparisons_have_a_corrected_interval(results: Path) -> None:
    text, _ = read(results / "report.html")
    assert re.search(r"fp16 over fp32 \S+ 1n1g, .*? 3\.1\d+ to 3\.1\d+ faster in these runs", text)


def test_what_is_not_in_the_configuration_is_listed_apart(results: Path) -> None:
    before, after = read(results / "report.html")[0].split("Finished earlier, not in the present configuration")
    assert "old torch trains bert-base at 50.00 samples/s" in after and "old torch trains" not in before
    assert "broken/bz1_fp32.json" in after and "broken/bz2_fp32.json" in after


@pytest.mark.slow
def test_it_is_the_same_every_time(results: Path) -> None:
    """Checked in two processes, in which sets of benchmarks, frameworks, precisions and topologies have opposite
    orders."""
    manifests = [results.parent / "data/sample/seq128/manifest.json", results / "no/manifest.json"]
    values = [results, sorted((results / "bert").glob("*.json")), manifests]
    code = (
        "import pickle, sys; from throughline.report.analysis.cells import read_asked; "
        "from throughline.report.render import page; *known, asked, output = pickle.load(sys.stdin.buffer); "
        "page.write(*known, [one for text in asked for one in read_asked(text)], output)"
    )
    values += [ASKED, results / "report.html"]
    pages = []
    for seed in ("1", "4"):
        variables = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "src")}
        subprocess.run([sys.executable, "-c", code], input=pickle.dumps(values), env=variables, check=True)
        pages.append((results / "report.html").read_text(encoding="utf-8").splitlines())
    assert pages[0] == pages[1]


def test_a_benchmark_may_be_called_like_a_section_of_the_page(tmp_path: Path) -> None:
    names = ("data", "method", "environment", "repeat", "issues", "earlier", "unreadable", "features", "frameworks")
    for name in names:
        runs = write_series(tmp_path, {"1n1g": jitter(50.0)}, benchmark=name)
        write_summaries(tmp_path, {"bz32_fp32": runs}, repeats=5)
    places = sorted(tmp_path.glob("*/bz32_fp32.json"))
    page.write(tmp_path, places[:4], [], EXPECTED, tmp_path / "report.html")
    _, reader = read(tmp_path / "report.html")
    assert len(places) == len(names) and len(reader.ids) == len(set(reader.ids))


def test_a_copy_of_the_page_has_the_summaries(results: Path) -> None:
    """Each summary is in the page byte for byte, as a link that saves it under its name."""
    html = (results / "report.html").read_text(encoding="utf-8")
    found = dict(re.findall(r'<a download="([^"]+)" href="data:application/json;base64,([^"]+)"', html))
    assert sorted(found) == ["bert-bz32_fp32.json", "bert-bz64_fp16.json", "bert-bz96_fp32.json", "old-bz8_bf16.json"]
    for name, content in found.items():
        assert base64.b64decode(content) == (results / name.replace("-", "/", 1)).read_bytes()


def test_the_overview_has_a_row_for_each_framework_of_each_benchmark(results: Path) -> None:
    html = (results / "report.html").read_text(encoding="utf-8")
    overview = html[html.index('<section id="overview">') :].partition("</section>")[0]
    assert html.index("<section") == html.index('<section id="overview">')
    body = overview.partition("<tbody>")[2]
    rows = [" ".join(re.sub(r"<title>[^<]*</title>|<[^>]+>", " ", row).split()) for row in body.split("<tr ")[1:]]
    said = [row.partition(">")[2].strip() for row in rows]
    assert [row[:41] for row in said[:2]] == [
        "bert bert-base mxnet-horovod 11,269 sampl",
        "bert bert-base torch 2,070 samples/s 264,",
    ]
    assert " 4n8g fp16 batch 64 352.2 23.79 23.58 to 24.00 74 % " in said[0] and said[0].endswith("100 12/13")
    assert said[2].startswith("gpt2 bert-base torch failed 1n1g fp16 batch 4") and len(said) == 3


@pytest.mark.slow
def test_a_derived_benchmark_is_folded_into_its_own(tmp_path: Path) -> None:
    """It has no entry in the contents. If its benchmark is missing, it is shown like any other."""
    again = summarized(tmp_path, {"1n1g": 102.7}, benchmark="bert__aa")
    html = page_of(tmp_path, again, summarized(tmp_path, {"1n1g": 100.0}))
    assert re.findall(r'<li><a href="#benchmark-([^"]+)"', html) == ["bert"]
    assert html.count('<a href="#benchmark-bert">bert</a>') == 1 and '"#benchmark-bert__aa"' not in html
    fold = html[html.index('<details class="fold">') :].partition("</section>\n</details>")[0]
    assert "<b>bert__aa</b> The same configurations as bert, measured again" in fold and "by up to 2.7 %" in fold
    assert 'id="benchmark-bert__aa-bz32_fp32"' in fold and "102.7" in fold
    assert page_of(tmp_path, again).count('<a href="#benchmark-bert__aa">bert__aa</a>') == 1


def test_the_time_of_every_step(tmp_path: Path) -> None:
    """There is a line per valid run. For a long run it shows the extremes of each stretch, so a single slow step is
    visible."""
    steps = [0.1] * 1000
    steps[437] = 0.35
    html = page_of(tmp_path, summarized(tmp_path, {"1n1g": 100.0, "1n2g": [200.0]}, beside={"step_seconds": steps}))
    assert "<b>torch 1n1g</b> 100 to 350 ms, median 100" in html
    lines = re.findall(r'<polyline points="([^"]+)"', html)
    assert len(lines) == 5 + 1
    points = [tuple(map(float, point.split(","))) for point in lines[0].split()]
    assert len(points) == 2 * page.STRETCHES
    highest = min(points, key=lambda point: point[1])
    assert highest[1] == 0.0 and highest[0] / page.WIDTH == pytest.approx(0.437, abs=0.02)


def test_a_warning_of_several_cells_is_told_once(tmp_path: Path) -> None:
    """It names its cells. A topology or a version is not a number."""
    runs = [
        path
        for speed, topology, used in ((100.0, "1n1g", "1.5"), (190.0, "1n2g", "0.7"), (350.0, "1n4g", "2"))
        for path in write_series(tmp_path, {topology: speed}, device_found=CPU, beside={
            "warnings": [f"others use {used} of 2 cores", "driver 5.4.1 is old", f"made for {topology}"]})
    ]  # fmt: skip
    group = group_of(summary.summarize(runs, repeats=5))
    assert [(note.where, note.text) for note in advice.notes(group)] == [
        ("torch 1n1g, 1n2g, 1n4g", "others use 2 of 2 cores (numbers of torch 1n4g)"),
        ("torch 1n1g, 1n2g, 1n4g", "driver 5.4.1 is old"),
        *((f"torch {topology}", f"made for {topology}") for topology in ("1n1g", "1n2g", "1n4g")),
    ]


def test_nothing_at_all(tmp_path: Path) -> None:
    page.write(tmp_path, [], [], [], tmp_path / "report.html")
    text, _ = read(tmp_path / "report.html")
    assert "Nothing measured yet" in text


@pytest.mark.parametrize(
    ("speeds", "reach", "places"),
    [
        ([100.0, 103.0, 80.0, 85.0, 120.0], "median ± 20 %", [50.0, 56.9, 4.0, 15.5, 96.0]),
        ([100.0, 100.0, 101.5], "median ± 2 %", [50.0, 50.0, 84.5]),
        ([100.0, 100.0, 200.0], "median ± 100 %", [50.0, 50.0, 96.0]),
    ],
)
def test_every_repeat_is_a_dot_on_its_line(
    tmp_path: Path, speeds: list[float], reach: str, places: list[float]
) -> None:
    group = group_of(summarized(tmp_path, {"1n1g": speeds}))
    column = cell_columns.repeats(group.measured)
    drawn = str(column.entry(group.measured[0]).html)
    assert column.small == reach
    assert [float(place) for place in re.findall(r'cx="([^"]+)"', drawn)] == pytest.approx(places, abs=0.3)
    if speeds[2] == 80.0:
        assert "<title>repeat 3: 80.00 samples/s, 20.0 % below the median</title>" in drawn


def test_the_range_of_a_speedup_has_its_probability(tmp_path: Path) -> None:
    group = group_of(summarized(tmp_path, {"1n1g": 100.0, "1n2g": jitter(190.0, 3)}))
    one, two = (str(cell_columns.SPEEDUP.entry(cell).html) for cell in group.measured)
    # (1 - 2 / 2**5) * (1 - 2 / 2**3)
    assert "the true speedup is in this range with a probability of at least 70.3 %" in two
    assert one == "1.00"


def test_a_baseline_of_several_devices_has_no_efficiency(tmp_path: Path) -> None:
    """It would be 100 % of itself. Its timed steps are in the table."""
    (cell,) = group_of(summarized(tmp_path, {"1n2g": 190.0}, options={"tensor_parallel": 2})).measured
    shown = cell_columns.EFFICIENCY.entry(cell), cell_columns.SPEEDUP.entry(cell)
    assert {(entry.text, entry.reason) for entry in shown} == {("n/a", "it is the baseline of its own speedups")}
    assert cell_columns.STEPS.entry(cell).text == "100"


def test_backticks_are_code() -> None:
    assert page.code("`extras: [aa]` <b>") == "<code>extras: [aa]</code> &lt;b&gt;"


def test_the_commands_that_repeat_it(tmp_path: Path) -> None:
    """The commit, what was not committed, and each configuration as a file that the workflow can read."""
    kept = [json.loads(line) for line in (ROOT / "docs/demo/runs.jsonl").read_text().splitlines()]
    whole = next(one for one in kept if one.get("configuration"))
    whole["environment"]["tree_clean"] = True
    paths = [write_record(tmp_path, whole)]
    html = page_of(tmp_path, summary.summarize(paths, repeats=1))
    name, commit = whole["spec"]["benchmark"], whole["environment"]["commit"]
    assert f"<pre><code>git checkout {commit}\nmake .venv/main.ready\n" in html
    assert "changes that were not committed" not in html
    assert f"snakemake --configfile {name}.yaml\n" in html
    saved = re.search(rf'download="{name}.yaml" href="data:application/yaml;base64,([^"]*)"', html)
    assert saved
    (tmp_path / "saved.yaml").write_bytes(base64.b64decode(saved[1]))
    assert list(config.load([tmp_path / "saved.yaml"]).benchmarks) == [name]

    other = {**whole, "spec": {**whole["spec"], "framework": "jax"}}
    other["environment"] = {**whole["environment"], "commit": "ab" * 20, "tree_clean": False}
    paths.append(write_record(tmp_path, other))
    html = page_of(tmp_path, summary.summarize(paths, repeats=1))
    assert f"git checkout {commit}    # {name}: {whole['spec']['framework']}\n" in html
    assert f"git checkout {'ab' * 20}    # {name}: jax\n" in html
    assert f"changes. They concern {'ab' * 20}." in html


def test_the_repository_is_linked_only_if_its_address_is_stated(tmp_path: Path) -> None:
    citation = tmp_path / "CITATION.cff"
    for text, address in (
        ("repository-code: https://example.org/throughline\n", "https://example.org/throughline"),
        ("repository-code: javascript:alert(1)\n", None),
        ("title: Throughline\n", None),
        ("[", None),
    ):
        citation.write_text(text)
        assert run_environment.repository(citation) == address
    assert run_environment.repository(tmp_path / "none") is None
