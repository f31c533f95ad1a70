"""Downloads from a server that misbehaves in every known way end with the right file, or with an error that helps."""

from __future__ import annotations

import errno
import hashlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from pathlib import Path

import numpy as np
import pytest

import dump_server
from corpus_helpers import same
from dump_server import Server, cut, html, silent, slow, status
from report_fixture import record, spec, write_record
from throughline import __version__, files
from throughline.corpus.source import fetch, published_dumps, unfinished_download
from throughline.corpus.source.fetch import Client, Digest
from throughline.corpus.source.published_dumps import Published
from throughline.files import UserError
from throughline.records import RunRecord
from throughline.records.glance import dumps_read

NAME = "simplewiki-20261101"
SINGLE = "pages-articles-multistream.xml.bz2"
DATA = np.random.default_rng(1).bytes(3_000_000)
OTHER = np.random.default_rng(2).bytes(3_000_000)
FILE = f"/simplewiki/20261101/{NAME}-{SINGLE}"
CLOSED = "http://127.0.0.1:9"  # nothing listens there


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
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


def only_the_file(folder: Path) -> bool:
    return sorted(path.name for path in folder.iterdir()) == [f"{NAME}-{SINGLE}", f"{NAME}.json"]


def test_a_dump_by_name(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA, "pages-articles.xml.bz2": b"x", "stub-articles.xml.gz": b"y"})
    path = download(server, tmp_path, waits.client())
    assert same(path.read_bytes(), DATA) and only_the_file(tmp_path) and not waits
    assert files.read_json(tmp_path / f"{NAME}.json") == {
        "schema": 1,
        "name": NAME,
        "files": [{"file": path.name, "sha1": hashlib.sha1(DATA).hexdigest(), "size": len(DATA)}],
    }
    assert all(
        headers["User-Agent"].startswith("Throughline/") and "(me@example.org)" in headers["User-Agent"]
        for _, headers in server.requests
    )
    before = len(server.requests)
    download(server, tmp_path, waits.client())
    assert FILE not in [path for path, _ in server.requests[before:]]  # the file was there, so it was only checked


def test_parts_when_there_is_no_single_file(server: Server, tmp_path: Path, waits: Waits) -> None:
    names = [f"pages-articles-multistream{n}.bz2" for n in ("10.xml-p9p10", "2.xml-p3p4", "1.xml-p1p2")]
    names += [f"pages-articles-multistream{n}.xml-p5p6.bz2" for n in range(3, 10)]
    server.publish(NAME, {name: name.encode() for name in names} | {"pages-articles.xml.bz2": b"x"})
    listing = tmp_path / f"{NAME}.json"
    published_dumps.download(NAME, listing, waits.client(), [], server.address)
    numbers = [path.name.split("multistream")[1].split(".")[0] for path in published_dumps.listed(listing)]
    assert numbers == [str(n) for n in range(1, 11)]


def test_what_is_chosen() -> None:
    def chosen(*endings: str) -> list[str]:
        found = published_dumps.choose(NAME, [Published(f"{NAME}-{ending}", "0" * 40, 1) for ending in endings])
        return [file.file.removeprefix(f"{NAME}-") for file in found]

    index = "pages-articles-multistream-index.txt.bz2"
    assert chosen(index, SINGLE, "pages-articles-multistream1.xml-p1p2.bz2") == [SINGLE]
    assert chosen(index, "pages-articles1.xml-p1p2.bz2", "pages-articles.xml.bz2") == ["pages-articles.xml.bz2"]
    ranges = [f"pages-articles-multistream1.xml-p{n}p{n}.bz2" for n in (10, 9)]
    assert chosen(*ranges) == ranges[::-1]
    with pytest.raises(UserError, match="is not complete yet") as caught:
        chosen("pages-articles-multistream1.xml-p1p2.bz2", "pages-articles-multistream4.xml-p5p6.bz2")
    assert "2, 3 are missing" in str(caught.value)
    with pytest.raises(UserError, match="has no articles yet"):
        chosen(index, "pages-meta-history1.xml-p1p2.bz2")


