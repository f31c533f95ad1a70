"""Downloads from a server that misbehaves in every known way end with the right file, or with an error that helps."""

import errno
import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dump_server
from corpus_helpers import same
from dump_server import Server, cut, html, silent, slow, status
from throughline import __version__, files
from throughline.corpus import manifest
from throughline.corpus.source import fetch, published_dumps
from throughline.corpus.source.fetch import Client
from throughline.files import UserError

NAME = "simplewiki-20261101"
SINGLE = "pages-articles-multistream.xml.bz2"
DATA = np.random.default_rng(1).bytes(3_000_000)
OTHER = np.random.default_rng(2).bytes(3_000_000)
FOLDER = "/simplewiki/20261101"
FILE = f"{FOLDER}/{NAME}-{SINGLE}"
CLOSED = "http://127.0.0.1:9"  # nothing listens there


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        running.publish(NAME, {SINGLE: DATA})
        yield running


class Waits(list[float]):
    """A clock that only notes how long it was asked to sleep."""

    def client(self, *, contact: str | None = "me@example.org", **changes: object) -> Client:
        return Client(contact, sleep=self.append, **changes)  # type: ignore[arg-type]


@pytest.fixture
def waits() -> Waits:
    return Waits()


def download(server: Server, folder: Path, client: Client, *mirrors: str, name: str = NAME) -> Path:
    published_dumps.download(name, folder / f"{name}.json", client, mirrors, server.address)
    (path,) = published_dumps.listed(folder / f"{name}.json")
    return path


def is_whole(folder: Path) -> bool:
    """True if the folder has the right dump and its listing, and nothing else."""
    names = sorted(path.name for path in folder.iterdir())
    return names == [f"{NAME}-{SINGLE}", f"{NAME}.json"] and same((folder / names[0]).read_bytes(), DATA)


def test_a_dump_by_name(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA, "pages-articles.xml.bz2": b"x", "stub-articles.xml.gz": b"y"})
    path = download(server, tmp_path, waits.client())
    assert is_whole(tmp_path) and not waits
    assert files.read_json(tmp_path / f"{NAME}.json") == {
        "schema": 1,
        "name": NAME,
        "files": [{"file": path.name, "sha1": hashlib.sha1(DATA).hexdigest(), "size": len(DATA)}],
    }
    agent = f"Throughline/{__version__} (me@example.org)"
    assert {headers["User-Agent"] for _, headers in server.requests} == {agent}
    before = len(server.requests)
    download(server, tmp_path, waits.client())
    assert FILE not in [path for path, _ in server.requests[before:]]  # the file was there, so it was only checked
    for content in (DATA[:-5], None):
        path.write_bytes(content) if content else path.unlink()
        with pytest.raises(UserError, match=r"(?s)is missing, or not the file that was downloaded.*snakemake --force"):
            published_dumps.listed(tmp_path / f"{NAME}.json")


INDEX = "pages-articles-multistream-index.txt.bz2"
PARTS = [f"pages-articles-multistream{n}.xml-p{n}p{n}.bz2" for n in range(1, 11)]
RANGES = [f"pages-articles-multistream1.xml-p{n}p{n}.bz2" for n in (9, 10)]


@pytest.mark.parametrize(
    ("endings", "chosen"),
    [
        ([INDEX, SINGLE, *RANGES], [SINGLE]),
        ([INDEX, "pages-articles1.xml-p1p2.bz2", "pages-articles.xml.bz2"], ["pages-articles.xml.bz2"]),
        ([*PARTS[::-1], "pages-articles.xml.bz2"], PARTS),
        (RANGES[::-1], RANGES),
        ([PARTS[0], PARTS[3]], None),
        ([INDEX, "pages-meta-history1.xml-p1p2.bz2"], None),
        ([f"../../{SINGLE}", f"x/{SINGLE}"], None),  # no name from a server reaches another folder
    ],
)
def test_what_is_chosen(
    server: Server, tmp_path: Path, waits: Waits, endings: Sequence[str], chosen: Sequence[str] | None
) -> None:
    server.publish(NAME, {ending: ending.encode() for ending in endings})
    listing = tmp_path / "dump" / f"{NAME}.json"
    if chosen is None:
        with pytest.raises(UserError, match=f"the dump {NAME} is not complete yet"):
            published_dumps.download(NAME, listing, waits.client(), [], server.address)
        assert not list(tmp_path.rglob("*bz2"))
        return
    published_dumps.download(NAME, listing, waits.client(), [], server.address)
    assert published_dumps.listed(listing) == [listing.with_name(f"{NAME}-{ending}") for ending in chosen]


