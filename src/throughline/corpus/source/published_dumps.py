"""Find the files of a published dump from its name and date, and download them.

`enwiki-20261101` is the dump of the wiki `enwiki` of 2026-11-01, at `<host>/enwiki/20261101/`. The file
`dumpstatus.json` there has each job's status, and its files with size and SHA-1. If no host has it, we use the
checksums in `enwiki-20261101-sha1sums.txt`. We trust mirrors: both may come from a mirror.
`enwiki-latest` is the newest complete dump that the hosts list at the time of the download.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from throughline import files
from throughline.files import UserError

if TYPE_CHECKING:
    from throughline.corpus.source.fetch import Client

OFFICIAL = "https://dumps.wikimedia.org"
LATEST = "-latest"
"""The ending of a dump's name in place of a date."""
SCHEMA = 1
_KINDS = ("pages-articles-multistream", "pages-articles")


class NotPublishedError(UserError):
    """The hosts do not have this dump, or not yet all of it."""


@dataclass(frozen=True)
class Published:
    """A file of a dump. `size` is in bytes, None if only the checksum is published."""

    file: str
    sha1: str
    size: int | None


def download(name: str, listing: Path, client: Client, mirrors: Sequence[str] = (), official: str = OFFICIAL) -> None:
    """Download the dump `name` into the folder of `listing`, and write `listing`, the list of its files.

    The listing (JSON: name with its date, files with sha1 and size) does not depend on which host gave the files. Files
    that are already there are checked and kept. UserError, with the answer of every host, if a file cannot be
    downloaded.
    """
    from throughline.corpus.source import fetch

    if client.contact is None:
        raise UserError(
            f"the dump {name} is not downloaded without a contact",
            why="Wikimedia blocks programs that do not say whom to write to",
            next_step="write your e-mail address or web page into config.yaml: corpus: {contact: you@your.org};"
            " or download the dump yourself and set corpus.dump to its path",
        )
    hosts = [host.rstrip("/") for host in (*mirrors, official)]
    if name.endswith(LATEST):
        name, wanted = _latest(name.removesuffix(LATEST), client, hosts)
    else:
        wanted = _wanted(name, client, hosts)
    folder = listing.parent
    missing = [file for file in wanted if not (folder / file.file).exists()]
    arrived = sum(fetch.arrived(folder / f"{file.file}.part") for file in missing)
    fetch.check_space(folder, sum(file.size or 0 for file in missing) - arrived)
    for file in wanted:
        urls = [f"{folder_there}/{file.file}" for folder_there in _folders(name, hosts)]
        client.file(urls, folder / file.file, f"sha1:{file.sha1}", file.size)
    entries = [{"file": file.file, "sha1": file.sha1, "size": (folder / file.file).stat().st_size} for file in wanted]
    files.write_json(listing, {"schema": SCHEMA, "name": name, "files": entries})


def listed(listing: Path) -> list[Path]:
    """Return the files that a listing names; UserError if one is missing beside it, or has another size."""
    paths = []
    for entry in files.read_json(listing)["files"]:
        path = listing.parent / entry["file"]
        size = path.stat().st_size if path.exists() else 0
        if size != entry["size"]:
            raise UserError(
                f"{path} is missing, or not the file that was downloaded",
                why=f"it has {size} bytes, and {listing} says {entry['size']}",
                next_step=f"download it again: {files.snakemake('--force', str(listing))}",
            )
        paths.append(path)
    return paths


def _choose(name: str, published: Sequence[Published]) -> list[Published]:
    """Return the files of a dump to read: the single multistream file, or else all its parts.

    If there is neither, return the single-stream file or its parts.
    """
    by_name = {file.file: file for file in published}
    for kind in _KINDS:
        if whole := by_name.get(f"{name}-{kind}.xml.bz2"):
            return [whole]
        pattern = re.compile(rf"{re.escape(name)}-{kind}(\d+)\.xml(?:-p(\d+)p\d+)?\.bz2")
        matches = filter(None, map(pattern.fullmatch, by_name))
        parts = sorted((int(match[1]), int(match[2] or 0), match[0]) for match in matches)
        if parts and {number for number, _, _ in parts} == set(range(1, parts[-1][0] + 1)):
            return [by_name[file] for _, _, file in parts]
    raise NotPublishedError(
        f"the dump {name} is not complete yet",
        why="a part of its articles, or all of them, is not marked as done",
        next_step="wait until Wikimedia has finished it, or take an older date",
    )


def _latest(wiki: str, client: Client, hosts: Sequence[str]) -> tuple[str, list[Published]]:
    """Return the newest complete dump of a wiki that a host lists, and its files to read."""
    for date in reversed(_dates(wiki, client, hosts)):
        with suppress(NotPublishedError):
            return f"{wiki}-{date}", _wanted(f"{wiki}-{date}", client, hosts)
    raise UserError(
        f"no host has a complete dump of {wiki}",
        why=f"{' and '.join(hosts)} list no date of it, or only dates that are not complete",
        next_step=f"name a date in corpus.dump, such as {wiki}-20261101; or add a mirror to corpus.mirrors; or name "
        "your own copy of its file",
    )


def _wanted(name: str, client: Client, hosts: Sequence[str]) -> list[Published]:
    """Return the files of a dump to read, with what the hosts publish of them."""
    folders = _folders(name, hosts)
    if status := client.text([f"{folder}/dumpstatus.json" for folder in folders]):
        return _choose(name, _done(name, status))
    if sums := client.text([f"{folder}/{name}-sha1sums.txt" for folder in folders]):
        lines = re.findall(r"^([0-9a-fA-F]{40}) [ *]([\w.-]+)\s*$", sums, re.MULTILINE)
        return _choose(name, [Published(file, sha1.lower(), None) for sha1, file in lines])
    wiki = name.rpartition("-")[0]
    raise NotPublishedError(
        f"there is no dump {name}",
        why=f"it is not at {' or '.join(folders)}; Wikimedia removes a dump after some months",
        next_step=f"name another date in corpus.dump (its text differs, so the whole corpus is made again); there are:"
        f" {', '.join(_dates(wiki, client, hosts)) or 'none'}. Or add a mirror that keeps this dump to corpus.mirrors,"
        " or name your own copy of its file",
    )


def _done(name: str, status: str) -> list[Published]:
    """Return the files of finished jobs in a dumpstatus.json that have a checksum and a size."""
    try:
        return [
            Published(file, facts["sha1"].lower(), int(facts["size"]))
            for job in json.loads(status)["jobs"].values()
            if job.get("status") == "done"
            for file, facts in (job.get("files") or {}).items()
            if facts.get("sha1") and facts.get("size")
        ]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(
            f"the status of the dump {name} cannot be read",
            why=f"dumpstatus.json is not of the expected form ({type(error).__name__}: {error})",
            next_step="download the dump yourself and set corpus.dump to its path",
        ) from None


def _dates(wiki: str, client: Client, hosts: Sequence[str]) -> list[str]:
    """Return the dates that the hosts list in their folders of a wiki; none if no host lists any."""
    dates: set[str] = set()
    for host in hosts:
        with suppress(UserError):
            page = client.text([f"{host}/{wiki}/"]) or ""
            dates.update(re.findall(r'href="(?:[^"]*/)?(\d{8})/?"', page))
    return sorted(dates)


def _folders(name: str, hosts: Sequence[str]) -> list[str]:
    """Return the folder of a dump on each host."""
    wiki, date = name.rsplit("-", 1)
    return [f"{host}/{wiki}/{date}" for host in hosts]
