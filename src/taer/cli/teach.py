"""``taer teach``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from taer.cli.app import app

_AT_ONCE = 64  # texts in one request


@app.command()
def teach(
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of a service, such as http://127.0.0.1:8000.")],
    examples: Annotated[Path, typer.Argument(metavar="EXAMPLES.csv", help="A table with columns text and label.")],
    token: Annotated[str, typer.Option(envvar="TAER_TOKEN", help="The token of the service.")],
) -> None:
    """Teach a running service a table of examples.

    All examples of the table are learned as one task.
    """
    from taer.client import Client, ServiceError

    rows = _rows(examples)
    with Client(url, token) as client:
        added = 0
        try:
            for label, texts in rows.items():
                for start in range(0, len(texts), _AT_ONCE):
                    added += len(client.add(label, texts=texts[start : start + _AT_ONCE])["ids"])
            version = client.learn()
        except ServiceError as error:
            raise ValueError(
                f"{url}: {error} ({added} examples were added before and wait to be learned)"
            ) from None
    print(
        f"version {version['version']}: {added} examples of {len(rows)} classes; {version['classes']} classes in all"
    )


def _rows(path: Path) -> dict[str, list[str]]:
    """Texts by label."""
    import csv

    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            if missing := {"text", "label"} - set(table.fieldnames or []):
                raise ValueError(f"{path}: expected columns text and label; there is no column {min(missing)}")
            found: dict[str, list[str]] = {}
            for row in table:
                found.setdefault(row["label"] or "", []).append(row["text"] or "")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot be read as a table: {error}") from None
    if not found:
        raise ValueError(f"{path}: the table has no rows")
    return found
