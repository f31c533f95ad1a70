"""uv with pip's settings: `python -m throughline.launch.uv pip install ...`. Standard library only.

uv does not read pip's configuration (pip.conf, PIP_* variables). A machine behind a mirror or a proxy is set up for
pip, so its indexes, folders of wheels, proxy and certificates are handed on. Variables of uv that are set win.
"""

import ast
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

FROM_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "proxy": "ALL_PROXY",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
}
"""pip's option -> uv's variable."""
SEPARATED_BY = {"UV_FIND_LINKS": ","}


def command(*words: str) -> list[str]:
    """A command of uv: of the one beside this Python, else the first on the path. PIP_NO_INDEX holds for it as well."""
    own = Path(sys.executable).parent
    program = shutil.which("uv", path=os.pathsep.join([str(own), os.environ.get("PATH", "")])) or str(own / "uv")
    forbidden = _pip().get("no-index", "0").lower() not in ("0", "false", "no", "off")
    no_index = words[:2] == ("pip", "install") and forbidden
    return [program, *words, *["--no-index"] * no_index]


def variables(target: Path) -> dict[str, str]:
    """What uv has to find in its environment to install into `target` as pip would."""
    of_pip = _pip()
    handed_on = {
        variable: SEPARATED_BY.get(variable, " ").join(of_pip[option].split())
        for option, variable in FROM_PIP.items()
        if of_pip.get(option)
    }
    # pip takes the best version of all indexes. uv stops at the first that has the package.
    chosen = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never"}
    # pip compiles all modules when it installs them. uv leaves that to the first import, whose results Python keeps.
    if sys.dont_write_bytecode:  # here it may not, so every rank would compile PyTorch again
        chosen["UV_COMPILE_BYTECODE"] = "1"
    if _disk(_cache()) != _disk(target):  # uv links files between its cache and an environment, else it warns
        chosen["UV_LINK_MODE"] = "copy"
    return handed_on | chosen | os.environ | {"VIRTUAL_ENV": str(target)}


@functools.cache
def _pip() -> dict[str, str]:
    """The settings of `pip install`: of its files, then of its variables, which win."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    sections: dict[str, dict[str, str]] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        sections.setdefault(section, {})[option.removeprefix("default-")] = str(ast.literal_eval(value))
    return {**sections.get("global", {}), **sections.get("install", {}), **sections.get(":env:", {})}


def _cache() -> Path:
    """Where uv keeps what it has downloaded."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("UV_CACHE_DIR") or Path(caches, "uv"))


def _disk(folder: Path) -> int:
    return next(place for place in (folder, *folder.absolute().parents) if place.exists()).stat().st_dev


if __name__ == "__main__":
    words = command(*sys.argv[1:])
    os.execve(words[0], words, variables(Path(sys.prefix)))
