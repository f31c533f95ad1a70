"""uv installs from the places that pip is configured for."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from throughline.installation import uv

INSTALL = [sys.executable, "-m", "throughline.installation.uv", "pip", "install", "--target"]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide this machine's settings of pip and uv."""
    for name in os.environ:
        if name.startswith(("PIP_", "UV_", "SSL_")) or name.upper() in ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    uv._pip.cache_clear()
    yield
    uv._pip.cache_clear()


def wheel(folder: Path) -> None:
    """Write a package `tiny` 1.0."""
    folder.mkdir()
    facts = "tiny-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{facts}/RECORD", f"tiny.py,,\n{facts}/METADATA,,\n{facts}/WHEEL,,\n{facts}/RECORD,,\n")


def test_pips_settings_are_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(
        "[global]\nindex-url = https://one/simple\nextra-index-url = https://two/simple\n https://three/simple\n"
        "proxy = http://proxy:3128\ntrusted-host = one\ncert = /a/cert.pem\n"
        "[install]\nfind-links = /wheels /more\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setenv("PIP_INDEX_URL", "https://four/simple")  # a variable wins over a file
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "99")
    monkeypatch.setenv("SSL_CERT_FILE", "/b/cert.pem")  # a setting of uv itself wins
    variables = uv.variables(tmp_path)
    assert variables["UV_DEFAULT_INDEX"] == "https://four/simple"
    assert variables["UV_INDEX"] == "https://two/simple https://three/simple"
    assert variables["UV_FIND_LINKS"] == "/wheels,/more"
    assert variables["ALL_PROXY"] == "http://proxy:3128"
    assert (variables["UV_INSECURE_HOST"], variables["UV_HTTP_TIMEOUT"]) == ("one", "99")
    assert variables["SSL_CERT_FILE"] == "/b/cert.pem"
    assert (variables["UV_INDEX_STRATEGY"], variables["UV_PYTHON_DOWNLOADS"]) == ("unsafe-best-match", "never")
    for forbidden in (True, False):  # where Python may not keep compiled modules, uv does
        monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
        assert ("UV_COMPILE_BYTECODE" in uv.variables(tmp_path)) == forbidden


@pytest.mark.slow
def test_a_package_comes_from_where_pip_is_told_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path / "wheels")
    command = [*INSTALL, str(tmp_path / "there"), "tiny"]
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    lost = subprocess.run(command, capture_output=True, text=True, check=False)
    assert lost.returncode != 0 and "tiny was not found" in lost.stderr
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "there/tiny.py").is_file()
