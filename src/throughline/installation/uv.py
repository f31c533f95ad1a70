"""Run uv with pip's settings: `python -m throughline.installation.uv pip install ...`. Standard library only.

uv does not read pip's configuration (pip.conf, PIP_* variables), so we pass pip's indexes, folders of wheels, proxy and
certificates on to uv. If a variable of uv is set, it takes precedence.
"""

import ast
import functools
import os
import shutil
import sys
from pathlib import Path

from throughline.processes import output

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
"""Map each option of pip to the variable of uv."""
SEPARATED_BY = {"UV_FIND_LINKS": ","}


def command(*words: str) -> list[str]:
    """Return a command of uv, with `--no-index` if pip's settings forbid indexes.

    It uses the uv in the folder of this Python or, if there is none, the first one on the path.
    """
    beside = Path(sys.executable).parent
    program = shutil.which("uv", path=os.pathsep.join([str(beside), os.environ.get("PATH", "")])) or str(beside / "uv")
    forbidden = _pip().get("no-index", "0").lower() not in ("0", "false", "no", "off")
    no_index = words[:2] == ("pip", "install") and forbidden
    return [program, *words, *["--no-index"] * no_index]


def variables(target: Path) -> dict[str, str]:
    """Return the environment variables with which uv installs into `target` as pip would."""
    of_pip = _pip()
    handed_on = {
        variable: SEPARATED_BY.get(variable, " ").join(of_pip[option].split())
        for option, variable in FROM_PIP.items()
        if of_pip.get(option)
    }
    # pip takes the best version of all indexes. uv stops at the first index that has the package.
    chosen = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never"}
    # pip compiles all modules to bytecode when it installs them. With uv, Python does that at the first import.
    if sys.dont_write_bytecode:  # Python may not store the bytecode here, so every rank would compile PyTorch again
        chosen["UV_COMPILE_BYTECODE"] = "1"
    return handed_on | chosen | os.environ | {"VIRTUAL_ENV": str(target)}


@functools.cache
def _pip() -> dict[str, str]:
    """Return the settings of `pip install` from its files and variables. Variables take precedence."""
    sections: dict[str, dict[str, str]] = {}
    for line in (output(sys.executable, "-m", "pip", "config", "list") or "").splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        sections.setdefault(section, {})[option.removeprefix("default-")] = str(ast.literal_eval(value))
    return {**sections.get("global", {}), **sections.get("install", {}), **sections.get(":env:", {})}


if __name__ == "__main__":
    words = command(*sys.argv[1:])
    os.execve(words[0], words, variables(Path(sys.prefix)))
