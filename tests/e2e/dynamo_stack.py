"""Real Dynamo on loopback: a frontend with a KV router and mock workers, one process each.

Discovery by files and requests over TCP need no other service. Runs with the Python that has Dynamo installed.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tiny_model import MAX_TOKENS, write_model

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "tiny-qwen2"
BLOCK_SIZE = 64
DECODE_SPEEDUP = 2.0
_LOOPBACK = "127.0.0.1"
_MOCKER = {
    "--model-name": MODEL,
    "--num-workers": "1",
    "--block-size": str(BLOCK_SIZE),
    "--num-gpu-blocks-override": "768",
    "--max-num-seqs": "8",  # few enough that requests wait for a worker, which is what makes workers count
    "--max-num-batched-tokens": "4096",
    "--max-model-len": str(MAX_TOKENS),
    "--decode-speedup-ratio": str(DECODE_SPEEDUP),
}


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    port: int
    id: int = 0  # Dynamo's name for it, known once it is ready


class Stack:
    """Serves `MODEL` at `url` from `workers` workers while entered; request traces go to `capture`.

    `folder` keeps what is not evidence: the model, Dynamo's own files and one log per process.
    """

    def __init__(self, folder: Path, capture: Path, workers: int) -> None:
        self.folder = folder
        self.port = _free_port()
        self.url = f"http://{_LOOPBACK}:{self.port}"
        self._wanted = workers
        self._workers: list[_Worker] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "HF_HUB_OFFLINE": "1",
            "DYN_LOG": "warn",
            "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_FILE_KV": str(folder / "store"),
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_TCP_RPC_HOST": _LOOPBACK,
            "DYN_TCP_RESPONSE_STREAM_HOST": _LOOPBACK,
            "DYN_EVENT_PLANE": "zmq",
            "DYN_EVENT_PLANE_HOST": _LOOPBACK,
        }
        self._trace = {
            "DYN_REQUEST_TRACE": "1",
            "DYN_REQUEST_TRACE_RECORDS": "request_end",
            "DYN_REQUEST_TRACE_SINKS": "file",
            "DYN_REQUEST_TRACE_FILE_FORMAT": "jsonl_gz",
            "DYN_REQUEST_TRACE_FILE_PATH": str(capture / "request-trace"),
            "DYN_REQUEST_TRACE_FILE_ROLL_LINES": "150",
        }

    @property
    def worker_ids(self) -> list[int]:
        """The ids of the workers that serve now."""
        return [worker.id for worker in self._workers]

    def __enter__(self) -> Self:
        write_model(self.folder / "model")
        try:
            arguments = ["--http-host", _LOOPBACK, "--http-port", str(self.port), "--router-mode", "kv"]
            self._start("dynamo.frontend", arguments, self._trace)
            self._workers = [self._start_worker() for _ in range(self._wanted)]
            self._wait_until_ready()
        except BaseException:
            self._stop(self._processes)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop(self._processes)

    def restart_workers(self) -> dict[int, int]:
        """Replace every worker by a fresh one with an empty KV cache, and map each new id to the one it replaces.

        The mocker has no route that takes weights or empties its cache: a restart is its weight update.
        """
        replaced = self.worker_ids
        self._stop([worker.process for worker in self._workers])
        self._workers = [self._start_worker() for _ in replaced]
        self._wait_until_ready()
        return dict(zip(self.worker_ids, replaced, strict=True))

    def _start_worker(self) -> _Worker:
        port = _free_port()
        arguments = ["--model-path", str(self.folder / "model"), *(word for pair in _MOCKER.items() for word in pair)]
        return _Worker(self._start("dynamo.mocker", arguments, {"DYN_TCP_RPC_PORT": str(port)}), port)

    def _start(self, module: str, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{len(self._processes)}-{module}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env={**self._environment, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def _wait_until_ready(self, seconds: float = 60) -> None:
        """Return when the frontend lists the model and knows exactly the workers that run, by their ports."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and all(p.poll() is None for p in self._processes):
            try:
                health, models = self._get("/health"), self._get("/v1/models")
            except OSError:
                time.sleep(0.05)
                continue
            ids = {_port(each): each["instance_id"] for each in health["instances"] if each["endpoint"] == "generate"}
            if models["data"] and ids.keys() == {worker.port for worker in self._workers}:
                for worker in self._workers:
                    worker.id = ids[worker.port]
                return
            time.sleep(0.05)
        raise RuntimeError(f"Dynamo is not ready:\n{self._logs()}")

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return dict(json.load(answer))

    def _stop(self, processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        self._processes = [process for process in self._processes if process not in processes]

    def _logs(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in sorted(self.folder.glob("*.log")))


def _port(instance: dict[str, Any]) -> int:
    """The port of an instance whose transport reads `{"tcp": "127.0.0.1:23222/…"}`."""
    address, _, _ = instance["transport"]["tcp"].partition("/")
    return int(address.rpartition(":")[2])


def _free_port() -> int:
    """A free port below those that the system hands out, so that none of our own connections takes it meanwhile."""
    while True:
        port = random.randint(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind((_LOOPBACK, port))
            except OSError:
                continue
            return port
