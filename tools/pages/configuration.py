"""docs/reference/configuration.md: every setting, from the table that reads them."""

from __future__ import annotations

import re
from pathlib import Path

from tools.pages.filling import filled
from weft.launchers import LAUNCHERS
from weft.settings import SETTINGS, Setting

__all__ = ["page"]

_DOCS = Path(__file__).resolve().parents[2] / "docs"

_HEAD = """\
# Configuration

<!-- Generated from python/weft/settings.py and python/weft/launchers.py by `make docs`. Do not edit. -->

Every setting is an argument of `weft.init` and an environment variable. The argument wins.

"""

_PLACE = """\
## Rank, size and meeting point

Arguments of `weft.init` win: `rank` and `world_size`, and `address` (`host:port`) or `store`. Without them, weft
reads what the launcher has set; the first row whose rank and size are both set is taken. With none of them, the
process is alone: a group of one rank.

| launcher | rank | size | local rank |
|---|---|---|---|
"""

_MEETING = """
The ranks meet at `MASTER_ADDR` and `MASTER_PORT`. Where a launcher does not set them:

- under Slurm, the address is the first host of the step's node list;
- when all ranks run on one host, the address is 127.0.0.1;
- otherwise `MASTER_ADDR` has to be set;
- the port is derived from the job's identity where the launcher provides it, else it is 29500.

Under torchrun, whose agent serves a store at that address itself (`TORCHELASTIC_USE_AGENT_STORE=True`), weft
uses the agent's store. That store keeps the keys of earlier attempts of the job; ranks agree on new ones, and do
not rely on `TORCHELASTIC_RESTART_COUNT`, which hosts may count differently.
"""


def page() -> str:
    """The page's text."""
    settings = "".join(_section(setting) for setting in SETTINGS)
    rows = "".join(f"| {a.name} | `{a.rank}` | `{a.world_size}` | `{a.local_rank}` |\n" for a in LAUNCHERS)
    return filled(_HEAD + settings + _PLACE + rows + _MEETING)


def _section(setting: Setting) -> str:
    default = setting.default_text or f"`{setting.default}`"
    return (
        f"## `{setting.environment}`, `weft.init({setting.name}=...)`\n\n"
        f"{_linked(setting.doc)}\n\nAllowed: {setting.allowed}. Default: {default}.\n\n"
    )


def _linked(text: str) -> str:
    """Text in which names of pages, such as docs/how-to/rdma.md, are links with their titles."""
    return re.sub(r"docs/([\w/-]+\.md)", lambda name: _link(name[1]), text)


def _link(path: str) -> str:
    heading = (_DOCS / path).read_text(encoding="utf-8").partition("\n")[0]
    target = path.removeprefix("reference/") if path.startswith("reference/") else f"../{path}"
    return f"[{heading.removeprefix('# ')}]({target})"