def test_a_contact_is_asked_for_before_anything_is_sent(server: Server, tmp_path: Path, waits: Waits) -> None:
    with pytest.raises(UserError, match="without a contact") as caught:
        download(server, tmp_path, waits.client(contact=None))
    assert "corpus: {contact: you@your.org}" in str(caught.value) and not server.requests
    with pytest.raises(UserError, match="printable ASCII"):
        Client("me\r\nX-Evil: 1")


def test_a_server_that_wants_a_contact(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA})
    for path in server.files:
        server.misbehave(path, dump_server.wanting_contact, dump_server.wanting_contact)
    with pytest.raises(UserError) as caught:
        download(server, tmp_path, waits.client(contact="nobody"))
    assert "403" in str(caught.value) and "(nobody)" in str(caught.value) and not waits
    download(server, tmp_path, waits.client())
    assert only_the_file(tmp_path)


@pytest.mark.parametrize("tags", [True, False])
def test_a_cut_connection_is_resumed(server: Server, tmp_path: Path, waits: Waits, tags: bool) -> None:
    server.tags = tags
    server.publish(NAME, {SINGLE: DATA})
    server.misbehave(FILE, cut(1_200_000), cut(700_000))
    assert same(download(server, tmp_path, waits.client()).read_bytes(), DATA)
    first, second, third = server.asked(FILE)
    assert "Range" not in first
    assert (second["Range"], third["Range"]) == ("bytes=1200000-", "bytes=1900000-")
    date = formatdate(server.modified, usegmt=True)
    assert second["If-Range"] == third["If-Range"] == (f'"{hashlib.md5(DATA).hexdigest()}"' if tags else date)
    assert waits == [1.0, 2.0] and only_the_file(tmp_path)


def test_another_call_goes_on_where_the_first_stopped(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA})
    server.misbehave(FILE, cut(1_000_000), status(503), status(503))
    with pytest.raises(UserError, match="could not be downloaded") as caught:
        download(server, tmp_path, waits.client(tries=3))
    part = tmp_path / f"{NAME}-{SINGLE}.part"
    assert same(part.read_bytes(), DATA[:1_000_000]) and f"1000000 bytes that came are kept in {part}" in str(
        caught.value
    )
    assert not (tmp_path / f"{NAME}-{SINGLE}").exists() and not (tmp_path / f"{NAME}.json").exists()
    download(server, tmp_path, waits.client())
    assert server.asked(FILE)[-1]["Range"] == "bytes=1000000-" and only_the_file(tmp_path)


@pytest.mark.parametrize("tags", [True, False])
def test_a_file_that_changed_is_brought_from_its_beginning(
    server: Server, tmp_path: Path, waits: Waits, tags: bool
) -> None:
    server.tags = tags
    server.publish(NAME, {SINGLE: DATA})
    server.misbehave(FILE, cut(1_000_000), status(503))
    with pytest.raises(UserError):
        download(server, tmp_path, waits.client(tries=2))
    server.publish(NAME, {SINGLE: OTHER})
    server.modified += 60
    assert same(download(server, tmp_path, waits.client()).read_bytes(), OTHER)
    assert len(server.asked(FILE)) == 3 and only_the_file(tmp_path)


def test_a_file_that_changed_unnoticed_is_brought_once_more(server: Server, tmp_path: Path, waits: Waits) -> None:
    """ETag and date do not show the change, but the digest does."""
    server.publish(NAME, {SINGLE: DATA})
    server.tags = False
    server.misbehave(FILE, cut(1_000_000), status(503))
    with pytest.raises(UserError):
        download(server, tmp_path, waits.client(tries=2))
    server.publish(NAME, {SINGLE: OTHER})
    assert same(download(server, tmp_path, waits.client()).read_bytes(), OTHER)
    assert "Range" in server.asked(FILE)[-2] and "Range" not in server.asked(FILE)[-1]