def test_a_contact_is_asked_for_before_anything_is_sent(server: Server, tmp_path: Path, waits: Waits) -> None:
    with pytest.raises(UserError, match=r"(?s)without a contact.*corpus: \{contact: you@your\.org\}"):
        download(server, tmp_path, waits.client(contact=None))
    assert not server.requests


@pytest.mark.parametrize(
    ("faults", "resumed", "waited", "settings"),
    [
        ([cut(1_200_000), cut(700_000)], [1_200_000, 1_900_000], [1, 2], {}),
        ([cut(2_000_000), cut(1_000_000)], [2_000_000, 1_000_000], [1, 2], {"ranges": False}),
        ([cut(1_050_000)] * 2, [1_050_000, 2_100_000], [1, 1], {"tries": 2}),  # after a mebibyte anew
        ([silent(2.5), slow(0.002)], [], [1], {"timeout_s": 0.6}),
        ([status(429, Retry_After="7"), status(503), status(503, Retry_After="soon")], [], [7, 2, 4], {}),
        ([cut(100), status(416)], [100], [1, 0], {}),
    ],
)
def test_a_server_in_trouble(
    server: Server, tmp_path: Path, waits: Waits, faults: Any, resumed: Any, waited: Any, settings: dict[str, Any]
) -> None:
    server.ranges = settings.get("ranges", True)
    server.misbehave(FILE, *faults)
    download(server, tmp_path, waits.client(**{name: settings[name] for name in settings.keys() - {"ranges"}}))
    asked = [headers["Range"] for headers in server.asked(FILE) if "Range" in headers]
    assert asked == [f"bytes={have}-" for have in resumed]
    assert is_whole(tmp_path) and waits == waited and len(server.asked(FILE)) == len(waited) + 1


def test_a_file_that_changed_is_brought_from_its_beginning(server: Server, tmp_path: Path, waits: Waits) -> None:
    """The digest shows the change, and the file is asked for once more."""
    server.publish(NAME, {SINGLE: OTHER})
    server.misbehave(FILE, cut(1_000_000), status(503))
    part = tmp_path / f"{NAME}-{SINGLE}.part"
    with pytest.raises(UserError, match=rf"(?s)could not be downloaded.*1000000 bytes that came are kept in {part}"):
        download(server, tmp_path, waits.client(tries=2))
    assert same(part.read_bytes(), OTHER[:1_000_000]) and not (tmp_path / f"{NAME}.json").exists()
    server.publish(NAME, {SINGLE: DATA})
    download(server, tmp_path, waits.client())
    assert is_whole(tmp_path)
    assert [headers.get("Range") for headers in server.asked(FILE)[2:]] == ["bytes=1000000-", None]


@pytest.mark.parametrize(("content", "asked"), [(DATA, []), (OTHER, [None]), (DATA + b"x", ["bytes=3000001-", None])])
def test_a_part_that_has_all_bytes(
    server: Server, tmp_path: Path, waits: Waits, content: bytes, asked: list[str | None]
) -> None:
    (tmp_path / f"{NAME}-{SINGLE}.part").write_bytes(content)
    download(server, tmp_path, waits.client())
    assert is_whole(tmp_path) and [headers.get("Range") for headers in server.asked(FILE)] == asked


