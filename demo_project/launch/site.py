"""The web server of the demo: uvicorn in a thread of this process, on the loopback address only; streams of events need no threads."""

import errno
import socket
import threading

import uvicorn
from django.core.asgi import get_asgi_application

from jobqueue.events.stream import hub

TRIED = 50  # ports, from the requested one
END_SECONDS = 2  # for the streams that browsers keep open


class Site:
    """A running web server."""

    def __init__(self, port: int) -> None:
        """Bind the first free port from `port`, and serve the site."""
        self._socket = _bound(port)
        config = uvicorn.Config(
            get_asgi_application(), lifespan="off", log_level="critical", access_log=False, timeout_graceful_shutdown=END_SECONDS
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL of the site."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/"

    def end(self) -> None:
        """Stop the server; open streams are ended first."""
        hub.close(END_SECONDS)
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def _bound(port: int) -> socket.socket:
    for candidate in range(port, min(port + TRIED, 65536)):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", candidate))
            one.listen(128)
        except OSError as error:
            one.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
        else:
            return one
    raise OSError(f"No free port from {port} on; choose another with --port, or use --no-serve.")
