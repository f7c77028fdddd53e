"""The same for many heads: half of the requests name the head ``cats``, and what it has."""

from __future__ import annotations

import os
from itertools import count

import httpx2 as httpx
import schemathesis

from tests.serve.conftest import AUTH, vectors

HTTP = httpx.Client(base_url=os.environ.get("TAER_TESTED", ""), headers=AUTH, timeout=60)
REQUESTS = count()
STRANGE = [[9.0 + 0.1 * number, *[0.0] * (len(vectors(0, 1)[0]) - 1)] for number in range(4)]


def stock():
    """An example of the version that answers, and an input in the inbox."""
    while not (taught := [one for one in HTTP.get("/heads/cats/examples").json()["examples"] if one["version"]]):
        HTTP.delete("/heads/cats/examples")
        for label in (0, 1, 2):
            body = {"label": f"{label} of {next(REQUESTS)}", "vectors": vectors(label, 4)}
            HTTP.post("/heads/cats/examples", json=body)
        HTTP.post("/heads/cats/learn").raise_for_status()
    while not (inputs := HTTP.get("/heads/cats/inbox").json()["inputs"]):
        HTTP.post("/heads/cats/predict", json={"vectors": STRANGE}).raise_for_status()
    return taught[-1], inputs[0]


@schemathesis.hook
def before_call(context, case, kwargs):
    number, path = next(REQUESTS), case.operation.path
    parameters = case.path_parameters or {}
    # making and deleting: a head of its own
    if path == "/heads/{name}" or (path == "/heads" and case.method == "POST"):
        HTTP.delete("/heads/own")
        if path != "/heads":
            HTTP.post("/heads", json={"name": "own", "copy_of": "cats"}).raise_for_status()
        if number % 2:
            if path == "/heads":
                case.body, case.media_type = (
                    {"name": "own"} | ({"copy_of": "cats"} if number % 4 == 1 else {}),
                    None,
                )
            else:
                case.path_parameters = {"name": "own"}
        elif parameters.get("name") == "cats":
            case.path_parameters = {"name": "nobody"}
        return
    # of a head that was made up and has learned nothing, the answer is 503, as the protocol has it
    if path.endswith("/ready"):
        for head in HTTP.get("/heads").json()["heads"]:
            if head["name"] != "cats":
                HTTP.delete(f"/heads/{head['name']}")
    if number % 2 or case.media_type not in (None, "application/json"):
        return
    example, kept = stock()
    values = {"name": "cats", "model": "cats", "label": example["label"], "version": example["version"]}
    if "/v2/" in path:
        values["version"] = HTTP.get("/heads/cats/health").json()["version"]
    values["number"] = (kept if "inbox" in path else example)["id"]
    case.path_parameters = {name: values[name] for name in parameters}
    inner = path.removeprefix("/heads/{name}")
    row = vectors(0, 1)[0]
    tensor = {"name": "vectors", "datatype": "FP32", "shape": [1, len(row)], "data": row}
    made = {
        "/purge": {"ids": [example["id"]]},
        "/predict": {"vectors": [row]},
        "/inbox": {"ids": [kept["id"]], "label": "named"},
        "/inbox/dismiss": {"ids": [kept["id"]]},
        "/inbox/{number}": {"label": "named"},
    }
    if inner.endswith("/infer"):
        case.body = {"inputs": [tensor]}
    elif inner in made and case.method == "POST":
        case.body = made[inner]
    elif case.method == "PATCH":
        case.body = {"label": f"renamed {number}"}
