"""Fuzz one reader, guided by the coverage of taer's code: ``python -m tests.fuzz.run TARGET FOLDER [libFuzzer options]``.

Inputs that reach new code are kept in the folder, not in the corpus. The process ends at the
first input that raises anything but a clear error, takes too long or too much memory, and writes it to a file
``crash-…`` in the working directory.
"""

from __future__ import annotations

import resource
import sys

MEMORY = 4 << 30  # bytes that the process may ask for; an input that makes it ask for more raises MemoryError


def main() -> None:
    import atheris  # which only the environment for fuzzing has

    with atheris.instrument_imports(include=["taer"]):
        from tests.fuzz.targets import CORPUS, TARGETS
    name, found, *options = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    usual = ["-rss_limit_mb=2048", "-timeout=20", "-max_len=16384"]
    atheris.Setup([sys.argv[0], *usual, *options, found, str(CORPUS / name)], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
