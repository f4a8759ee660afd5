"""A page for torch's debug server: what `weft top` shows."""

from __future__ import annotations

import time
from typing import Any

from torch.distributed.debug._frontend import DebugHandler, NavLink, Route

from weft import config
from weft.drawing.markup import joined
from weft.errors import Error
from weft.observability.live_status import ask, rates, running_jobs
from weft.observability.live_view import text

__all__ = ["DebugPage"]

_RATES_OVER_S = 0.5
_TEMPLATE = """
{% extends "base.html" %}
{% block header %}<h1>{% block title %}weft{% endblock %}</h1>{% endblock %}
{% block content %}<pre>{{ text }}</pre>{% endblock %}
"""


class DebugPage(DebugHandler):
    """The page `/weft` of `torch.distributed.debug.start_debug_server` (torch 2.14 and newer).

    It shows the job of this user that began last on the host of rank 0:

    >>> handlers = [*default_handlers(), weft.torch.DebugPage()]  # doctest: +SKIP
    >>> start_debug_server(handlers=handlers)  # doctest: +SKIP
    """

    def routes(self) -> list[Route]:
        """Its address."""
        return [Route("/weft", self._handle)]

    def nav_links(self) -> list[NavLink]:
        """Its entry in the menu."""
        return [NavLink("/weft", "weft")]

    def templates(self) -> dict[str, str]:
        """Its layout."""
        return {"weft.html": _TEMPLATE}

    def dump(self) -> str:
        """The page as text, for periodic dumps."""
        base = config.flight_directory(config.load())
        jobs = [] if base is None else running_jobs(base)
        if not jobs:
            return "no job of this user answers on this host (WEFT_FLIGHT_DIR must be the job's)"
        try:
            before = ask(jobs[0])
            time.sleep(_RATES_OVER_S)
            after = ask(jobs[0])
        except Error as error:
            return str(error)
        return text(after, rates(before, after))

    def dump_filename(self) -> str:
        """The name of its dumps."""
        return "weft"

    def _handle(self, request: Any) -> bytes:
        page: bytes = request.frontend.render_template("weft.html", text=joined([self.dump()]))
        return page
