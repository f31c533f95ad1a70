"""Write files atomically, compute their digests, remove secrets from text, and define errors that a user can act on.

Standard library only: ranks import this module in environments where none of our dependencies is installed. Every
process of the workflow starts with this module, so a function imports what only it needs.
"""

import errno
import gc
import json
import os
import pwd
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO


class UserError(Exception):
    """An error that the user can fix. It says what went wrong (and where), why, and what to do next."""

    def __init__(self, what: str, *, why: str | None = None, next_step: str | None = None) -> None:
        self.what, self.why, self.next_step = what, why, next_step
        parts = [what, f"  why:  {why}" if why else "", f"  next: {next_step}" if next_step else ""]
        super().__init__("\n".join(part for part in parts if part))


def command_line(main: Callable[[], int | None], *, single: bool = False) -> NoReturn:
    """Run `main`, print a UserError without its traceback, and exit with the status of `main`.

    Errors of the disk that the user can fix are printed in the same way. Names of machines are removed from the output.

    `single`: the process is short, has one thread and has to start quickly. Its `main` imports what it needs. Numpy's
    linear algebra, of which such a process does none, gets one thread, and there is no garbage collection.
    """
    if single:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        gc.disable()
    streams: list[Any] = [_Scrubbing(sys.stdout), _Scrubbing(sys.stderr)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        try:
            status = main() or 0
        except Exception as error:
            import traceback

            fixable = disk_error(error) if isinstance(error, OSError) else error
            print(f"error: {fixable}" if isinstance(fixable, UserError) else traceback.format_exc(), file=sys.stderr)
            status = 1
    if single:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # the system frees all memory at once; Python would free one object after the other
    sys.exit(status)


def disk_error(error: OSError) -> UserError | None:
    """Return the UserError for an error of the file system, or None if the user cannot do anything about it."""
    named = re.search(r"filename = '([^']*)'", str(error))  # HDF5 has the name in its message only
    path = Path(os.fsdecode(error.filename) if error.filename else named[1] if named else "a file")
    if ".partial" in path.name:
        path = path.parent
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        what, remedy = "written", "make room"
        reason = "the disk is full, or a quota or limit of file sizes is reached; nothing unfinished was left"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        what, remedy = "opened", "correct the rights or the mount"
        reason = "this user may not write (or read) there, or the file system is mounted read-only"
    else:
        return None
    next_step = f"{remedy}, and run snakemake again: it makes only what is missing"
    return UserError(f"{path} could not be {what}: {os.strerror(error.errno)}", why=reason, next_step=next_step)


@contextmanager
def atomic(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[Path]:
    """Yield a temporary path beside `path`. On success, sync the file and rename it to `path`; otherwise remove it.

    The temporary name starts with a dot. It keeps the suffix of `path`, because some writers look at the suffix.
    mode: who may open the file, from its first moment on, less what the process's umask forbids.
    """
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f".{final.stem}.{os.urandom(8).hex()}.partial{final.suffix}")
    temporary.touch(mode, exist_ok=False)
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, final)
        _sync(final.parent)
    except OSError as error:
        error.filename = error.filename or str(final)  # the error of a failed write names no file
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: str | os.PathLike[str], text: str, mode: int = 0o666) -> None:
    """Write `text` as UTF-8, either completely or not at all. mode: see `atomic`."""
    with atomic(path, mode) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | os.PathLike[str], value: Any, mode: int = 0o666) -> None:
    """Write `value` as indented JSON, wholly or not at all. Raise ValueError for NaN and infinity. mode: `atomic`."""
    write_text(path, json_text(value), mode)


def json_text(value: Any) -> str:
    """Return the text that `write_json` writes."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the value in a JSON file. Raise UserError if the file does not exist or is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", next_step=f"make it: {snakemake(str(path))}") from None
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UserError(
            f"{path} is not valid JSON", why=why, next_step="remove the file and run snakemake again"
        ) from None


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the file's SHA-256 as 64 hexadecimal digits. The memory needed does not depend on the file's size."""
    import hashlib

    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest(content: str | bytes) -> str:
    """Return 12 hexadecimal digits that change with the content: the first ones of its SHA-256."""
    import hashlib

    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:12]


def resource(name: str) -> Path:
    """Return the path of a file or folder of resources/: in the clone or, if the package is installed without a clone,
    among the files of the installation."""
    folders = (Path(__file__).parents[2] / "resources", Path(sys.prefix, "share", "throughline"))
    return next((folder / name for folder in folders if (folder / name).exists()), folders[0] / name)


def natural(path: Path) -> list[tuple[str, int]]:
    """Return a sort key that puts `_2` before `_10`."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", str(path))]


def now() -> str:
    """Return the date and time in the form that all files use: `2026-11-20T12:00:00Z`.

    Do not compute durations from it: those come from the monotonic clock.
    """
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


NODES = "THROUGHLINE_NODES"
"""The variable with the names of a run's nodes, in the order of their ranks. Logs and records call them node0, ..."""

