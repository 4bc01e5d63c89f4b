"""Drive headless Chromium by the WebDriver protocol, with no other host within its reach."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

# How Debian, Ubuntu and Google name it.
NAMES = ("chromium", "google-chrome", "chromium-browser")


def find() -> tuple[str, str]:
    """Return the browser and its driver, or skip the test; with KVPOOL_BROWSER=required, fail it."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    driver = shutil.which("chromedriver")
    if browser and driver:
        return browser, driver
    reason = "needs Chromium and its driver (Debian: chromium, chromium-driver)"
    if os.environ.get("KVPOOL_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


TAB, ENTER, SPACE, UP = "\ue004", "\ue007", " ", "\ue013"


class Browser:
    """A browser window; use it in a ``with``."""

    def __init__(self, folder: Path, width: int = 1200, height: int = 900):
        browser, driver = find()
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        self._root = f"http://127.0.0.1:{port}"
        self._driver = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._session = ""
        options = {
            "binary": browser,
            "args": [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
                f"--user-data-dir={folder}",
                f"--window-size={width},{height}",
            ],
        }
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            self._wait_for_driver()
            made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._session = f"/session/{made['sessionId']}"
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and its driver."""
        try:
            if self._session:
                self._call("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(10)

    def open(self, address: str) -> None:
        """Load a page anew, also where only what follows the # differs from the page that is open."""
        self._call("POST", f"{self._session}/url", {"url": "about:blank"})
        self._call("POST", f"{self._session}/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what the script's ``return`` gives."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, *arguments: Any, seconds: float = 20) -> Any:
        """Return the script's value as soon as it is true, or fail."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.run(script, *arguments)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(
            f"not in {seconds} s: {script}\n{self.errors()}\n{self.run('return document.body.innerText')}"
        )

    def errors(self) -> list[str]:
        """Return what has been logged as an error since the last call."""
        logged = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in logged if entry["level"] == "SEVERE"]

    def screenshot(self, path: Path) -> None:
        """Write a screenshot of the window as PNG."""
        import base64

        path.write_bytes(base64.b64decode(self._call("GET", f"{self._session}/screenshot")))

    def resize(self, width: int, height: int) -> None:
        """Give the page this many pixels, as a device of that size would (a window has a least width)."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **metrics)

    def prefer(self, scheme: str) -> None:
        """Ask pages for their ``light`` or ``dark`` colours."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other: a letter, or the code that WebDriver gives a key (``TAB``, ``ENTER``)."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]})

    def command(self, name: str, **parameters: Any) -> Any:
        """Give a command of the DevTools protocol."""
        return self._call("POST", f"{self._session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def _wait_for_driver(self) -> None:
        end = time.monotonic() + 20
        while True:
            try:
                self._call("GET", "/status")
                return
            except OSError:
                if time.monotonic() > end or self._driver.poll() is not None:
                    raise
                time.sleep(0.05)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._root + path, data, {"Content-Type": "application/json"}, method=method)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()}") from error
