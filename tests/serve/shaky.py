"""A process in which storage fails: it starts or backs up a service once for each line of its input.

The answer to each is a line of JSON: the current version and the number of waiting examples, or what was raised.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from taer.serve.backup import back_up
from taer.serve.service import Service


def start(folder: Path, **options):
    service = Service(folder, **options)
    found = [service.serving.version, service.n_pending]
    service.close()
    return found


def relearn(folder: Path):
    return start(folder, relearn=True, method="slda")


def backup(folder: Path):
    made = back_up(folder, folder.with_suffix(".tar"))
    return made.versions, made.missing


if __name__ == "__main__":
    do = {operation.__name__: operation for operation in (start, relearn, backup)}[sys.argv[1]]
    for line in sys.stdin:
        try:
            answer = {"found": do(Path(line.strip()))}
        except (OSError, ValueError) as error:
            answer = {"raised": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)
