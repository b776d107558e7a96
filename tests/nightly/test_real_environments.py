"""Packages of environments that nobody here wrote: each trains by the command line, and rows equal steps by hand.

`make nightly-environments` installs the versions of `.ci/environments.lock` and runs this; `make test` does not collect
it. A package that is not installed is skipped. The recipes are those of docs/howto/environments_of_others.md.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import PgAgent
from rlpyt.cli.environment import environment
from rlpyt.envs import make_env, players_make_vec
from rlpyt.runners import load_agent, part_from_record
from rlpyt.runners.from_params import read_params
from rlpyt.samplers import SerialSampler
from rlpyt.samplers.base import specs_of
from rlpyt.samplers.fleet_spec import FleetRole
from rlpyt.spaces import null_value, to_env
from rlpyt.types import Run
from tests.markdown import ROOT, split

PAGE = ROOT / "docs" / "howto" / "environments_of_others.md"
SMALL_IMAGES = ("--agent.model-kwargs", '{"channels": [8], "kernel_sizes": [3], "strides": [1], "paddings": [0]}')
SEED = 3


class Package(NamedTuple):
    """Environment of a package, and how it is trained."""

    name: str
    """As on the command line; `others` is the module of the page's recipes."""
    module: str
    """What must be importable."""
    env_kwargs: Mapping[str, Any] = {}
    algorithm: str = "ppo"
    options: tuple[str, ...] = ()
    repeats: bool = True
    """Whether the episodes after the first one repeat with a seed."""
    T: int = 64


