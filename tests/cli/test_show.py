from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import MISSING, fields
from typing import Any

import pytest

from rlpyt.cli import main
from rlpyt.cli.envs import families
from rlpyt.cli.show import run_lines
from rlpyt.cli.train import start_of
from rlpyt.runners.record import record_of
from rlpyt.settings import all_settings
from tests.launching.kit import put_programs


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], {}),
        (["--max-time", "9"], {"max_time": "9"}),
        (["--hooks", "StopOnReturn(475)"], {"hooks": "StopOnReturn(threshold=475)"}),
        (["--sampler.eval-env-kwargs", "x=1"], {"sampler.eval_env_overrides": "x=1"}),
        (["--algo.optim-kwargs", "eps=1", "--sampler.no-mid-batch-reset"], {"algo.optim_kwargs": "eps=1"}),
        (["--agent.recurrent", "gru", "--algo.discount", "0.99"], {"agent.recurrent": "gru", "algo.discount": None}),
    ],
)
def test_show_tells_the_settings_that_differ_from_their_defaults(options, told, tmp_path):
    runner: Any = start_of(["ppo", "CartPole-v1", *options]).runner
    record: Any = record_of(runner)[0]
    (tmp_path / "params.json").write_text(json.dumps({"runner": record}))
    lines = [line.strip().partition(" = ") for line in run_lines(tmp_path, {})]
    shown = {place: value for place, equals, value in lines if equals}
    assert all(shown.get(place) == value for place, value in told.items())
    for prefix, part in (("algo.", runner.algo), ("agent.", runner.agent), ("sampler.", runner.sampler)):
        defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(part)}
        wanted = {
            name for name, x in all_settings(part).items() if x != defaults[name] and x != {} and name not in TOLD
        }
        assert {place.removeprefix(prefix) for place in shown if place.startswith(prefix)} == wanted


TOLD = ("EnvCls", "env_kwargs", "batch_T", "batch_B")
"""Settings that stand in other lines."""


def test_show_reads_records_and_jobs_without_torch(tmp_path, squeue):
    with_job(tmp_path / "run_0", "7", "failed", exception={"type": "ValueError", "message": "no such thing"})
    (squeue / "answer").write_text("7|RUNNING|None|0|N/A|N/A|\n")
    code = f"import sys; from rlpyt.cli import main; main(['show', {str(tmp_path / 'run_0')!r}]); "
    code += "print({'torch', 'numpy', 'submitit'} & {*sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    for text in ("failed (ValueError: no such thing)", "no params.json", "7 RUNNING"):
        assert text in result.stdout
    assert "start again" not in result.stdout
    assert result.stdout.endswith("set()\n")


def test_a_directory_that_is_no_run_is_refused(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    assert main(["show", str(tmp_path / "dat")]) == 2
    assert f"There are {tmp_path / 'data'}" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "data")]) == 2
    assert "there is no run in" in capsys.readouterr().err


def test_algorithms_and_environments_are_listed_with_what_is_missing(capsys, monkeypatch):
    def listed(*arguments):
        assert main(arguments) == 0
        return capsys.readouterr().out

    assert ["sac", "continuous", "Soft"] in [line.split()[:3] for line in listed("algos").splitlines()]
    assert "HalfCheetah-v5" in (found := listed("envs", "half*"))
    assert "Hopper" not in found
    newest = listed("envs").replace(",", " ").split()
    assert {"HalfCheetah-v5", "CartPole-v1", "pong"} <= {*newest}
    assert not {"HalfCheetah-v4", "CartPole-v0"} & {*newest}
    missing = [family._replace(packages=("no_such_package",)) for family in families() if family.name == "Atari"]
    monkeypatch.setattr("rlpyt.cli.envs.families", lambda: missing)
    assert "not installed: no_such_package. pip install rlpyt[atari]" in listed("envs", "pong")


