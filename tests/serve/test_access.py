"""Under which names a service answers, and what a proxy changes."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from taer.cli import main
from taer.serve.app import create_app
from taer.serve.run import Access
from taer.serve.service import Service
from tests.serve.conftest import AUTH, TOKEN


@pytest.fixture
def answer(tmp_path):
    """The status of a request under a name, for an address and public names."""
    service = Service(tmp_path)
    yield (
        lambda access, name, path="/classes", **headers: (
            TestClient(create_app(service, TOKEN, access.is_public, access.hosts), base_url=f"http://{name}")
            .get(path, headers=headers)
            .status_code
        )
    )
    service.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_a_local_service_answers_at_its_own_address_without_a_token(answer, host):
    access = Access(host, 8000, TOKEN)
    assert answer(access, f"{access.name}:8000") == 200
    assert answer(access, "localhost:8000") == 200
    assert answer(access, "evil.example") == 400


def test_a_service_behind_a_proxy_answers_under_its_public_names_with_the_token(answer):
    access = Access("127.0.0.1", 8000, TOKEN, ["Taer.example.org", "other.example.org"])
    for name in ("taer.example.org", "TAER.EXAMPLE.ORG:443", "other.example.org.", "127.0.0.1:8000"):
        assert answer(access, name) == 401
        assert answer(access, name, **AUTH) == 200
        assert answer(access, name, "/health") == 200
    assert answer(access, "evil.example", **AUTH) == 400


def test_a_public_address_answers_under_any_name_unless_one_is_given(answer):
    assert answer(Access("0.0.0.0", 8000, TOKEN), "any.example", **AUTH) == 200
    assert answer(Access("0.0.0.0", 8000, TOKEN, ["taer.example.org"]), "any.example", **AUTH) == 400


@pytest.mark.parametrize("name", ["https://taer.example.org", "taer.example.org:443", "taer.example.org/here", ""])
def test_a_public_name_is_a_name_alone(tmp_path, capsys, name):
    with pytest.raises(SystemExit):
        main(["serve", str(tmp_path), "--public-name", name])
    assert "expected a host name without scheme, port and path" in capsys.readouterr().err


def test_another_loopback_address_can_be_used(serve, tmp_path):
    server = serve(tmp_path / "service", "--host", "127.0.0.2")
    assert server.url.startswith("http://127.0.0.2:")
    assert server.http.get("/classes").status_code == 200
