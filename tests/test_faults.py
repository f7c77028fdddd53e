"""The layer that lets storage fail sees every way in which a file is written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from tests.faults import Faults
from tests.power import Disk, Recorder

CONTENT = b"0123456789"
WAYS = {
    "write": "os.write(to, data)",
    "pwrite": "os.pwrite(to, data, 0)",
    "writev": "os.writev(to, [data[:3], data[3:]])",
    "pwritev": "os.pwritev(to, [data[:3], data[3:]], 0)",
    "sendfile": "os.sendfile(to, source, 0, len(data))",
    "copy_file_range": "os.copy_file_range(source, to, len(data))",
}
pytestmark = [pytest.mark.system, pytest.mark.skipif(sys.platform != "linux", reason="calls of Linux")]


def write(folder, way, environment):
    """How many bytes were written in one of these ways, or the number of the error."""
    source = folder.parent / "source"
    source.write_bytes(CONTENT)
    program = f"""
import os
source, data = os.open({str(source)!r}, os.O_RDONLY), {CONTENT!r}
to = os.open({str(folder / "copy")!r}, os.O_WRONLY | os.O_CREAT)
try:
    print({WAYS[way]})
except OSError as error:
    print(-error.errno)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_write_fails_is_cut_short_and_is_recorded(way, tmp_path):
    folder = tmp_path / "service"
    folder.mkdir()
    faults = Faults(tmp_path, folder)
    with faults.failing(1, "write", error=errno.ENOSPC) as seen:
        assert write(folder, way, faults.environment) == -errno.ENOSPC
    assert (seen.calls, seen.failed) == (1, 1)
    with faults.failing(1, "write", short=True):
        assert 0 < write(folder, way, faults.environment) < len(CONTENT)
    (folder / "copy").unlink()
    record, disk = Recorder(tmp_path, folder), Disk()
    assert write(folder, way, record.environment) == len(CONTENT)
    for call in record.calls():
        disk.do(call)
    assert disk.found(None) == {str(folder / "copy"): CONTENT}