@pytest.mark.parametrize(
    ("path", "faults", "content", "says", "asked"),
    [
        (FILE, [status(429, Retry_After="90000")], DATA, "it asks to come back in 90000 s", 1),
        (FILE, [cut(10)] * 50, DATA, r"\(5 times\)", 5),
        (FILE, [html], DATA, "a web page instead of the file", 1),
        (f"{FOLDER}/dumpstatus.json", [html], DATA, r"dumpstatus\.json could not be downloaded", 0),
        (FILE, [status(403)], DATA, r"403 Forbidden; it was asked as 'Throughline/.* \(me@example\.org\)'", 1),
        (FILE, [], OTHER, f"it gives a file with sha1:{hashlib.sha1(OTHER).hexdigest()}", 1),
        (FILE, [], DATA[:-1], "has 2999999 bytes, and 3000000 are published", 1),
        (FILE, [dump_server.redirect("")] * 20, DATA, "redirects more than 10 times", 10),
        (FILE, [], DATA + b"x", "has 3000001 bytes, and 3000000 are published", 1),
        (FILE, [status(206)], DATA, "it answers with other bytes", 1),
        (FILE, [status(206, Content_Range="bytes 5-9/3000000")], DATA, "it answers with other bytes", 1),
    ],
)
def test_what_a_server_does_not_give(
    server: Server, tmp_path: Path, waits: Waits, path: str, faults: Any, content: bytes, says: str, asked: int
) -> None:
    server.files[FILE] = content
    server.misbehave(path, *faults)
    with pytest.raises(UserError, match=rf"(?s)could not be downloaded.*{says}|{says}"):
        download(server, tmp_path, waits.client())
    assert len(server.asked(FILE)) == asked and waits == ([1, 2, 4, 8] if asked == 5 else [])
    assert not list(tmp_path.glob("*.bz2")) and not (tmp_path / f"{NAME}.json").exists()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, and its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout {path} -out {path}.crt"
    extension = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *extension], check=True, capture_output=True)
    path.write_text(path.read_text() + path.with_name(f"{path.name}.crt").read_text())
    return path


