from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlpyt.algos import DQN
from rlpyt.cli import main, next_steps
from rlpyt.cli.algorithms import ALGORITHMS, algorithm, check_fits
from rlpyt.cli.choices import TrainChoices, runner_of
from rlpyt.cli.environment import environment
from rlpyt.cli.launch import variants_of
from rlpyt.cli.train import start_of, updated
from rlpyt.cli.trained import read_trained
from rlpyt.launching.smoke import smoke
from rlpyt.runners import AsyncRl, MinibatchRl, SyncRlEval, runner_from_params
from rlpyt.runners.record import record_of
from rlpyt.samplers import AlternatingSampler, CpuSampler, SerialSampler
from rlpyt.settings import all_settings
from rlpyt.utils import ComputeSettings
from tests.pairs import crossed

ENVS = ["CartPole-v1", "Pendulum-v1", "pong", "InvertedPendulum-v5", "FrozenLake-v1"]
OWN = """
import gymnasium

def make(id="CartPole-v1", steps=20):
    return gymnasium.make(id, max_episode_steps=steps)
"""


FIXED = """
import gymnasium
import numpy as np
from gymnasium import spaces

def make():
    space = spaces.Box(np.array([-1, 0.5], np.float32), np.array([1, 0.5], np.float32))
    return gymnasium.wrappers.TransformAction(gymnasium.make("Pendulum-v1"), lambda action: action[:1], space)
"""


class Planes(gymnasium.Env[np.ndarray, Any]):
    """Images smaller than a kernel of Atari's first layers may leave, as those of MinAtar."""

    observation_space = gymnasium.spaces.Box(0, 1, (4, 10, 10), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros((4, 10, 10), np.uint8), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros((4, 10, 10), np.uint8), 0.0, bool(action), False, {}


@pytest.fixture(scope="module")
def envs():
    return {name: environment(name) for name in ENVS} | {"planes": environment(Planes)}


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_each_algorithm_is_built_where_it_fits_and_refused_elsewhere(name, envs):
    chosen, n_built = algorithm(name), 0
    for env in envs.values():
        if env.actions not in chosen.actions:
            with pytest.raises(ValueError, match=r"These take them: [a-z0-9_, ]*ppo"):
                check_fits(name, chosen, env)
            continue
        check_fits(name, chosen, env)
        runner = runner_of(chosen, env, TrainChoices(evaluate=True))
        # The networks fit the spaces, too.
        runner.agent.initialize(env.spaces)
        assert smoke(runner).n_steps < runner.n_steps
        n_built += 1
    assert n_built >= 2


def test_options_become_settings():
    start = start_of(
        [
            *("dqn", "CartPole-v1", "--n-steps", "2e4", "--seed", "3", "--sampler.batch-B", "8"),
            *("--algo.learning-rate", "lin_1e-4", "--algo.double-dqn", "--algo.optim_kwargs", "eps=1e-3"),
            *("--agent.model-kwargs", "hidden_sizes=[32,32]", "--checkpoint-interval-minutes", "None"),
        ]
    )
    runner = start.runner
    assert type(runner) is MinibatchRl
    assert type(runner.sampler) is SerialSampler
    assert (runner.n_steps, runner.seed, runner.log_interval_steps, runner.sampler.batch_B) == (2e4, 3, 2e3, 8)
    assert isinstance(runner.algo, DQN)
    assert (runner.algo.learning_rate, runner.algo.double_dqn) == ("lin_1e-4", True)
    assert runner.algo.optim_kwargs == {"eps": 1e-3}
    # The rest of the dictionary stays.
    assert vars(runner.agent)["model_kwargs"] == {"hidden_sizes": (32, 32), "normalize_observation": True}
    assert runner.checkpoint_interval_minutes is None
    assert start.log_dir == "data/dqn_CartPole-v1"
    off: Any = start_of(["ppo", "CartPole-v1", "--algo.no-linear-lr-schedule"]).runner
    assert (off.algo.linear_lr_schedule, off.given_seed) == (False, None)  # a seed is drawn by the run


@pytest.mark.parametrize(
    ("options", "RunnerCls", "SamplerCls"),
    [
        (["--replicas", "2", "--evaluate", "--sampler-type", "cpu"], SyncRlEval, CpuSampler),
        (["--lag", "free", "--sampler-type", "alternating"], AsyncRl, AlternatingSampler),
        (["--lag=2"], AsyncRl, SerialSampler),
    ],
)
def test_options_choose_runner_and_sampler(options, RunnerCls, SamplerCls):
    runner = start_of(["dqn", "CartPole-v1", *options]).runner
    assert (type(runner), type(runner.sampler)) == (RunnerCls, SamplerCls)
    assert all_settings(runner).get("lag") in (None, "free", 2)
    assert all_settings(runner)["n_replicas"] == (2 if RunnerCls is SyncRlEval else None)
    assert runner.sampler.eval_n_envs == (10 if RunnerCls is SyncRlEval else 0)


def test_precision_and_compilation_take_the_place_of_the_measurement(monkeypatch):
    monkeypatch.setattr("rlpyt.cli.choices.available_threads", lambda: 4)
    pong, vectors = ["ppo", "pong"], ["ppo", "CartPole-v1"]
    assert start_of(vectors).runner.settings is None
    assert start_of([*vectors, "--compile"]).runner.settings == ComputeSettings(compile=True)
    settings = start_of([*vectors, "--precision", "bfloat16"]).runner.settings
    assert settings == ComputeSettings(precision="bfloat16")
    assert start_of([*vectors, "--precision", "fastest"]).runner.settings == "fastest"
    settings = start_of([*pong, "--precision", "bfloat16", "--replicas", "2"]).runner.settings
    assert settings == ComputeSettings(precision="bfloat16", channels_last=True, torch_threads=2)
    for more in ["--replicas", "8"], ["--lag", "1"]:
        settings = start_of([*pong, "--precision", "float32", *more]).runner.settings
        assert settings == ComputeSettings(channels_last=True, torch_threads=1)


# ---- environments by name ----


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("gymnasium:InvertedPendulum-v5", "InvertedPendulum-v5"),
        ("ale_py:ALE/Pong-v5", "ALE/Pong-v5"),
        ("shimmy:dm_control/cheetah-run-v0", "dm_control/cheetah-run"),
    ],
)
def test_an_id_with_its_module_has_the_facts_of_the_id(name, same):
    pytest.importorskip("dm_control" if "dm_control" in name else "gymnasium")
    one, other = environment(name), environment(same)
    assert (one.kind, one.episode_steps) == (other.kind, other.episode_steps)
    assert one.EnvCls is other.EnvCls
    algo, same_algo = (algorithm("ppo").make(env).algo for env in (one, other))
    assert all_settings(algo) == all_settings(same_algo)


