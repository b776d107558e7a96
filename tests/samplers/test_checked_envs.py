"""One check for all processes: of an environment that is thrown away, and against which all others are held."""

from __future__ import annotations

import gc
import multiprocessing
import re
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent
from rlpyt.envs import EnvError
from rlpyt.samplers import SerialSampler
from rlpyt.samplers.base import specs_of
from rlpyt.samplers.fleet_spec import FleetRole
from rlpyt.types import BatchSpec, Run
from rlpyt.utils.processes import WorkerError
from tests.samplers.sampler_kit import (
    assert_equal_batches,
    batches_of,
    counting_agent,
    running,
    start_and_stop,
)
from tests.toy_envs import CountingEnv
from tests.vector_toy_envs import ToyVectorEnv


class OddOneOut(CountingEnv):
    """Is another environment in the second worker, or as the third to be made in a process.

    Args:
        oddity: what is other: "observation", "action" or "info".
    """

    n_made: ClassVar[int] = 0

    def __init__(self, oddity: str) -> None:
        super().__init__()
        OddOneOut.n_made += 1
        process, parent = multiprocessing.current_process(), multiprocessing.parent_process()
        in_second_server = parent is not None and parent.name == "rlpyt-worker-1"
        self.odd = process.name == "rlpyt-worker-1" or in_second_server
        self.odd |= process.name == "MainProcess" and OddOneOut.n_made >= 3
        self.oddity = oddity
        if self.odd and oddity == "observation":
            self.observation_space = spaces.Box(0, 2**20, (1,), np.float32)
        if self.odd and oddity == "action":
            self.action_space = spaces.Discrete(2)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"x": 1.75 if self.odd and self.oddity == "info" else 1}


@pytest.mark.parametrize("oddity", ["observation", "action"])
@pytest.mark.parametrize(("kind", "options"), [("halves", {}), ("cpu2", {}), ("gpu2", {}), ("gpu2", {"servers": 2})])
def test_environments_of_all_processes_and_parts_have_the_same_spaces(kind, options, oddity):
    OddOneOut.n_made = 0
    options = {**options, "env_kwargs": {"oddity": oddity}, "start_method": "forkserver"}
    message = r"\(environment of rank 1\): its spaces are .*; expected those of the run's first environment"
    with pytest.raises(EnvError, match=message):
        start_and_stop(kind, counting_agent(), OddOneOut, B=2, **options)


@pytest.mark.parametrize("kind", ["cpu2", "gpu2"])
def test_info_of_a_larger_kind_in_another_process_is_refused_and_not_cut(kind):
    options: dict[str, Any] = dict(env_kwargs={"oddity": "info"}, env_info_keys=["x"], start_method="forkserver")
    with (
        running(kind, counting_agent(), OddOneOut, B=2, **options) as sampler,
        pytest.raises(WorkerError, match=r"Recording 'x' .* got 1.75.*Give an example of its largest kind"),
    ):
        sampler.obtain_samples(0)


class Remembering(CountingEnv):
    """Shows how many episodes it has begun since it was made."""

    n_made: ClassVar[int] = 0
    closed: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__()
        self.n_begun = 0
        self.place = Remembering.n_made
        Remembering.n_made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.n_begun += 1
        return super().reset(seed=seed)

    def observe(self) -> Any:
        return np.array([self.number, self.t, self.n_begun], np.float32)

    def close(self) -> None:
        Remembering.closed.append(self.place)