def test_a_run_is_shown_from_within_and_through_a_link_that_hides_none(tmp_path, monkeypatch, capsys):
    def shown(path):
        assert main(["show", str(path)]) == 0
        return capsys.readouterr().out

    folder = tmp_path / "my runs"
    for number in (0, 1):
        (folder / f"run_{number}").mkdir(parents=True)
        (folder / f"run_{number}/params.json").write_text('{"runner": {"settings": {}}}')
        (folder / f"run_{number}/status.json").write_text('{"status": "finished"}')
        assert f"\n{number + 1} run{'s' if number else ''}: {number + 1} finished" in shown(folder)
    (folder / "best").symlink_to("run_1")
    out = shown(folder)
    assert "\nrun_1 " in out
    assert f"rlpyt show '{folder}/run_0'" in out  # a shell takes it as it stands
    assert f"start again:  rlpyt train '{folder}/best'" in shown(folder / "best")
    monkeypatch.chdir(folder / "run_0")
    assert ".\n\nstatus      finished" in shown(".")
    (folder / "run_0/params.json").write_text('{"name": "x"}')  # as rlpyt 0.1 wrote it
    assert "start again" not in shown(".")


def recorded(folder, **sampler):
    """Write the record of a run with a checkpoint, whose sampler has these settings."""
    (folder / "run_0/checkpoints/000000000040").mkdir(parents=True)
    (folder / "run_0/checkpoints/000000000040/manifest.json").write_text("{}")
    settings = {"sampler": {"class": "rlpyt.samplers:SerialSampler", "settings": sampler}}
    content = {"runner": {"class": "rlpyt.runners:MinibatchRl", "settings": settings}}
    (folder / "run_0/params.json").write_text(json.dumps(content))


def test_commands_to_paste_trust_every_module_of_the_record_and_run_no_word_of_it(tmp_path, capsys):
    recorded(
        tmp_path, EnvCls={"name": "my_envs.small:Env"}, env_kwargs={"base": {"id": "my_reg:Own-v0"}, "mode": "a:b"}
    )
    assert main(["show", str(tmp_path / "run_0")]) == 0
    assert f"go on:        rlpyt resume {tmp_path}/run_0 --trust my_envs my_reg\n" in capsys.readouterr().out
    recorded(tmp_path / "script", EnvCls={"name": "__main__:Env"})  # it cannot be imported
    assert main(["show", str(tmp_path / "script" / "run_0")]) == 0
    assert "--trust" not in capsys.readouterr().out
    hostile = "x; touch pwned ;:Y"
    recorded(tmp_path / "b", EnvCls={"name": hostile}, env_kwargs={"id": "$(touch pwned):X-v0"})
    assert main(["show", str(tmp_path / "b/run_0")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("go on", "start again"))]
    assert [shlex.split(line.partition(":")[2])[3:] for line in lines] == [[], []]


def test_a_terminal_obeys_no_record(tmp_path, capsys):
    text = "a\x1b]52;c;eA==\x07\x1b[2J\u202eb\u200bc\r\x9b31m"
    recorded(tmp_path, EnvCls={"name": f"m:{text}"}, env_kwargs={"id": text, text: text})
    status = {"status": f"failed{text}", "exception": {"type": text, "message": text}}
    (tmp_path / "run_0/status.json").write_text(json.dumps(status))
    (tmp_path / "run_0/progress.csv").write_text(f"Diagnostics/CumSteps,ReturnAverage\n{text},{text}\n", newline="")
    for folder in (tmp_path, tmp_path / "run_0"):
        assert main(["show", str(folder)]) == 0
        out = capsys.readouterr().out
        assert "\\x1b" in out
        assert out.replace("\n", "").isprintable()


@pytest.mark.parametrize("value", [{"float": {}}, {"tuple": 3}, [{"class": "x", "settings": {}}], 10**400, {"name": 3}])
def test_a_record_of_any_values_is_shown(value, tmp_path, capsys):
    recorded(tmp_path, batch_T=value, env_kwargs=value, other=value)
    (tmp_path / "run_0/status.json").write_text(json.dumps({"status": value, "seconds": value, "started": value}))
    assert main(["show", str(tmp_path / "run_0")]) == 0


