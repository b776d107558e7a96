"""What cannot be meant is refused with one message and exit code 2, before anything is written."""

from __future__ import annotations

import sys

import pytest

PPO = ["train", "ppo", "CartPole-v1"]
HOOK, TRACK = [*PPO, "--hooks"], [*PPO, "--track"]
GRID = ["launch", "ppo", "CartPole-v1"]
NO_UPDATE = ["--sampler.batch-B", "3", "--algo.minibatches", "7"]

ARGUMENTS: list[tuple[list[str], str]] = [
    (["resum", "x"], "there is no command 'resum'; did you mean resume?"),
    (["resume", "run_0"], "expected the directory of a run"),
    # algorithm and environment
    (["train", "pppo", "CartPole-v1"], "there is no algorithm 'pppo'; did you mean ppo"),
    (["train", "ppo", "CartPol-v1"], "there is no environment 'CartPol-v1'; did you mean CartPole-v1"),
    (["train", "ppo", "breakot"], "did you mean breakout"),
    (["train", "ppo", "NoSuch-Thing-v0"], "written with the package, such as minigrid:MiniGrid-Empty-5x5-v0"),
    (["train", "sac", "CartPole-v1"], "those of CartPole-v1 are discrete: Discrete(2). These take them: ppo"),
    (["train", "ppo"], "there is no environment after ppo; expected one, such as rlpyt train ppo CartPole-v1"),
    (["train", "ppo", "--seed", "0", "CartPole-v1"], "expected the environment. Options come after it"),
    (["train", "ppo", "no_module:Env"], "there is no module 'no_module'"),
    (["train", "ppo", "json:lods"], "json/__init__.py has no 'lods'; did you mean"),
    (["train", "no_run/params.json"], "there is no no_run/params.json"),
    (["envs", "brekout"], "did you mean breakout"),
    # options and their values
    ([*PPO, "--algo.lerning-rate", "1"], "Perhaps you meant: --algo.learning-rate NUMBER|SCHEDULE Of the optimiser."),
    ([*PPO, "--evalute"], "Perhaps you meant: --evaluate"),
    ([*PPO, "--algo.lr", "1"], "there is no option --algo.lr; did you mean --algo.learning-rate?"),
    ([*PPO, "--algo.gamma=0.9"], "there is no option --algo.gamma; did you mean --algo.discount?"),
    ([*PPO, "--total_timesteps", "1"], "there is no option --total_timesteps; did you mean --n-steps?"),
    ([*PPO, "--num-envs", "1"], "there is no option --num-envs; did you mean --sampler.batch-B?"),
    ([*PPO, "--replicas", "2", "--batch-sizes", "all"], "expected one of replica, global"),
    ([*PPO, "--device", "gpu"], "expected cpu, cuda, or cuda:0"),
    ([*PPO, "--device", "cpu,cpu", "--compile"], "with --precision or --compile; expected one"),
    ([*PPO, "--precision", "fastest", "--compile"], "--compile: got it with --precision fastest"),
    ([*PPO, "--sampler.env-kwargs"], "got no value; expected KEY=VALUE"),
    ([*PPO, "--sampler.env-kwargs", "a=1", "b"], "got 'b'; expected key=value"),
    ([*PPO, "--env-kwargs", '{"a": 1,}'], "which is no JSON"),
    ([*PPO, "--env-kwargs", "x=1"], "unexpected keyword argument 'x'"),
    (["eval", "x", "--episodes", "two"], "got 'two'; expected INT"),
    (["bench", "--sampler-type", "cup"], "expected some of serial, cpu, gpu, alternating"),
    (["play", "x", "--video", "a.gif"], "expected a file that ends in .mp4, .mkv, .mov, .avi, or a folder"),
    (["plot"], "got no folder"),
    # what agent and algorithm refuse
    ([*PPO, "--algo.discount", "3"], "PPO: discount is 3.0; expected a number in [0, 1]"),
    ([*PPO, *NO_UPDATE], "PPO: minibatches is 7, which does not divide the rows of a batch"),
    ([*PPO, "--agent.model-kwargs", "hidden_size=[64]"], "PgModel has no argument 'hidden_size'. Did you mean"),
    (
        [*PPO, "--lag", "1", "--agent.model-kwargs", "width=3", "--smoke"],
        "PgModel has no argument 'width'. It has: obs",
    ),
    (["train", "dqn", "CartPole-v1", "--n-steps", "500"], "DQN: min_steps_learn is 1,000, but the run has only 512"),
    # hooks and trackers
    ([*HOOK, "stop_on_return=475"], "did you mean StopOnReturn? Expected some of StopOnReturn, Histograms, EpisodeV"),
    ([*HOOK, "os:system"], "Expected some of StopOnReturn"),
    ([*HOOK, '{"class": "rlpyt.runners:StopOnReturn"}'], "Expected some of StopOnReturn"),
    ([*HOOK, "StopOnReturn"], "StopOnReturn lacks threshold; expected StopOnReturn(threshold=NUMBER)"),
    ([*HOOK, "StopOnReturn(high)"], "threshold of StopOnReturn: got 'high'; expected NUMBER"),
    ([*HOOK, "StopOnReturn(1,rows=2)"], "got 'rows=2' as a setting of StopOnReturn; did you mean n_rows?"),
    ([*HOOK, "StopOnReturn(1,threshold=2)"], "got 'threshold=2' as a setting of StopOnReturn"),
    ([*HOOK, "StopOnReturn(1,2,3,4)"], "got '4' as a setting of StopOnReturn; expected some of threshold, column"),
    ([*HOOK, "StopOnReturn(1,n_rows=0)"], "n_rows is 0"),
    ([*TRACK, "wandbb"], "did you mean wandb? Expected some of tensorboard, wandb, mlflow, trackio"),
    ([*TRACK, "mlflow(projekt=x)"], "got 'projekt=x' as a setting of mlflow"),
    ([*TRACK, "tensorboard(x)"], "got tensorboard(x); expected no settings"),
    # grids
    ([*GRID, *NO_UPDATE], "PPO: minibatches is 7, which does not divide the rows of a batch"),
    ([*GRID, "--hooks", "os:system"], "Expected some of StopOnReturn"),
    (["launch", "--vary", "algo.epochs=1", "ppo"], "expected an algorithm or a script first. Options come after it"),
    ([*GRID, "--vary", "algo.epochs"], "expected a setting and its values, as algo.learning_rate=1e-3,3e-4"),
    ([*GRID, "--vary", "algo.epoch=2"], "has no argument 'epoch'. Did you mean epochs"),
    ([*GRID, "--vary", "algo.discount=0.9,3"], "discount is 3; expected a number in [0, 1]"),
    (
        [*GRID, "--vary", "algo.epochs=2,2"],
        "are the same variant, {'algo': {'epochs': 2}}; expected different ones",
    ),
    ([*GRID, "--seeds", "0", "--dry-run"], "--seeds: got 0; expected a whole number from 1"),
    ([*GRID, "--retries", "-1"], "--retries: got -1; expected a whole number from 0"),
    ([*GRID, "--affinity", "2cpu_2cpr_1ass"], "one with optimizer and sampler for AsyncRl"),
    ([*GRID, "--runs-at-once", "999"], "Take fewer"),
    ([*GRID, "--seed", "5"], "--vary seed=5,6"),
    ([*GRID, "--log_dir=x"], "--title in --data-dir"),
    ([*GRID, "--run-id", "1"], "numbered from 0"),
    ([*GRID, "--resume", "auto"], "the same command goes on"),
]


