"""A real browser opens the report: with JavaScript it is better, without it is complete, and it loads nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from report_fixture import write_study, write_summaries
from throughline.report.render import page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--enable-logging=stderr",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        reason = f"no browser: none of {', '.join(BROWSERS)} is installed (apt-get install chromium)"
        if os.environ.get("THROUGHLINE_REQUIRE_SYSTEM") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser") / "results"
    summaries = write_summaries(root, write_study(root))
    page.write(root, summaries, [], None, root / "report.html")
    return root / "report.html"


def dump(browser: str, report: Path, profile: Path, *flags: str) -> tuple[str, str]:
    """The document after loading, and what the browser said meanwhile."""
    done = subprocess.run(
        [browser, *FLAGS, *flags, f"--user-data-dir={profile}", "--dump-dom", report.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, done.stderr


def test_with_javascript_tables_sort_and_filter(browser: str, report: Path, tmp_path: Path) -> None:
    dom, said = dump(browser, report, tmp_path)
    assert 'data-enhanced="yes"' in dom
    assert dom.count('<button type="button" title="sort">') >= 9
    assert '<input type="search"' in dom
    assert "Content Security Policy" not in said
    assert "CONSOLE" not in said, said


def test_sorting_and_filtering_do_what_they_say(browser: str, report: Path, tmp_path: Path) -> None:
    """A second script drives the page's own one; the policy is lifted for it in this copy alone."""
    drive = """<script>
      const table = document.querySelector("table.results");
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
      document.body.dataset.result = JSON.stringify({up, down, shown, sort: heading.ariaSort});
    </script></body>"""
    html = re.sub(r"<meta http-equiv[^>]*>", "", report.read_text(encoding="utf-8")).replace("</body>", drive)
    copy = tmp_path / "driven.html"
    copy.write_text(html, encoding="utf-8")
    dom, _ = dump(browser, copy, tmp_path / "profile")
    found = re.search(r'data-result="([^"]*)"', dom)
    assert found
    result = found[1].replace("&quot;", '"')
    assert '"up":"1n1g 1n1g 1n2g 1n2g 1n4g 1n4g 1n8g 1n8g 2n8g 2n8g 4n8g"' in result
    assert '"down":"4n8g 2n8g 2n8g' in result
    assert '"shown":1' in result
    assert '"sort":"descending"' in result


def test_without_javascript_everything_is_there(browser: str, report: Path, tmp_path: Path) -> None:
    settings = tmp_path / "Default/Preferences"
    settings.parent.mkdir()
    settings.write_text('{"profile": {"default_content_setting_values": {"javascript": 2}}}')  # 2: blocked
    dom, _ = dump(browser, report, tmp_path)
    assert "data-enhanced" not in dom
    assert "<button" not in dom
    assert "mxnet-horovod trains bert-base at 11,269 samples/s" in dom
    assert dom.count('<table class="results">') == 3
    assert dom.count('class="plot"') >= 5
    assert "out of memory" in dom


def test_nothing_is_fetched(browser: str, report: Path, tmp_path: Path) -> None:
    """The browser's own record of its requests names the page and nothing else."""
    log = tmp_path / "net.json"
    dump(browser, report, tmp_path / "profile", f"--log-net-log={log}", "--host-resolver-rules=MAP * ~NOTFOUND")
    urls = set(re.findall(r'"url":"([^"]+)"', log.read_text(encoding="utf-8")))
    foreign = {url for url in urls if not url.startswith(("file://", "data:", "chrome", "devtools"))}
    # What the browser asks for on its own account (updates, its new-tab page) is not the page's.
    html = report.read_text(encoding="utf-8")
    assert not [url for url in foreign if url in html]
    assert not re.search(r"https?://", html)
