"""A server of directories that speaks the protocol of the Hugging Face Hub.

It lists a repository (`/api/models/NAME/revision/main` and `/tree`), answers HEAD with ETag, size and
commit, redirects files of weights to another path, and serves ranges. `python -m support.hub_server
NAME=DIR ...` in `tests/` serves directories until it is stopped, and prints the value of HF_ENDPOINT.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class HubServer(ThreadingHTTPServer):
    """Repositories by name; requests are recorded as (method, path)."""

    daemon_threads = True

    def __init__(self, **repositories: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Path] = dict(repositories)
        self.renamed: dict[str, str] = {}
        self.gated: dict[str, int] = {}
        """Status of the files of gated repositories: 401 without a token, 403 with one."""
        self.cut: set[str] = set()
        """Paths of files whose next answer ends in the middle."""
        self.requests: list[tuple[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def downloads(self) -> list[str]:
        """Return the names of the files whose content was sent, in order."""
        paths = [path for method, path in self.requests if method == "GET"]
        return [re.split("/resolve/[^/]*/", path)[-1] for path in paths if "/resolve/" in path]

    def commit(self, name: str) -> str:
        """Return a hash of the names and sizes of the files of a repository."""
        files = [f"{p} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in self.files(name)]
        return hashlib.sha1("\n".join(files).encode()).hexdigest()

    def files(self, name: str) -> list[Path]:
        return sorted(path for path in self.repositories[name].rglob("*") if path.is_file())


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path))
        kind, name, rest = self.parse(path)
        if name in hub.renamed:
            target = path.replace(f"/{name}/", f"/{hub.renamed[name]}/", 1)
            return self.answer(307, {"Location": target})
        if name not in hub.repositories:
            return self.answer(401, {"X-Error-Code": "RepoNotFound"})
        directory, commit = hub.repositories[name], hub.commit(name)
        names = [path.relative_to(directory).as_posix() for path in hub.files(name)]
        if kind == "revision":
            siblings = [{"rfilename": file} for file in names]
            return self.json({"id": name, "modelId": name, "sha": commit, "siblings": siblings})
        if kind == "tree":
            return self.json([self.entry(directory, file) for file in names])
        file = directory / rest
        if name in hub.gated and kind == "resolve":
            return self.answer(hub.gated[name], {"X-Error-Code": "GatedRepo"})
        if not file.is_file():
            return self.answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        data, lfs = file.read_bytes(), file.suffix in (".safetensors", ".gguf", ".bin")
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(data).hexdigest()}"'}
        if lfs and kind == "resolve":  # files of weights lie on another server
            headers |= {
                "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"',
                "X-Linked-Size": str(len(data)),
            }
            return self.answer(
                302, headers | {"Location": f"{hub.url}/cdn/{name}/resolve/{commit}/{rest}"}
            )
        return self.content(data, headers, file.name)

    def parse(self, path: str) -> tuple[str, str, str]:
        """Return what is asked for, of which repository, and the rest of the path."""
        if match := re.fullmatch(r"/api/models/(.+?)/(revision|tree)/([^/]+)", path):
            return match[2], match[1], match[3]
        if match := re.fullmatch(r"(/cdn)?/(.+?)/resolve/[^/]+/(.+)", path):
            return "cdn" if match[1] else "resolve", match[2], match[3]
        return "", "", ""

    def entry(self, directory: Path, name: str) -> dict[str, object]:
        data = (directory / name).read_bytes()
        entry = {
            "type": "file",
            "path": name,
            "size": len(data),
            "oid": hashlib.sha1(data).hexdigest(),
        }
        if name.endswith((".safetensors", ".gguf", ".bin")):
            return {
                **entry,
                "lfs": {
                    "oid": hashlib.sha256(data).hexdigest(),
                    "size": len(data),
                    "pointerSize": 130,
                },
            }
        return entry

    def content(self, data: bytes, headers: dict[str, str], name: str) -> None:
        start, status = 0, 200
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, status = int(match[1]), 206
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        body = data[start:]
        is_cut = self.command == "GET" and name in self.server.cut
        if is_cut:
            self.server.cut.remove(name)
        self.answer(status, headers, body[: len(body) // 2] if is_cut else body, len(body))
        if is_cut:
            self.close_connection = True

    def json(self, data: object) -> None:
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(data).encode())

    def answer(
        self, status: int, headers: dict[str, str], body: bytes = b"", size: int | None = None
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body) if size is None else size))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(**repositories: Path) -> Iterator[HubServer]:
    """Serve directories in a thread."""
    with HubServer(**repositories) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    named = (argument.partition("=") for argument in sys.argv[1:])
    with HubServer(**{name: Path(directory) for name, _, directory in named}) as hub:
        print(hub.url, flush=True)
        hub.serve_forever()
