"""A headless Chromium over the DevTools protocol: enough to click, read the page, and hear its errors."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-port=0",
]  # fmt: skip


class Page:
    """One tab. `errors` collects exceptions, console errors and everything that was fetched beside the page itself."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.errors: list[str] = []
        self.fetched: list[str] = []
        self._loaded = False
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            if message.get("id") == number:
                assert "error" not in message, message["error"]
                result: dict[str, Any] = message["result"]
                return result
            self._hear(message)

    def _hear(self, message: dict[str, Any]) -> None:
        kind, params = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
        elif kind == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif kind == "Network.requestWillBeSent" and not params["request"]["url"].startswith("data:"):
            self.fetched.append(params["request"]["url"])
        elif kind == "Page.loadEventFired":
            self._loaded = True

    def open(self, path: Path, width: int = 1280, height: int = 900, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 30
        while not self._loaded and time.monotonic() < deadline:
            self.call("Runtime.evaluate", expression="1")
            time.sleep(0.02)
        assert self._loaded, "the page did not load"

    def js(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))


@contextmanager
def browse(chromium: str) -> Iterator[Page]:
    """A fresh browser with one tab."""
    from websockets.sync.client import connect

    profile = Path(tempfile.mkdtemp(prefix="layercert-chromium-"))
    process = subprocess.Popen(
        [chromium, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port, path = _address(profile, process)
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=2**28) as root:
            tab = _ask(root, 1, "Target.createTarget", url="about:blank")["targetId"]
            with connect(f"ws://127.0.0.1:{port}/devtools/page/{tab}", max_size=2**28) as socket:
                yield Page(socket)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(profile, ignore_errors=True)


def _address(profile: Path, process: subprocess.Popen[bytes]) -> tuple[str, str]:
    file, deadline = profile / "DevToolsActivePort", time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "Chromium ended at once"
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) == 2:
            return lines[0], lines[1]
        time.sleep(0.05)
    raise AssertionError("Chromium did not open its debugging port within a minute")


def _ask(socket: Any, number: int, method: str, **params: Any) -> dict[str, Any]:
    socket.send(json.dumps({"id": number, "method": method, "params": params}))
    while True:
        message = json.loads(socket.recv(timeout=30))
        if message.get("id") == number:
            result: dict[str, Any] = message["result"]
            return result
