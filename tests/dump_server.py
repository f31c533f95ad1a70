"""A web server on this machine that publishes dumps in Wikimedia's layout, and misbehaves on request."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Fault = Callable[["Handler", bytes], bool]
"""A function that answers a request for a file's bytes and returns True, or returns False for a normal answer."""


class Server(ThreadingHTTPServer):
    """Use it as `with Server() as server`. `files` maps paths to contents, `faults` maps paths to the faults of their
    next requests, and `requests` lists the requests so far."""

    daemon_threads = True

    def __init__(self, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http{'s' if certificate else ''}://127.0.0.1:{self.server_address[1]}"
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[Fault]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.ranges = True
        if certificate is not None:  # a PEM file with certificate and key
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def __enter__(self) -> Server:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """Print nothing if a client went away."""

    def publish(self, name: str, files: dict[str, bytes], *, done: bool = True, status: bool = True) -> str:
        """Publish a dump's files; return the folder's path. The keys of `files` are what follows `<name>-`."""
        wiki, date = name.rsplit("-", 1)
        folder = f"/{wiki}/{date}"
        self.files |= {f"{folder}/{name}-{ending}": data for ending, data in files.items()}
        facts = {
            f"{name}-{ending}": {"size": len(data), "md5": "0" * 32, "sha1": hashlib.sha1(data).hexdigest()}
            for ending, data in files.items()
        }
        sums = "".join(f"{fact['sha1']}  {file}\n" for file, fact in facts.items())
        self.files[f"{folder}/{name}-sha1sums.txt"] = sums.encode()
        if status:
            job = {"status": "done" if done else "in-progress", "updated": "2026-11-02 03:04:05", "files": facts}
            jobs = {"articlesmultistreamdump": job, "xmlstubsdump": {"status": "waiting"}}
            self.files[f"{folder}/dumpstatus.json"] = json.dumps({"version": "0.8", "jobs": jobs}).encode()
        return folder

    def list(self, wiki: str) -> None:
        """Publish a page with the dates of a wiki, as the index of its folder."""
        dates = {path.split("/")[2] for path in self.files if path.startswith(f"/{wiki}/") and path.count("/") == 3}
        links = "".join(f'<a href="{date}/">{date}/</a>\n' for date in ["..", "latest", *sorted(dates)])
        self.files[f"/{wiki}/"] = f"<html><pre>{links}</pre></html>".encode()

    def misbehave(self, path: str, *faults: Fault) -> None:
        self.faults.setdefault(path, []).extend(faults)

    def asked(self, path: str) -> list[dict[str, str]]:
        """Return the headers of every request for a path."""
        return [headers for asked, headers in self.requests if asked == path]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.close_connection = True
        self.server.requests.append((self.path, dict(self.headers.items())))
        data = self.server.files.get(self.path)
        faults = self.server.faults.get(self.path) or []
        if faults and faults.pop(0)(self, data or b""):
            return
        if data is None:
            self.answer(404, b"<html>not found</html>", {"Content-Type": "text/html"})
        else:
            self.proper(data)

    def proper(self, data: bytes, send: int | None = None, pause_s: float = 0) -> None:
        """Send the file, or the requested range of it; only the first `send` bytes if `send` is given."""
        headers = {"Content-Type": "text/html" if self.path.endswith(("/", ".html")) else "application/octet-stream"}
        begin = 0
        asked = self.headers.get("Range", "")
        if asked and self.server.ranges:
            begin = int(asked.removeprefix("bytes=").rstrip("-"))
            if begin >= len(data):
                self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        self.answer(206 if begin else 200, data[begin:], headers, send, pause_s)

    def answer(
        self, status: int, body: bytes, headers: dict[str, str], send: int | None = None, pause_s: float = 0
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        sent = body[:send]
        for at in range(0, len(sent), 1 << 16):
            self.wfile.write(sent[at : at + (1 << 16)])
            self.wfile.flush()
            time.sleep(pause_s)


def cut(after: int) -> Fault:
    """Close the connection after so many bytes of the body."""
    return lambda handler, data: handler.proper(data, send=after) is None


def status(code: int, **headers: str) -> Fault:
    """Answer with a status; `Retry_After="3"` becomes a header."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler, _: handler.answer(code, b"<html>Please log in</html>", headers) is None


def redirect(address: str) -> Fault:
    """Redirect to the same path at another address."""
    return lambda handler, _: handler.answer(302, b"", {"Location": address + handler.path}) is None


html = status(200, Content_Type="text/html; charset=utf-8")
"""Answer with an HTML page and status 200."""


def silent(seconds: float) -> Fault:
    """Send nothing for a while, then close the connection."""
    return lambda handler, _: time.sleep(seconds) is None


def slow(pause_s: float) -> Fault:
    """Pause after every 64 KiB."""
    return lambda handler, data: handler.proper(data, pause_s=pause_s) is None