def test_a_server_without_ranges(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.ranges = False
    server.publish(NAME, {SINGLE: DATA})
    server.misbehave(FILE, cut(2_000_000), cut(1_000_000))
    assert same(download(server, tmp_path, waits.client()).read_bytes(), DATA)


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_honoured(server: Server, tmp_path: Path, waits: Waits, code: int) -> None:
    folder = server.publish(NAME, {SINGLE: DATA})
    later = formatdate(time.time() + 40, usegmt=True)
    server.misbehave(f"{folder}/dumpstatus.json", status(code, Retry_After="17"))
    server.misbehave(FILE, status(code, Retry_After="7"), status(code, Retry_After=later), status(code))
    download(server, tmp_path, waits.client())
    assert waits[:2] == [17, 7] and 30 < waits[2] <= 40 and waits[3] == 4


def test_a_wait_that_is_too_long_is_not_waited_for(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA})
    server.misbehave(FILE, status(429, Retry_After="90000"))
    with pytest.raises(UserError, match="could not be downloaded") as caught:
        download(server, tmp_path, waits.client())
    assert "it asks to come back in 90000 s" in str(caught.value) and not waits


def test_tries_are_bounded(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA})
    server.misbehave(FILE, *[cut(10)] * 50)
    with pytest.raises(UserError, match="could not be downloaded") as caught:
        download(server, tmp_path, waits.client())
    assert len(server.asked(FILE)) == 5 and waits == [1, 2, 4, 8]
    assert "(5 times)" in str(caught.value)


def test_progress_starts_the_count_again(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA * 3})
    server.misbehave(FILE, *[cut(1_100_000)] * 7)
    download(server, tmp_path, waits.client(tries=2))
    assert only_the_file(tmp_path) and waits == [1.0] * 7


def test_a_page_instead_of_the_file(server: Server, tmp_path: Path, waits: Waits) -> None:
    folder = server.publish(NAME, {SINGLE: DATA})
    server.misbehave(FILE, html)
    with pytest.raises(UserError) as caught:
        download(server, tmp_path, waits.client())
    assert "a web page instead of the file" in str(caught.value) and not waits
    assert not list(tmp_path.glob("*.part"))
    server.misbehave(f"{folder}/{NAME}-sha1sums.txt", html)
    with pytest.raises(UserError, match=r"sha1sums\.txt could not be downloaded"):
        download(server, tmp_path, waits.client())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, and its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout {path} -out {path}.crt"
    extension = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *extension], check=True, capture_output=True)
    path.write_text(path.read_text() + path.with_name(f"{path.name}.crt").read_text())
    return path


