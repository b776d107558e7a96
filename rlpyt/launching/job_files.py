"""Files by which a launcher and the jobs of its runs know of each other."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rlpyt.logging.files import remove_file, write_json
from rlpyt.run_records import JOB_SUFFIX, Json, job_file, read_json

if TYPE_CHECKING:
    from rlpyt.launching.grid import GridRun, Progress


class JobFiles:
    """Files of a run's job beside the run: `run_<ID>.job` and those that begin with its name.

    Each submission has a token. Whoever makes the file of the token first has it: the job, or a launcher that does not
    know whether the job was submitted. So at most one of several submissions runs. The launcher alone writes the
    record.
    """

    def __init__(self, run: GridRun) -> None:
        self._record = run.log_dir / f"run_{run.run_ID}{JOB_SUFFIX}"

    def begin(self, token: str, job_id: str = "", cluster: str = "slurm") -> None:
        """Write the record: before the submission without the job's number, and after it again."""
        write_json(self._record, {"token": token, "job_id": job_id, "cluster": cluster})

    def read(self) -> tuple[str, str]:
        """Return token and job id of the record; empty where there is none."""
        content, _ = read_json(self._record)
        return str(content.get("token", "")), str(content.get("job_id", ""))

    def claim(self, token: str, job_id: str) -> str:
        """Take a submission unless it is taken; return the job id of its owner, "" for a launcher."""
        taken = self.owner(token)
        if taken is not None:  # by this job, at an earlier start: a full disk does not matter then
            return taken
        mine, owner = self._file(token, f"claim-{os.getpid()}"), self._file(token, "claim")
        write_json(mine, {"job_id": job_id})
        try:
            os.link(mine, owner)  # one step, with the content, on network file systems too
        except FileExistsError:
            return self.owner(token) or ""
        finally:
            remove_file(mine)
        return job_id

    def owner(self, token: str) -> str | None:
        """Return the job id of a submission's owner, "" for a launcher; None if nobody has taken it."""
        owner = self._read(token, "claim").get("job_id")
        return None if owner is None else str(owner)

    def ask(self, token: str, signum: int) -> None:
        """Ask a job to send a signal to its run."""
        write_json(self._file(token, "stop"), {"signal": int(signum)})

    def asked(self, token: str) -> int:
        """Return the signal that was asked for; 0 for none."""
        signum = self._read(token, "stop").get("signal", 0)
        return signum if type(signum) is int else 0

    def progress(self, token: str) -> dict[str, int]:
        """Return the fields of the `Progress` that the last start of a job has left; none before."""
        content = self._read(token, "progress")
        return {name: value for name, value in content.items() if type(value) is int}

    def keep_progress(self, token: str, progress: Progress) -> None:
        """Write a progress for the next start of the job."""
        write_json(self._file(token, "progress"), asdict(progress))

    def end(self, token: str, code: int) -> None:
        """Write the exit code of the run."""
        write_json(self._file(token, "exit"), {"exit_code": code})

    def exit_code(self, token: str) -> int | None:
        """Return the exit code of the run; None before its end."""
        code = self._read(token, "exit").get("exit_code")
        return code if type(code) is int else None

    def remove(self) -> None:
        """Remove what earlier submissions have left, but for the record."""
        for file in self._record.parent.glob(f"{self._record.name}.*"):
            remove_file(file)

    def _file(self, token: str, name: str) -> Path:
        return job_file(self._record, token, name)

    def _read(self, token: str, name: str) -> Json:
        return read_json(self._file(token, name))[0]
