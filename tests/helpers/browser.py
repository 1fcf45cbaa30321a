"""A headless Chromium without a network, driven over the WebDriver protocol of Debian's chromium-driver."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromedriver")
MISSING = next((f"{name} is not installed" for name in PROGRAMS if shutil.which(name) is None), "")
"""Why there is no browser; empty: there is one."""
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--no-first-run", "--disable-dev-shm-usage"),
)


class Browser:
    """A session of the browser."""

    def __init__(self, address: str, profile: Path) -> None:
        self.address = address
        chrome = {"args": [*OPTIONS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        logs = {"browser": "ALL", "performance": "ALL"}
        wanted = {"alwaysMatch": {"goog:chromeOptions": chrome, "goog:loggingPrefs": logs}}
        self.session = self._send("POST", "/session", {"capabilities": wanted})["sessionId"]

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def send(self, path: str, **body: Any) -> Any:
        """Sends a command of the session and returns its answer."""
        return self._send("POST", f"/session/{self.session}{path}", body)

    def open(self, page: Path) -> None:
        """Opens a page, and forgets what the browser itself loaded and logged before."""
        self.send("/url", url="about:blank")
        self.log()
        self.requests()
        self.send("/url", url=page.absolute().as_uri())

    def run(self, script: str, *values: Any) -> Any:
        """Runs JavaScript in the page and returns what it returns."""
        return self.send("/execute/sync", script=script, args=list(values))

    def resize(self, width: int, height: int) -> None:
        """Makes the page as wide as a phone's, which a window cannot be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        self.send("/goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)

    def print_media(self, width: int) -> None:
        """Lays the page out as on paper of this width."""
        self.resize(width, 1000)
        self.send("/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"media": "print"})

    def screen_media(self) -> None:
        """Lays the page out as on a screen again."""
        self.send("/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"media": ""})
        self.resize(1200, 900)

    def paper(self) -> bytes:
        """Returns the page as PDF, as the browser prints it."""
        return base64.b64decode(self.send("/print", page={"width": 21.0, "height": 29.7}))

    def press(self, *keys: str) -> None:
        """Presses keys one after another."""
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.send("/actions", actions=[{"type": "key", "id": "keys", "actions": strokes}])

    def point(self, x: float, y: float) -> None:
        """Moves the pointer to a place of the window."""
        moves = [{"type": "pointerMove", "x": round(x) - 3, "y": round(y), "duration": 0}]
        moves.append({"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0})
        self.send("/actions", actions=[{"type": "pointer", "id": "mouse", "actions": moves}])

    def click(self, selector: str) -> None:
        """Clicks the first element that a CSS selector finds."""
        found = self.send("/element", using="css selector", value=selector)
        self.send(f"/element/{next(iter(found.values()))}/click")

    def picture(self, path: Path) -> None:
        """Saves what the window shows as PNG."""
        data = self._send("GET", f"/session/{self.session}/screenshot")
        path.write_bytes(base64.b64decode(data))

    def log(self) -> list[str]:
        """Returns the errors, warnings and messages since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.send("/se/log", type="browser")]

    def requests(self) -> list[str]:
        """Returns the addresses of all requests since the last call."""
        entries = [
            json.loads(each["message"])["message"] for each in self.send("/se/log", type="performance")
        ]
        sent = [each["params"] for each in entries if each["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    def close(self) -> None:
        self._send("DELETE", f"/session/{self.session}")


@contextmanager
def open_browser(directory: Path) -> Iterator[Browser]:
    """Starts chromedriver and a browser with a new profile in a directory, and ends both."""
    with (directory / "chromedriver.log").open("w+") as log:
        driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=log, stderr=subprocess.STDOUT)
        try:
            browser = Browser(
                f"http://127.0.0.1:{_port(directory / 'chromedriver.log')}", directory / "profile"
            )
            try:
                yield browser
            finally:
                browser.close()
        finally:
            driver.terminate()
            driver.wait(30)


def _port(log: Path) -> int:
    """Returns the port that chromedriver says it listens on."""
    for _ in range(600):
        _, found, rest = log.read_text().partition("successfully on port ")
        if found and "." in rest:
            return int(rest.partition(".")[0])
        time.sleep(0.1)
    raise TimeoutError(f"chromedriver did not start: {log.read_text()}")
