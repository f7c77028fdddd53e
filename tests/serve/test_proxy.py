"""The configurations of docs/guides/proxy.md, in front of a real service."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest

from taer.client import Client, ServiceError
from taer.serve import tokens
from tests.conftest import wait_until
from tests.serve.conftest import AUTH, TOKEN, on_free_port, vectors

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "proxy.md"
NAME = "taer.example.org"
HTTP = httpx.Client


def configuration(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S)
    return found


def nginx(folder: Path, port: int, service: str) -> list[str]:
    """The command that starts nginx with the server of the page."""
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    keys = ["-keyout", folder / "taer.key", "-out", folder / "taer.crt"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *keys, *subject],
        check=True, capture_output=True,
    )  # fmt: skip
    server = configuration("nginx").replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    server = server.replace("/etc/ssl", str(folder)).replace("http://127.0.0.1:8000", service)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{server}}}\n"
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, port: int, service: str) -> list[str]:
    """The command that starts Caddy with the site of the page, with a certificate of its own."""
    site = configuration("caddy").replace(
        f"{NAME} {{", f"https://{NAME}:{port} {{\n    bind 127.0.0.1\n    tls internal"
    )
    (folder / "Caddyfile").write_text(
        f"{{\n  admin off\n  auto_https disable_redirects\n  skip_install_trust\n  storage file_system {folder}\n}}\n"
        + site.replace("127.0.0.1:8000", service.removeprefix("http://"))
    )
    return ["caddy", "run", "--config", str(folder / "Caddyfile")]


@pytest.fixture
def options():
    """More options of the service."""
    return ()


@pytest.fixture(params=[nginx, caddy], ids=lambda make: make.__name__)
def proxy(request, options, serve, tmp_path, monkeypatch):
    """The port of a proxy with TLS; the public name leads to this machine."""
    if shutil.which(request.param.__name__) is None or shutil.which("openssl") is None:
        pytest.skip(
            f"needs {request.param.__name__} and openssl (Debian: apt-get install {request.param.__name__})"
        )
    server = serve(tmp_path / "service", "--public-name", NAME, *options)
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}

    def start(port: int) -> subprocess.Popen:
        command = request.param(tmp_path, port, server.url)
        return subprocess.Popen(command, env={**os.environ, **home}, stderr=subprocess.PIPE, text=True)

    process, port = on_free_port(start)
    monkeypatch.setenv("NO_PROXY", f"{os.environ['NO_PROXY']},{NAME}")
    find = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *more, **options: find("127.0.0.1" if host == NAME else host, *more, **options),
    )
    yield port
    process.terminate()
    process.communicate(timeout=20)


def trusting(**options) -> httpx.Client:
    """A client that takes the certificate of a test."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTP(verify=context, **{"timeout": 30, **options})


def wait_for(http):
    def answers():
        try:
            return http.get("/health").json()["status"] == "ok"
        except (httpx.TransportError, ValueError):
            return False

    wait_until(answers)


def test_the_configurations_of_the_page_work(proxy, monkeypatch):
    url = f"https://{NAME}:{proxy}"
    with trusting(base_url=url) as http:
        wait_for(http)
        for path in ("/examples", "/examples/1", "/classes"):
            assert http.get(path).status_code == 401
        assert http.post("/predict", json={"vectors": vectors(0)}).status_code == 401
        assert http.get("/").headers["content-type"].startswith("text/html")
        assert http.get("/classes", headers=AUTH).status_code == 200
        assert "classes" not in http.get("/classes", headers=AUTH | {"Host": "evil.example"}).text
        large = {"label": "a", "texts": ["a" * 9000] * 60}
        assert http.post("/examples", json=large, headers=AUTH).status_code == 422  # from the service, not 413
    monkeypatch.setattr("httpx2.Client", trusting)
    with Client(url, TOKEN) as client:
        for label in (0, 1):
            client.add(f"class {label}", np.array(vectors(label), np.float32))
        client.learn()
        assert client.predict(vectors(1, 1))["predictions"][0]["label"] == "class 1"
    with Client(url, "wrong") as client, pytest.raises(ServiceError) as error:
        client.examples()
    assert error.value.status == 401


@pytest.mark.parametrize("options", [["--many"]])
def test_many_heads_behind_the_same_configurations(proxy, monkeypatch, tmp_path):
    url = f"https://{NAME}:{proxy}"
    monkeypatch.setattr("httpx2.Client", trusting)
    with trusting(base_url=url) as http, Client(url, TOKEN) as all_heads:
        wait_for(http)
        all_heads.make_head("cats")
        all_heads.make_head("dogs")
        own = tokens.add(tmp_path / "service" / "cats", "anna", "teach", {})
        with Client(f"{url}/heads/cats", own) as cats:
            for label in (0, 1):
                cats.add(f"class {label}", np.array(vectors(label), np.float32))
            cats.learn()
            assert cats.predict(vectors(1, 1))["predictions"][0]["label"] == "class 1"
        for path in ("/heads", "/heads/cats/classes", "/heads/nobody/classes", "/v2/models/cats"):
            assert http.get(path).status_code == 401, path
        for path in ("/heads", "/heads/dogs/examples", "/v2/models/dogs/ready"):
            assert http.get(path, headers={"Authorization": f"Bearer {own}"}).status_code == 401, path
        assert http.get("/v2/models/cats/ready", headers=AUTH).json() == {"name": "cats", "ready": True}
        for path in ("/", "/heads/cats/"):
            assert http.get(path).headers["content-type"].startswith("text/html")
        assert str(http.get("/heads/cats", follow_redirects=True).url) == f"{url}/heads/cats/"
