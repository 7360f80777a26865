"""Headless Chromium for the tests of the page; tests are skipped with a reason where it is not installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # containers run tests as root, where Chromium refuses its sandbox
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
)


@contextmanager
def chromium(folder: Path, *flags: str) -> Iterator[Any]:
    """A selenium driver with a fresh profile in the folder; its log has everything the page wrote or was refused."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install 'aimfor[dev]'")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs Chromium: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, *flags, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    from selenium.common.exceptions import WebDriverException

    try:
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    except WebDriverException as error:
        pytest.skip(f"Chromium does not start here: {str(error).splitlines()[0]}")
    try:
        yield browser
    finally:
        browser.quit()


def resize(browser: Any, width: int, height: int = 900, *, mobile: bool = False) -> None:
    """Set the size of the page itself: a window cannot be narrower than 500 pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def color_scheme(browser: Any, scheme: str) -> None:
    """Ask for the light or the dark page."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
