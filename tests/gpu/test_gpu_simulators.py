"""Simulators on a GPU: rows, statistics and replays are those of the CPU, and batches wait for it at their ends."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlpyt.agents import CategoricalPgAgent, GaussianPgAgent
from rlpyt.algos import PPO
from rlpyt.replays.reading import Sequences
from rlpyt.runners import MinibatchRl, MinibatchRlEval
from rlpyt.samplers import DeviceSampler
from rlpyt.types import Places, Run
from rlpyt.utils.arrays import buffer_func
from rlpyt.utils.compute import ComputeSettings
from tests.batched_envs import CartPole, Pendulum, Single
from tests.gpu.gpu_kit import assert_close, devices_of
from tests.replays import test_device_replay as replay_kit
from tests.replays.test_device_replay import LEARNS as OFF_POLICY
from tests.samplers.test_device_sampler import LEARNS as ON_POLICY
from tests.samplers.test_device_sampler import Greedy, Saved

pytestmark = pytest.mark.gpu
SMALL: dict[str, Any] = dict(hidden_sizes=16)


@contextmanager
def waits(on_gpu: bool) -> Iterator[list[str]]:
    """Give a list that holds, after the block, a line for each wait for the GPU within it."""
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = torch.cuda.get_sync_debug_mode() if on_gpu else 0
        if on_gpu:
            torch.cuda.set_sync_debug_mode("warn")
        try:
            yield lines
        finally:
            if on_gpu:
                torch.cuda.set_sync_debug_mode(before)
    lines += [f"{w.filename}:{w.lineno}" for w in caught if "synchronizing" in str(w.message)]


def wired(sampler: DeviceSampler, agent: Any, device: str) -> DeviceSampler:
    """Wire the parts as a runner does; the weights follow from a seed."""
    torch.manual_seed(5)
    run = Run(batch_spec=sampler.batch_spec, seed=3, bootstrap_value=True, final_rows=False)
    sampler.initialize(agent, run)
    agent.to_device(ComputeSettings(device=device))
    return sampler


@pytest.mark.parametrize("case", ["final_obs", "final_observation", "reset_mask", "env_ids", "lost", "LSTM"])
def test_rows_and_trajectories_are_those_of_the_cpu(case: str, device: str, on_gpu: bool) -> None:
    """Inside a batch nothing waits: two waits after it tell which episodes have ended, and one copy brings the rest."""
    recurrent = "lstm" if case == "LSTM" else False
    dialect = "final_obs" if recurrent else case
    ends = "last_observation" if case == "lost" else "auto"
    results = []
    for where in ("cpu", device):
        sampler = DeviceSampler(CartPole, dict(dialect=dialect, limit=7, device=where), 16, 32, ends=ends)
        wired(sampler, Greedy(recurrent=recurrent, model_kwargs=SMALL), where)
        batches, lengths = [], []
        for itr in range(3):
            with waits(on_gpu and where != "cpu") as lines:
                samples, infos = sampler.obtain_samples(itr)
            batches.append(buffer_func(samples, torch.clone))
            lengths += [(info.Length, info.Return, info.ended_at) for info in infos]
        if on_gpu and where != "cpu" and case != "env_ids":  # to be told numbers, these environments wait in each step
            assert len(lines) == 3, lines
        # Whether rows are valid is asked on the host.
        assert devices_of(batches[-1].env._replace(valid=None)) == {torch.device(where).type}
        results.append((tuple(batches), lengths))
    assert len(results[0][1]) > 5
    assert results[0][1] == results[1][1]
    assert_close(results[0][0], results[1][0])


@pytest.mark.parametrize("Agent", [CategoricalPgAgent, GaussianPgAgent])
def test_a_state_goes_on_with_the_draws_of_the_device(Agent: Any, device: str) -> None:
    Env: Any = Saved if Agent is CategoricalPgAgent else type("SavedPendulum", (Pendulum,), dict(vars(Saved)))

    def make() -> DeviceSampler:
        return wired(DeviceSampler(Env, dict(limit=9, device=device), 12, 6), Agent(model_kwargs=SMALL), device)

    sampler, other = make(), make()
    sampler.obtain_samples(0)
    state = sampler.state_dict()
    expected, infos = sampler.obtain_samples(1)
    other.load_state_dict(state)
    came, came_infos = other.obtain_samples(1)
    assert other.n_cut_episodes == 0
    assert_close(expected, came, 0.0)
    assert [dict(x) for x in infos] == [dict(x) for x in came_infos]


@pytest.mark.parametrize("alpha", [None, 0.6], ids=["uniform", "prioritised"])
@pytest.mark.parametrize("lengths", [None, Sequences(4, 2, 3, 2)], ids=["transitions", "sequences"])
def test_a_replay_draws_there_and_gives_what_the_cpu_gives(lengths: Any, alpha: Any, device: str) -> None:
    replays = []
    for where in ("cpu", device):
        replay = replay_kit.make(3, 20, torch.device(where), alpha=alpha, sequences=lengths)
        all_rows = buffer_func(replay_kit.rows(30), torch.Tensor.to, where)
        for n in range(0, 30, 5):
            replay.append_samples(all_rows[n : n + 5])
        replays.append(replay)
    here, there = replays
    for _ in range(4):
        batch, start, env = replay_kit.drawn(there, 64)
        on_host = {} if lengths is None else {"episode_start": None}  # for which rows a layer begins anew
        assert devices_of(batch._replace(**on_host)) == {torch.device(device).type}
        t, b = start.cpu(), env.cpu()
        same = here._read(t, b, None) if lengths is None else here._read_sequences(t, b, None, lengths)
        assert_close(same._replace(places=None, is_weights=None), batch._replace(places=None, is_weights=None))
        if alpha:
            errors = torch.rand(64, generator=torch.Generator().manual_seed(0))
            there.update_priorities(Places(start, env), errors.to(device))
    state = there.state_dict()
    again = replay_kit.make(3, 20, torch.device(device), alpha=alpha, sequences=lengths)
    again.load_state_dict(state)
    assert_close(replay_kit.drawn(there, 64), replay_kit.drawn(again, 64), 0.0)


def test_draws_there_are_in_proportion_to_their_priorities(device: str) -> None:
    tree = replay_kit.DeviceSumTree(1000, torch.device(device))
    values = torch.arange(1000, dtype=torch.float64, device=device) % 17
    tree.set(torch.arange(1000, device=device), values)
    generator = torch.Generator(device).manual_seed(0)
    counts = torch.bincount(tree.draw(300_000, generator), minlength=1000).double() / 300_000
    torch.testing.assert_close(counts, values / values.sum(), atol=5e-4, rtol=0)
    assert not counts[values == 0].any()


LEARNS = [(kind, False) for kind in (*ON_POLICY, *OFF_POLICY)] + [(kind, True) for kind in ("PPO", "DQN", "SAC")]


@pytest.mark.parametrize(("kind", "compiled"), LEARNS, ids=lambda x: {False: "eager", True: "compiled"}.get(x, x))
def test_a_simulator_is_learned_there(kind: str, compiled: bool, device: str, on_gpu: bool) -> None:
    """As on the CPU, whose tests have the same limits; CUDA graphs of whole updates read rows in place."""
    if compiled and not on_gpu:
        pytest.skip("CUDA graphs need a GPU")
    Env, n_steps, least, limit = CartPole, 16 * 512, 45.0, 100
    if kind in ON_POLICY:
        algo, agent = ON_POLICY[kind]()
        sampler = DeviceSampler(Env, dict(limit=limit, device=device), 32, 16)
    else:
        algo, agent, Env, n_steps, least = OFF_POLICY[kind]()
        limit = 20 if kind == "SAC" else limit
        sampler = DeviceSampler(Env, dict(limit=limit, device=device), 8, 16)
    settings = ComputeSettings(device=device, compile=compiled)
    MinibatchRl(algo, agent, sampler, n_steps=n_steps, log_interval_steps=1e9, seed=1, settings=settings).train()
    assert algo.compiled.is_on is compiled
    agent.to_device(ComputeSettings())
    result = np.mean([x.Return for x in agent.play(Single(Env, limit=limit), n_episodes=10)])
    assert result > least, result


def test_a_run_evaluates_in_environments_of_its_own_there(device: str) -> None:
    sampler = DeviceSampler(CartPole, dict(limit=50, device=device), 16, 64, eval_n_envs=32, eval_max_trajectories=32)
    agent = CategoricalPgAgent(model_kwargs=SMALL)
    algo = PPO(learning_rate=3e-3, normalize_advantage=True)
    settings = ComputeSettings(device=device)
    runner = MinibatchRlEval(algo, agent, sampler, n_steps=8 * 1024, log_interval_steps=4096, settings=settings)
    runner.train()
    assert {p.device.type for p in agent.parameters()} == {torch.device(device).type}
    agent.to_device(ComputeSettings())
    returns = [x.Return for x in agent.play(gymnasium.make("CartPole-v1", max_episode_steps=50), n_episodes=5)]
    assert np.mean(returns) > 20, returns