@pytest.mark.parametrize(("arguments", "says"), ARGUMENTS, ids=lambda x: " ".join(x[1:]) if isinstance(x, list) else "")
def test_arguments_that_cannot_be_meant(arguments, says, refused):
    refused(arguments, says)


FILES = [
    ("algo: {lerning_rate: 1}", "has no argument 'lerning_rate'. Did you mean learning_rate?"),
    ("n_step: 1", "study.yaml has no argument 'n_step'. Did you mean n_steps?"),
    ("learning_rate: 1", "learning_rate is a setting of the algo; expected it there. Write algo.learning_rate."),
    ("vary: {algo.epochs: [1, 2]}", "study.yaml has no argument 'vary'"),
    ("algo: ppo", "algo is 'ppo'; expected its settings by name. The algorithm is named by algorithm: ppo."),
    ("algo: {OptimCls: Adam}", "OptimCls: got 'Adam'; expected no text"),
    ("evaluate: often", "study.yaml: evaluate: got 'often'; expected true or false"),
    ("verbosity: loud", "study.yaml: verbosity: got 'loud'; expected one of table, lines, quiet"),
    ("config: more.yaml", "names another file"),
    ("- 1", "expected settings by name"),
    ("seed: 2020-01-01", "expected settings by name: numbers, texts"),
    ("seed: [1", "study.yaml is no YAML"),
    ("seed: 1\nseed: 2", "seed comes twice"),
    ("n_steps: 1\nn-steps: 2", "n-steps under 'n-steps' comes twice"),
    ("algo: {epochs: 1}\nalgo.epochs: 2", "epochs under 'algo.epochs' comes twice"),
    ("seed: !!python/object/apply:os.system ['touch mark']", "could not determine a constructor"),
    ("algo.discount: 3", "discount is 3.0; expected a number in [0, 1]"),
    ("track: carrier_pigeon", "Expected some of tensorboard"),
]


