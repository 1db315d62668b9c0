"""Serve the demo site from this process, in threads, on the loopback address alone."""

import errno
import threading
from typing import Any

from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application

TRIED = 50  # ports, from the one that was asked for


class QuietHandler(WSGIRequestHandler):
    """Answer requests without a line for each in the terminal."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name for it
        """Say nothing."""


class Site:
    """A running web server."""

    def __init__(self, port: int) -> None:
        """Bind the first free port from `port` on, and serve it."""
        self._server = _bound(port)
        self._server.set_app(get_wsgi_application())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the site."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def end(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _bound(port: int) -> ThreadedWSGIServer:
    for candidate in range(port, min(port + TRIED, 65536)):
        try:
            return ThreadedWSGIServer(("127.0.0.1", candidate), QuietHandler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise OSError(f"No free port from {port} on; choose another with --port, or use --no-serve.")