def test_simba_has_one_network_of_values_where_episodes_do_not_terminate():
    pytest.importorskip("dm_control")
    for name, n_q in (("dm_control/cartpole-swingup", 1), ("Pendulum-v1", 2)):
        parts = algorithm("simbav2").make(environment(name))
        assert all_settings(parts.agent)["n_q"] == n_q
        assert all_settings(parts.algo)["target_entropy"] == -0.5


def test_simba_counts_no_dimension_that_is_fixed(in_folder):
    (in_folder / "my_fixed_envs.py").write_text(FIXED)
    parts = algorithm("simba").make(environment("my_fixed_envs:make"))
    assert all_settings(parts.algo)["target_entropy"] == -0.5


def test_a_short_horizon_is_for_the_task_alone_that_it_fits():
    names = ["Pendulum-v1", "MountainCarContinuous-v0", "InvertedPendulum-v5", "CartPole-v1"]
    assert [vars(start_of(["ppo", name]).runner.algo)["discount"] for name in names] == [0.9, 0.99, 0.99, 0.98]


@pytest.fixture
def grids(in_folder, monkeypatch):
    """A package that registers an environment when it is imported, as minigrid does."""
    (in_folder / "grids_of_others.py").write_text(REGISTERS.replace("OwnCartPole-v0", "Grids-Empty-5x5-v0"))
    monkeypatch.syspath_prepend(in_folder)
    known = {"Grids-": ("grids_of_others", "grids-of-others"), "Nogrids-": ("no_grids_of_others", "nogrids")}
    monkeypatch.setattr("rlpyt.cli.environment._REGISTERED_BY", known)
    yield
    gymnasium.registry.pop("Grids-Empty-5x5-v0", None)
    sys.modules.pop("grids_of_others", None)


