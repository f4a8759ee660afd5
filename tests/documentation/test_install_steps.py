"""Tests of the steps of installation, as text: PyTorch's index for CPUs need not be reachable."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
PAGES = ("README.md", "docs/index.md", "docs/tutorials/one-machine.md")
IMAGES = ("examples/launchers/Dockerfile", "docs/launchers/containers.md")
WHEEL = re.compile(
    r"weft_(?:collectives|lab)-(\d[\w.]*?)-(cp311-abi3-manylinux_2_28_(?:x86_64|aarch64)|py3-none-any)\.whl"
)


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES)
def test_torch_for_cpus_is_installed_before_weft(path: str) -> None:
    blocks = re.findall(r"^```console\n(.*?)^```", read(path), re.MULTILINE | re.DOTALL)
    installs = [block for block in blocks if "pip install" in block]
    assert installs
    for block in installs:
        first, second, *_ = [line for line in block.splitlines() if "pip install" in line]
        assert first == f"$ {TORCH}" and "torch" not in second


@pytest.mark.parametrize("path", IMAGES)
def test_images_install_torch_for_cpus(path: str) -> None:
    lines = read(path).replace(" --no-cache-dir", "").splitlines()
    (first,) = [number for number, line in enumerate(lines) if "pip install torch" in line]
    assert lines[first] == f"RUN {TORCH} \\" and "weft_collectives" in lines[first + 1]


@pytest.mark.parametrize("path", PAGES)
def test_total_size_is_stated(path: str) -> None:
    assert "about 0.9 GB on disk" in " ".join(read(path).split())


def test_names_of_wheels_have_the_current_version() -> None:
    version = tomllib.loads(read("Cargo.toml"))["workspace"]["package"]["version"]
    found = [match[1] for path in PAGES for match in WHEEL.finditer(read(path))]
    assert len(found) >= 6 and set(found) == {version}


def test_links_to_the_repository_are_those_of_the_package() -> None:
    urls = set(tomllib.loads(read("pyproject.toml"))["project"]["urls"].values())
    owner = re.match(r"https://github\.com/[^/]+/", min(urls, key=len))
    assert owner
    for path in PAGES:
        links = set(re.findall(rf"\(({re.escape(owner[0])}[^)]*)\)", read(path)))
        assert links <= urls, path
    assert {url for url in urls if url in read("README.md")} >= urls - {url for url in urls if "CHANGELOG" in url}
