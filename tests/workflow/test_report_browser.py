"""A real browser opens the report. It is complete without JavaScript and better with it, and it loads nothing."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from dump_server import Server
from process_helpers import needs
from report_fixture import write_series, write_study, write_summaries
from throughline.files import json_text
from throughline.report.render import page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--enable-logging=stderr",
)  # fmt: skip

TOPOLOGIES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8), (16, 8))


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), "")
    needs(bool(found), f"a browser, such as {BROWSERS[0]} (apt-get install chromium)")
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser") / "results"
    summaries = write_summaries(root, write_study(root))
    place = root / "perf/imported.json"
    place.parent.mkdir()
    place.write_text(json_text({"schema": 3, "name": "perf", "files": [imported_row(devices) for devices in (1, 8)]}))
    page.write(root, summaries, [], None, root / "report.html", [place])
    return root / "report.html"


def imported_row(devices: int) -> dict[str, Any]:
    """Return a row that somebody else has measured, from a log in a deep folder."""
    name = f"perf_a26f150_20210528/bert_base_lamb_pretraining.pyt_bert_pretraining_phase1_fp32_bs32_gpu{devices}.log"
    return {
        "file": name, "status": "ok", "kind": "ngc_pytorch_bert", "framework": "NGC PyTorch", "model": "bert-base",
        "precision": "fp32", "batch_size_per_device": 32, "devices": devices, "value": 127.0858 * devices**1.1,
        "unit": "sequences/s", "rule": "the throughput that the program prints at its end; nothing dropped",
    }  # fmt: skip


def dump(browser: str, address: str, profile: Path, *flags: str) -> tuple[str, str]:
    """Load a page; return the document after loading, and the browser's messages."""
    command = [browser, *FLAGS, *flags, f"--user-data-dir={profile}", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


def unprotected(report: Path) -> str:
    """Return a page without its security policy, so that scripts of tests run in it."""
    return re.sub(r"<meta http-equiv[^>]*>", "", report.read_text(encoding="utf-8"))


def driven(browser: str, report: Path, folder: Path, script: str, *flags: str) -> dict[str, Any]:
    """Return what a script finds that runs in the page after the page's own script."""
    tag = f"<script>document.body.dataset.result = JSON.stringify((() => {{ {script} }})());</script></body>"
    copy = folder / "driven.html"
    copy.write_text(unprotected(report).replace("</body>", tag), encoding="utf-8")
    return dict(result_of(dump(browser, copy.as_uri(), folder / "profile", *flags)[0]))


def result_of(dom: str) -> Any:
    found = re.search(r'<body data-result="([^"]*)"', dom)
    return json.loads(unescape(found[1]))


def test_with_javascript_tables_sort_and_filter(browser: str, report: Path, tmp_path: Path) -> None:
    dom, said = dump(browser, report.as_uri(), tmp_path)
    assert 'data-enhanced="yes"' in dom
    assert dom.count('<button type="button" title="sort">') >= 9
    assert '<input type="search"' in dom
    assert "Content Security Policy" not in said
    assert "CONSOLE" not in said, said


def test_sorting_and_filtering_do_what_they_say(browser: str, report: Path, tmp_path: Path) -> None:
    drive = """
      const table = document.querySelector(".benchmark table.results");
      const heading = [...table.tHead.rows[0].cells].find((cell) => cell.textContent.startsWith("samples/s"));
      const order = () => [...table.tBodies[0].rows].map((row) => row.cells[1].textContent).join(" ");
      heading.querySelector("button").click();
      const up = order();
      heading.querySelector("button").click();
      const down = order();
      const field = document.querySelector(".filter input");
      field.value = "torch 2n8g";
      field.dispatchEvent(new Event("input"));
      const shown = [...document.querySelectorAll("table.results tbody tr")].filter((row) => !row.hidden).length;
      return {up, down, shown, sort: heading.ariaSort};"""
    found = driven(browser, report, tmp_path, drive)
    assert found["up"] == "1n1g 1n1g 1n2g 1n2g 1n4g 1n4g 1n8g 1n8g 2n8g 2n8g 4n8g"
    assert found["down"].startswith("4n8g 2n8g 2n8g") and found["sort"] == "descending"
    assert found["shown"] == 2  # one row of the benchmark's table, and one of the overview


def test_nothing_is_wider_than_a_narrow_window(browser: str, report: Path, tmp_path: Path) -> None:
    """Tables scroll inside their frames. Their words are broken into lines, so that columns stay together."""
    drive = """
      const wide = [...document.querySelectorAll("main *, header *")].filter((one) => !one.closest(".scroll, pre, svg")
        && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80));
      const cells = [...document.querySelectorAll(".words td")].map((one) => one.offsetWidth);
      const names = [...document.querySelectorAll(".results tbody th")].map((one) => one.offsetWidth);
      return {inner: innerWidth, wide, cells: Math.max(...cells), names: Math.min(...names)};"""
    result = driven(browser, report, tmp_path, drive, "--window-size=500,900")
    assert result["inner"] <= 640, "the window is too wide for the page's narrow form"
    assert result["wide"] == []
    assert 0 < result["cells"] < 640
    assert result["names"] >= 112, "a name such as tensorflow is broken in the middle"


@pytest.fixture(scope="module")
def large_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 200 cells: five frameworks, eight topologies, five batches."""
    root = tmp_path_factory.mktemp("large") / "results"
    speeds = {f"{nodes}n{devices}g": [100.0 * nodes * devices] * 2 for nodes, devices in TOPOLOGIES}
    cells = {
        f"bz{batch}_fp32": [
            record
            for name in ("torch", "torch-horovod", "mxnet-horovod", "jax", "tensorflow")
            for record in write_series(root, speeds, framework=name, batch=batch, complete=True)
        ]
        for batch in (16, 32, 64, 96, 128)
    }
    page.write(root, write_summaries(root, cells, 2), [], None, root / "report.html")
    return root / "report.html"


def measured(browser: str, html: str, folder: Path, width: int, script: str) -> dict[str, Any]:
    """Return what a script finds in the document `page` in a frame of `width` pixels.

    A window of the browser itself is at least 500 pixels wide.
    """
    outer = folder / f"frame{width}.html"
    outer.write_text(
        f"""<body><iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{escape(html)}"></iframe><script>
        document.querySelector("iframe").onload = (event) => {{
          const page = event.target.contentDocument, style = event.target.contentWindow.getComputedStyle;
          document.body.dataset.result = JSON.stringify((() => {{ {script} }})());
        }}</script></body>""",
        encoding="utf-8",
    )
    dom, _ = dump(browser, outer.as_uri(), folder / f"profile{width}", "--window-size=1280,900", "--hide-scrollbars")
    return dict(result_of(dom))


def test_a_row_keeps_its_name_in_sight_on_a_phone(browser: str, large_report: Path, tmp_path: Path) -> None:
    """Framework and topology stay at the left edge while the figures of 200 cells scroll past them."""
    script = """
      const left = (one) => one.getBoundingClientRect().left;
      for (const fold of page.querySelectorAll("details")) fold.open = true;
      const names = [...page.querySelectorAll("tbody th[data-row]")].filter((name) => name.offsetWidth);
      for (const box of page.querySelectorAll(".scroll")) box.scrollLeft = box.scrollWidth;
      return {
        width: page.documentElement.scrollWidth,
        texts: names.map((name) => name.innerText.trim() + " " + style(name, "::after").content),
        away: names.filter((name) => Math.abs(left(name) - left(name.closest(".scroll"))) > 2).length,
      };"""
    found = measured(browser, unprotected(large_report), tmp_path, 400, script)
    assert found["width"] <= 400
    assert found["texts"].count('mxnet-horovod "16n8g"') == 5  # in the table of each batch
    assert 'jax "2n8g, fp32, 64"' in found["texts"]
    assert 'bert\nbert-base "tensorflow"' in found["texts"]  # in the overview
    assert found["away"] == 0


def test_on_paper_every_table_fits_and_keeps_its_header(
    browser: str, report: Path, large_report: Path, tmp_path: Path
) -> None:
    """A browser shrinks a page that is wider than the paper, so one wide table would make all text small."""
    script = """
      for (const fold of page.querySelectorAll("details")) fold.open = true;
      const size = (one) => parseFloat(style(one).fontSize);
      const lines = (one) => {
        const range = page.createRange();
        range.selectNodeContents(one);
        return range.getClientRects().length;
      };
      const names = [...page.querySelectorAll(".results tbody th[data-row], .grid tbody th[data-row]")];
      return {
        width: page.documentElement.scrollWidth,
        small: [...page.querySelectorAll("table :is(small, .chip)")].filter(
          (one) => size(one) > size(one.parentElement)).length,
        broken: names.filter((name) => lines(name.lastChild) > 1).length,
        heads: [...new Set([...page.querySelectorAll("thead")].map((head) => style(head).display))],
      };"""
    letter = 739  # pixels between the margins that browsers leave on paper of 8.5 inches
    for number, source in enumerate((report, large_report)):
        html = unprotected(source).replace("@media print", "@media all")
        folder = tmp_path / str(number)
        folder.mkdir()
        found = measured(browser, html, folder, letter, script)
        assert found["width"] <= letter
        assert found["small"] == 0, "text that is meant to be small is larger than the text beside it"
        assert found["broken"] == 0, "the name of a framework is broken into several lines"
        assert found["heads"] == ["table-header-group"], "the header is not repeated on the next page"


def test_without_javascript_everything_is_there(browser: str, report: Path, tmp_path: Path) -> None:
    settings = tmp_path / "Default/Preferences"
    settings.parent.mkdir()
    settings.write_text('{"profile": {"default_content_setting_values": {"javascript": 2}}}')  # 2 means blocked
    dom, _ = dump(browser, report.as_uri(), tmp_path)
    assert "data-enhanced" not in dom
    assert "<button" not in dom
    assert "mxnet-horovod trains bert-base at 11,269 samples/s" in dom
    assert dom.count('<table class="results">') == 1 + 3  # the overview, and one for each batch size and precision
    assert dom.count('class="trace"') == 18 and dom.count('download="bert-') == 3
    assert dom.count('class="plot"') >= 5
    assert "out of memory" in dom


def requested(browser: str, html: str, profile: Path) -> set[str]:
    """Return what a browser requests while it loads a page: files beside the page, by a server, and other addresses, by
    the page's own list."""
    listed = "JSON.stringify(performance.getEntriesByType('resource').map((one) => one.name))"
    tag = f"<script>addEventListener('load', () => {{ document.body.dataset.result = {listed}; }});</script></body>"
    with Server() as server:
        server.files["/page.html"] = html.replace("</body>", tag).encode()
        dom, _ = dump(browser, f"{server.address}/page.html", profile)
        beside = {server.address + path for path, _ in server.requests} - {f"{server.address}/page.html"}
    assert "<title>" in dom
    return {name for name in beside | {*result_of(dom)} if not name.startswith("data:") and "favicon" not in name}


def test_nothing_is_fetched(browser: str, report: Path, tmp_path: Path) -> None:
    """The page fetches nothing from a network and no file beside it, even without the policy that would prevent it."""
    html, far = unprotected(report), "http://127.0.0.1:9/far.js"
    assert requested(browser, html, tmp_path / "alone") == set()
    tags = f'<img src="beside.png"><script src="{far}"></script></body>'
    found = requested(browser, html.replace("</body>", tags), tmp_path / "more")
    assert {name.rpartition("/")[2] for name in found} == {"beside.png", "far.js"} and far in found