def test_an_id_is_found_as_users_of_its_package_write_it(grids, capsys):
    found = environment("Grids-Empty-5x5-v0")
    assert found.env_kwargs == {"id": "grids_of_others:Grids-Empty-5x5-v0"}  # so that workers import it, too
    assert (found.name, found.episode_steps) == ("Grids-Empty-5x5-v0", 9)
    assert main(["train", "ppo", "Grids-Empty-5x5-v1"]) == 2
    assert "did you mean Grids-Empty-5x5-v0" in capsys.readouterr().err
    assert main(["train", "ppo", "Nogrids-v0"]) == 2
    says = "Nogrids-v0 is an environment of nogrids, which is not installed. Install it: pip install nogrids."
    assert capsys.readouterr().err == f"rlpyt: {says}\n"


def test_a_record_does_not_find_a_package_by_an_id(grids, capsys):
    """What stands in a record is not looked up: it must name the package, and the user must trust it."""
    assert main(["train", "ppo", "Grids-Empty-5x5-v0", "--smoke", "--log-dir", "out"]) == 0
    capsys.readouterr()
    assert main(["train", "out/run_0", "--smoke"]) == 2
    assert "--trust grids_of_others" in capsys.readouterr().err
    assert main(["train", "out/run_0", "--smoke", "--trust", "grids_of_others"]) == 0
    gymnasium.registry.pop("Grids-Empty-5x5-v0")
    sys.modules.pop("grids_of_others")
    record = Path("out/run_0/params.json")
    record.write_text(record.read_text().replace("grids_of_others:", ""))
    assert main(["train", "out/run_0", "--smoke"]) == 2
    assert "grids_of_others" not in sys.modules


GAMES = """
import gymnasium

def make(game="a", image_size=8):
    assert image_size == 8, "another environment"
    return gymnasium.make("CartPole-v1")
"""


def test_a_smoke_run_makes_the_images_of_atari_small_and_changes_no_other_environment(in_folder):
    (in_folder / "my_games.py").write_text(GAMES)
    runner: Any = start_of(["ppo", "my_games:make", "--env-kwargs", "game=b", "--smoke"]).runner
    assert runner.sampler.env_kwargs == {"game": "b"}
    sampler: Any = start_of(["dqn", "pong", "--smoke"]).runner.sampler
    assert (sampler.env_kwargs["image_size"], sampler.evaluation_kwargs["image_size"]) == (36, 36)


# ---- how a run is evaluated ----

LAKE, GAME = ["ppo", "FrozenLake-v1"], ["dqn", "pong"]
WHOLE_GAMES = {"episodic_lives": False, "clip_reward": False}


def written(runner, folder):
    """Write the record of a runner as that of a run."""
    folder.mkdir(exist_ok=True)
    (folder / "params.json").write_text(json.dumps({"runner": record_of(runner)[0]}))
    return str(folder)


WAYS = {
    "option": lambda name, change, _: start_of([*name, "--sampler.env-kwargs", change]).runner,
    "env-kwargs": lambda name, change, _: start_of([*name, "--env-kwargs", change]).runner,
    "variant of a grid": lambda name, change, _: updated(
        start_of(name).runner, variants_of([f"sampler.env_kwargs.{change}"])[0][0]
    ),
    "run again": lambda name, change, folder: (
        start_of([written(start_of(name).runner, folder), "--sampler.env-kwargs", change]).runner
    ),
    "from params": lambda name, change, folder: runner_from_params(
        written(start_of(name).runner, folder),
        sampler={"env_kwargs": vars(start_of([*name, "--env-kwargs", change]).runner.sampler)["env_kwargs"]},
    ),
}


OF_BOTH: list[Any] = [(LAKE, "map_name=8x8", {}), (GAME, "frame_skip=2", WHOLE_GAMES)]


@pytest.mark.parametrize(("way", "case"), crossed(list(WAYS), OF_BOTH, strength=1))
def test_evaluation_follows_training_in_all_that_it_has_not_of_its_own(way, case, tmp_path, monkeypatch):
    name, change, own = case
    runner: Any = WAYS[way](name, change, tmp_path / "run_0")
    key, _, value = change.partition("=")
    assert str(runner.sampler.env_kwargs[key]) == value
    assert runner.sampler.evaluation_kwargs == {**runner.sampler.env_kwargs, **own}
    # eval and play act in the same environment.
    monkeypatch.setattr("rlpyt.cli.trained.load_agent", lambda *args, **kwargs: None)
    assert read_trained(written(runner, tmp_path / "run_1"), None, ()).env_kwargs == runner.sampler.evaluation_kwargs


