"""Contracts of a sampler and of an algorithm, held by short runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from rlpyt.agents import PgAgent
from rlpyt.algos import RlAlgorithm
from rlpyt.core import Agent, Algorithm, Metrics, Sampler
from rlpyt.runners import MinibatchRl, MinibatchRlBase, MinibatchRlEval
from rlpyt.samplers import SerialSampler
from rlpyt.testing.expect import expect, expect_close, reloaded, seeded
from rlpyt.types import Kwargs, Samples
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from rlpyt.utils.compute import ComputeSettings


def check_sampler(
    SamplerCls: Callable[..., Sampler],
    EnvCls: Callable[..., object],
    env_kwargs: Mapping[str, object] | None = None,
    *,
    batch_T: int = 5,
    batch_B: int = 4,
    n_itr: int = 5,
    seed: int = 0,
    make_agent: Callable[[], Agent] = PgAgent,
    sampler_kwargs: Kwargs | None = None,
) -> None:
    """Run a sampler shortly, and check its rows against their convention and against those of `SerialSampler`.

    The row after the end of an episode holds the final observation and is not valid; `prev_action` and `prev_reward`
    are those of the row before; every row is the one that `SerialSampler` gives with the same seed. With `eval_n_envs`
    among the settings the run is evaluated, which must change no row.

    Args:
        SamplerCls: called with `EnvCls`, `env_kwargs`, `batch_T`, `batch_B` and `sampler_kwargs`.
        EnvCls: makes environments that repeat themselves from a seed.
        env_kwargs: their arguments.
        batch_T: time steps of a batch.
        batch_B: environments.
        n_itr: batches.
        seed: of the run.
        make_agent: returns a new agent of the policy gradient family that serves the environment.
        sampler_kwargs: further settings, such as `n_workers`.

    Raises:
        AssertionError: if the contract is broken.
    """
    sizes: dict[str, Any] = dict(EnvCls=EnvCls, env_kwargs=dict(env_kwargs or {}), batch_T=batch_T, batch_B=batch_B)
    kwargs = dict(sampler_kwargs or {})
    kept = {name: kwargs[name] for name in ("max_decorrelation_steps", "mid_batch_reset") if name in kwargs}
    sampler = SamplerCls(**sizes, **kwargs)
    name = type(sampler).__name__
    came = _batches(sampler, make_agent, n_itr, seed)
    expected = _batches(SerialSampler(**sizes, **kept), make_agent, n_itr, seed)
    expect(len(came) == n_itr, f"{name}: batches of a run of {n_itr} iterations", len(came), f"{n_itr}")
    for itr, (samples, reference) in enumerate(zip(came, expected, strict=True)):
        what = f"{name}, batch {itr}"
        lead = tuple(samples.env.reward.shape)
        expect(lead == (batch_T, batch_B), f"{what}: leading dimensions", lead, f"{(batch_T, batch_B)}")
        _check_rows(what, samples)
        for part, mine, value in (("agent", samples.agent, reference.agent), ("env", samples.env, reference.env)):
            for (field, came_leaf), (_, leaf) in zip(mine.items(), value.items(), strict=True):
                expect_close(f"{what}: {part}.{field}", came_leaf, leaf, "that of SerialSampler", 1e-4)
    sampler.shutdown()  # may be called again


def _check_rows(what: str, samples: Samples) -> None:
    """Check the convention of rows inside one batch."""
    agent, env = samples.agent, samples.env
    after_end = env.valid[1:] & env.done[:-1]
    expect(not after_end.any(), f"{what}: row after the end of an episode", "valid=True", "False: a final observation")
    reward = env.reward[~env.valid]
    expect(not reward.any(), f"{what}: rewards of rows that are not valid", reward.tolist(), "zeros")
    previous = torch.where(env.valid[:-1], env.reward[:-1], 0.0)
    expect_close(f"{what}: prev_reward", env.prev_reward[1:], previous, "the reward of the row before, 0 at a start")
    goes_on = env.valid[:-1]
    for prev_action, action in zip(buffer_leaves(agent.prev_action), buffer_leaves(agent.action), strict=True):
        expect_close(
            f"{what}: prev_action", prev_action[1:][goes_on], action[:-1][goes_on], "the action of the row before"
        )


def _batches(sampler: Sampler, make_agent: Callable[[], Agent], n_itr: int, seed: int) -> list[Samples]:
    """Return copies of the batches of a run that does not learn."""
    batches: list[Samples] = []

    @dataclass(kw_only=True, eq=False)
    class Recorder(RlAlgorithm[Agent]):
        """Algorithm that keeps the batches and updates nothing."""

        bootstrap_value, batch_size = True, 1

        def optimize_agent(self, itr: int, samples: Samples) -> Metrics:
            batches.append(buffer_func(samples, torch.clone))
            return {}

    _train(MinibatchRlEval if sampler.eval_n_envs else MinibatchRl, Recorder(), make_agent, sampler, n_itr, seed)
    return batches


RunnerT = TypeVar("RunnerT", bound=MinibatchRlBase)


def _train(
    Runner: type[RunnerT],
    algo: Algorithm[Any],
    make_agent: Callable[[], Agent],
    sampler: Sampler,
    n_itr: int,
    seed: int,
) -> RunnerT:
    """Run training in float32 on one thread; return the runner."""
    runner = Runner(
        algo, make_agent(), sampler, n_steps=n_itr * sampler.batch_spec.size, seed=seed, settings=ComputeSettings()
    )
    with seeded(seed):
        runner.train()
    return runner


def _weights(agent: Agent) -> tuple[torch.Tensor, ...]:
    return tuple(parameter.detach().clone() for parameter in agent.parameters())


class _Watched(MinibatchRl):
    """Runner that keeps the weights from before the first update."""

    def startup(self) -> int:
        n_itr = super().startup()
        self.first_weights = _weights(self.agent)
        return n_itr


def check_algo(
    make_algo: Callable[[], Algorithm[Any]],
    make_agent: Callable[[], Agent],
    EnvCls: Callable[..., object],
    env_kwargs: Mapping[str, object] | None = None,
    *,
    batch_T: int = 5,
    batch_B: int = 4,
    n_itr: int = 10,
    seed: int = 0,
) -> None:
    """Train shortly, and check what runners rely on.

    There are updates, which change finite weights. The same seed gives the same weights. The state can be loaded from
    a file by another algorithm of the same settings.

    Args:
        make_algo: returns a new algorithm, which learns within `n_itr` iterations.
        make_agent: returns a new agent for it.
        EnvCls: makes environments that repeat themselves from a seed.
        env_kwargs: their arguments.
        batch_T: time steps of a batch.
        batch_B: environments.
        n_itr: iterations.
        seed: of the run.

    Raises:
        AssertionError: if the contract is broken.
        TrainingDiverged: if a metric or a weight is not finite.
    """
    runs = []
    for run_seed in (seed, seed, seed + 1):
        sampler = SerialSampler(EnvCls, dict(env_kwargs or {}), batch_T=batch_T, batch_B=batch_B)
        runs.append(_train(_Watched, make_algo(), make_agent, sampler, n_itr, run_seed))
    run, again, other = runs
    name, n_updates = type(run.algo).__name__, run.algo.update_counter
    expect(n_updates > 0, f"{name}: updates in {n_itr} iterations", n_updates, "at least one")
    weights = _weights(run.agent)
    expect_close(f"{name}: weights of two runs with seed {seed}", _weights(again.agent), weights, "the same")
    changed = any(not torch.equal(a, b) for a, b in zip(weights, run.first_weights, strict=True))
    expect(changed, f"{name}: weights after {n_updates} updates", "those before the first one", "others")
    other.algo.load_state_dict(reloaded(run.algo.state_dict()))
    came = other.algo.update_counter
    expect(came == n_updates, f"{name}: update_counter after load_state_dict", came, f"{n_updates}")