@pytest.mark.parametrize("file", ["dumpstatus.json", f"{NAME}-{SINGLE}"])
def test_a_redirect_that_leaves_tls_is_refused(
    server: Server, tmp_path: Path, waits: Waits, certificate: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """The client sends nothing without TLS: no contact, and no request whose answer others could change."""
    with Server(certificate) as secure, Server(certificate) as elsewhere:
        for each in (secure, elsewhere):
            each.publish(NAME, {SINGLE: DATA})
        with pytest.raises(UserError, match="its certificate is not valid"):
            download(secure, tmp_path, waits.client())
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        secure.misbehave(f"{FOLDER}/{file}", dump_server.redirect(server.address))
        with pytest.raises(UserError, match=f"it redirects from https to {server.address}{FOLDER}/{file}"):
            download(secure, tmp_path, waits.client())
        assert not server.requests and not waits
        secure.misbehave(f"{FOLDER}/{file}", dump_server.redirect(elsewhere.address))
        download(secure, tmp_path, waits.client())
        assert is_whole(tmp_path) and elsewhere.asked(f"{FOLDER}/{file}")


def test_a_vocabulary_through_the_proxy_of_the_environment(
    server: Server, tmp_path: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the address and the SHA-256 are known; the proxy has a password."""
    url, vocabulary = "http://vocabularies.example/v.txt", b"[PAD]\n" * 100_000
    server.files[url] = vocabulary
    server.misbehave(url, cut(400_000))
    monkeypatch.setenv("http_proxy", server.address.replace("http://", "me:p%40ss@"))
    checksum = f"sha256:{hashlib.sha256(vocabulary).hexdigest().upper()}"
    waits.client(contact=None).file([url], tmp_path / "v.txt", checksum)
    assert same((tmp_path / "v.txt").read_bytes(), vocabulary)
    assert server.asked(url)[1]["Range"] == "bytes=400000-"
    headers = {"User-Agent": f"Throughline/{__version__}", "proxy-authorization": "Basic bWU6cEBzcw=="}  # me:p@ss
    assert headers.items() <= server.asked(url)[0].items()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    download(server, tmp_path, waits.client())
    assert server.asked(FILE)


def test_no_such_dump(server: Server, tmp_path: Path, waits: Waits) -> None:
    """The error names the dates that the hosts list."""
    for dates in ("none", "20250101, 20261101"):
        with pytest.raises(UserError, match=rf"(?s)there is no dump simplewiki-20260601.*there are: {dates}\. Or add"):
            download(server, tmp_path, waits.client(), f"{server.address}/mirror", name="simplewiki-20260601")
        server.list("simplewiki")
        server.files["/mirror/simplewiki/"] = b'<a href="../">../</a><a href="20250101/">20250101/</a>  21-Nov-2026'


def test_a_host_without_a_status(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.files.clear()
    server.publish(NAME, {SINGLE: DATA}, status=False)
    server.misbehave(FILE, cut(1000))
    download(server, tmp_path, waits.client())
    assert is_whole(tmp_path)


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"jobs": []}', b'{"jobs": {"x": {"status": "done", "files": [1]}}}'])
def test_a_status_of_another_form(server: Server, tmp_path: Path, waits: Waits, text: bytes) -> None:
    server.files[f"{FOLDER}/dumpstatus.json"] = text
    with pytest.raises(UserError, match="status of the dump"):
        download(server, tmp_path, waits.client())


def test_a_mirrors_web_page_is_no_status_whatever_its_type(server: Server, tmp_path: Path, waits: Waits) -> None:
    with Server() as mirror:
        mirror.publish(NAME, {SINGLE: DATA})
        mirror.files[f"{FOLDER}/dumpstatus.json"] = b'\n<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "XHTML">\n<html>'
        download(server, tmp_path, waits.client(), f"{mirror.address}/")
        assert is_whole(tmp_path) and mirror.asked(FILE)


def test_mirrors_come_first_and_the_next_one_goes_on(server: Server, tmp_path: Path, waits: Waits) -> None:
    with Server() as mirror:
        mirror.publish(NAME, {SINGLE: DATA})
        mirror.misbehave(FILE, cut(2_000_000), status(404))
        download(server, tmp_path, waits.client(), CLOSED, f"{mirror.address}/")
        assert is_whole(tmp_path)
        assert [headers.get("Range") for headers in mirror.asked(FILE)] == [None, "bytes=2000000-"]
        (last,) = server.asked(FILE)
        assert last["Range"] == "bytes=2000000-"
        assert not server.asked(f"{FOLDER}/dumpstatus.json")
        mirror.files[FILE] = OTHER
        download(server, tmp_path / "again", waits.client(), mirror.address)
        assert is_whole(tmp_path / "again") and len(server.asked(FILE)) == 2


def test_too_small_a_disk_is_told_before_anything_is_brought(
    server: Server, tmp_path: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(free=len(DATA) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with pytest.raises(UserError, match=r"(?s)too little space.*0\.003 GB are still to come, 0\.003 GB are free"):
        download(server, tmp_path, waits.client())
    assert not server.asked(FILE)
    (tmp_path / f"{NAME}-{SINGLE}.part").write_bytes(DATA[:1])  # this byte is there already and needs no more space
    download(server, tmp_path, waits.client())
    assert is_whole(tmp_path)
    free.free = 10  # the size of a file without a status is known when its download begins
    server.files["/vocab.txt"] = DATA
    with pytest.raises(UserError, match="too little space"):
        waits.client().file([f"{server.address}/vocab.txt"], tmp_path / "v.txt", "sha256:0")


def test_a_disk_that_fills_up_meanwhile(
    server: Server, tmp_path: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fetch.Progress.to

    def full(self: fetch.Progress, done: int) -> None:
        if done > 1_000_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, done)

    with monkeypatch.context() as patch:
        patch.setattr(fetch.Progress, "to", full)
        with pytest.raises(UserError, match=r"(?s)could not be written on.*it goes on from there"):
            download(server, tmp_path, waits.client())
    download(server, tmp_path, waits.client())
    assert "Range" in server.asked(FILE)[-1] and is_whole(tmp_path)


def test_two_at_once(server: Server, tmp_path: Path, waits: Waits) -> None:
    part = tmp_path / f"{NAME}-{SINGLE}.part"
    with fetch.locked(part), pytest.raises(UserError, match="is being downloaded by another process"):
        download(server, tmp_path, waits.client())
    download(server, tmp_path, waits.client())


def test_the_newest_complete_dump(server: Server, tmp_path: Path, waits: Waits) -> None:
    """The newest is being written, and the next has no articles."""
    tmp_path /= "dump"
    latest = "simplewiki-latest"
    server.publish("simplewiki-20261115", {"stub-articles.xml.gz": b"y"})
    server.publish("simplewiki-20261201", {SINGLE: OTHER}, done=False)
    server.publish("simplewiki-20260901", {SINGLE: OTHER})
    unlisted = dict(server.files)
    server.list("simplewiki")
    path = download(server, tmp_path, waits.client(), name=latest)
    assert path.name == f"{NAME}-{SINGLE}" and files.read_json(tmp_path / f"{latest}.json")["name"] == NAME
    parameters = {"dump": [latest]}, {"sources": [{"text": ["a.txt"]}, {"dump": [latest]}]}, {"dump": [NAME]}
    dated = [manifest._dated(each, tmp_path.parent / "seq32" / "manifest.json") for each in parameters]
    assert dated == [{"dumps": {latest: NAME}}] * 2 + [{}]
    server.files = unlisted
    with pytest.raises(UserError, match="no host has a complete dump of simplewiki"):
        download(server, tmp_path, waits.client(), name=latest)