# ---- jobs of SLURM ----


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Put a squeue into the PATH that writes down what it is asked, and answers with lines of a file."""
    folder = tmp_path / "programs"
    put_programs(folder, squeue=f'echo "$@" >> {folder}/asked; cat {folder}/answer', sacct="exit 1")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def with_job(run, job_id, status=None, claim=None, token="a1", **more):
    """Write the record of a run's job, and of the run if it has begun."""
    run.parent.mkdir(parents=True, exist_ok=True)
    record = run.with_name(f"{run.name}.job")
    record.write_text(json.dumps({"token": token, "job_id": job_id}))
    if claim is not None:
        record.with_name(f"{record.name}.{token}.claim").write_text(json.dumps({"job_id": claim}))
    if status is not None:
        run.mkdir()
        (run / "status.json").write_text(json.dumps({"status": status, **more}))


def test_runs_are_shown_with_what_slurm_says_of_their_jobs(tmp_path, squeue, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")  # a run is one line all the same
    study = tmp_path / "study"
    with_job(study / "x_1/run_0", "7", "interrupted")
    with_job(study / "x_1/run_10", "12")  # no directory yet
    with_job(study / "x_1/run_2", "", claim="8")  # its launcher died before it knew the number
    with_job(study / "x_1/run_3", "9", "finished")
    (squeue / "answer").write_text(
        "7|PENDING|BeginTime|1|N/A|N/A|\n8|RUNNING|None|0|N/A|N/A|\n12|PENDING|Priority|0|N/A|N/A|\n"
    )
    assert main(["show", str(study)]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.startswith("x_1/")]
    assert [line[0] for line in lines] == ["x_1/run_0", "x_1/run_2", "x_1/run_3", "x_1/run_10"]
    told = [line[1].rpartition("none yet")[2].strip() for line in lines]
    assert told == ["7 PENDING, BeginTime", "8 RUNNING", "", "12 PENDING, Priority"]
    assert lines[3][1].startswith("not begun")
    asked = (squeue / "asked").read_text()
    assert asked.count("\n") == 1, "one question for all"
    [jobs] = [word for word in asked.split() if word.startswith("--jobs=")]
    assert {*jobs.removeprefix("--jobs=").split(",")} == {"7", "8", "12"}
    assert main(["show", str(study / "x_1/run_0")]) == 0
    assert "\njob         7 PENDING, BeginTime\n" in capsys.readouterr().out


def test_slurm_that_is_away_or_missing_takes_nothing_from_a_table(tmp_path, squeue, monkeypatch, capsys):
    with_job(tmp_path / "study/run_0", "7", "running")
    assert main(["show", str(tmp_path / "study")]) == 0  # there is no answer
    assert "7 (SLURM does not answer)" in capsys.readouterr().out
    (squeue / "asked").unlink()
    monkeypatch.setenv("PATH", "")
    assert main(["show", str(tmp_path / "study")]) == 0
    out = capsys.readouterr().out
    assert "run_0  running" in out
    assert "job" not in out
    assert not (squeue / "asked").exists()


@pytest.mark.parametrize(
    ("place", "job_id"),
    [("claim", "--help"), *(("job_id", x) for x in ["--help", "7;x", "7\n", "\uff17", "9" * 5000, 7.5, ["7"], ""])],
)
def test_no_record_puts_a_word_of_its_own_on_a_command_line(job_id, place, tmp_path, squeue, capsys):
    given = {"job_id": "", place: job_id}
    with_job(tmp_path / "study/run_0", given["job_id"], "running", given.get("claim"))
    assert main(["show", str(tmp_path / "study")]) == 0
    assert not (squeue / "asked").exists()
    assert "job" not in capsys.readouterr().out


@pytest.mark.parametrize("token", ["/up", "\0", 3, "a" * 5000])
def test_a_token_that_names_no_file_is_none(token, tmp_path, squeue, capsys):
    with_job(tmp_path / "study/run_0", "7", "running", token=token)
    assert main(["show", str(tmp_path / "study")]) == 0
    assert "run_0  running" in capsys.readouterr().out
