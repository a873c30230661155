"""Look at every page of a built site in Chromium: nothing overflows, nothing errs, everything can be read.

    python docs/look.py site [--shots DIR]

At 390, 820 and 1440 pixels, in light and in dark, and as on paper: no page is wider than its window, no error is in the
console, and each text has a contrast of 4.5 to what is behind it (3 where it is large). It needs selenium, Chromium
and its driver.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WIDTHS = (390, 820, 1440)

CONTRAST = """
const parts = (colour) => {
  const canvas = parts.canvas ??= new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].map((c) => c / 255);
};
const light = (rgb) => rgb.slice(0, 3).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
const behind = (node) => {
  const layers = [];
  for (let at = node; at; at = at.parentElement) {
    const colour = parts(getComputedStyle(at).backgroundColor);
    if (colour[3]) layers.push(colour);
    if (colour[3] === 1) break;
  }
  return layers.reduceRight((below, layer) => over(layer, below), parts(getComputedStyle(document.body).backgroundColor));
};
const bad = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const seen = new Map();
while (walker.nextNode()) {
  const text = walker.currentNode.data.trim();
  const node = walker.currentNode.parentElement;
  if (!text || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  if (['SCRIPT', 'STYLE', 'TITLE'].includes(node.tagName) || node.closest('svg .box, svg g')) continue;
  const style = getComputedStyle(node);
  const key = [node.tagName, node.className?.baseVal ?? node.className, style.color, node.parentElement?.className].join();
  if (seen.has(key)) continue;
  seen.set(key, true);
  const ground = behind(node);
  const ink = over(parts(node.closest('svg') ? style.fill : style.color), ground);
  const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
  if (ratio < (large ? 3 : 4.5)) bad.push(`${ratio.toFixed(2)} ${node.tagName}.${node.className?.baseVal ?? node.className}: ${text.slice(0, 40)}`);
}
return bad;
"""

OVERFLOW = """
const wide = document.scrollingElement.scrollWidth - innerWidth;
if (wide <= 0) return [];
const out = [...document.body.querySelectorAll('*')].filter((node) => {
  if (node.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let at = node.parentElement; at; at = at.parentElement) {
    if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(at).overflowX)) return false;
  }
  return true;
});
return [`${wide} px too wide: ${out.slice(-2).map((n) => n.tagName + '.' + (n.className.baseVal ?? n.className)).join(', ')}`];
"""

# What is loaded when it comes into sight, is loaded, and has drawn.
LOADED = """
const frames = [...document.querySelectorAll('iframe[loading=lazy]')];
Promise.all(frames.map((frame) => new Promise((done) => {
  frame.onload = () => setTimeout(done, 200);
  frame.loading = 'eager';
  frame.src = frame.src; // it may have been loaded before
}))).then(() => arguments[0]());
"""


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


def media(driver: Any, scheme: str, kind: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})


def width(driver: Any, pixels: int, height: int = 900) -> None:
    size = {"width": pixels, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def shoot(driver: Any, path: Path) -> None:
    """The whole page as a picture, up to 6,000 pixels of it."""
    driver.execute_async_script(LOADED)
    size = driver.execute_script(
        "return [innerWidth, Math.min(6000, document.documentElement.scrollHeight)]"
    )
    width(driver, *size)  # what is out of sight does not draw
    driver.execute_async_script("setTimeout(arguments[0], 300)")
    clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
    shot = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(shot["data"]))
    width(driver, size[0])


def ready(driver: Any, seconds: float = 120) -> bool:
    """Whether a page that says that it has to start (data-ready on its body) has done so."""
    end = time.monotonic() + seconds
    while driver.execute_script("return document.body.dataset.ready") == "false":
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def look_at(driver: Any, page: Path, name: str, shots: Path | None) -> list[str]:
    """All that is wrong with a page, at each width, in both themes, and on paper."""
    wrong = []
    media(driver, "light")
    width(driver, WIDTHS[0])
    driver.get(page.resolve().as_uri())
    if not ready(driver):
        return [
            f"{name}: not ready after two minutes: {driver.execute_script('return document.body.innerText')[:200]}"
        ]
    for pixels in WIDTHS:
        width(driver, pixels)
        wrong += [f"{name} at {pixels}: {problem}" for problem in driver.execute_script(OVERFLOW)]
        for scheme in ("light", "dark"):
            media(driver, scheme)
            if pixels != WIDTHS[1]:
                wrong += [
                    f"{name} at {pixels}, {scheme}: contrast {problem}"
                    for problem in driver.execute_script(CONTRAST)
                ]
            if shots and pixels != WIDTHS[1]:
                shoot(driver, shots / f"{name.replace('/', '-')}-{pixels}-{scheme}.png")
    media(driver, "light", "print")
    width(driver, 720)
    wrong += [f"{name} on paper: {problem}" for problem in driver.execute_script(OVERFLOW)]
    wrong += [f"{name} on paper: contrast {problem}" for problem in driver.execute_script(CONTRAST)]
    if shots:
        shoot(driver, shots / f"{name.replace('/', '-')}-paper.png")
    return wrong + [
        f"{name}: {entry['message']}"
        for entry in driver.get_log("browser")
        if entry["level"] == "SEVERE"
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("site", type=Path)
    parser.add_argument("--shots", type=Path, metavar="DIR", help="keep pictures of all pages here")
    parser.add_argument("--only", default="", metavar="WORD", help="pages with this in their name")
    args = parser.parse_args(argv)
    pages = [
        page
        for page in sorted(args.site.rglob("*.html"))
        if args.only in str(page) and "explorer" not in page.name
    ]
    driver = browser()
    try:
        wrong = [
            w
            for page in pages
            for w in look_at(
                driver, page, str(page.relative_to(args.site).with_suffix("")), args.shots
            )
        ]
    finally:
        driver.quit()
    for line in wrong:
        print(line, file=sys.stderr)
    print(
        f"{len(pages)} pages at {', '.join(map(str, WIDTHS))} px, light and dark, and on paper: {len(wrong)} problems"
    )
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
