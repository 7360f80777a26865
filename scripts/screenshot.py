"""Take a picture of a report page: `python scripts/screenshot.py run/report.html docs/report.png`.

It needs selenium, Chromium and its driver (Debian: chromium, chromium-driver).
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from browser import chromium, color_scheme, resize

SIZE = (1200, 1620)  # down to the end of the first charts


def main() -> None:
    """Read the arguments and write the picture."""
    parser = argparse.ArgumentParser(description="Take a picture of a report page.")
    parser.add_argument("page", type=Path, help="the page, such as run/report.html")
    parser.add_argument("picture", type=Path, help="the PNG to write, such as docs/report.png")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile), "--hide-scrollbars") as browser:
        resize(browser, *SIZE)
        color_scheme(browser, "light")
        browser.get(given.page.resolve().as_uri())
        # Charts are drawn with the first frame after the page is laid out.
        browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        given.picture.write_bytes(base64.b64decode(browser.get_screenshot_as_base64()))


if __name__ == "__main__":
    main()