PACKAGES = {
    "minigrid": Package("others:make_minigrid", "minigrid", T=120),
    "MinAtar": Package("others:make_minatar", "minatar", options=SMALL_IMAGES, T=120),
    "highway-env": Package("highway_env:highway-fast-v0", "highway_env", T=12),
    "highway-env, parking": Package("highway_env:parking-v0", "highway_env", algorithm="sac", T=12),
    "popgym": Package("popgym:popgym-RepeatPreviousEasy-v0", "popgym", T=150),
    "popgym, Tuple": Package("popgym:popgym-AutoencodeEasy-v0", "popgym", T=150),
    "panda-gym": Package("panda_gym:PandaReach-v3", "panda_gym", algorithm="sac", repeats=False, T=70),
    "metaworld": Package("others:make_metaworld", "metaworld", {"max_episode_steps": 20}, algorithm="sac"),
    "gymnasium-robotics": Package("gymnasium_robotics:PointMaze_UMaze-v3", "gymnasium_robotics", algorithm="td3"),
    "mo-gymnasium": Package("others:make_treasure", "mo_gymnasium", T=120),
    "tetris-gymnasium": Package("tetris_gymnasium.envs:tetris_gymnasium/Tetris", "tetris_gymnasium"),
    "flappy-bird-gymnasium": Package("flappy_bird_gymnasium:FlappyBird-v0", "flappy_bird_gymnasium", T=150),
    # every tenth step it may remove an animal, in the order of addresses in memory
    "crafter": Package("others:Crafter", "crafter", T=10),
    "nle": Package("others:SeededNetHack", "nle", T=40),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which has the recipes of the page as a module."""
    (tmp_path / "others.py").write_text(split(PAGE)[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("others", None)
    return tmp_path


def needs(package: Package) -> None:
    if importlib.util.find_spec(package.module) is None:
        pytest.skip(f"{package.module} is not installed")


@pytest.mark.parametrize("name", PACKAGES)
def test_it_trains_by_the_command_line_and_its_agent_loads(name: str, folder: Path) -> None:
    package = PACKAGES[name]
    needs(package)
    given = [f"{key}={value!r}".replace(" ", "").replace("'", "") for key, value in package.env_kwargs.items()]
    options = [
        "--smoke",
        "--log-dir",
        str(folder / "data"),
        *package.options,
        *(["--env-kwargs", *given] if given else []),
    ]
    command = [sys.executable, "-m", "rlpyt", "train", package.algorithm, package.name, *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    run, trusted = folder / "data" / "run_0", [package.name.partition(":")[0]]
    agent = load_agent(run, trusted=trusted)
    sampler = part_from_record(read_params(run, "nightly")["runner"]["settings"]["sampler"], trusted=trusted)
    env = make_env(sampler.EnvCls, sampler.env_kwargs)
    try:
        action = agent.step(env.reset(SEED)[0], None, None).action
        env.step(action.numpy())
    finally:
        env.close()


class Blind(nn.Module):
    """Model that sees nothing: every action is as likely, so that it fits any observation."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(()))
        self.is_box = isinstance(action_space, spaces.Box)
        self.size = int(np.prod(action_space.shape)) if self.is_box else int(action_space.n)

    def forward(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> Any:
        rows = self.zero.expand(*prev_reward.shape, self.size)
        return (rows, rows, rows.mean(-1)) if self.is_box else (rows, rows.mean(-1))


@pytest.mark.parametrize("name", PACKAGES)
def test_rows_equal_steps_by_hand(name: str, folder: Path) -> None:
    package = PACKAGES[name]
    needs(package)
    found = environment(package.name, dict(package.env_kwargs))
    sampler = SerialSampler(found.EnvCls, found.env_kwargs, batch_T=package.T, batch_B=2, max_decorrelation_steps=0)
    run = Run(batch_spec=sampler.batch_spec, seed=SEED)
    try:
        sampler.initialize(PgAgent(ModelCls=Blind), run)
        samples, _ = sampler.obtain_samples(0)
        spec = specs_of(sampler, run)[FleetRole.TRAIN]
        for b, (seed, env_seed) in enumerate(zip(spec.seeds(), spec.env_seeds(), strict=True)):
            takes = "env_seed" in inspect.signature(found.EnvCls).parameters
            env: Any = found.EnvCls(**found.env_kwargs, **({"env_seed": env_seed} if takes else {}))
            n = compare(env, samples[:, b], seed, found.spaces, package.repeats)
            print(f"{name}: {n} of {package.T} rows of environment {b} are equal to steps by hand")
            if hasattr(env, "close"):
                env.close()
    finally:
        sampler.shutdown()


def compare(env: Any, rows: Any, seed: int, env_spaces: Any, repeats: bool) -> int:
    """Step an environment by hand as the rows tell, compare all, and return how many rows were compared."""
    to_action = to_env(env_spaces.action)
    takes_seed = isinstance(env, gymnasium.Env)
    observation, was_end = first_of(env.reset(seed=seed) if takes_seed else env.reset()), False
    for t in range(len(rows.env.reward)):
        same(rows.env.observation, t, observation, env_spaces.observation, f"row {t}")
        row = rows.env
        if was_end:
            assert not row.valid[t], t
            assert (row.reward[t], row.terminated[t], row.truncated[t]) == (0, False, False), t
            if not repeats:
                return t + 1
            observation, was_end = first_of(env.reset()), False
            continue
        assert row.valid[t], t
        result = env.step(to_action(rows.agent.action[t].numpy()))
        observation, reward, *flags, info = result
        if len(flags) == 1:  # the old interface
            cut = bool(flags[0] and info.get("TimeLimit.truncated", False))
            flags = [flags[0] and not cut, cut]
        assert row.reward[t].item() == np.float32(reward), t
        assert [row.terminated[t].item(), row.truncated[t].item()] == [bool(flag) for flag in flags], t
        was_end = any(flags)
    return len(rows.env.reward)


def first_of(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict) else result


def same(rows: Any, t: int, value: Any, space: Any, where: str) -> None:
    """Compare an observation of the environment with the one in a row."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            same(rows[key if isinstance(key, str) else str(key)], t, value[key], part, f"{where}, {key}")
        return
    expected = np.asarray(value)
    if isinstance(space, spaces.Discrete):
        expected = expected - space.start
    expected = expected.astype(np.asarray(null_value(space)).dtype)
    assert np.array_equal(rows[t].numpy(), expected), where


@pytest.mark.parametrize(
    ("module", "kwargs"),
    [
        ("mpe2.simple_spread_v3", {"max_cycles": 25}),
        ("pettingzoo.sisl.pursuit_v5", {"max_cycles": 20}),
        ("pettingzoo.butterfly.knights_archers_zombies_v11", {"max_cycles": 200, "spawn_delay": 2, "line_death": True}),
    ],
)
def test_columns_of_players_are_games_stepped_by_hand(module: str, kwargs: dict[str, Any]) -> None:
    """In the last one players leave before the others."""
    pytest.importorskip(module.partition(".")[0])
    make = importlib.import_module(module).parallel_env
    game, T = make(**kwargs), 60 if "pursuit" in module else 250
    n = len(game.possible_agents)
    sampler = SerialSampler(
        players_make_vec, dict(make=make, **kwargs), batch_T=T, batch_B=n, max_decorrelation_steps=0
    )
    sampler.initialize(PgAgent(ModelCls=Blind), Run(batch_spec=sampler.batch_spec, seed=SEED))
    samples, _ = sampler.obtain_samples(0)
    seeds = specs_of(sampler, Run(batch_spec=sampler.batch_spec, seed=SEED))[FleetRole.TRAIN].seeds()
    sampler.shutdown()
    env, action = samples.env, samples.agent.action
    seen, t, waited = game.reset(seed=seeds[0])[0], 0, 0
    while t < T:
        live = list(game.agents)
        for p, player in enumerate(game.possible_agents):
            assert bool(env.valid[t, p]) == (player in live)
            if player in seen:
                np.testing.assert_array_equal(env.observation[t, p], np.asarray(seen[player], np.float32))
            waited += player not in seen
        if not live:
            seen, t = game.reset()[0], t + 1
            continue
        seen, rewards, ended, cut, _ = game.step(
            {player: int(action[t, p]) for p, player in enumerate(game.possible_agents) if player in live}
        )
        for p, player in enumerate(game.possible_agents):
            if player in live:
                flags = (bool(env.terminated[t, p]), bool(env.truncated[t, p]))
                assert (float(env.reward[t, p]), flags) == (
                    pytest.approx(rewards[player], abs=1e-6),
                    (bool(ended[player]), bool(cut[player])),
                )
        t += 1
    assert (waited > 0) == ("zombies" in module)


def test_the_page_names_every_package(folder: Path) -> None:
    text = PAGE.read_text()
    assert [name for name in PACKAGES if name.partition(",")[0] not in text] == []
    module: Any = importlib.import_module("others")
    recipes = [name for name, x in vars(module).items() if isinstance(x, Callable) and x.__module__ == "others"]  # type: ignore[arg-type]
    used = {package.name.partition(":")[2] for package in PACKAGES.values() if package.name.startswith("others:")}
    assert set(recipes) == used
