"""A server on this machine, and the canonical files where there are some."""

import contextlib
import http.server
import os
import threading

import pytest


@pytest.fixture
def real():
    """Skips where the canonical files are not at hand."""
    if not os.environ.get("WIDEANGLE_DATA"):
        pytest.skip("WIDEANGLE_DATA is not set")


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers a path by the function that the test has put for it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append((self.path, dict(self.headers)))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.server.routes[self.path](self)
        self.close_connection = True

    def answer(self, status=200, content=b"", **headers):
        self.send_response(status)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Length": len(content), **names}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.routes, self.seen, self.released = {}, [], threading.Event()

    def address(self, path="/file"):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def serve(self, content, path="/file", tag='"v1"', stop_after=None):
        """A file with ranges; the first ``stop_after`` answers break off half-way."""
        breaks = iter(range(stop_after or 0))

        def answer(handler):
            start, headers, status = 0, {"ETag": tag} if tag else {}, 200
            asked = handler.headers.get("Range")
            condition = handler.headers.get("If-Range", tag)
            if asked and condition == tag:
                start, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
                headers["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
                if start >= len(content):
                    return handler.answer(416, Content_Range=f"bytes */{len(content)}")
            body = content[start:]
            if next(breaks, None) is not None:
                headers["Content_Length"] = len(body)
                body = body[: len(body) // 2]
            return handler.answer(status, body, **headers)

        self.routes[path] = answer


@pytest.fixture
def server(monkeypatch):
    """A server on this machine; no proxy comes between."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server()
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield running
    running.released.set()
    running.shutdown()
    running.server_close()
    thread.join()
