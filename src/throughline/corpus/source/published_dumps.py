"""Find the files of a published dump from its name and date, and download them.

`enwiki-20261101` is the dump of the wiki `enwiki` of 2026-11-01, at `<host>/enwiki/20261101/`. Two files there must
agree: `dumpstatus.json` (for each job, whether it is done, and its files with size and SHA-1) and
`enwiki-20261101-sha1sums.txt`. If no host has the first, we use the second alone. We trust mirrors: the checksums may
come from a mirror too. `enwiki-latest` is the newest complete dump that the hosts list. Its date is written down when
it is found, and from then on that dump is meant. If the corpus was removed, its finished runs still say which it was.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from throughline import files
from throughline.corpus.source import unfinished_download
from throughline.corpus.source.fetch import Client, Digest
from throughline.files import UserError
from throughline.study.corpus_section import LATEST

OFFICIAL = "https://dumps.wikimedia.org"
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


def download(
    name: str,
    listing: Path,
    client: Client,
    mirrors: Sequence[str] = (),
    official: str = OFFICIAL,
    measured: Sequence[str] = (),
) -> None:
    """Download the dump `name` into the folder of `listing`, and write `listing`, the list of its files.

    The listing (JSON: name with its date, files with sha1 and size) does not depend on which host gave the files. Files
    that are already there are checked and kept. measured: the dumps that finished runs have read under a name without a
    date, newest first; only these are meant then. UserError, with the reason of every host, if a file cannot be
    downloaded.
    """
    if client.contact is None:
        raise UserError(
            f"the dump {name} is not downloaded without a contact",
            why="Wikimedia blocks programs that do not say whom to write to",
            next_step="write your e-mail address or web page into config.yaml: corpus: {contact: you@your.org};"
            " or download the dump yourself and set corpus.dump to its path",
        )
    hosts = [host.rstrip("/") for host in (*mirrors, official)]
    if name.endswith(LATEST):
        name = _found(name, listing.with_suffix(".date"), client, hosts, measured)
    bases = _folders(name, hosts)
    wanted = choose(name, files_of(name, client, bases))
    folder = listing.parent
    missing = [file for file in wanted if not (folder / file.file).exists()]
    arrived = sum(unfinished_download.arrived(folder / f"{file.file}.part") for file in missing)
    client.room(folder, max(0, sum(file.size or 0 for file in missing) - arrived))
    for file in wanted:
        urls = [f"{base}/{file.file}" for base in bases]
        client.file(urls, folder / file.file, Digest("sha1", file.sha1), file.size)
    entries = [{"file": file.file, "sha1": file.sha1, "size": (folder / file.file).stat().st_size} for file in wanted]
    files.write_json(listing, {"schema": SCHEMA, "name": name, "files": entries})


def _folders(name: str, hosts: Sequence[str]) -> list[str]:
    """Return the folder of a dump on each host."""
    wiki, date = name.rsplit("-", 1)
    return [f"{host}/{wiki}/{date}" for host in hosts]


def _found(name: str, note: Path, client: Client, hosts: Sequence[str], measured: Sequence[str]) -> str:
    """Return the dump with its date for a name such as `enwiki-latest`, and write it into `note`.

    If `note` names a dump already, this dump is meant as long as a host has it. So a download that stopped is continued
    although a newer dump came out. Otherwise it is the newest complete one that a host lists. If finished runs have
    read `measured` dumps under this name, it is one of these. UserError if there is none, or if no host can be reached.
    """
    wiki = name.removesuffix(LATEST)
    wikis = [f"{host}/{wiki}/" for host in hosts]
    known = [note.read_text(encoding="utf-8").strip()] if note.exists() else []
    there = [f"{wiki}-{date}" for date in reversed(dates(client, wikis))]
    faults = []
    for dump in measured or dict.fromkeys([*known, *there]):
        try:
            choose(dump, files_of(dump, client, _folders(dump, hosts)))
        except NotPublishedError as error:
            faults.append(error.what)
            continue
        files.write_text(note, f"{dump}\n")
        return dump
    if measured:
        newest = f", such as {there[0]}" if there else ""
        raise UserError(
            f"finished runs have read {measured[0]} as {name}, and no host has it any more",
            why="on a newer dump, new runs and these would not be comparable",
            next_step=f"write a dump with its date into corpus.dump{newest}, which measures every run on it; or remove "
            "these runs; or name your own copy of the file of this dump",
        )
    raise UserError(
        f"no host has a complete dump of {wiki}",
        why="; ".join(faults) or f"no dates are listed at {' or '.join(wikis)}",
        next_step=f"name a date in corpus.dump, such as {wiki}-20261101; or add a mirror to corpus.mirrors; or name "
        "your own copy of its file",
    )


def resolved(parameters: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Map each dump without a date in a manifest's parameters to the dump that was downloaded into `folder`."""
    sources = parameters.get("sources", [parameters])
    names = [name for source in sources for name in source.get("dump", []) if name.endswith(LATEST)]
    return {name: files.read_json(folder / f"{name}.json")["name"] for name in names}


