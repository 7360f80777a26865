"""A real S3 server in a process of its own, and a proxy that spoils some of its answers."""

from __future__ import annotations

import http.client
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

# moto needs an older python-dateutil than constraints.txt has, so it lives beside the environment of the tests.
PLACES = [Path(sys.prefix + "-s3"), Path(__file__).parents[1] / ".venv-s3"]
PASSED_BY = ("transfer-encoding", "expect", "connection", "content-length")
FAULTS = ("error", "hang up", "truncate")


def moto_python() -> str | None:
    """The interpreter that has moto; None where there is none."""
    found = [place / "bin" / "python" for place in PLACES if (place / "bin" / "moto_server").exists()]
    return str(found[0]) if found else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port: int) -> None:
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens on port {port}")


@contextmanager
def moto_server() -> Iterator[int]:
    """Inside, an S3 server listens on this port of the loopback."""
    python, port = moto_python(), free_port()
    assert python is not None
    command = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        yield port
    finally:
        server.terminate()
        server.wait()


class FaultyProxy:
    """A process that passes requests on to a server and spoils some answers.

    It is no thread: pyarrow may hold Python's lock while it waits for an answer.

    Args:
        backend: port of the server.
    """

    def __init__(self, backend: int):
        self.port = free_port()
        self.process = subprocess.Popen([sys.executable, __file__, str(self.port), str(backend)])
        wait_for_port(self.port)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()

    def spoil(self, share: float = 0.0, refuse: tuple[str, ...] = ()) -> dict[str, int]:
        """Spoil so many of the answers from now on, and all of some methods; how many were spoilt so far, by fault."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("SPOIL", "/", json.dumps({"share": share, "refuse": refuse}))
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found


class Handler(BaseHTTPRequestHandler):
    """Of the proxy's process."""

    protocol_version = "HTTP/1.1"
    backend, share, refuse = 0, 0.0, ()
    spoilt: ClassVar[dict[str, int]] = dict.fromkeys(FAULTS, 0)
    random, lock = random.Random(0), threading.Lock()

    def log_message(self, *_):
        pass

    def fault(self) -> str | None:
        with self.lock:
            if self.command in Handler.refuse:
                return "error"
            if self.random.random() >= Handler.share:
                return None
            fault = self.random.choice(FAULTS if self.command == "GET" else FAULTS[:2])
            self.spoilt[fault] += 1
            return fault

    def answer(self, status: int, headers: list[tuple[str, str]], data: bytes, length: object = None) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "date", "server", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_SPOIL(self) -> None:
        wanted = json.loads(self.body())
        Handler.share, Handler.refuse = wanted["share"], tuple(wanted["refuse"])
        self.answer(200, [], json.dumps(self.spoilt).encode())

    def forward(self) -> None:
        body, fault = self.body(), self.fault()
        if fault == "error":
            self.answer(500, [], b"")
            return
        if fault == "hang up":
            time.sleep(0.1)
            self.close_connection = True
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.backend)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in PASSED_BY}
        connection.request(self.command, self.path, body, headers)
        found = connection.getresponse()
        data = found.read()
        connection.close()
        if self.command == "HEAD":
            self.answer(found.status, found.getheaders(), b"", found.getheader("Content-Length") or 0)
        elif fault == "truncate":
            self.answer(found.status, found.getheaders(), data[: len(data) // 2], len(data))
            self.close_connection = True
        else:
            self.answer(found.status, found.getheaders(), data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward


if __name__ == "__main__":
    Handler.backend = int(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
