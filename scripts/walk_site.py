"""Walk the built site in Chromium, at the width of a phone: `make docs-check`.

Every page is opened from a server on this machine. The walk fails on a broken link or anchor, a message on the
console, a page that scrolls sideways at 360 pixels, or a search that does not find "recall at precision".
"""

import functools
import http.server
import shutil
import sys
import threading
import time
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "docs" / "_build" / "html"
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=360,800",
]
LINKS = "return [...document.querySelectorAll('a[href], img[src], link[href], script[src]')].map(e => e.href || e.src)"
IDS = "return [...document.querySelectorAll('[id]')].map(e => e.id)"
# A headless window is wider than a phone, so the page is put into a frame that is not.
WIDTH = """
const frame = document.createElement('iframe');
frame.style.width = '360px'; frame.style.height = '800px'; frame.src = location.href;
const done = arguments[0];
frame.onload = () => done(frame.contentDocument.documentElement.scrollWidth);
document.body.append(frame);
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, format, *args):  # the name that the base class gives it
        pass


def serve() -> str:
    """Serve the site on this machine; gives its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def walk(driver: webdriver.Chrome, start: str) -> list[str]:
    """Open every page that can be reached; gives what is wrong."""
    faults, waiting, links, anchors = [], [start + "index.html"], [], {}
    while waiting:
        page = waiting.pop()
        if page in anchors:
            continue
        driver.get(page)
        anchors[page] = set(driver.execute_script(IDS))
        width = driver.execute_async_script(WIDTH)
        if width > 360:
            faults.append(f"{page}: scrolls sideways at 360 pixels, its content is {width} wide")
        faults += [f"{page}: console: {entry['message'][:200]}" for entry in driver.get_log("browser")]
        for link in driver.execute_script(LINKS):
            target, fragment = urldefrag(urljoin(page, link))
            if not target.startswith(start):
                continue
            links.append((page, target, fragment))
            if target.endswith(".html") and target not in anchors:
                waiting.append(target)
    for page, target, fragment in links:
        if not (SITE / unquote(urlparse(target).path).lstrip("/")).exists():
            faults.append(f"{page}: links to {target}, which is not there")
        elif fragment and target in anchors and unquote(fragment) not in anchors[target]:
            faults.append(f"{page}: links to {target}#{fragment}, which has no such place")
    print(f"walked {len(anchors)} pages, {len(links)} links")
    return sorted(set(faults))


def search(driver: webdriver.Chrome, start: str) -> list[str]:
    driver.get(start + "search.html?q=recall+at+precision")
    for _ in range(100):
        found = driver.execute_script("return document.querySelectorAll('ul.search li').length")
        if found:
            print(f"search found {found} pages")
            return []
        time.sleep(0.1)
    return ["search for 'recall at precision' found nothing"]


def main() -> None:
    start, driver = serve(), browser()
    try:
        faults = walk(driver, start) + search(driver, start)
    finally:
        driver.quit()
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
