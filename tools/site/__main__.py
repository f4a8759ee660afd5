"""The command `python -m tools.site GENERATOR`: builds the site in build/site/html, strictly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tools.site.navigation import navigation, title
from tools.site.staging import loaded_from_elsewhere, stage

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "site"


def main(generator: Path) -> int:
    """Stages the sources and lets Zensical build them: 0 if every link leads somewhere."""
    pages = stage(ROOT, WORK / "sources")
    added = {
        "docs_dir": "sources",
        "site_dir": "html",
        "nav": navigation({path: title(text, path) for path, text in pages.items()}),
    }
    configuration = WORK / "mkdocs.yml"
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in added.items()]  # JSON is YAML
    configuration.write_text((ROOT / "mkdocs.yml").read_text(encoding="utf-8") + "".join(lines), encoding="utf-8")
    command = [str(generator), "build", "--strict", "--config-file", str(configuration)]
    environment = {"PYTHONPATH": str(ROOT / "python"), "PATH": os.defpath}
    built = subprocess.run(command, cwd=WORK, env=environment, check=False).returncode
    foreign = list(loaded_from_elsewhere(WORK / "html"))
    for place in foreign:
        print(f"{place}: the site must work without a network", file=sys.stderr)
    return built or (1 if foreign else 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
