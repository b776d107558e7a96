"""The adapter of simulators with the interface of rsl_rl."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from rlpyt.agents import GaussianPgAgent
from rlpyt.envs import EnvError, RslRlEnv
from rlpyt.samplers import DeviceSampler
from rlpyt.spaces import subspaces
from rlpyt.types import Run, Samples

LENGTH = 6


class Simulator:
    """Counts; environment 1 terminates at step 4, the others time out after `LENGTH`."""

    num_actions = 2

    def __init__(self, num_envs: int = 3, final: bool = False) -> None:
        self.num_envs, self.final, self.max_episode_length = num_envs, final, LENGTH
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64)
        self.seeds: list[int] = []

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def get_observations(self) -> Any:
        t = self.episode_length_buf[:, None].float()
        return {"policy": t.expand(-1, 2), "critic": -t, "image": torch.zeros(self.num_envs, 3, 4, 4)}

    def reset(self) -> Any:
        self.episode_length_buf = torch.zeros_like(self.episode_length_buf)
        return self.get_observations(), {}

    def step(self, actions: torch.Tensor) -> Any:
        assert actions.abs().max() <= 1
        self.episode_length_buf = self.episode_length_buf + 1
        falls = (self.episode_length_buf == 4) & (torch.arange(self.num_envs) == 1)
        time_outs = self.episode_length_buf >= LENGTH
        extras: dict[str, Any] = {"time_outs": time_outs, "log": {"/reward": 1.0}}
        if self.final:
            extras["final_observations"] = self.get_observations()
        done = falls | time_outs
        self.episode_length_buf = self.episode_length_buf.masked_fill(done, 0)
        return self.get_observations(), torch.ones(self.num_envs), done.long(), extras


def collected(ends: str = "auto", **kwargs: Any) -> tuple[Samples, DeviceSampler]:
    given = dict(EnvCls=Simulator, action_limit=1.0, groups=["policy"], **kwargs)
    sampler = DeviceSampler(RslRlEnv, given, 14, 3, ends=ends)
    sampler.initialize(GaussianPgAgent(), Run(batch_spec=sampler.batch_spec, bootstrap_value=True, final_rows=False))
    return sampler.obtain_samples(0)[0], sampler


def test_time_outs_truncate_and_other_ends_terminate() -> None:
    env = collected("last_observation")[0].env
    assert env.observation[:, 0, 0].tolist() == [*range(6), *range(6), 0, 1]
    assert env.truncated[:, 0].nonzero().flatten().tolist() == [5, 11]
    assert env.terminated[:, 1].nonzero().flatten().tolist() == [3, 7, 11]
    assert not env.truncated[:, 1].any()
    assert env.final_observation[5, 0].tolist() == [5, 5]


def test_a_final_observation_in_extras_is_taken() -> None:
    samples, _ = collected(env_kwargs=dict(final=True))
    assert samples.env.final_observation[5, 0].tolist() == [6, 6]
    with pytest.raises(EnvError, match="no final_obs"):
        collected()


def test_several_groups_are_a_dictionary_and_lengths_may_be_random() -> None:
    env = RslRlEnv(Simulator, groups=["policy", "critic"], random_lengths=True)
    observation, _ = env.reset(seed=3)
    assert {name: list(x.shape) for name, x in observation.items()} == {"policy": [3, 2], "critic": [3, 1]}
    assert [name for name, _ in subspaces(env.single_observation_space)] == ["policy", "critic"]
    first = env.env.episode_length_buf.tolist()
    assert env.env.seeds == [3]
    assert 0 <= min(first) < max(first) < LENGTH
    env.reset(seed=3)
    assert env.env.episode_length_buf.tolist() == first


def test_an_evaluation_runs_whole_episodes_where_those_of_training_have_random_lengths() -> None:
    kwargs = dict(EnvCls=Simulator, env_kwargs=dict(num_envs=3), groups=["policy"])
    EnvCls = partial(RslRlEnv, random_lengths=True)
    sampler = DeviceSampler(EnvCls, kwargs, 2 * LENGTH, 3, ends="last_observation", eval_n_envs=3)
    sampler.initialize(GaussianPgAgent())
    assert max(info.Length for info in sampler.evaluate_agent(0).traj_infos) == LENGTH
    envs: list[Any] = [env.env for env in sampler._open]
    assert [env.random_lengths for env in envs] == [True, False]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"groups is \['depth'\]; expected groups of vectors among"):
        RslRlEnv(Simulator, groups=["depth"])
    with pytest.raises(ValueError, match=r"groups is .*'image'"):
        RslRlEnv(Simulator)
