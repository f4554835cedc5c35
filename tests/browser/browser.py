"""Chromium without a window, driven over its debugging pipe: no driver, no port."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-pipe",
)
_READ = 1 << 16


def program() -> str | None:
    """Return the path of Debian's Chromium, or None if it is not installed."""
    return shutil.which("chromium")


class Page:
    """One tab; `complaints` has its console messages and the loads that failed."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        return self._browser.call(method, arguments, self._session)

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> Self:
        """Open a file, and wait until the page says that it has been drawn."""
        self.resize(width, height)
        self.media(dark=dark)
        self.navigate(path)
        self.wait("document.body.dataset.drawn === 'true'")
        return self

    def navigate(self, path: Path) -> None:
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete'")

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip

    def media(self, *, dark: bool = False, media: str = "") -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def value(self, script: str) -> Any:
        """Evaluate an expression, and wait for it if it is a promise."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        self.value(
            "new Promise((done, failed) => { const start = Date.now(); (function look() {"
            f"if ({condition}) done(true);"
            "else if (Date.now() - start > 30000) failed(new Error('waited in vain'));"
            "else setTimeout(look, 20); })(); })"
        )

    def press(self, *keys: str) -> None:
        """Press keys: `Tab`, `Enter`, or a character."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}
        for key in keys:
            text = "\r" if key == "Enter" else key if len(key) == 1 else ""
            of_key: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0)}
            if len(key) > 1:
                of_key["code"] = key
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **of_key)
            self.call("Input.dispatchKeyEvent", type="keyUp", **of_key)

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def pdf(self) -> bytes:
        """Print the page; the outline says where each heading is."""
        found = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True,
                          generateTaggedPDF=True, generateDocumentOutline=True)  # fmt: skip
        return base64.b64decode(found["data"])

    def take(self, method: str, said: dict[str, Any]) -> None:
        """Note the page's complaints and its requests."""
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])


class Browser:
    """A running Chromium."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._rest = b""
        self._number = 0
        self._pages: dict[str, Page] = {}

    def page(self) -> Page:
        """Open a tab."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, session["sessionId"])
        self._pages[session["sessionId"]] = page
        return page

    def call(
        self, method: str, arguments: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": arguments}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self._number:
                assert "error" not in said, (method, said["error"])
                answer: dict[str, Any] = said["result"]
                return answer
            page = self._pages.get(said.get("sessionId", ""))
            if page is not None and "method" in said:
                page.take(said["method"], said["params"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._answers, _READ)
            assert read, "Chromium ended"
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        said: dict[str, Any] = json.loads(text)
        return said


@contextmanager
def running(profile: Path) -> Iterator[Browser]:
    """Run Chromium with an empty profile until the block ends."""
    chromium = program()
    assert chromium is not None, "install Debian's chromium"
    theirs, commands = os.pipe()
    answers, theirs_too = os.pipe()
    process = subprocess.Popen(
        # The pipe is descriptors 3 and 4.
        ["bash", "-c", f'exec "$0" "$@" 3<&{theirs} 4>&{theirs_too}', chromium, *_FLAGS,
         f"--user-data-dir={profile}"],
        pass_fds=(theirs, theirs_too),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    os.close(theirs_too)
    browser = Browser(commands, answers)
    try:
        yield browser
        browser.call("Browser.close", {})
    finally:
        os.close(commands)
        os.close(answers)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
