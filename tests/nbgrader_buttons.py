"""nbgrader's buttons: Jupyter's server with one of its extensions, which is asked what a button asks."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlencode

from jupyter_server.serverapp import ServerApp
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port


@contextlib.asynccontextmanager
async def jupyter_with(extension: str, folder: Path) -> AsyncIterator[Callable[..., Awaitable[dict]]]:
    """The server on a folder; gives what sends a form to one of its addresses and returns what it answers."""
    app = ServerApp(
        root_dir=str(folder),
        jpserver_extensions={f"nbgrader.server_extensions.{extension}": True},
        allow_root=True,
        disable_check_xsrf=True,
        log_level=logging.ERROR,
    )
    app.initialize(["--IdentityProvider.token=t"], find_extensions=False, new_httpserver=False)
    server = HTTPServer(app.web_app)
    socket, port = bind_unused_port()
    server.add_socket(socket)

    async def post(address: str, **form: str) -> dict:
        address = f"http://127.0.0.1:{port}/{address}?token=t"
        asked = AsyncHTTPClient().fetch(address, method="POST", body=urlencode(form), request_timeout=120)
        return json.loads((await asked).body)

    yield post
    server.stop()
    await server.close_all_connections()
