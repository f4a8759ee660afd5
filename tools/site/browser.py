"""A browser without a window, driven by its debugging protocol over a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Browser", "BrowserError", "opened", "program"]

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_DEADLINE_S = 60.0
_HEIGHT_MAX = 6000
"""Longer pages are cut off in pictures."""


class BrowserError(Exception):
    """The browser ended, refused a call, or did not answer in time."""


def program() -> str | None:
    """The browser that is installed."""
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


@contextmanager
def opened(path: str) -> Iterator[Browser]:
    """A running browser with one empty page."""
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()
    options = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars"]
    if os.getuid() == 0:
        options.append("--no-sandbox")  # its sandbox refuses root
    # The protocol wants descriptors 3 and 4.
    on_pipes = f'exec "$@" 3<&{to_browser} 4>&{to_us}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = ["bash", "-c", on_pipes, "bash", path, *options, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            command, pass_fds=(to_browser, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(to_us)
        try:
            yield Browser(from_browser, from_us)
        finally:
            os.close(from_us)
            os.close(from_browser)
            process.terminate()
            process.wait()


class Browser:
    """One page, of which size and address change."""

    def __init__(self, read_from: int, write_to: int) -> None:
        self._read_from, self._write_to = read_from, write_to
        self._buffer = b""
        self._events: list[dict[str, Any]] = []
        self._last = 0
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def resize(self, width: int, height: int) -> None:
        """Shows the page as a screen of this size does; narrow ones are phones."""
        phone = width < 600
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def open(self, address: str) -> list[str]:
        """Loads a page: the errors that it reported."""
        self._events.clear()
        self._call("Page.navigate", url=address)
        self._await("Page.loadEventFired")
        self.evaluate("document.fonts.ready.then(() => new Promise(requestAnimationFrame)).then(() => 0)")
        return [_error(event) for event in self._events if _error(event)]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; of a promise, what it resolves to."""
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails'].get('text')}")
        return answer["result"].get("value")

    def type(self, text: str) -> None:
        """Enters text where the page has its focus."""
        self._call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        """Writes the whole page as a picture."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], _HEIGHT_MAX), "scale": 1}
        found = self._call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write_to, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._last:
            self._events.append(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    def _await(self, event: str) -> None:
        while not any(message.get("method") == event for message in self._events):
            self._events.append(self._message())

    def _message(self) -> dict[str, Any]:
        ends = time.monotonic() + _DEADLINE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read_from], [], [], max(0.0, ends - time.monotonic()))
            if not ready:
                raise BrowserError(f"the browser did not answer within {_DEADLINE_S:g} s")
            received = os.read(self._read_from, 1 << 20)
            if not received:
                raise BrowserError("the browser has ended")
            self._buffer += received
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


def _error(event: dict[str, Any]) -> str:
    """The text of an event that reports an error; otherwise empty."""
    parameters = event.get("params", {})
    if event.get("method") == "Runtime.exceptionThrown":
        details = parameters["exceptionDetails"]
        return str(details.get("exception", {}).get("description") or details["text"])
    if event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
        return f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}".strip()
    return ""
