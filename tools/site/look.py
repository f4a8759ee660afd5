"""The command `python -m tools.site.look`: the built site in a browser (`make check-site`).

Opens every page at the widths of a desktop and of a phone, from the directory, without a server. A
page must not be wider than the screen, lack a picture or report an error, and the search must find.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.site import browser

SITE = Path(__file__).resolve().parents[2] / "build" / "site" / "html"
PICTURES = SITE.with_name("screenshots")
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
PICTURED = (
    "index.html",
    "tutorials/one-machine.html",
    "how-to/choosing.html",
    "how-to/questions.html",
    "how-to/training.html",
    "launchers/index.html",
    "reference/figures.html",
    "reference/commands.html",
    "reference/api/torch.html",
    "explanation/algorithms.html",
)
"""Pages of which pictures are kept, to be looked at: one of each kind, and the front pages."""
_OF_SERVERS = "404.html"
"""Its links are those of a site that a server has at its root."""
_WORD = "reproducible"

_MEASURE = """({
  width: document.documentElement.scrollWidth,
  screen: document.documentElement.clientWidth,
  missing: [...document.images].filter(image => image.complete && !image.naturalWidth).map(image => image.src),
})"""
_SEARCH_FIELD = """new Promise(resolve => {
  (document.querySelector(".md-search__button") ?? document.querySelector("label[for=__search]"))?.click();
  setTimeout(() => {
    window.searched = [...document.querySelectorAll("*")].map(one => one.shadowRoot).find(root => root);
    const field = window.searched?.querySelector("[role=combobox]");
    field?.focus();
    resolve(Boolean(field));
  }, 1000);
})"""
_RESULTS = """new Promise(resolve => {
  let tries = 0;
  const timer = setInterval(() => {
    const found = window.searched.querySelectorAll("[role=listbox] a[href]").length;
    if (found || ++tries > 100) { clearInterval(timer); resolve(found); }
  }, 100);
})"""
"""The search has its field in a shadow tree, and reads its index when it is first used."""


def main() -> int:
    """Looks at all pages: 0 if nothing is wrong, or if there is no browser."""
    path = browser.program()
    if path is None:
        print('check-site: left out: chromium is not installed (make system-packages FOR="site")')
        return 0
    found = list(problems(path, SITE, PICTURES))
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"check-site: {len(found)} problems; pictures: {PICTURES}")
    return 1 if found else 0


def problems(path: str, site: Path, pictures: Path) -> Iterator[str]:
    """Yields the faults of a site's pages, and writes pictures of some."""
    pages = sorted({str(page.relative_to(site)) for page in site.rglob("*.html")} - {_OF_SERVERS})
    with browser.opened(path) as window:
        for name, size in SIZES.items():
            window.resize(*size)
            for page in pages:
                errors = window.open((site / page).as_uri())
                yield from (f"{page}, {name}: {wrong}" for wrong in [*errors, *_measured(window)])
                if page in PICTURED:
                    window.screenshot(pictures / f"{page.removesuffix('.html').replace('/', '-')}-{name}.png")
        yield from _searched(window, site, pictures)


def _measured(window: browser.Browser) -> Sequence[str]:
    found = window.evaluate(_MEASURE)
    wide = f"{found['width']} pixels wide on a screen of {found['screen']}"
    return [*([wide] if found["width"] > found["screen"] else []), *(f"no picture {src}" for src in found["missing"])]


def _searched(window: browser.Browser, site: Path, pictures: Path) -> Iterator[str]:
    window.resize(*SIZES["desktop"])
    window.open((site / "index.html").as_uri())
    if not window.evaluate(_SEARCH_FIELD):
        yield "index.html: there is no search"
        return
    window.type(_WORD)
    if not window.evaluate(_RESULTS):
        yield f"index.html: the search for {_WORD!r} finds nothing"
    window.screenshot(pictures / "search.png")


if __name__ == "__main__":
    sys.exit(main())
