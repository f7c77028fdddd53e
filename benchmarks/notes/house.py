"""The size of the code and the documentation at some revisions, as a table in Markdown.

    python -m benchmarks.notes.house eba7dd4 44721d1 HEAD --fill

About 20 seconds per revision. With ``--fill`` the table is also written into docs/evidence/notes.md.

Lines of code have no comments, docstrings and empty lines. The core is ``src/taer`` without ``zoo/`` and ``paper/``. Words
are those of README, of Markdown pages in ``docs/`` outside of evidence and reference, and of the prose in notebooks. A walk
is counted by a profiler on embedded data: functions, files and lines of code of the functions that run.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "notes.md"
MARK = "<!-- measured: How large is the code -->"
WALKS = {
    "`Bayes.partial_fit`, first task": "walk(lambda: taer.Bayes().partial_fit(X[y < 10], y[y < 10]))",
    "`Bayes.partial_fit`, a later task": "head = taer.Bayes().partial_fit(X[y < 10], y[y < 10]); "
    "walk(lambda: head.partial_fit(X[y >= 10], y[y >= 10]))",
    "`Bayes.predict`": "head, rows = taer.Bayes().partial_fit(X, y), np.array(data.test_x[:200]); "
    "walk(lambda: head.predict(rows))",
    "`TaER.partial_fit`": "walk(lambda: taer.TaER().partial_fit(X[y < 10], y[y < 10]))",
}
WALK = """
import json, sys
from pathlib import Path
import numpy as np
import taer
home, found = str(Path(taer.__file__).parent), set()
def record(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(home) and not code.co_name.startswith("<"):
        found.add((code.co_filename, code.co_firstlineno, code.co_qualname))
def walk(call):
    sys.setprofile(record); call(); sys.setprofile(None)
    print(json.dumps(sorted(found)))
data = taer.load_features()
X, y = data.train_x[data.train_y < 20], data.train_y[data.train_y < 20]
for head in (taer.Bayes(), taer.TaER()):  # modules are loaded when they are first needed
    head.fit(X, y).predict(X[:9])
"""
NAMES = "import taer; print(len([name for name in dir(taer) if not name.startswith('_')]))"


def code_lines(text: str) -> set[int]:
    """The numbers of the lines with code."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    lines = {
        n for token in tokens if token.type not in skipped for n in range(token.start[0], token.end[0] + 1) if n
    }
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def words(folder: Path) -> int:
    pages = [page for page in (folder / "docs").rglob("*.md") if page.parent.name not in ("evidence", "reference")]
    count = sum(len(page.read_text().split()) for page in (folder / "README.md", *pages))
    return count + sum(words_of_notebook(script.read_text()) for script in (folder / "docs/notebooks").glob("*.py"))


def words_of_notebook(script: str) -> int:
    """The words of the Markdown cells of a script that jupytext reads."""
    cells = re.findall(r"^# %% \[markdown\]\n((?:#(?! %%).*\n)*)", script, re.M)
    return sum(len(line.removeprefix("#").split()) for cell in cells for line in cell.splitlines())


def patching(folder: Path) -> str:
    """How many test functions there are, and how many of them patch something, ours or not."""
    trees = [(file.read_text(), ast.parse(file.read_text())) for file in (folder / "tests").rglob("test_*.py")]
    tests = [
        ast.get_source_segment(text, node) or ""
        for text, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    ]
    return f"{len(tests):,}; {sum('monkeypatch.setattr' in test for test in tests)}"


def printed(folder: Path, program: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def walked(folder: Path, program: str) -> str:
    functions = json.loads(printed(folder, WALK + program))
    lines = 0
    for file, first, _ in functions:
        text = Path(file).read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and first in (
                node.lineno,
                *(d.lineno for d in node.decorator_list),
            ):
                lines += len(code_lines(text) & set(range(node.lineno, (node.end_lineno or 0) + 1)))
    return f"{len(functions)} / {len({file for file, *_ in functions})} / {lines}"


def counted(revision: str) -> dict[str, str]:
    """All counts of one revision."""
    archive = subprocess.run(["git", "archive", revision], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as name, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        folder = Path(name)
        files.extractall(folder, filter="data")
        sources = sorted((folder / "src").rglob("*.py"))
        core = [file for file in sources if not {"zoo", "paper"} & set(file.parts[-4:-1])]
        return {
            "lines of code, core": f"{sum(len(code_lines(file.read_text())) for file in core):,}",
            "lines of code, all": f"{sum(len(code_lines(file.read_text())) for file in sources):,}",
            "files, core": str(len(core)),
            "files, all": str(len(sources)),
            "top-level names": printed(folder, NAMES).strip(),
            "words outside evidence and reference": f"{words(folder):,}",
            "tests; those that patch something": patching(folder),
            **{f"{walk}: functions / files / lines": walked(folder, WALKS[walk]) for walk in WALKS},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs="*", default=["HEAD"])
    parser.add_argument("--fill", action="store_true", help=f"write the table into {PAGE.name}")
    options = parser.parse_args()
    columns = [counted(revision) for revision in options.revisions]
    table = [
        f"| | {' | '.join(f'`{short(revision)}`' for revision in options.revisions)} |",
        f"|---|{'---:|' * len(columns)}",
        *(f"| {name} | {' | '.join(column[name] for column in columns)} |" for name in columns[0]),
    ]
    print("\n".join(table))
    if options.fill:
        before, _, rest = PAGE.read_text().partition(MARK)
        PAGE.write_text("\n".join([before + MARK, *table, "<!-- end -->"]) + rest.partition("<!-- end -->")[2])


def short(revision: str) -> str:
    done = subprocess.run(["git", "rev-parse", "--short=7", revision], capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