@pytest.mark.parametrize(
    ("given", "evaluated"),
    [
        (["--sampler.eval-env-kwargs", "horizon=9"], {**WHOLE_GAMES, "horizon": 9, "frame_skip": 2}),
        (["--sampler.eval-env-kwargs", "frame_skip=1"], {**WHOLE_GAMES, "frame_skip": 1}),
        (["--sampler.eval-env-overrides", "frame_skip=1"], {**WHOLE_GAMES, "frame_skip": 1}),
        (
            ["--sampler.eval-env-kwargs", "frame_skip=1", "--sampler.eval-env-overrides", "horizon=9"],
            {**WHOLE_GAMES, "horizon": 9, "frame_skip": 1},
        ),
        (["--sampler.eval-env-kwargs", "None"], {"frame_skip": 2}),
        (["--env-kwargs", "clip_reward=True"], {"episodic_lives": False, "clip_reward": True, "frame_skip": 2}),
        (["--sampler.env-kwargs", "clip_reward=True"], {**WHOLE_GAMES, "frame_skip": 2}),
    ],
)
def test_what_evaluation_is_given_of_its_own_holds_there_alone(given, evaluated):
    runner: Any = updated(start_of([*GAME, *given]).runner, {"sampler": {"env_kwargs": {"frame_skip": 2}}})
    assert runner.sampler.evaluation_kwargs == {"game": "pong", **evaluated}
    assert runner.sampler.env_kwargs["frame_skip"] == 2


def test_evaluation_without_arguments_is_no_evaluation_as_training(tmp_path, monkeypatch):
    runner: Any = start_of([*LAKE, "--sampler.eval-env-kwargs", "{}"]).runner
    assert (runner.sampler.eval_env_kwargs, runner.sampler.evaluation_kwargs) == ({}, {})
    for name in ("load_agent", "spaces_of"):  # which would build an environment without its id
        monkeypatch.setattr(f"rlpyt.cli.trained.{name}", lambda *args, **kwargs: None)
    assert read_trained(written(runner, tmp_path / "run_0"), None, ()).env_kwargs == {}
    # An argument that evaluation lacks is its own choice, also later.
    later: Any = updated(runner, {"sampler": {"env_kwargs": {"map_name": "8x8"}}})
    assert later.sampler.evaluation_kwargs == {}


def test_help_has_defaults_and_docstrings_of_the_fields_and_no_class_and_no_weights(capsys):
    with pytest.raises(SystemExit):
        main(["train", "ppo", "CartPole-v1", "--evaluate", "--help"])
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for text in ("(default: 0.98)", "--eval-beside", "--sampler.batch-B INT Environments. (default: 8)"):
        assert text in out
    assert "--algo.gae-lambda NUMBER|SCHEDULE lambda of generalised advantage estimation" in out
    assert not any(text in out.lower() for text in ("optim-cls", "optimcls", "state-dict"))


@pytest.mark.parametrize(("display", "video"), [(True, ""), (False, " --video R.mp4")])
def test_the_end_of_a_run_offers_what_there_is_to_see(display, video, tmp_path, monkeypatch):
    monkeypatch.setattr("rlpyt.cli.next_steps.has_display", lambda: display)
    assert next_steps.next_steps(tmp_path, "R") == ["What it was: rlpyt show R"]
    for name in ("params.json", "params.pkl", "progress.csv"):
        (tmp_path / name).write_text("{}")
    lines = next_steps.next_steps(tmp_path, "R")
    assert [line.partition("rlpyt ")[2] for line in lines] == ["show R", f"play R{video}", "plot R"]


