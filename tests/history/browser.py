"""A headless Chromium, with no other host within its reach."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

# How Debian, Ubuntu and Google name it.
NAMES = ("chromium", "google-chrome", "chromium-browser")
TAB, ENTER, SPACE, UP = Keys.TAB, Keys.ENTER, " ", Keys.ARROW_UP


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


class Browser:
    """A browser window; use it in a ``with``."""

    def __init__(self, folder: Path, width: int = 1200, height: int = 900):
        browser, driver = find()
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        for argument in (
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
        ):
            options.add_argument(argument)
        # Named, so that selenium looks for neither of them anywhere else.
        self._driver = webdriver.Chrome(options, Service(driver))

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.quit()

    def open(self, address: str) -> None:
        """Load a page anew, also where only what follows the # differs from the page that is open."""
        self._driver.get("about:blank")
        self._driver.get(address)

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what the script's ``return`` gives."""
        return self._driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: Any, seconds: float = 20) -> Any:
        """Return the script's value as soon as it is true, or fail."""
        try:
            return WebDriverWait(self._driver, seconds, 0.05).until(lambda _: self.run(script, *arguments))
        except TimeoutException:
            shown = self.run("return document.body.innerText")
        raise AssertionError(f"not in {seconds} s: {script}\n{self.errors()}\n{shown}")

    def errors(self) -> list[str]:
        """Return what has been logged as an error since the last call."""
        return [entry["message"] for entry in self._driver.get_log("browser") if entry["level"] == "SEVERE"]

    def screenshot(self, path: Path) -> None:
        """Write a screenshot of the window as PNG."""
        self._driver.save_screenshot(str(path))

    def resize(self, width: int, height: int) -> None:
        """Give the page this many pixels, as a device of that size would (a window has a least width)."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, scheme: str) -> None:
        """Ask pages for their ``light`` or ``dark`` colours."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, *keys: str) -> None:
        """Press keys, one after the other: a letter, or the code that WebDriver gives a key (``TAB``, ``ENTER``)."""
        ActionChains(self._driver).send_keys(*keys).perform()

    def command(self, name: str, **parameters: Any) -> Any:
        """Give a command of the DevTools protocol."""
        return self._driver.execute_cdp_cmd(name, parameters)
