from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from rlpyt.replays import mapped_file
from rlpyt.utils.shared_memory import dumps

HOLD = """
import sys
import numpy as np
from rlpyt.replays import mapped_file
array = mapped_file(sys.argv[1])(np.float32(0), (1000, 1000))
array[:] = 3
print("ready", flush=True)
sys.stdin.read()
"""


def test_other_processes_can_be_given_the_arrays(tmp_path):
    array = mapped_file(tmp_path)(np.int64(0), (3, 400))
    message = dumps(array[1:])
    assert len(message) < array.nbytes / 2
    pickle.loads(message)[0, 2] = 9
    assert array[1, 2] == 9


def test_nothing_is_left_behind_when_the_process_is_killed(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    on_disk = [os.stat(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd")]
    sizes = [stat.st_blocks * 512 for stat in on_disk if stat.st_dev == tmp_path.stat().st_dev and stat.st_nlink == 0]
    assert any(size >= 4_000_000 for size in sizes), "the file is reserved, and has no name"
    assert not list(tmp_path.iterdir())
    process.kill()
    process.communicate()
    assert not list(tmp_path.iterdir())


def test_no_such_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*/nowhere\. Make it"):
        mapped_file(tmp_path / "nowhere")


def test_more_than_the_disk_has(tmp_path):
    with pytest.raises(OSError, match=r"1,152,921,504,606,846,976 bytes were asked for, and [\d,]+ are free") as raised:
        mapped_file(tmp_path)(np.uint8(0), (2**30, 2**30))
    assert raised.value.errno == errno.ENOSPC