# The patterns are strings: `re` compiles and caches each one at the first print, and most processes never print.
_ADDRESS = r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)|(?<![\w.:])[0-9a-fA-F]*(?::[0-9a-fA-F]*){2,7}(?![\w:]*\w)"
_MAC = r"(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])"
_DOMAIN = r"(?:\.(?:home|internal|intern|lan|local|localdomain)\b|(?:\.[A-Za-z][\w-]*){2,})?"
_NAME = r".{3}|[A-Za-z]\d|\d[A-Za-z]"  # `n1` is a name that we mask; `it` or `7` would spoil every text
_HOMES = r"(?<![\w.~-])/(?:home|Users)/[\w.-]+"
_SECRET = r"(?:token|secret|passw(?:or)?d|credentials?|(?:api|access|private|secret)[_-]?key)"
_TOKEN = rf"(?i)({_SECRET}[\"']?\s*)(=\s*[\"']?[^\s\"',;&]+|:\s*[\"']?[^\s\"',;&]{{8,}})"
_KNOWN_TOKEN = (
    r"\b(?:hf_|gh[oprsu]_|github_pat_|glpat-|sk-|xox[abp]-|AKIA|ASIA|eyJ)(?=\D*\d)[\w-]{12,}[\w.-]*"
    r"|(?i:(?<=bearer ))\S{8,}|(?<=://)[^\s/@:]*:[^\s/@]+(?=@)"
)
_SECRET_VARIABLE = rf"(?i).*{_SECRET}\d*|.*_(?:auth|cookie|pat)"


def from_here(path: Path) -> str:
    """Return a path below the working directory without that directory; any other path as it is."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def started_with(files: Iterable[str | Path], config: Mapping[str, Any], snakefile: str | None = None) -> str:
    """Return the words of a Snakemake command that name its Snakefile and its configuration; "" for the usual ones."""
    names = [os.path.relpath(path) for path in files]
    values = [f"{key}={json.dumps(_unnamed({key: value})[key])}" for key, value in config.items()]
    words = ["--snakefile", snakefile] if snakefile else []
    words += [*(["--configfile", *names] if names else []), *(["--config", *values] if values else [])]
    return scrub(" ".join(map(shlex.quote, words)))


def _unnamed(value: Any) -> Any:
    """Return a part of a configuration without the names of hosts and people."""
    if isinstance(value, dict):
        return {key: "..." if key in ("hosts", "contact") else _unnamed(entry) for key, entry in value.items()}
    return value


def snakemake(*words: str) -> str:
    """Return the command that asks this workflow for `words`, with the configuration that this workflow has.

    The configuration comes last, because --configfile takes every word that follows it.
    """
    from throughline import handover

    return " ".join(filter(None, ["snakemake", *map(shlex.quote, words), handover.get("started_with")]))


def scrub(text: str) -> str:
    """Return `text` with names of nodes, addresses, the user's name, home folders and tokens masked.

    The nodes in the variable THROUGHLINE_NODES (`host` or `user@host`) become node0, node1, ... in their order. Without
    this variable, this machine becomes node0. Paths below the working directory become relative to it.
    """
    for pattern, alias in _names():
        text = re.sub(pattern, alias, text)
    text = re.sub(_HOMES, "~", text)
    text = re.sub(_KNOWN_TOKEN, "MASKED", text)
    text = re.sub(_TOKEN, lambda match: f"{match[1]}{match[2][0]}MASKED", text)
    text = re.sub(_ADDRESS, _masked_address, text)
    return re.sub(_MAC, "ADDRESS", text)


def scrubbed(value: Any, but: frozenset[str] = frozenset()) -> Any:
    """Return a JSON value in which every string is scrubbed, except the values of the keys `but`."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {key: entry if key in but else scrubbed(entry, but) for key, entry in value.items()}
    return [scrubbed(entry, but) for entry in value] if isinstance(value, list) else value


def _names() -> list[tuple[str, str]]:
    """Return (pattern, alias) for every name that this process knows of its machine and user, longer names first."""
    folder = os.getcwd()
    homes, users = _owner()
    secrets = {value for name, value in os.environ.items() if len(value) >= 8 and re.fullmatch(_SECRET_VARIABLE, name)}
    patterns = [(re.escape(secret), "MASKED") for secret in sorted(secrets, key=len, reverse=True)]
    if folder != os.sep:
        here = rf"(?<![\w.~-]){re.escape(folder)}"
        patterns += [(rf"{here}/", ""), (rf"{here}(?![\w.-])", ".")]
    patterns += [(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~") for home in sorted(homes, key=len, reverse=True)]
    nodes = [node.rpartition("@") for node in os.environ.get(NODES, "").split()]
    aliases = {node: f"node{number}" for number, (_, _, node) in enumerate(nodes)}
    for node, alias in {os.uname().nodename: "HOST" if nodes else "node0", **aliases}.items():
        for name in dict.fromkeys([node, node.split(".")[0]]):
            if re.search(_NAME, name) and name != "localhost":
                patterns.append((rf"(?<![\w-]){re.escape(name)}{_DOMAIN}(?![\w-])", alias))
    for user in sorted({*users, *(user for user, _, _ in nodes)}, key=len, reverse=True):
        if len(user) > 2 and user != "root":
            patterns.append((rf"(?<![\w-]){re.escape(user)}(?![\w-])", "USER"))
    return patterns


def _owner() -> tuple[set[str], set[str]]:
    """Return the home folders and the names of this process's user."""
    homes, users = {os.environ.get("HOME", "")}, {os.environ.get("LOGNAME", ""), os.environ.get("USER", "")}
    with suppress(KeyError):  # in a container, the user may have no name
        account = pwd.getpwuid(os.getuid())
        homes.add(account.pw_dir)
        users.add(account.pw_name)
    homes |= {os.path.realpath(home) for home in homes if home}
    return {home.rstrip(os.sep) for home in homes if home.startswith(os.sep) and home.strip(os.sep)}, users


def _masked_address(match: re.Match[str]) -> str:
    import ipaddress

    with suppress(ValueError):
        address = ipaddress.ip_address(match[0])
        return match[0] if address.is_loopback or address.is_unspecified else "ADDRESS"
    return match[0]


class _Scrubbing:
    """A stream that scrubs everything that is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(scrub(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
