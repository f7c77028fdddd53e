"""Tokens by role: what each may do, on every route of the API's description."""

from __future__ import annotations

import os
import re

import pytest
from starlette.testclient import TestClient

from taer.cli import main
from taer.serve.app import create_app
from taer.serve.inbox import Bounds
from taer.serve.service import Service
from tests.serve.conftest import AUTH, TOKEN, vectors

ROLES = ("none", "read", "teach", "admin")
OPEN = {"/health", "/v2/health/live", "/v2/health/ready"}
READ = {"/predict", "/classes", "/history", "/confusion", "/drift", "/automation", "/metrics"}
ADMIN = {
    "POST /purge", "POST /rollback/{version}", "PATCH /classes/{label}", "DELETE /classes/{label}",
    "POST /versions/candidate/promote", "POST /versions/candidate/reject",
}  # fmt: skip


def least(method, path, public):
    """The least role that may send a request; what is not listed above changes or shows samples."""
    if path in OPEN:
        return "none"
    if (path in READ and (method, path) != ("POST", "/classes")) or path == "/v2" or path.startswith("/v2/"):
        return "read" if public else "none"
    return "admin" if f"{method} {path}" in ADMIN else "teach"


def made(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["token", *map(str, arguments)])
    assert ended.value.code == 0
    return capsys.readouterr().out.strip()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "service").mkdir()
    return tmp_path / "service"


@pytest.fixture(params=[True, False], ids=["public", "local"])
def asked(request, folder, capsys):
    """Clients without a token and with one of each role."""
    keys = {role: bearer(made(capsys, folder, "add", role, "--role", role)) for role in ROLES[1:]}
    service = Service(folder)
    client = TestClient(
        create_app(service, TOKEN, request.param), base_url="http://127.0.0.1", raise_server_exceptions=False
    )
    yield client, {"none": {}, **keys}, request.param
    service.close()


def test_a_role_may_what_it_may_on_every_route(asked):
    client, keys, public = asked
    described = client.get("/openapi.json").json()["paths"]
    checked = 0
    for path, methods in described.items():
        url = (
            path.replace("{number}", "1")
            .replace("{version}", "1")
            .replace("{label}", "a")
            .replace("{model}", "service")
        )
        for method, endpoint in methods.items():
            needed = least(method.upper(), path, public)
            assert endpoint.get("security", [{"token": ["none"]}]) == [{"token": [needed]}], (method, path)
            for role in ROLES:
                status = client.request(method, url, headers=keys[role]).status_code
                if ROLES.index(role) >= ROLES.index(needed):
                    assert status not in (401, 403, 500), (method, path, role)
                else:
                    assert status == (401 if role == "none" else 403), (method, path, role)
                checked += 1
    assert checked >= 4 * 30
    assert client.get("/examples", headers=AUTH).status_code == 200  # whoever started it is an administrator


def test_a_token_works_until_it_is_revoked_and_only_its_hash_is_stored(open_service, folder, capsys):
    client = open_service()
    assert client.get("/examples", headers=bearer("x")).status_code == 401
    token = made(capsys, folder, "add", "anna", "--role", "teach")
    assert len(token) >= 32
    assert client.get("/examples", headers=bearer(token)).status_code == 200
    assert client.get(f"/examples?token={token}", headers=bearer("x")).status_code == 401
    refused = client.post("/purge", json={"ids": [1]}, headers=bearer(token))
    assert refused.status_code == 403
    assert refused.json()["detail"] == "this needs a token with the role admin, and anna may teach"
    assert re.fullmatch(r"anna\tteach\t20\S+", made(capsys, folder, "list"))
    stored = (folder / "tokens.json").read_text()
    assert "anna" in stored
    assert token not in stored
    made(capsys, folder, "revoke", "anna")
    assert client.get("/examples", headers=bearer(token)).status_code == 401
    assert made(capsys, folder, "list") == ""


def test_limits_of_a_token(open_service, folder, capsys):
    client = open_service()
    options = ("--role", "teach", "--requests", 4, "--examples", 10, "--bytes", 20_000)
    hasty, other = (bearer(made(capsys, folder, "add", name, *options)) for name in ("hasty", "other"))
    body = {"label": "a", "vectors": vectors(0, 8)}
    assert client.post("/examples", json=body, headers=hasty).status_code == 200
    refused = client.post("/examples", json=body, headers=hasty)
    assert refused.status_code == 429
    assert "hasty may send 10 examples per day" in refused.json()["detail"]
    assert client.get("/classes").json()["classes"][0]["waiting"] == 8
    large = client.post("/predict", json={"texts": ["a" * 9000] * 3}, headers=hasty)
    assert (large.status_code, "20000 bytes per day" in large.json()["detail"]) == (413, True)
    assert client.get("/classes", headers=hasty).status_code == 200
    refused = client.get("/classes", headers=hasty)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert (
        client.get("/v2", headers=hasty)
        .json()["error"]
        .startswith("the token hasty may send 4 requests per minute")
    )
    assert client.post("/examples", json=body, headers=other).status_code == 200


