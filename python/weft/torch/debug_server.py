"""Pages for torch's debug server: what `weft top` shows, and the ranks' flight records."""

from __future__ import annotations

import functools
import json
import os
import threading
from typing import Any

from torch._C._distributed_c10d import _register_handler, _Request, _Response
from torch.distributed.debug._frontend import DebugHandler, NavLink, Route, fetch_all

from weft import config
from weft.drawing.markup import joined
from weft.errors import Error
from weft.observability.flight import flight_record
from weft.observability.live_status import Watch, running_jobs
from weft.observability.live_view import text

__all__ = ["DebugPage"]

_RATES_OVER_S = 0.5
_ASKING = threading.Lock()
"""The server has a thread for each request, and a page may be sent to its process."""
_RECORDS = "weft_flight_records"
_TEMPLATE = """
{% extends "base.html" %}
{% block header %}<h1>{% block title %}weft{% endblock %}</h1>{% endblock %}
{% block content %}<pre>{{ text }}</pre>{% endblock %}
"""


class DebugPage(DebugHandler):
    """The page `/weft` of `torch.distributed.debug.start_debug_server` (torch 2.14 and newer).

    It shows the job of the process that made the page; without one, the job of this user that began
    last on this host. Its page `/weft/flight` has the flight records of the ranks that have made a
    `DebugPage`: torch's own recorder cannot learn from a backend in Python when an operation ends.

    >>> handlers = [*default_handlers(), weft.torch.DebugPage()]  # doctest: +SKIP
    >>> start_debug_server(handlers=handlers)  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._process = os.getpid()  # not the server's, which is another
        self._watch: Watch | None = None
        _serve_records()

    def routes(self) -> list[Route]:
        """Its addresses."""
        return [Route("/weft", self._handle), Route("/weft/flight", self._handle_records)]

    def nav_links(self) -> list[NavLink]:
        """Its entries in the menu."""
        return [NavLink("/weft", "weft"), NavLink("/weft/flight", "weft FlightRecorder (JSON)")]

    def templates(self) -> dict[str, str]:
        """Its layout."""
        return {"weft.html": _TEMPLATE}

    def dump(self) -> str:
        """The page as text, for periodic dumps."""
        base = config.flight_directory(config.load())
        jobs = [] if base is None else running_jobs(base)
        if not jobs:
            return "no job of this user answers on this host (WEFT_FLIGHT_DIR must be the job's)"
        own = (job for job in jobs if self._process in job.processes)
        job = next(own, jobs[0])
        with _ASKING:
            if self._watch is None or self._watch.job != job:
                self._watch = Watch(job)
            try:
                return text(*self._watch.look(_RATES_OVER_S))
            except Error as error:
                return str(error)

    def dump_filename(self) -> str:
        """The name of its dumps."""
        return "weft"

    def _handle(self, request: Any) -> bytes:
        page: bytes = request.frontend.render_template("weft.html", text=joined([self.dump()]))
        return page

    def _handle_records(self, request: Any) -> bytes:
        addresses, answers = fetch_all(_RECORDS, timeout=self.fetch_timeout)
        title = "weft FlightRecorder"
        page: bytes = request.frontend.render_template("json_resp.html", title=title, addrs=addresses, resps=answers)
        return page


@functools.cache
def _serve_records() -> None:
    """Makes torch's server in this process send its flight records."""
    _register_handler(_RECORDS, _SendRecords())


class _SendRecords:
    """Answers with this process's flight records.

    torch lets go of it when the interpreter has ended, where nothing may be freed any more: so it
    holds itself.
    """

    def __init__(self) -> None:
        self._itself = self

    def __call__(self, _request: _Request, response: _Response) -> None:
        response.set_content(json.dumps(flight_record()), "application/json")
        response.set_status(200)
