from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rlpyt.cli import main
from rlpyt.cli.arguments import joined
from rlpyt.cli.launch import options_of, variants_of
from rlpyt.cli.launched import on_slot
from rlpyt.cli.slurm import executor_of
from rlpyt.cli.train import start_of
from rlpyt.launching import ClusterSlots, affinity_from_code
from rlpyt.launching.affinity import job_affinity_code
from tests.launching.kit import put_programs
from tests.markdown import PAGES

GRID = ["--vary", "algo.learning_rate=1e-3,3e-4", "--vary", "sampler.batch_T=4,6"]


def test_values_of_settings_make_a_grid():
    variants, log_dirs = variants_of(
        ["algo.learning_rate=1e-3,lin_1e-4", "agent.model_kwargs.hidden_sizes=[64,64],[8]"]
    )
    assert variants[0] == {"algo": {"learning_rate": 1e-3}, "agent": {"model_kwargs": {"hidden_sizes": (64, 64)}}}
    assert variants[3] == {"algo": {"learning_rate": "lin_1e-4"}, "agent": {"model_kwargs": {"hidden_sizes": (8,)}}}
    assert log_dirs[0] == "learning_rate_0.001/hidden_sizes_64_64"
    assert variants_of([]) == ([{}], ["."])
    for text, value in (("env_kwargs=a=1", {"a": 1}), ("env_kwargs.text=a=1", {"text": "a=1"})):
        assert variants_of([f"sampler.{text}"])[0] == [{"sampler": {"env_kwargs": value}}]


@pytest.mark.parametrize(
    ("values", "n_named"),
    [
        (f"{'x' * 300}a,{'x' * 300}b", 2),
        (f'"{"ü" * 200}","{"ü" * 201}"', 2),
        (f"[{','.join(map(str, range(200)))}],[1]", 2),
        ('1,"1"', 2),
        ("a/b,a_b", 2),
        ('1,2,"a, b"', 3),
    ],
)
def test_each_value_has_a_folder_of_its_own_with_a_name_that_is_possible(values, n_named, tmp_path):
    _, log_dirs = variants_of([f"sampler.env_kwargs.layout={values}"])
    for log_dir in log_dirs:
        (tmp_path / log_dir / "run_0").mkdir(parents=True)
    assert len({*tmp_path.iterdir()}) == len(log_dirs) == n_named
    assert variants_of([f"sampler.env_kwargs.layout={values}"])[1] == log_dirs  # the same command goes on
    with pytest.raises(ValueError, match="are the same variant"):
        variants_of(["sampler.env_kwargs.layout=" + ",".join([f"{'x' * 300}"] * 2)])


CORES = dict(master_cpus=[0, 1], workers_cpus=[[0], [1]], master_torch_threads=2, set_affinity=True, cuda_idx=None)


@pytest.mark.parametrize(
    ("options", "is_dealt"),
    [(["--lag", "1"], False), (["--replicas", "1"], False), (["--lag", "1", "--replicas", "2", "--evaluate"], True)],
)
def test_replicas_deal_the_cores_of_a_slot(options, is_dealt):
    runner = on_slot(start_of(["ppo", "CartPole-v1", *options]).runner, CORES)
    assert runner.affinity == ({"cuda_idx": None, "set_affinity": True} if is_dealt else CORES)


@pytest.mark.parametrize(
    ("options", "n_gpus", "expected"),
    [
        ([], 1, 0),
        (["--lag", "1", "--replicas", "2"], 2, [0, 1]),
        (["--lag", "1"], 2, "has 2 GPUs and 1 replicas.*Give --replicas 2, or ask for as many GPUs as replicas"),
        (["--replicas", "4"], 2, "has 2 GPUs and 4 replicas"),
    ],
)
def test_each_replica_has_a_gpu_of_the_job(options, n_gpus, expected, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: n_gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join("37"[:n_gpus]))
    runner, affinity = start_of(["ppo", "CartPole-v1", *options]).runner, affinity_from_code(job_affinity_code())
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            on_slot(runner, affinity)
        return
    given: Any = on_slot(runner, affinity).affinity
    assert ([part["cuda_idx"] for part in given] if n_gpus > 1 else given["cuda_idx"]) == expected
    if n_gpus > 1:  # without a number there are as many replicas as GPUs
        three = [dict(cuda_idx=None)] * 3
        sync = start_of(["ppo", "CartPole-v1", "--replicas", "2"]).runner.replace(n_replicas=None)
        assert on_slot(sync, three).affinity == three