def test_more_than_a_limit_at_once_is_never_told_to_wait(open_service, folder, capsys):
    client = open_service()
    options = ("--role", "teach", "--examples", 3, "--bytes", 150_000)
    own = bearer(made(capsys, folder, "add", "anna", *options))
    refused = client.post("/examples", json={"label": "a", "vectors": vectors(0, 4)}, headers=own)
    assert (refused.status_code, "retry-after" in refused.headers) == (413, False)
    assert refused.json()["detail"] == "the token anna may send 3 examples per day; send at most 3 at once"
    parts = (b" " * 50_000 for _ in range(4))  # each of which is below the limit
    headers = {**own, "Content-Type": "application/json"}
    refused = client.post("/predict", content=parts, headers=headers)
    assert (refused.status_code, "send at most 150000 at once" in refused.json()["detail"]) == (413, True)
    assert client.post("/examples", json={"label": "a", "vectors": vectors(0, 3)}, headers=own).status_code != 413


def test_examples_that_are_refused_do_not_count(open_service, folder, capsys):
    client = open_service()
    own = bearer(made(capsys, folder, "add", "anna", "--role", "teach", "--examples", 3))

    def add(rows):
        return client.post("/examples", json={"label": "a", "vectors": rows}, headers=own).status_code

    assert add(vectors(0, 1)) == 200
    assert add([[1.0, 2.0]] * 2) == 422  # another width
    assert add(vectors(0, 2)) == 200
    assert add(vectors(0, 1)) == 429
    assert client.get("/classes").json()["classes"][0]["waiting"] == 3


def test_inputs_that_are_named_count_as_examples(open_service, folder, capsys):
    client = open_service(inbox=Bounds(10))
    for label in range(2):
        client.post("/examples", json={"label": str(label), "vectors": vectors(label)})
    assert client.post("/learn").status_code == 200
    width = len(vectors(0)[0])
    assert client.post("/predict", json={"vectors": [[50.0 + n] * width for n in range(3)]}).status_code == 200
    first, second, third = (one["id"] for one in client.get("/inbox").json()["inputs"])
    own = bearer(made(capsys, folder, "add", "anna", "--role", "teach", "--examples", 2))

    def name(*ids):
        return client.post("/inbox", json={"ids": ids, "label": "new"}, headers=own).status_code

    assert client.post(f"/inbox/{first}", json={"label": "new"}, headers=own).status_code == 200
    assert (name(second, third), name(second)) == (429, 200)
    assert client.post(f"/inbox/{third}", json={"label": "new"}, headers=own).status_code == 429
    assert client.post(f"/inbox/{third}", json={"label": "new"}).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["add"], "needs a NAME"),
        (["add", "a b"], "expected a name"),
        (["add", "anna"], "there is a token anna already"),
        (["revoke", "otto"], "has no token otto; it has anna"),
        (["revoke", "anna", "--requests", "5"], "revoke takes no --requests: a token is made with it, by add"),
        (["list", "--role", "admin"], "list takes no --role"),
    ],
)
def test_mistakes_are_told(folder, capsys, arguments, told):
    made(capsys, folder, "add", "anna")
    before = (folder / "tokens.json").read_bytes()
    with pytest.raises(SystemExit) as ended:
        main(["token", str(folder), *arguments])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert (folder / "tokens.json").read_bytes() == before


def test_a_head_that_is_not_there_gets_no_token(tmp_path, capsys):
    """It would be accepted nowhere, and its folder would keep others from making a head of this name."""
    for place in (tmp_path, tmp_path / "heads"):  # before there is a server of many heads, and before it has one
        with pytest.raises(SystemExit):
            main(["token", str(tmp_path / "heads/biling"), "add", "anna"])
        assert "heads/biling: there is no such service or head. Start or make it first" in capsys.readouterr().err
        assert not (tmp_path / "heads/biling").exists()
        place.mkdir(exist_ok=True)
    for name in ("billing", "support"):
        Service(tmp_path / "heads" / name).close()
    with pytest.raises(SystemExit):
        main(["token", str(tmp_path / "heads/biling"), "add", "anna"])
    told = capsys.readouterr().err
    assert "there is no such service or head" in told
    assert "heads has billing, support. Start or make it first" in told
    assert not (tmp_path / "heads/biling").exists()
    assert made(capsys, tmp_path / "heads/billing", "add", "anna")


def test_other_users_read_neither_tokens_nor_examples(open_service, folder, capsys):
    """The versions can be read as the umask says, because a replica may be another user."""
    usual = os.umask(0o022)
    try:
        client = open_service()
        made(capsys, folder, "add", "anna")
        assert client.post("/examples", json={"label": "a", "vectors": vectors(0)}).status_code == 200
    finally:
        os.umask(usual)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert {name for name, mode in modes.items() if mode == 0o600} == {
        "taer.db", "taer.db-wal", "taer.db-shm", "tokens.json",
    }  # fmt: skip
    assert (modes["current.json"], modes["versions"]) == (0o644, 0o755)
    made(capsys, folder, "revoke", "anna")
    assert (folder / "tokens.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_tokens_that_root_makes_can_be_read_by_the_service(folder, capsys):
    os.chown(folder, 12345, 12346)
    made(capsys, folder, "add", "anna")
    found = (folder / "tokens.json").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12345, 12346, 0o600)


def test_a_damaged_file_lets_nobody_in(open_service, folder, capsys):
    client = open_service()
    token = made(capsys, folder, "add", "anna", "--role", "admin")
    assert client.get("/examples", headers=bearer(token)).status_code == 200
    (folder / "tokens.json").write_text("{")
    assert client.get("/examples", headers=bearer(token)).status_code == 401
    assert client.get("/examples").status_code == 200
    with pytest.raises(ValueError, match=r"cannot be read as tokens .* make the tokens again"):
        create_app(client.service, TOKEN)