@pytest.mark.parametrize(("content", "says"), FILES)
def test_a_file_of_settings_that_cannot_be_meant(content, says, refused, in_folder):
    pytest.importorskip("yaml")
    (in_folder / "study.yaml").write_text(content)
    refused([*PPO, "--config", "study.yaml"], says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "study.yaml"], "has no algorithm and no env; expected algorithm and env"),
        (["launch", *PPO[1:], "--config", "study.yaml"], "--vary seed=5,6"),
        (["train", "no.yaml"], "No such file"),
        ([*PPO, "--config"], "--config: got no value"),
        ([*PPO, "--config", "study.json"], "study.json is no JSON: seed comes twice"),
    ],
)
def test_a_file_that_is_named_in_vain(arguments, says, refused, in_folder):
    pytest.importorskip("yaml")
    (in_folder / "study.yaml").write_text("seed: 1")
    (in_folder / "study.json").write_text('{"seed": 1, "seed": 2}')
    refused(arguments, says)


@pytest.mark.parametrize(
    ("arguments", "module", "says"),
    [
        ([*TRACK, "trackio"], "trackio", "pip install rlpyt[trackio]"),
        ([*TRACK, "wandb"], "wandb", "pip install rlpyt[wandb]"),
        ([*TRACK, "tensorboard"], "torch.utils.tensorboard", "pip install rlpyt[tensorboard]"),
        ([*GRID, "--track", "mlflow"], "mlflow", "pip install rlpyt[mlflow]"),
        (["train", "ppo", "pong"], "ale_py", "pip install rlpyt[atari]"),
        (["train", "study.yaml"], "yaml", "reading YAML needs PyYAML: pip install pyyaml. A JSON file does without."),
        ([*GRID, "--slurm", "partition=gpu"], "submitit", "pip install rlpyt[cluster]"),
    ],
)
def test_a_package_that_is_missing_is_told_with_what_installs_it(
    arguments, module, says, refused, in_folder, monkeypatch
):
    (in_folder / "study.yaml").touch()
    monkeypatch.setitem(sys.modules, module, None)
    refused(arguments, says)


def test_a_folder_that_is_named_as_an_algorithm_is_written_with_its_path(refused, in_folder):
    (in_folder / "ppo").mkdir()
    for command in ("train", "launch"):
        refused([command, "./ppo"], "there is no params.json in")
        refused([command, "ppo"], "For the folder of that name write ./ppo")