def listed(listing: Path) -> list[Path]:
    """Return the files that a listing names; UserError if one is missing beside it, or has another size."""
    content = files.read_json(listing)
    paths = []
    for entry in content["files"]:
        path = listing.parent / entry["file"]
        size = path.stat().st_size if path.exists() else None
        if size != entry["size"]:
            raise UserError(
                f"{path} is {'missing' if size is None else 'not the file that was downloaded'}",
                why=f"{listing} says that it has {entry['size']} bytes{'' if size is None else f', and it has {size}'}",
                next_step=f"download it again: {files.snakemake('--force', str(listing))}",
            )
        paths.append(path)
    return paths


def files_of(name: str, client: Client, bases: Sequence[str]) -> list[Published]:
    """Return the finished files of a dump, with the checksums that the hosts publish."""
    summed = client.text([f"{base}/{name}-sha1sums.txt" for base in bases])
    described = client.text([f"{base}/dumpstatus.json" for base in bases])
    if summed is None and described is None:
        wiki = name.rsplit("-", 1)[0]
        listed_dates = dates(client, [f"{base.rpartition('/')[0]}/" for base in bases])
        other = f"available dates of {wiki}: {', '.join(listed_dates)}; " if listed_dates else ""
        choice = f", such as {wiki}-{listed_dates[-1]}" if listed_dates else f": {OFFICIAL}/{wiki}/ lists the dates"
        reason = f"neither its checksums nor its status is at {' or '.join(bases)}"
        raise NotPublishedError(
            f"there is no dump {name}",
            why=f"{other}{reason}; Wikimedia removes a dump after some months",
            next_step=f"name another date in corpus.dump{choice} (its text differs, so the whole corpus is made again);"
            " or add a mirror that keeps this one to corpus.mirrors; or name your own copy of its file",
        )
    lines = (re.fullmatch(r"([0-9a-fA-F]{40}) [ *]([\w.-]+)", line.rstrip()) for line in (summed or "").splitlines())
    sums = {match[2]: match[1].lower() for match in lines if match}
    if described is None:
        return [Published(file, sha1, None) for file, sha1 in sums.items()]
    status = _status(described, name)
    for file in status:
        if sums.get(file.file, file.sha1) != file.sha1:
            raise UserError(
                f"the two published checksums of {file.file} differ",
                why="dumpstatus.json and sha1sums.txt are not of the same moment: the dump is being written again",
                next_step="wait for a day, or take an older date",
            )
    return status


def dates(client: Client, wikis: Sequence[str]) -> list[str]:
    """Return the dates that the hosts list in their folders of a wiki; none if no host lists any."""
    found: set[str] = set()
    for wiki in wikis:
        with suppress(UserError):
            page = client.text([wiki], page=True) or ""
            found.update(re.findall(r'href="(?:[^"]*/)?(\d{8})/?"', page))
    return sorted(found)


def choose(name: str, published: Sequence[Published]) -> list[Published]:
    """Return the files of a dump to read: the single multistream file if there is one, otherwise its parts.

    If there is neither, return the single-stream file or its parts.
    """
    by_name = {file.file: file for file in published}
    for kind in _KINDS:
        if whole := by_name.get(f"{name}-{kind}.xml.bz2"):
            return [whole]
        pattern = re.compile(rf"{re.escape(name)}-{kind}(\d+)\.xml(?:-p(\d+)p\d+)?\.bz2")
        matches = filter(None, map(pattern.fullmatch, by_name))
        parts = sorted((int(match[1]), int(match[2] or 0), match[0]) for match in matches)
        if parts:
            if lacking := sorted(set(range(1, parts[-1][0] + 1)) - {number for number, _, _ in parts}):
                raise NotPublishedError(
                    f"the dump {name} is not complete yet",
                    why=f"of its {parts[-1][0]} parts, {', '.join(map(str, lacking))} are missing",
                    next_step="wait until Wikimedia has finished it, or take an older date",
                )
            return [by_name[file] for _, _, file in parts]
    raise NotPublishedError(
        f"the dump {name} has no articles yet",
        why="no pages-articles file of it is marked as done",
        next_step="wait until Wikimedia has finished it, or take an older date",
    )


def _status(text: str, name: str) -> list[Published]:
    """Return the files of finished jobs in a dumpstatus.json that have a checksum, a size and a name of this dump."""
    try:
        done = [job for job in json.loads(text)["jobs"].values() if job.get("status") == "done"]
        return [
            Published(file, facts["sha1"].lower(), int(facts["size"]))
            for job in done
            for file, facts in (job.get("files") or {}).items()
            if re.fullmatch(rf"{re.escape(name)}-[\w.-]+", file)
            and re.fullmatch(r"[0-9a-fA-F]{40}", facts.get("sha1") or "")
            and facts.get("size")
        ]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(
            f"the status of the dump {name} cannot be read",
            why=f"dumpstatus.json is not of the known form ({type(error).__name__}: {error})",
            next_step="download the dump yourself and set corpus.dump to its path",
        ) from None
