"""The rows of docs/howto/environments_of_others.md: what packages of environments do, with small ones of ours."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import FilterObservation

from rlpyt.agents import PgAgent
from rlpyt.algos import PPO
from rlpyt.cli.environment import environment
from rlpyt.envs import EnvError, make_env
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl, load_agent
from rlpyt.samplers import SerialSampler
from rlpyt.types import Run
from rlpyt.utils.compute import ComputeSettings
from tests.envs import test_env_adapter, test_env_check, test_images
from tests.markdown import ROOT, tables

PAGE = ROOT / "docs" / "howto" / "environments_of_others.md"


class Others:
    """Environment whose episodes have four steps; its observation is a number that counts them."""

    observation_space: Any = spaces.Box(0, 100, (1,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.observe(), 1.0, self.t == 4, False, {}

    def observe(self) -> Any:
        return np.array([self.t], np.float32)


def sampler_of(EnvCls: Callable[..., Any], env_kwargs: Any = None, B: int = 1, T: int = 12) -> SerialSampler:
    return SerialSampler(EnvCls, env_kwargs or {}, batch_T=T, batch_B=B, max_decorrelation_steps=0)


def rows_of(EnvCls: Callable[..., Any], env_kwargs: Any = None, B: int = 1, T: int = 12, seed: int = 0) -> Any:
    """Return the rows of a first batch, `env` of Samples."""
    sampler = sampler_of(EnvCls, env_kwargs, B, T)
    try:
        sampler.initialize(PgAgent(model_kwargs={"hidden_sizes": 8}), Run(batch_spec=sampler.batch_spec, seed=seed))
        return sampler.obtain_samples(0)[0].env
    finally:
        sampler.shutdown()


def log_of(EnvCls: Callable[..., Any], tmp_path: Path, B: int = 1, **options: Any) -> str:
    """Return all that a short run writes to its log."""
    agent = PgAgent(model_kwargs={"hidden_sizes": 8})
    settings = ComputeSettings()
    runner = MinibatchRl(
        PPO(), agent, sampler_of(EnvCls, B=B), n_steps=24 * B, log_interval_steps=12 * B, settings=settings, **options
    )
    with logger_context(tmp_path, 0):
        runner.train()
    return " ".join((tmp_path / "run_0" / "debug.log").read_text().split())


# ---- observations ----


class WithText(Others, gymnasium.Env[Any, Any]):
    observation_space = spaces.Dict(place=spaces.Box(0, 9, (1,), np.float32), mission=spaces.Text(30))

    def observe(self) -> Any:
        return {"place": np.array([self.t], np.float32), "mission": "get to the goal"}


def texts_are_refused_and_can_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"observation\['mission'\].*FilterObservation leaves parts of a Dict out"):
        make_env(WithText, {})
    rows = rows_of(lambda: FilterObservation(WithText(), ["place"]))
    assert rows.observation.place[:6, 0, 0].tolist() == [0, 1, 2, 3, 4, 0]


class OfBools(Others):
    observation_space = spaces.Box(0, 1, (10, 10, 4), np.bool_)

    def observe(self) -> Any:
        return np.full((10, 10, 4), self.t % 2, np.bool_)


def bools_train_and_their_agent_loads(tmp_path: Path) -> None:
    log_of(OfBools, tmp_path)
    agent = load_agent(tmp_path / "run_0")
    assert agent.env_spaces.observation == OfBools.observation_space
    assert agent.play(OfBools())[0].Length == 4


# ---- the interface ----


PACKAGE = """
import gymnasium
import numpy as np

