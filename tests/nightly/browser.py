"""Pages in a headless Chromium, by its protocol for tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

PROGRAM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0")


class Browser:
    """One page of a browser without a network, as a context."""

    def __init__(self) -> None:
        from websockets.sync.client import connect  # here, as few tests need the package

        assert PROGRAM is not None
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = [PROGRAM, *OPTIONS, f"--user-data-dir={self.folder.name}", "about:blank"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = next(line for line in self.process.stderr if "DevTools listening on" in line)
        self.stack = ExitStack()
        address = re.findall(r"ws://\S+", line)[0]
        self.socket: ClientConnection = self.stack.enter_context(connect(address, max_size=None))
        self.n_calls, self.session = 0, ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Return the result of a method of the protocol."""
        self.n_calls += 1
        of_page = {"sessionId": self.session} if self.session else {}
        self.socket.send(json.dumps({"id": self.n_calls, "method": method, "params": params, **of_page}))
        while True:
            answer = json.loads(self.socket.recv(timeout=60))
            if answer.get("id") == self.n_calls:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page, as on a screen of this size, or a phone where it is narrow."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState == 'complete'")

    def evaluate(self, code: str) -> Any:
        """Return the value of an expression of JavaScript."""
        return self.call("Runtime.evaluate", expression=code, returnByValue=True)["result"].get("value")

    def wait_for(self, code: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(code):
            assert time.monotonic() < end, f"{code} did not become true in {seconds:g} s"
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stack.close()
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()