class RememberingVector(ToyVectorEnv):
    """n of `Remembering`."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([Remembering() for _ in range(num_envs)], {"t": 0})

    def close_extras(self, **kwargs: Any) -> None:
        for env in self.envs:
            env.close()


def test_the_check_leaves_no_trace_in_any_environment_for_any_number_of_workers():
    batches = {}
    for kind in ("serial", "cpu1", "cpu2", "cpu4", "gpu2"):
        batches[kind] = batches_of(2, kind, counting_agent(), Remembering, B=4)
    for kind in ("serial", "halves", "cpu2", "gpu2"):
        batches[kind + " vector"] = batches_of(2, kind, counting_agent(), RememberingVector, B=4)
    samples, _ = batches["serial"][0]
    assert samples.env.observation[0, :, 2].tolist() == [1, 1, 1, 1]
    for others in batches.values():
        for (a, _), (b, _) in zip(others, batches["serial"], strict=True):
            assert_equal_batches([(a.env.observation, [])], [(b.env.observation, [])])


@pytest.mark.parametrize(("EnvCls", "n_checked", "n_made"), [(Remembering, 1, 4), (RememberingVector, 2, 5)])
def test_the_environment_that_is_checked_is_closed_before_others_are_made(EnvCls, n_checked, n_made, monkeypatch):
    Remembering.n_made, Remembering.closed = 0, []
    begin = Remembering.__init__

    def watched(self: Remembering) -> None:
        assert Remembering.closed == list(range(n_checked if Remembering.n_made >= n_checked else 0))
        begin(self)

    monkeypatch.setattr(Remembering, "__init__", watched)
    with running("serial", counting_agent(), EnvCls, B=2, eval_n_envs=1, eval_max_trajectories=1):
        assert Remembering.n_made == n_made
    assert sorted(Remembering.closed) == list(range(n_made))


@pytest.mark.parametrize("kind", ["serial", "cpu1", "gpu1"])
def test_a_sampler_that_was_shut_down_is_gone_with_its_last_reference(kind):
    gc.collect()
    gc.disable()
    try:
        with running(kind, counting_agent(), B=1, eval_n_envs=1, eval_max_trajectories=1) as sampler:
            sampler.obtain_samples(0)
        gone = weakref.ref(sampler)
        del sampler
        assert gone() is None
    finally:
        gc.enable()


# ---- what the check finds, and what is said of it


class Unbounded(CountingEnv):
    """Has bounds to advise on."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 0.5, (3,), np.float32)


@pytest.mark.parametrize("kind", ["serial", "cpu1"])
def test_advice_is_logged_once(kind, capsys):
    with running(kind, counting_agent(), Unbounded, start_method="forkserver") as sampler:
        sampler.obtain_samples(0)
    assert len(re.findall(r"WARNING: Unbounded \(rank 0\).* expected within Box", capsys.readouterr().out)) == 1


class Constructed(CountingEnv):
    """Is seeded when it is made, and shows its seed."""

    def __init__(self, seed: int = 0, env_seed: int | None = None) -> None:
        super().__init__((100,))
        self.given = seed if env_seed is None else env_seed

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()

    def observe(self) -> Any:
        return np.array([self.given % 1000, self.t, 0], np.float32)


class OldConstructed(Constructed):
    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)


def numbers(sampler: Any) -> list[float]:
    return sampler.obtain_samples(0)[0].env.observation[0, :, 0].tolist()


def test_each_environment_of_a_run_is_given_an_env_seed():
    seen = []
    for kind, seed in (("serial", 7), ("cpu2", 7), ("serial", 8)):
        with running(kind, counting_agent(), Constructed, B=4, seed=seed) as sampler:
            seen.append(numbers(sampler))
    assert seen[0] == seen[1] != seen[2]
    assert len(set(seen[0])) == 4
    sampler = SerialSampler(Constructed, {}, 1, 4, eval_n_envs=4, eval_max_steps=9)
    specs = specs_of(sampler, Run(batch_spec=BatchSpec(1, 4)))
    train, evaluation = (specs[role].env_seeds() for role in FleetRole)
    assert not set(train) & set(evaluation)
    assert not set(train) & {*replace(specs[FleetRole.TRAIN], restarts=1).env_seeds(), *specs[FleetRole.TRAIN].seeds()}


class Drawing(CountingEnv):
    """Draws from what it was given, whatever a reset with a seed says."""

    def __init__(self, seed: int = 0, random: Any = None) -> None:
        super().__init__()
        self.given = random or np.random.default_rng(seed)

    def observe(self) -> Any:
        return np.array([self.given.integers(1000), self.t, 0], np.float32)


@pytest.mark.parametrize(
    ("EnvCls", "env_kwargs", "what"),
    [
        (OldConstructed, {"seed": 5}, "seed=5"),
        (Drawing, {"seed": 5}, "seed=5"),
        (Drawing, {"random": np.random.default_rng(5)}, "random=Generator"),
    ],
)
def test_environments_that_one_argument_makes_alike_are_told_of(EnvCls, env_kwargs, what, capsys):
    with running("serial", counting_agent(), EnvCls, env_kwargs=env_kwargs, B=2) as sampler:
        assert len(set(numbers(sampler))) == 1
    assert f"all 2 environments are made with {what}" in capsys.readouterr().out
    for options in ({"env_kwargs": env_kwargs, "B": 1}, {"B": 2}):
        with running("serial", counting_agent(), EnvCls, **options):
            assert "environments are made with" not in capsys.readouterr().out