class Env(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(0, 9, (1,), np.float32), gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros(1, np.float32), {}

gymnasium.register("Others-v0", entry_point=Env)
gymnasium.register("others/WithoutVersion", entry_point=Env)
"""


def ids_of_a_package_have_its_name_before_a_colon(tmp_path: Path) -> None:
    (tmp_path / "package_of_others.py").write_text(PACKAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        with pytest.raises(EnvError, match="Others"):
            make_env(gymnasium.make, {"id": "Others-v0"})
        try:
            found = [environment(f"package_of_others:{name}") for name in ("Others-v0", "others/WithoutVersion")]
        finally:
            for name in ("Others-v0", "others/WithoutVersion"):
                gymnasium.registry.pop(name, None)
            sys.modules.pop("package_of_others", None)
    assert [one.EnvCls for one in found] == [gymnasium.make] * 2
    assert found[0].env_kwargs == {"id": "package_of_others:Others-v0"}
    assert found[1].env_kwargs == {"id": "package_of_others:others/WithoutVersion"}


# ---- seeds and state ----


class SeededWhenMade(Others):
    observation_space = spaces.Box(0, 1, (1,), np.float64)

    def __init__(self, env_seed: int) -> None:
        self.random = np.random.default_rng(env_seed)

    def reset(self) -> Any:  # type: ignore[override]
        self.t = 0
        return self.observe(), {}

    def observe(self) -> Any:
        return self.random.random(1)


def a_parameter_env_seed_gets_a_seed_of_each_environment(tmp_path: Path) -> None:
    first, again, other = [rows_of(SeededWhenMade, B=3, seed=seed).observation for seed in (0, 0, 1)]
    assert len({tuple(first[:, b, 0].tolist()) for b in range(3)}) == 3
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    fixed = rows_of(SeededWhenMade, {"env_seed": 7}, B=2).observation
    assert torch.equal(fixed[:, 0], fixed[:, 1])


class OneEmulator(Others):
    """Only one may be open in a process, as of stable-retro."""

    is_open: ClassVar[bool] = False

    def __init__(self) -> None:
        if OneEmulator.is_open:
            raise RuntimeError("Cannot create multiple emulator instances per process")
        OneEmulator.is_open = True

    def close(self) -> None:
        OneEmulator.is_open = False


def one_emulator_is_closed_after_the_check(tmp_path: Path) -> None:
    assert rows_of(OneEmulator).observation[:6, 0, 0].tolist() == [0, 1, 2, 3, 4, 0]
    with pytest.raises(EnvError, match=r"Making environment 1: .*multiple emulator instances"):
        rows_of(OneEmulator, B=2)
    assert not OneEmulator.is_open
    assert "cannot be restored" in log_of(OneEmulator, tmp_path, checkpoint_interval_steps=12)


# ---- rewards, actions, agents ----


class MaskInInfo(Others):
    def step(self, action: Any) -> Any:
        *step, _ = super().step(action)
        return *step, {"action_mask": np.array([1, 0], np.int8)}


class MaskInObservation(Others):
    """Counts illegal actions."""

    observation_space = spaces.Dict(place=Others.observation_space, action_mask=spaces.Box(0, 1, (2,), np.int8))
    illegal: ClassVar[int] = 0

    def step(self, action: Any) -> Any:
        MaskInObservation.illegal += action != self.t % 2
        return super().step(action)

    def observe(self) -> Any:
        legal = np.zeros(2, np.int8)
        legal[self.t % 2] = 1
        return {"place": super().observe(), "action_mask": legal}


def masks_in_observations_are_heeded(tmp_path: Path) -> None:
    assert "No agent heeds action_mask" in log_of(MaskInInfo, tmp_path), "its reset gives none"
    sampler = SerialSampler(MaskInObservation, {}, batch_T=16, batch_B=2, max_decorrelation_steps=9)
    sampler.initialize(PgAgent())
    sampler.obtain_samples(0)
    assert MaskInObservation.illegal == 0
    sampler.shutdown()


class WarningsAreErrors(Others):
    observation_space = spaces.Box(0, 2, (1,), np.float32)  # whose upper bound is too low

    def __init__(self) -> None:
        warnings.simplefilter("error")


def advice_ends_no_run(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        assert "Mend the bounds" in log_of(WarningsAreErrors, tmp_path)


ROWS: dict[str, Callable[..., None] | str] = {
    "texts in an observation": texts_are_refused_and_can_be_left_out,
    "images with the channels last": test_images.test_every_interface_is_wrapped,
    "uint8 that is no image": "agents/test_scale_of_observations.py",
    "planes or ids as an image": "agents/test_scale_of_observations.py",
    "bools": bools_train_and_their_agent_loads,
    "boards, float images": test_images.test_advice_on_images,
    "no base class": test_images.test_every_interface_is_wrapped,
    "the old interface": test_env_adapter.test_the_kind_of_end_is_kept,
    "flags that are no bools": test_env_adapter.test_what_is_no_flag_is_refused_by_name,
    "ids registered by an import": ids_of_a_package_have_its_name_before_a_colon,
    "resets by itself": test_env_adapter.test_the_final_observation_is_read_from_info,
    "changes its arguments": test_env_adapter.test_every_environment_gets_arguments_of_its_own,
    "one object for all": test_env_adapter.test_the_same_environment_twice_is_refused,
    "ends the process": test_env_adapter.test_what_would_end_the_process_is_an_error_of_the_environment,
    "a seed in the constructor": a_parameter_env_seed_gets_a_seed_of_each_environment,
    "randomness without a seed": test_env_check.test_whether_a_seed_repeats_all_of_an_episode,
    "state behind a native handle": "samplers/test_sampler_state.py",
    "one emulator in a process": one_emulator_is_closed_after_the_check,
    "several rewards": test_env_adapter.test_a_broken_step_is_reported_with_everything,
    "masks of actions": masks_in_observations_are_heeded,
    "several agents": test_env_adapter.test_several_agents_are_refused_in_these_words,
    "warnings as errors": advice_ends_no_run,
}
"""Row of the page -> what holds it: a function of this file, a test of another one, or a file of tests."""
HERE = {row: holds for row, holds in ROWS.items() if not isinstance(holds, str) and holds.__module__ == __name__}


@pytest.mark.parametrize("row", HERE)
def test_a_row_of_the_page_holds(row: str, tmp_path: Path) -> None:
    HERE[row](tmp_path)


def test_the_page_has_these_rows() -> None:
    (table,) = [t for t in tables(PAGE) if t[0][0] == "what a package does"]
    assert [row[0] for row in table[1:]] == list(ROWS)
    assert all((ROOT / "tests" / file).is_file() for file in ROWS.values() if isinstance(file, str))