def test_a_run_is_trained_shown_resumed_and_started_again(in_folder, capsys):
    (in_folder / "my_small_envs.py").write_text(OWN)
    train = ["train", "ppo", "my_small_envs:make", "--env-kwargs", "steps=12", "--seed", "1", "--log-dir", "data/x"]
    assert main([*train, "--smoke", "--algo.gae-lambda", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "What it was: rlpyt show data/x/run_0" in out
    assert "How it learned: rlpyt plot data/x/run_0" in out
    assert re.search("How it acts: rlpyt play data/x/run_0 .*--trust my_small_envs\n", out)

    assert main(["show", "data/x/run_0"]) == 0
    out = capsys.readouterr().out
    for line in ("algorithm     PPO, PgAgent", "steps         100 of 100", "algo.gae_lambda = 0.5", "seed 1, on cpu"):
        assert line in out
    assert "environment   make (steps=12)" in out
    assert "go on:        rlpyt resume data/x/run_0 --n-steps N --trust my_small_envs" in out
    # A default is not told.
    assert "reward_clip" not in out

    # The module may run code: it has to be trusted.
    assert main(["resume", "data/x/run_0", "--n-steps", "200"]) == 2
    assert "give --trust my_small_envs." in capsys.readouterr().err
    assert main(["resume", "data/x/run_0", "--n-steps", "2e2", "--trust", "my_small_envs"]) == 0
    assert "How it learned: rlpyt plot data/x/run_0" in capsys.readouterr().out
    assert main(["show", "data/x/run_0"]) == 0
    assert "steps         200 of 200" in capsys.readouterr().out

    again = ["train", "data/x/run_0", "--trust", "my_small_envs", "--algo.epochs", "1"]
    assert main(again) == 0
    params = json.loads((in_folder / "data/x/run_1/params.json").read_text())
    settings = params["runner"]["settings"]
    assert settings["algo"]["settings"]["epochs"] == 1
    assert settings["algo"]["settings"]["gae_lambda"] == 0.5
    assert settings["sampler"]["settings"]["env_kwargs"] == {"steps": 12}
    # Of the working directory, too: the new run is beside it, not in it.
    with pytest.MonkeyPatch.context() as within:
        within.chdir("data/x/run_1")
        assert start_of([".", "--trust", "my_small_envs"]).log_dir == str(in_folder / "data/x")
    # A folder of runs: a line for each.
    assert main(["show", "data"]) == 0
    out = capsys.readouterr().out
    assert "2 runs: 2 finished" in out
    assert "x/run_1" in out


REGISTERS = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

gymnasium.register("OwnCartPole-v0", entry_point=CartPoleEnv, max_episode_steps=9)
"""


@pytest.mark.parametrize("name", ["my_registry:OwnCartPole-v0", "my_registry:CartPoleEnv"])
def test_the_working_directory_stays_for_workers_where_a_module_of_it_was_named_and_comes_last(name, in_folder):
    (in_folder / "my_registry.py").write_text(REGISTERS)
    (in_folder / "textwrap.py").write_text("class Env: pass")
    sys.path[:] = [path for path in sys.path if path not in ("", str(in_folder))]
    environment("CartPole-v1")
    assert str(in_folder) not in sys.path
    environment(name)
    assert sys.path[-1] == str(in_folder)
    with pytest.raises(ValueError, match=r"/lib/.*/textwrap.py has no 'Env'"):
        environment("textwrap:Env")


def test_a_settings_file_of_another_name_is_read_and_not_the_one_beside_it(in_folder):
    def rate(file):
        return vars(start_of([f"out/{file}"]).runner.algo)["learning_rate"]

    params: Any = {"runner": record_of(start_of(["ppo", "CartPole-v1"]).runner)[0]}
    (in_folder / "out/run_0").mkdir(parents=True)
    (in_folder / "out/run_0/params.json").write_text(json.dumps(params))
    params["runner"]["settings"]["algo"]["settings"]["learning_rate"] = 0.123
    (in_folder / "out/run_0/tuned.json").write_text(json.dumps(params))
    (in_folder / "out/variant_config.json").write_text("{}")
    assert (rate("run_0/tuned.json"), rate("run_0/params.json"), rate("variant_config.json")) == (0.123, 1e-3, 1e-3)
    (in_folder / "out/run_0/broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken.json is no JSON file"):
        rate("run_0/broken.json")


WIDE = """
import gymnasium
import numpy as np
from gymnasium import spaces


class OwnBox(spaces.Box):
    pass


class Env(gymnasium.Env):
    observation_space = OwnBox(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(3, np.float32), 1.0, self.t == 5, False, {"game_score": 10.0, "is_success": self.t == 5}
"""


def test_an_agent_acts_whose_spaces_could_not_be_recorded(in_folder, capsys):
    (in_folder / "my_wide_envs.py").write_text(WIDE)
    assert main(["train", "ppo", "my_wide_envs:Env", "--smoke", "--log-dir", "out"]) == 0
    capsys.readouterr()
    assert main(["eval", "out/run_0", "--episodes", "2", "--n-envs", "1", "--json", "--trust", "my_wide_envs"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[name]["mean"] for name in ("return", "length", "score", "success")] == [5, 5, 50, 1]
