"""Check a built site: no resource from the network, no broken link, nothing cut off, every text legible.

    python docs/check.py site [--shots DIR] [--only WORD]

Each page is opened in Chromium at 390, 820 and 1440 pixels, in light and in dark, and as it is printed. Figures and code
must be seen as a whole. It needs selenium, Chromium and its driver. The pages of the reference are alike, so that one of
twenty is opened.
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

WIDTHS = (390, 820, 1440)
PAPER = 718  # pixels, of A4 without margins of 10 mm
NETWORK = "cdn.jsdelivr.net"  # in pages that load Python from Pyodide's public address
READY = "return document.body.dataset.ready !== 'false'"  # the live page has to start

CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")

OVERFLOW = Path(__file__).with_name("overflow.js").read_text("utf-8")

CLIPPED = Path(__file__).with_name("clipped.js").read_text("utf-8")

LINK = re.compile(r'<a\b[^>]*?\bhref="([^"#?]+)')
ADDRESS = r"((?:https?:)?//[^\"')]+)"
RESOURCE = re.compile(
    rf'<(?:script|img|iframe|source|video)\b[^>]*?\bsrc="{ADDRESS}'
    rf'|<link rel="stylesheet"[^>]*?href="{ADDRESS}|url\(["\']?{ADDRESS}|@import ["\']{ADDRESS}'
)


def network_resources(site: Path) -> list[str]:
    """Return each address of the network that a page or a style sheet loads something from."""
    return [
        f"{path.relative_to(site)}: loads {next(filter(None, found))}"
        for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")])
        for found in RESOURCE.findall(path.read_text("utf-8"))
    ]


def missing_links(site: Path) -> list[str]:
    """Return each link to a file that is not in the site."""
    wrong = []
    for path in sorted(site.rglob("*.html")):
        for link in sorted({*LINK.findall(path.read_text("utf-8"))}):
            if not re.match(r"[a-z]+:", link) and not (path.parent / unquote(link)).exists():
                wrong.append(f"{path.relative_to(site)}: links to {link}, which is missing")
    return wrong


def missing_results(driver: Any, site: Path, seconds: float = 20) -> list[str]:
    """Return the words that the search of a language should find and does not."""
    wrong = []
    for page, word in (("search.html", "softmax"), ("zh/search.html", "注意力")):
        driver.get(f"{(site / page).resolve().as_uri()}?q={quote(word)}")
        if not wait_for(driver, "return document.querySelector('#search-results li')", seconds):
            wrong.append(f"{page}: the search finds nothing for {word}")
    return wrong


def browser() -> Any:
    from selenium import webdriver

    driver = shutil.which("chromedriver")
    if driver is None:
        raise SystemExit("chromedriver was not found (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--hide-scrollbars",
        "--disable-gpu",
        "--force-device-scale-factor=1",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def shoot(driver: Any, path: Path) -> None:
    """Save the whole page as a picture, up to 6,000 pixels of it."""
    width, height = driver.execute_script("return [innerWidth, document.body.scrollHeight]")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, 6000), "scale": 1}
    options = {"clip": clip, "captureBeyondViewport": True}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"])
    )


def wait_for(driver: Any, script: str, seconds: float = 120) -> Any:
    """Return the first true value of a script, or the last value after some seconds."""
    end = time.monotonic() + seconds
    while not (value := driver.execute_script(script)) and time.monotonic() < end:
        time.sleep(0.2)
    return value


def set_width(driver: Any, pixels: int) -> None:
    size = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def look_at(driver: Any, page: Path, name: str, shots: Path | None) -> list[str]:
    """Return all that is wrong with a page at each width, in both themes."""
    wrong = []
    text = page.read_text("utf-8")
    is_online = 'data-ready="false"' in text and NETWORK in text
    for theme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.get(page.resolve().as_uri())
        if not is_online and not wait_for(driver, READY):
            wrong.append(f"{name}, {theme}: not ready after 120 s")
        for pixels in WIDTHS:
            set_width(driver, pixels)
            found = [*driver.execute_script(OVERFLOW), *driver.execute_script(CONTRAST)]
            if theme == "light":  # the layout is the same in dark
                found += driver.execute_script(CLIPPED)
            wrong += [f"{name} at {pixels}, {theme}: {problem}" for problem in found]
            if shots:
                shoot(driver, shots / f"{name.replace('/', '-')}-{pixels}-{theme}.png")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    set_width(driver, PAPER)
    wrong += [f"{name}, printed: {problem}" for problem in driver.execute_script(CLIPPED)]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen"})
    severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    return wrong if is_online else [*wrong, *(f"{name}: {entry['message']}" for entry in severe)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("site", type=Path)
    parser.add_argument("--shots", type=Path, metavar="DIR", help="keep pictures of all pages here")
    parser.add_argument("--only", default="", metavar="WORD", help="pages with this in their name")
    args = parser.parse_args(argv)
    names = [str(path.relative_to(args.site)) for path in sorted(args.site.rglob("*.html"))]
    names = [name for name in names if not name.startswith("lite/")]  # JupyterLite's own
    alike = [name for name in names if "reference/api/" in name or "_modules/" in name]
    names = [name for name in names if name not in alike] + alike[::20]
    wrong = network_resources(args.site) + missing_links(args.site)
    driver = browser()
    try:
        pages = [name for name in names if args.only in name]
        for name in pages:
            wrong += look_at(driver, args.site / name, name, args.shots)
        wrong += missing_results(driver, args.site)  # last: its pages log errors from disk
    finally:
        driver.quit()
    for line in wrong:
        print(line, file=sys.stderr)
    print(
        f"{len(pages)} pages at {', '.join(map(str, WIDTHS))} px, light and dark: {len(wrong)} problems"
    )
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
