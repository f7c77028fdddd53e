"""``taer label-studio``: a service that is also the ML backend of a Label Studio."""

from __future__ import annotations

import sys
from pathlib import Path

from taer.persist.save import load
from taer.serve import traces
from taer.serve.app import create_app
from taer.serve.label_studio.backend import PATH, Backend
from taer.serve.label_studio.teacher import Teacher
from taer.serve.label_studio.tool import Tool
from taer.serve.run import Access, open_service, print_notices, serve_app


def run_label_studio(
    folder: Path,
    tool: Tool,
    model: Path | None,
    backbone: str | None,
    access: Access,
    method: str | None = None,
    relearn: bool = False,
    every: int = 5,
) -> None:
    """Serve until stopped."""
    traces.start()
    service = open_service(folder, load(model) if model else None, backbone, method, relearn)
    print_notices(service, model)
    if service.several_labels:
        service.close()
        raise ValueError(
            f"{folder}: has several labels per sample, which Label Studio cannot teach; use 'taer serve'"
        )
    if service.backbone is None:
        service.close()
        raise ValueError(
            f"{folder}: no head with a backbone is here; name one with --backbone, or a --model that has one"
        )
    backend = Backend(Teacher(service, tool, every))
    app = create_app(service, access.token, access.is_public, access.hosts, extend=backend.add_to)
    print(
        f"taer: in Label Studio ({tool.url}): Settings, Model, Connect Model with the path {PATH} of the address below, "
        "Basic authentication, any user name, and the token as password; then Settings, Webhooks: add the header "
        "Authorization: Bearer TOKEN",
        file=sys.stderr,
    )
    serve_app(backend.behind(app), folder, access)