class ChangesTorch(CountingEnv):
    def __init__(self, what: str) -> None:
        super().__init__()
        torch.set_default_dtype(torch.float64) if what == "dtype" else torch.set_grad_enabled(False)


@pytest.mark.parametrize(
    ("what", "text"),
    [("dtype", "set torch's default dtype to torch.float64"), ("grad", "switched torch's gradients off")],
)
def test_an_environment_that_changes_torch_is_refused(what, text):
    with pytest.raises(EnvError, match=f"The environment has {text}"):
        start_and_stop("serial", counting_agent(), ChangesTorch, env_kwargs={"what": what})
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


class WritesAFile(CountingEnv):
    def __init__(self, path: Path) -> None:
        super().__init__()
        path.touch(exist_ok=False)


def test_a_file_that_the_checked_environment_has_written_is_explained(tmp_path):
    with pytest.raises(EnvError, match=r"FileExistsError(?s:.*)was built, checked and closed before"):
        start_and_stop("serial", counting_agent(), WritesAFile, env_kwargs={"path": tmp_path / "log"})


class Exits(CountingEnv):
    def close(self) -> None:
        raise SystemExit


def test_an_exit_in_close_ends_nothing(capsys):
    with running("serial", counting_agent(), Exits) as sampler:
        sampler.obtain_samples(0)
    assert "Exits (rank 0) was not closed: SystemExit" in capsys.readouterr().out


# ---- the example row of the agent


class OwnState(CategoricalPgAgent):
    """Keeps a state from `reset` to `step`, and notes how it is called."""

    calls: ClassVar[list[str]] = []

    def reset(self) -> None:
        super().reset()
        self.calls.append("reset")

    def sample_mode(self, itr: int) -> None:
        super().sample_mode(itr)
        self.calls.append("sample_mode")

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        self.calls.append("step")
        return super().step(observation, prev_action, prev_reward)


@pytest.mark.parametrize("B", [1, 3])
def test_an_agent_with_a_state_of_its_own_is_reset_between_the_example_and_the_first_batch(B):
    OwnState.calls.clear()
    with running("serial", OwnState(), B=B, T=2) as sampler:
        assert OwnState.calls[:3] == ["reset", "sample_mode", "step"], "as rlpyt 0.1 called them"
        assert OwnState.calls[-1] == "reset"
        OwnState.calls.clear()
        sampler.obtain_samples(0)
        assert OwnState.calls == ["sample_mode", "step", "step"]


class StateOfAMode(CategoricalPgAgent):
    """Asks at every change of mode which one it was, as recurrent agents of rlpyt 0.1 did."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[str | None] = []

    def sample_mode(self, itr: int) -> None:
        self.before.append(self._mode)
        super().sample_mode(itr)

    def eval_mode(self, itr: int, deterministic: bool = False) -> None:
        self.before.append(self._mode)
        super().eval_mode(itr, deterministic)


def test_an_agent_s_own_methods_are_told_the_mode_before():
    agent = StateOfAMode()
    with running("serial", agent, B=2, T=2, eval_n_envs=1, eval_max_trajectories=1) as sampler:
        agent.before.clear()
        sampler.obtain_samples(0)
        agent.train_mode(0)
        sampler.evaluate_agent(0)
        sampler.obtain_samples(1)
        assert agent.before[1:] == ["train", "eval"]
        assert agent.mode == "sample"


class LacksB(CategoricalPgAgent):
    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        result = list(super().step(observation, prev_action, prev_reward))
        result[self.place] = result[self.place][0] if self.place == 0 else torch.zeros(3)
        return tuple(result)


@pytest.mark.parametrize(
    ("place", "text"), [(0, r"the action with the shape \[\]"), (1, r"agent_info with the shape \[3\]")]
)
def test_a_step_that_gives_no_row_for_each_environment_is_named(place, text):
    with pytest.raises(ValueError, match=rf"LacksB\.step was given one row, tensors \[B, ...\] .*{text}; expected \[1"):
        start_and_stop("serial", LacksB(place))