def test_a_run_with_settings_of_its_own_computes_on_the_gpu_of_its_slot(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    runner = start_of(["ppo", "CartPole-v1", "--precision", "bfloat16"]).runner
    placed: Any = on_slot(runner, dict(CORES, cuda_idx=1))
    assert (placed.settings.device, placed.settings.precision) == ("cuda:1", "bfloat16")


def test_options_of_the_grid_and_of_the_runs_are_told_apart_and_may_be_given_several_times():
    vary = ["--vary", "a=1", "--seed", "3", "--dry-run", "--vary", "b=2", "c=3", "--runs_at_once=2", "--vary=d=4"]
    own, of_runs = options_of(["ppo", "X-v1", *vary, "--env-kwargs", "e=5", "--env_kwargs=f=6", "--smoke"])
    assert (own.dry_run, own.runs_at_once, own.seeds) == (True, 2, 1)
    assert own.vary == ("a=1", "b=2", "c=3", "d=4")
    assert of_runs == ["ppo", "X-v1", "--seed", "3", "--env-kwargs", "e=5", "--env_kwargs=f=6", "--smoke"]
    assert joined(of_runs)[-3:] == ["--env-kwargs", "e=5", "f=6"]


def test_a_dry_run_lists_the_runs(tmp_path, capsys):
    arguments = ["launch", "ppo", "CartPole-v1", *GRID, "--seeds", "2", "--dry-run", "--data-dir", str(tmp_path)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"8 runs in {tmp_path}/ppo_CartPole-v1_grid:")
    assert "  learning_rate_0.0003/batch_T_6/run_1\n" in out
    assert not any(tmp_path.iterdir())


def test_a_grid_runs_with_its_changes_and_seeds_and_is_shown(tmp_path, capsys):
    n_slots = str(min(2, len(os.sched_getaffinity(0))))
    grid = ["--vary", "algo.learning_rate=3e-4", "--seeds", "2", "--runs-at-once", n_slots, "--data-dir", str(tmp_path)]
    assert main(["launch", "ppo", "CartPole-v1", *grid, "--smoke"]) == 0
    assert "2 finished" in capsys.readouterr().out
    folder = tmp_path / "ppo_CartPole-v1_grid"
    for run_ID in (0, 1):
        settings = settings_of(folder / f"learning_rate_0.0003/run_{run_ID}")
        assert settings["algo"]["settings"]["learning_rate"] == 3e-4
        assert settings["seed"] == run_ID
        assert settings["affinity"]["cuda_idx"] is None
    assert main(["show", str(folder)]) == 0
    assert "2 runs: 2 finished" in capsys.readouterr().out
    # The same command goes on with a grid: here there is nothing left to do.
    assert main(["launch", "ppo", "CartPole-v1", *grid, "--smoke"]) == 0
    assert "of which 2 have finished before" in capsys.readouterr().out
    # What has finished with other settings is not taken for a run with these.
    assert main(["launch", "ppo", "CartPole-v1", *grid, "--smoke", "--dry-run", "--vary", "algo.gae_lambda=0.5"]) == 0
    assert main(["launch", "ppo", "CartPole-v1", *grid, "--smoke", "--dry-run", "--algo.discount", "0.5"]) == 2
    assert "run_0 has finished with other settings: algo.discount is 0.5, and was 0.98" in capsys.readouterr().err
    # The variant's file starts its run again, too.
    variant = folder / "learning_rate_0.0003/variant_config.json"
    assert main(["train", str(variant), "--log-dir", str(tmp_path / "again")]) == 0
    assert settings_of(tmp_path / "again/run_0")["algo"]["settings"]["learning_rate"] == 3e-4


def settings_of(directory):
    return json.loads((directory / "params.json").read_text())["runner"]["settings"]


def test_a_script_of_ones_own_is_launched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "study.py"
    script.write_text(
        "from pathlib import Path\nfrom rlpyt.launching import launched_run\n"
        "run = launched_run()\nPath('told.txt').write_text(f'{run.variant} {run.args}')\n"
    )
    assert main(["launch", "study.py", "--vary", "algo.epochs=2", "--affinity", "1aut", "--fast", "yes"]) == 0
    assert Path(tmp_path / "told.txt").read_text() == "{'algo': {'epochs': 2}} ('--fast', 'yes')"
    assert (tmp_path / "data/study/epochs_2/variant_config.json").exists()


# ---- jobs of SLURM ----


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Put two programs into the PATH: without srun submitit makes no jobs, and sbatch takes every one."""
    pytest.importorskip("submitit")
    folder = tmp_path / "programs"
    put_programs(folder, srun="", sbatch="echo Submitted batch job 7")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("partition=gpu,account=123,gpus-per-node=1", ["account=123", "gpus-per-node=1", "partition=gpu"]),
        ("mem_gb=16,cpus_per_task=4", ["cpus-per-task=4", "mem=16GB"]),
        ("time=4:00:00", ["time=4:00:00"]),
        ("timeout_min=90", ["time=90"]),
        ("exclude=n1,n[2-3,5],gres=none", ["exclude='n1,n[2-3,5]'", "gres=none"]),
        ("exclude=[n1,n2],exclusive=true", ["exclude=n1,n2", "exclusive"]),
        ('comment="a, b=c"', ["comment='a, b=c'"]),
        ('additional_parameters={"licenses": "x"}', ["licenses=x"]),
    ],
)
def test_what_a_job_asks_for_is_told_to_sbatch(text, options, slurm, tmp_path):
    told = batch_file([text], tmp_path)
    wanted = [f"#SBATCH --{option}" for option in options]
    assert [line for line in told if line in wanted] == wanted
    assert any("--time" in line for line in told) == ("time" in text), "without one it is that of the partition"


@pytest.mark.parametrize("text", ["setup=[module load cuda,export A=1]", "setup=module load cuda"])
def test_commands_that_come_before_a_run(text, slurm, tmp_path):
    told = batch_file([text], tmp_path)
    assert told[told.index("# setup") + 1] == "module load cuda"
    assert ("export A=1" in told) == ("export" in text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_jobs_of_the_pages_can_be_meant(page, slurm, tmp_path):
    found = re.findall(r"^    (rlpyt launch .* --slurm .*)$", page.read_text().replace("\\\n", " "), re.MULTILINE)
    assert found or page.name != "command_line.md"
    for line in found:
        executor_of(options_of(shlex.split(line)[2:])[0].slurm or (), tmp_path)


def batch_file(texts, folder):
    """Return the lines of the file that sbatch gets."""
    executor_of(texts, folder / "jobs").submit(len, "")
    return (folder / "jobs/7_submission.sh").read_text().splitlines()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--slurm", "partion=gpu"], "got 'partion'; did you mean partition?"),
        (["--slurm", "licenses=x"], 'additional_parameters={"reservation": "mine"}'),
        (["--slurm", "partition=gpu,account="], "got 'account' without a value"),
        (["--slurm"], "got no values; expected what a job asks for"),
        (["--slurm", "partition=a", "partition=b"], "got partition twice"),
        (["--slurm", "mem_gb=16G"], "mem_gb: got '16G'; expected NUMBER"),
        (["--slurm", "nodes=2"], "nodes=2; expected 1"),
        (["--slurm", "gpus_per_node=2"], "2 GPUs and 1 replicas; expected a GPU for each"),
        (["--slurm", "partition=gpu", "--affinity", "4aut"], "got --affinity beside --slurm"),
        (["--slurm", "partition=gpu", "--device=cuda:7"], "got --device beside --slurm"),
    ],
)
def test_jobs_that_cannot_be_meant_are_refused_before_anything_starts(arguments, says, slurm, refused):
    refused(["launch", "ppo", "CartPole-v1", *arguments], says)
    refused(["launch", "ppo", "CartPole-v1", *arguments, "--dry-run"], says)


def test_jobs_without_slurm_are_refused(refused, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "")
    refused(["launch", "ppo", "CartPole-v1", "--slurm", "partition=gpu"], "there is no srun in the PATH")


@pytest.mark.parametrize("n", [None, 3])
def test_a_grid_of_jobs_goes_to_slurm(n, slurm, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    handed: dict[str, tuple[object, ...]] = {}
    monkeypatch.setattr("rlpyt.cli.launch.run_experiments", lambda *given, **named: handed.update(given=given) or 0)
    (tmp_path / "study.py").touch()
    more = [] if n is None else ["--runs-at-once", str(n)]
    for first in (["study.py"], ["ppo", "CartPole-v1"]):
        arguments = ["launch", *first, "--slurm", "partition=gpu", "--slurm", "mem_gb=8", "--title", "t", *more]
        assert main([*arguments, "--dry-run"]) == 0
        assert f"1 runs in data/t, {n or 20} at once as jobs of SLURM, whose logs" in capsys.readouterr().out
        assert main(arguments) == 0
        place = handed["given"][1]
        assert isinstance(place, ClusterSlots)
        assert place.n_slots == (n or 20)
        assert place._executor.folder == tmp_path / "data/t/jobs"  # jobs start elsewhere
        assert place._executor.parameters["partition"] == "gpu"
        assert place._executor.parameters["mem"] == "8GB"