@pytest.mark.parametrize("file", [f"{NAME}-sha1sums.txt", "dumpstatus.json", f"{NAME}-{SINGLE}"])
def test_a_redirect_that_leaves_tls_is_refused(
    server: Server, tmp_path: Path, waits: Waits, certificate: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """The client sends nothing without TLS: no contact, and no request whose answer others could change."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with Server(certificate) as secure, Server(certificate) as elsewhere:
        for each in (server, secure, elsewhere):
            folder = each.publish(NAME, {SINGLE: DATA})
        secure.misbehave(f"{folder}/{file}", dump_server.redirect(server.address))
        with pytest.raises(UserError, match="could not be downloaded") as caught:
            download(secure, tmp_path, waits.client())
        assert f"it redirects from https to {server.address}{folder}/{file}" in str(caught.value)
        assert not server.requests and not waits
        secure.misbehave(f"{folder}/{file}", dump_server.redirect(elsewhere.address))
        assert same(download(secure, tmp_path, waits.client()).read_bytes(), DATA)
        assert elsewhere.asked(f"{folder}/{file}")


def test_a_wrong_checksum(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA})
    server.files[FILE] = OTHER
    with pytest.raises(UserError) as caught:
        download(server, tmp_path, waits.client())
    assert f"its sha1 is {hashlib.sha1(OTHER).hexdigest()}" in str(caught.value)
    assert len(server.asked(FILE)) == 1 and not list(tmp_path.glob("*bz2*"))


def test_another_size_than_published(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA})
    server.files[FILE] = DATA[:-1]
    with pytest.raises(UserError, match="could not be downloaded") as caught:
        download(server, tmp_path, waits.client())
    assert "has 2999999 bytes, and 3000000 are published" in str(caught.value)


def test_a_slow_and_a_silent_server(
    server: Server, tmp_path: Path, waits: Waits, capsys: pytest.CaptureFixture[str]
) -> None:
    server.publish(NAME, {SINGLE: DATA})
    server.misbehave(FILE, silent(2.5), slow(0.002))
    download(server, tmp_path, waits.client(timeout_s=0.6))
    assert only_the_file(tmp_path) and waits[0] == 1.0
    assert "no answer in time; next try in 1 s" in capsys.readouterr().err


def test_no_such_dump(server: Server, tmp_path: Path, waits: Waits) -> None:
    with pytest.raises(UserError, match=f"there is no dump {NAME}") as caught:
        download(server, tmp_path, waits.client())
    assert "name another date in corpus.dump: https://dumps.wikimedia.org/simplewiki/" in str(caught.value)


def test_a_date_that_is_gone_is_answered_with_those_there_are(server: Server, tmp_path: Path, waits: Waits) -> None:
    for host, dates in (("", ("20261020", "20261101", "latest")), ("/mirror", ("20250101",))):
        links = "".join(f'<a href="{date}/">{date}/</a>  21-Nov-2026 01:02  -\n' for date in dates)
        server.files[f"{host}/simplewiki/"] = f'<html><a href="../">../</a>\n{links}</html>'.encode()
    with pytest.raises(UserError, match="there is no dump simplewiki-20260601") as caught:
        download(server, tmp_path, waits.client(), f"{server.address}/mirror", name="simplewiki-20260601")
    assert "available dates of simplewiki: 20250101, 20261020, 20261101;" in str(caught.value)
    assert "such as simplewiki-20261101 (its text differs" in str(caught.value)
    assert "corpus.mirrors" in str(caught.value)


def test_a_dump_that_is_not_finished(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA}, done=False)
    with pytest.raises(UserError, match="has no articles yet"):
        download(server, tmp_path, waits.client())


def test_checksums_that_disagree(server: Server, tmp_path: Path, waits: Waits) -> None:
    folder = server.publish(NAME, {SINGLE: DATA})
    server.files[f"{folder}/{NAME}-sha1sums.txt"] = f"{'0' * 40}  {NAME}-{SINGLE}\n".encode()
    with pytest.raises(UserError, match="two published checksums"):
        download(server, tmp_path, waits.client())


def test_a_host_without_a_status(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA}, status=False)
    assert same(download(server, tmp_path, waits.client()).read_bytes(), DATA)


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"jobs": []}', b'{"jobs": {"x": {"status": "done", "files": [1]}}}'])
def test_a_status_of_another_form(server: Server, tmp_path: Path, waits: Waits, text: bytes) -> None:
    folder = server.publish(NAME, {SINGLE: DATA})
    server.files[f"{folder}/dumpstatus.json"] = text
    with pytest.raises(UserError, match="status of the dump"):
        download(server, tmp_path, waits.client())


def test_names_from_the_server_reach_no_other_folder(server: Server, tmp_path: Path, waits: Waits) -> None:
    folder = server.publish(NAME, {f"../../{SINGLE}": DATA, f"x/{SINGLE}": DATA})
    with pytest.raises(UserError, match="has no articles yet"):
        download(server, tmp_path, waits.client())
    assert folder and not list(tmp_path.rglob("*bz2*"))


def test_mirrors_come_first_and_the_next_one_goes_on(server: Server, tmp_path: Path, waits: Waits) -> None:
    with Server() as mirror:
        for each in (server, mirror):
            each.publish(NAME, {SINGLE: DATA})
        mirror.misbehave(FILE, cut(2_000_000), status(404))
        path = download(server, tmp_path, waits.client(), CLOSED, f"{mirror.address}/")
        assert same(path.read_bytes(), DATA)
        assert [headers.get("Range") for headers in mirror.asked(FILE)] == [None, "bytes=2000000-"]
        (last,) = server.asked(FILE)
        assert last["Range"] == "bytes=2000000-" and "If-Range" not in last
        assert not server.asked(f"/simplewiki/20261101/{NAME}-sha1sums.txt")


def test_a_mirror_with_another_file(server: Server, tmp_path: Path, waits: Waits) -> None:
    with Server() as mirror:
        server.publish(NAME, {SINGLE: DATA})
        mirror.publish(NAME, {SINGLE: DATA})
        mirror.files[FILE] = OTHER
        assert same(download(server, tmp_path, waits.client(), mirror.address).read_bytes(), DATA)


def test_too_small_a_disk_is_told_before_anything_is_brought(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA})
    with pytest.raises(UserError, match="too little space") as caught:
        download(server, tmp_path, waits.client(free=lambda _: len(DATA) - 1))
    assert "0.003 GB are still to come, 0.003 GB are free" in str(caught.value) and not server.asked(FILE)
    part = tmp_path / f"{NAME}-{SINGLE}.part"
    part.write_bytes(DATA[:100])  # these bytes are there already and need no more space
    download(server, tmp_path, waits.client(free=lambda _: len(DATA) - 100))
    assert only_the_file(tmp_path)


def test_a_disk_that_fills_up_meanwhile(
    server: Server, tmp_path: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.publish(NAME, {SINGLE: DATA})
    real = fetch.Progress.to

    def full(self: fetch.Progress, done: int) -> None:
        if done > 1_000_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, done)

    with monkeypatch.context() as patch:
        patch.setattr(fetch.Progress, "to", full)
        with pytest.raises(UserError, match="could not be written on") as caught:
            download(server, tmp_path, waits.client())
    assert "it goes on from there" in str(caught.value)
    download(server, tmp_path, waits.client())
    assert "Range" in server.asked(FILE)[-1] and only_the_file(tmp_path)


def test_two_at_once(server: Server, tmp_path: Path, waits: Waits) -> None:
    part = tmp_path / f"{NAME}-{SINGLE}.part"
    server.publish(NAME, {SINGLE: DATA})
    with unfinished_download.alone(part), pytest.raises(UserError, match="is being downloaded by another process"):
        download(server, tmp_path, waits.client())
    download(server, tmp_path, waits.client())


def test_a_listed_file_that_is_gone_or_changed(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, {SINGLE: DATA})
    path = download(server, tmp_path, waits.client())
    path.write_bytes(DATA[:-5])
    with pytest.raises(UserError, match="not the file that was downloaded") as caught:
        published_dumps.listed(tmp_path / f"{NAME}.json")
    assert "snakemake --force" in str(caught.value)
    path.unlink()
    with pytest.raises(UserError, match="is missing"):
        published_dumps.listed(tmp_path / f"{NAME}.json")


def test_a_file_of_unknown_size(server: Server, tmp_path: Path, waits: Waits) -> None:
    """Only the address and the SHA-256 are known, as for a vocabulary."""
    server.files["/vocab.txt"] = b"[PAD]\n" * 100_000
    digest = Digest("sha256", hashlib.sha256(server.files["/vocab.txt"]).hexdigest().upper())
    server.misbehave("/vocab.txt", cut(400_000))
    Waits().client(contact=None).file([f"{server.address}/vocab.txt"], tmp_path / "v.txt", digest)
    assert same((tmp_path / "v.txt").read_bytes(), server.files["/vocab.txt"])
    assert server.asked("/vocab.txt")[0]["User-Agent"] == f"Throughline/{__version__}"


def test_the_time_left_is_that_of_what_is_still_to_come() -> None:
    progress = fetch.Progress("downloading x", 1000, done=900)
    progress.done = 950
    assert progress.line(10) == "downloading x: 950 B of 1.0 kB (95%), about 10 s left"


LATEST = "simplewiki-latest"
ALL = {SINGLE: DATA[:2_000_000]}


def listing(server: Server, folder: Path, client: Client, measured: Sequence[str] = ()) -> str:
    """Download the newest dump, or a measured one; return the name of the dump that the listing has."""
    server.list("simplewiki")
    path = folder / f"{LATEST}.json"
    published_dumps.download(LATEST, path, client, [], server.address, measured)
    assert len(published_dumps.listed(path)) == 1
    return str(files.read_json(path)["name"])


def test_the_newest_complete_dump_is_found_once(server: Server, tmp_path: Path, waits: Waits) -> None:
    """The newest is being written, and the next has no articles. What was found is meant from then on."""
    server.publish("simplewiki-20260901", ALL)
    server.publish(NAME, ALL)
    server.publish("simplewiki-20261115", {"stub-articles.xml.gz": b"y"})
    server.publish("simplewiki-20261201", ALL, done=False)
    assert listing(server, tmp_path, waits.client()) == NAME
    assert (tmp_path / f"{NAME}-{SINGLE}").exists() and not list(tmp_path.glob("*latest*.bz2"))
    server.publish("simplewiki-20261220", ALL)
    assert listing(server, tmp_path, waits.client()) == NAME, "although a newer one came out"
    parameters = {"dump": [LATEST]}, {"sources": [{"text": ["a.txt"]}, {"dump": [LATEST]}]}, {"dump": [NAME]}
    found = [published_dumps.resolved(each, tmp_path) for each in parameters]
    assert found == [{LATEST: NAME}, {LATEST: NAME}, {}]


def test_a_download_that_stopped_goes_on_with_its_date(server: Server, tmp_path: Path, waits: Waits) -> None:
    server.publish(NAME, ALL)
    server.misbehave(FILE, cut(1_000_000), status(403))
    with pytest.raises(UserError, match="could not be downloaded"):
        listing(server, tmp_path, waits.client())
    server.publish("simplewiki-20261201", ALL)
    assert listing(server, tmp_path, waits.client()) == NAME
    assert server.asked(FILE)[-1]["Range"] == "bytes=1000000-"


def test_a_date_that_is_gone_before_it_arrived_gives_way_to_the_newest(
    server: Server, tmp_path: Path, waits: Waits
) -> None:
    (tmp_path / f"{LATEST}.date").write_text("simplewiki-20250101\n")
    server.publish(NAME, ALL)
    assert listing(server, tmp_path, waits.client()) == NAME


def test_finished_runs_say_which_dump_is_meant(server: Server, tmp_path: Path, waits: Waits) -> None:
    """The corpus was removed, and a newer dump came out: new runs must not read another text than finished ones."""
    dumps = {LATEST: NAME}, {"enwiki-latest": "enwiki-20261120"}, {LATEST: "simplewiki-20250101"}, None
    for repeat, found in enumerate(dumps, 1):
        for corpus in ("simple", "other"):
            value = record(spec(benchmark=corpus, repeat=repeat, corpus={"name": corpus, "digest": "0" * 12}), 100.0)
            value["data"] = {"content_digest": "0" * 64, "rows": 1, **({"dumps": found} if found else {})}
            RunRecord.model_validate(value)
            write_record(tmp_path / "results", value)
    measured = dumps_read(LATEST, "simple", tmp_path / "results")
    assert measured == [NAME, "simplewiki-20250101"]
    server.publish(NAME, ALL)
    server.publish("simplewiki-20261201", ALL)
    assert listing(server, tmp_path, waits.client(), measured) == NAME
    with pytest.raises(UserError, match="finished runs have read simplewiki-20250101 as simplewiki-latest") as caught:
        listing(server, tmp_path, waits.client(), measured[1:])
    assert "write a dump with its date into corpus.dump, such as simplewiki-20261201" in str(caught.value)


def test_no_complete_dump_is_an_error_that_says_what_is_there(server: Server, tmp_path: Path, waits: Waits) -> None:
    with pytest.raises(UserError, match="no host has a complete dump of simplewiki") as caught:
        listing(server, tmp_path, waits.client())
    assert f"no dates are listed at {server.address}/simplewiki/" in str(caught.value)
    server.publish(NAME, ALL, done=False)
    with pytest.raises(UserError) as caught:
        listing(server, tmp_path, waits.client())
    assert f"the dump {NAME} has no articles yet" in str(caught.value) and not list(tmp_path.glob("*.date"))
    unreached = waits.client(tries=1)
    with pytest.raises(UserError):
        published_dumps.download(LATEST, tmp_path / f"{LATEST}.json", unreached, [], CLOSED)
