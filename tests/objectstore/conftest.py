"""A real S3 server on loopback, and a proxy before it that fails as networks do.

These tests need the package moto[server]; they run only where RLSERVE_HEAVY is set.
"""

from __future__ import annotations

import http.client
import http.server
import os
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from heavy import skip_unless_asked, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUCKET = "rollout-runs"
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_unless_asked(items, __file__, "moto", "objectstore-test")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@dataclass
class Server:
    """The server, by its own address."""

    port: int
    env: dict[str, str] = field(default_factory=dict)

    def client(self) -> Any:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            region_name="us-east-1",
        )

    def upload(self, folder: Path, prefix: str) -> str:
        client = self.client()
        for file in sorted(one for one in folder.rglob("*") if one.is_file()):
            client.put_object(
                Bucket=BUCKET, Key=f"{prefix}/{file.relative_to(folder).as_posix()}", Body=file.read_bytes()
            )
        return f"s3://{BUCKET}/{prefix}"


def served(**env: str) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(
        command, env=os.environ | KEYS | env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/moto-api/")
        server = Server(port)
        server.client().create_bucket(Bucket=BUCKET)
        yield server
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    yield from served()


@pytest.fixture
def locked() -> Iterator[Server]:
    """A server that asks for credentials from its second request on."""
    yield from served(INITIAL_NO_AUTH_ACTION_COUNT="1")


@dataclass
class Proxy:
    """Passes requests on, unless `fault` says otherwise."""

    port: int
    seen: list[str] = field(default_factory=list)
    fault: Callable[[str, int], str | None] = lambda path, number: None
    """Called with the path and how often it was asked for; returns a status, "cut", "reset", or None."""


def proxy_to(server: Server) -> Iterator[Proxy]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def pass_on(self) -> None:
            proxy.seen.append(self.path)
            fault = proxy.fault(self.path, proxy.seen.count(self.path))
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
                return
            if fault is not None and fault.isdecimal():
                self.send_response(int(fault))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            size = int(self.headers.get("Content-Length") or 0)
            link.request(self.command, self.path, self.rfile.read(size) or None, dict(self.headers))
            answer = link.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(body))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
            if fault == "cut":
                self.close_connection = True
            link.close()

        do_GET = do_HEAD = do_PUT = do_POST = pass_on

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    proxy = Proxy(listener.server_address[1])
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        listener.server_close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    yield from proxy_to(server)


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    """Let this process reach a store at a port, with credentials and no others than these."""

    def reach(port: int) -> None:
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    return reach
