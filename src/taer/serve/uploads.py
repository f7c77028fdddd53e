"""A budget for the bodies of all requests together: each is limited, and so is their sum."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException

from taer.serve.inputs import MAX_BODY

MAX_IN_FLIGHT = 8 * MAX_BODY  # bytes of bodies that are received or being answered
TOO_LARGE = f"a request may have {MAX_BODY >> 20} MiB; send less at once, or smaller images"
CROWDED = "too many large requests arrive at once; try again in a moment"
RETRY = {"Retry-After": "1"}


class Uploads:
    """The bodies in flight, the oldest first."""

    def __init__(self) -> None:
        self._all: dict[Upload, None] = {}

    @property
    def size(self) -> int:
        return sum(upload.size for upload in self._all)

    def add(self, upload: Upload) -> None:
        """Count a body. If there is no room, the oldest that is still arriving is dropped.

        A client that holds back the end of its body cannot keep others out.
        """
        self._all[upload] = None
        while self.size > MAX_IN_FLIGHT:
            oldest = next((other for other in self._all if not other.complete), upload)
            self.remove(oldest)
            if oldest is upload:
                raise HTTPException(503, CROWDED, RETRY)
            oldest.drop()

    def remove(self, upload: Upload) -> None:
        self._all.pop(upload, None)


class Upload:
    """The body of one request."""

    def __init__(self, uploads: Uploads) -> None:
        self.size, self.complete, self.dropped = 0, False, False
        self._uploads = uploads
        self._task = asyncio.current_task()

    def receive(self, size: int, complete: bool) -> None:
        """Count bytes that arrived; raises HTTPException if they are too many."""
        self.size, self.complete = self.size + size, complete
        if self.size > MAX_BODY:
            raise HTTPException(413, TOO_LARGE)
        if size:
            self._uploads.add(self)

    def drop(self) -> None:
        """End the request, which waits for the rest of its body."""
        self.dropped = True
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        self._uploads.remove(self)
