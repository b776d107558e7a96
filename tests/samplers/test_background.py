"""A sampler in a process of its own: its rows are those of a loop that keeps old weights and acts by them."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlpyt.agents import CategoricalPgAgent, DqnAgent
from rlpyt.core import EvalResult
from rlpyt.logging import current_logger, logger_context
from rlpyt.samplers import SerialSampler, WaitResetCollector
from rlpyt.samplers.weight_store import WeightStore
from rlpyt.types import Run, Samples, TrajInfo
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.processes import WorkerError
from rlpyt.utils.shared_memory import dumps
from tests.pairs import others_nightly
from tests.runners.lagged import with_lag
from tests.samplers.sampler_kit import assert_equal_batches, in_order, make, random_agent
from tests.samplers.test_weight_store import agent_of
from tests.toy_envs import CountingEnv, DictCountingEnv
from tests.vector_toy_envs import CountingVectorEnv

N_ITR = 7
OPTIONS: dict[str, Any] = dict(
    env_kwargs={}, max_decorrelation_steps=4, eval_n_envs=2, eval_max_trajectories=4, env_info_keys=["t"]
)


@contextmanager
def started(sampler: Any, agent: Any, n_itr: int = N_ITR, **run: Any) -> Iterator[Any]:
    """Yield a sampler that runs."""
    torch.manual_seed(1)
    try:
        sampler.initialize(agent, Run(batch_spec=sampler.batch_spec, seed=7, n_itr=n_itr, **run))
        yield sampler
    finally:
        sampler.shutdown()


def learn(agent: Any, itr: int) -> None:
    """Do what stands for an iteration of learning: all weights are others, and so is the exploration."""
    agent.train_mode(itr)
    agent.anneal_exploration((itr + 1) / N_ITR)
    with torch.no_grad():
        for i, parameter in enumerate(agent.parameters()):
            generator = torch.Generator().manual_seed(1000 * itr + i)
            parameter += torch.randn(parameter.shape, generator=generator)


def train(sampler: Any, agent: Any, itrs: range = range(N_ITR), slowly: bool = False) -> list[Any]:
    """Return copies of the batches of a loop that learns after each."""
    batches = []
    for itr in itrs:
        samples, traj_infos = sampler.obtain_samples(itr)
        batches.append((buffer_func(samples, torch.clone), [info.statistics() for info in traj_infos]))
        if slowly:
            time.sleep(0.02)  # in which the next batches are collected
        learn(agent, itr)
        for now, before in zip(buffer_leaves(samples), buffer_leaves(batches[-1][0]), strict=True):
            assert torch.equal(now, before)  # nothing was written while it was learned from
    return batches


def make_agent(kind: str = "q") -> Any:
    torch.manual_seed(0)
    return DqnAgent(model_kwargs={"hidden_sizes": 8}) if kind == "q" else random_agent(recurrent=True)


def reference(
    lag: int, kind: str = "q", n_itr: int = N_ITR, EnvCls: Any = CountingEnv, **options: Any
) -> tuple[list[Any], EvalResult]:
    """Return the batches of the serial loop that acts by old weights, and an evaluation in the end."""
    agent = make_agent(kind)
    sampler = with_lag(lag)(EnvCls, batch_T=5, batch_B=4, **{**OPTIONS, **options})
    with started(sampler, agent, n_itr, bootstrap_value=kind != "q"):
        return train(sampler, agent, range(n_itr)), sampler.evaluate_agent(3)


@pytest.mark.parametrize(
    ("kind", "lag", "agent_kind"),
    others_nightly(
        [("serial", 0, "q"), ("serial", 1, "q"), ("serial", 2, "pg"), ("serial", 3, "q"), ("halves", 1, "q")]
        + [("cpu2", 1, "pg"), ("gpu2", 2, "q"), ("alternating2", 1, "q"), ("native", 1, "q")],
        [("serial", 0, "q"), ("serial", 2, "pg"), ("halves", 1, "q"), ("gpu2", 2, "q"), ("native", 1, "q")],
    ),
)
def test_batches_are_those_of_the_weights_of_lag_iterations_ago(kind, lag, agent_kind):
    EnvCls = CountingVectorEnv if kind == "native" else CountingEnv
    expected, evaluated = reference(lag, agent_kind, EnvCls=EnvCls)
    options = OPTIONS if kind in ("serial", "halves", "native") else {**OPTIONS, "start_method": "fork"}
    agent = make_agent(agent_kind)
    sampler: Any = make("serial" if kind == "native" else kind, EnvCls, 5, 4, **options).in_background(lag)
    with started(sampler, agent, bootstrap_value=agent_kind != "q"):
        batches = train(sampler, agent, slowly=lag == 2)
        assert_equal_batches(batches, expected, rtol=0 if kind == "serial" else 1e-4)
        result = sampler.evaluate_agent(3)
        assert in_order(result.traj_infos) == in_order(evaluated.traj_infos)
        assert sampler.next == N_ITR, "batches are collected that nobody learns from"
        assert not sampler.arrived
        columns = sampler.diagnostics()
    ages = [min(itr, lag) for itr in range(N_ITR)]
    assert [columns[f"DataAge{k}"] for k in ("Min", "Mean", "Max")] == [0, pytest.approx(np.mean(ages)), lag]
    assert columns["RowsDropped"] == 0
    assert columns["SamplerWaitTime"] > 0
    if lag:  # the reference is no other lag's, nor that of a loop without one
        assert any(
            not torch.equal(x, y)
            for (a, _), (b, _) in zip(reference(lag - 1, agent_kind, EnvCls=EnvCls)[0], batches, strict=True)
            for x, y in zip(buffer_leaves(a), buffer_leaves(b), strict=True)
        )


@pytest.mark.parametrize("options", [{"mid_batch_reset": False}, {"CollectorCls": WaitResetCollector}])
def test_environments_that_rest_are_the_same(options):
    expected, _ = reference(1, **options)
    agent = make_agent()
    with started(make("serial", CountingEnv, 5, 4, **OPTIONS, **options).in_background(1), agent) as sampler:
        assert not sampler.mid_batch_reset
        assert_equal_batches(train(sampler, agent, slowly=True), expected)


def test_an_evaluation_between_two_batches_changes_nothing():
    expected, _ = reference(2)
    agent, judge = make_agent(), make_agent()
    reference_sampler = make("serial", CountingEnv, 5, 4, **OPTIONS)
    with (
        started(make("serial", CountingEnv, 5, 4, **OPTIONS).in_background(2), agent) as sampler,
        started(reference_sampler, judge),
    ):
        batches = []
        for itr in range(N_ITR):
            judge.load_state_dict(agent.state_dict())
            judge.numbers.load_state_dict(agent.numbers.state_dict())
            ours, theirs = sampler.evaluate_agent(itr, True), reference_sampler.evaluate_agent(itr, True)
            assert in_order(ours.traj_infos) == in_order(theirs.traj_infos)
            batches += train(sampler, agent, range(itr, itr + 1))
    assert_equal_batches(batches, expected)


def test_weights_that_change_between_an_evaluation_and_a_batch_act_in_the_batch():
    batches = []
    for evaluates in (False, True):
        agent = make_agent()
        with started(make("serial", CountingEnv, 5, 4, **OPTIONS).in_background(0), agent) as sampler:
            if evaluates:
                sampler.evaluate_agent(0)
            learn(agent, 3)
            batches.append(train(sampler, agent, range(2)))
    alone, after_an_evaluation = batches
    assert_equal_batches(alone, after_an_evaluation)


def test_the_state_has_the_batches_that_are_collected_and_not_learned_from():
    expected, _ = reference(2)
    first, second = make_agent(), make_agent()
    with started(make("serial", CountingEnv, 5, 4, **OPTIONS).in_background(2), first) as sampler:
        batches = train(sampler, first, range(3))
        state, weights = sampler.state_dict(), copy.deepcopy(first.state_dict())
        numbers = copy.deepcopy(first.numbers.state_dict())
        # To ask changes nothing, and their places are written again meanwhile.
        assert_equal_batches(batches + train(sampler, first, range(3, N_ITR)), expected)
    state = pickle.loads(pickle.dumps(state))
    with started(make("serial", CountingEnv, 5, 4, **OPTIONS).in_background(2), second) as sampler:
        second.load_state_dict(weights)
        second.numbers.load_state_dict(numbers)
        sampler.load_state_dict(state)
        assert_equal_batches(train(sampler, second, range(3, N_ITR)), expected[3:])
        columns = sampler.diagnostics()
    # The row counts the batches from before the stop too, whose ages are 0, 1 and 2.
    assert [columns[f"DataAge{k}"] for k in ("Min", "Mean", "Max")] == [0, (0 + 1 + 2 * (N_ITR - 2)) / N_ITR, 2]


def test_batches_come_in_their_order_and_nothing_before_the_start():
    sampler = make("serial", CountingEnv, 5, 4, **OPTIONS).in_background(1)
    for ask in (lambda: sampler.obtain_samples(0), lambda: sampler.evaluate_agent(0), sampler.state_dict):
        with pytest.raises(RuntimeError, match=r"SerialSampler in the background: .* not running; call initialize"):
            ask()
    agent = make_agent()
    with started(sampler, agent, n_itr=2):
        sampler.obtain_samples(0)
        with pytest.raises(ValueError, match=r"batch 2 was asked for; expected 1, as batches are collected ahead"):
            sampler.obtain_samples(2)
        sampler.obtain_samples(1)
        sampler.obtain_samples(2)  # beyond the run: collected when it is asked for
        assert sampler.diagnostics()["DataAgeMin"] == 0
    sampler.shutdown()  # may be called again
    with started(make("serial", CountingEnv, 5, 4, **OPTIONS).in_background(1), agent, n_itr=6) as sampler:
        sampler.obtain_samples(4)  # a run may begin anywhere
        sampler.obtain_samples(5)


class Shouting(SerialSampler):
    """Logs, and returns rows of its own."""

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        current_logger().log(f"batch {itr}")
        current_logger().warn_once("once", "of a sampler")
        if itr == 3:
            raise OSError("the disk is gone")
        samples, traj_infos = super().obtain_samples(itr)
        samples = buffer_func(samples, torch.clone)
        samples.env.reward[:] = itr
        return samples, traj_infos

    def diagnostics(self) -> dict[str, float]:
        return {"Own": 1.5}


def test_a_sampler_of_the_users_own_keeps_its_voice_its_rows_and_its_columns(tmp_path):
    agent = make_agent()
    sampler = Shouting(CountingEnv, batch_T=5, batch_B=4, **OPTIONS).in_background(1)
    with logger_context(tmp_path, run_ID=0), started(sampler, agent):
        assert sampler.plan() == {"sampler": "Shouting", "lag": 1}
        assert "GameScore" in sampler.new_traj_info().statistics()
        for itr in range(3):
            samples, _ = sampler.obtain_samples(itr)
            assert (samples.env.reward == itr).all()
            assert not (samples.env.prev_reward[1:] == itr).all()  # as a sampler in this process returns it
            if itr < 2:
                assert sampler.diagnostics()["Own"] == 1.5
        with pytest.raises(WorkerError) as info:
            sampler.obtain_samples(3)
    assert "The sampler's process (pid " in str(info.value)
    assert (
        "at the batch of iteration 3 (step 60), last seen at environment 3, step 27, raised OSError: the disk is gone"
        in str(info.value)
    )
    assert "Logged before: batch 3" in str(info.value)
    text = (tmp_path / "run_0" / "debug.log").read_text()
    assert [text.count(f"batch {i}\n") for i in range(3)] == [1, 1, 1]
    assert text.count("WARNING: of a sampler") == 1


class Attached(CategoricalPgAgent):
    """Acts by attributes that an algorithm sets before the first batch, and by extra state of its model."""

    shift = 0
    table: Any = torch.tensor([0])

    def act(self, output: Any, actor: Any) -> torch.Tensor:
        model: Any = self.model
        return torch.full_like(super().act(output, actor), (self.shift + int(self.table[0]) + model.extra) % 3)


class Extra(nn.Module):
    """Linear policy with a number that is no tensor."""

    extra = 0

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, observation: torch.Tensor, *_: Any) -> Any:
        out = self.linear(observation.float())
        return out[..., :3], out[..., 3]

    def get_extra_state(self) -> int:
        return self.extra

    def set_extra_state(self, state: int) -> None:
        self.extra = state


@pytest.mark.parametrize("kind", ["serial", "cpu2"])
def test_what_was_set_before_the_first_batch_and_extra_state_act_there(kind):
    agent: Any = Attached(ModelCls=Extra)
    options = OPTIONS if kind == "serial" else {**OPTIONS, "start_method": "fork"}
    with started(make(kind, CountingEnv, 5, 4, **options).in_background(1), agent) as sampler:
        agent.shift, agent.table = 1, torch.tensor([1])
        for itr in range(5):
            samples, _ = sampler.obtain_samples(itr)
            action = (2 + max(0, itr - 1)) % 3
            assert (samples.agent.action[samples.env.valid] == action).all(), itr
            agent.model.extra = itr + 1


def test_no_reader_has_half_a_version():
    module = nn.Linear(200, 200)
    agent = agent_of(module, kind=0)
    store = WeightStore(agent, 2)
    theirs: WeightStore = pickle.loads(dumps(store))
    mine, seen = copy.deepcopy(module), []
    acts = agent_of(mine, kind=0)
    stop = threading.Event()

    def write() -> None:
        version = 0
        while not stop.is_set():
            with torch.no_grad():
                module.weight.fill_(version), module.bias.fill_(version)
            agent.kind = version
            store.publish(agent, version)
            version += 1

    thread = threading.Thread(target=write)
    thread.start()
    turn = 0
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        turn += 1
        # The newest, or the one that is written over next.
        wanted = max(0, int((min, max)[turn % 2](theirs._stamps)))
        try:
            theirs.take(acts, wanted)
        except RuntimeError:
            continue  # it was being written
        assert {*mine.weight.unique().tolist(), *mine.bias.unique().tolist(), acts.kind} == {float(wanted)}
        seen.append(wanted)
    stop.set()
    thread.join()
    assert len(set(seen)) > 5
    with pytest.raises(RuntimeError, match=r"Taking version 0 .* expected version 0. Of 2 versions the last ones"):
        theirs.take(acts, 0)


def test_the_newest_version_is_taken_once():
    module, mine = nn.Linear(2, 2), nn.Linear(2, 2)
    agent, acts = agent_of(module), agent_of(mine)
    store = WeightStore(agent, 3)
    for last in (0, 1, 4, 4, 5):
        for version in range(max(0, last - 2), last + 1):
            nn.init.constant_(module.weight, version)
            store.publish(agent, version)
        nn.init.constant_(mine.weight, -1.0)
        taken_before = store._taken == last
        assert store.take(acts) == last
        assert mine.weight.unique().tolist() == [-1.0 if taken_before else last]


def test_precision_and_memory_format_reach_the_process():
    def rows(kind: str) -> list[Any]:
        agent = random_agent()
        sampler: Any = make("serial", DictCountingEnv, 4, 2, **OPTIONS)
        sampler = sampler.in_background(0) if kind == "background" else sampler
        with started(sampler, agent):
            agent.to_device(ComputeSettings(precision="bfloat16", channels_last=True))
            return train(sampler, agent, range(3))

    assert_equal_batches(rows("background"), rows("here"))


class ThreadsEnv(CountingEnv):
    """Gives the torch threads of its process as the reward; before it is stepped it sets another number."""

    def __init__(self) -> None:
        super().__init__()
        torch.set_num_threads(3)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, _, *rest = super().step(action)
        return observation, float(torch.get_num_threads()), *rest


@pytest.mark.parametrize(("affinity", "n"), [({}, 1), (dict(master_torch_threads=2), 2)])
def test_the_process_has_the_threads_of_its_affinity_or_one(affinity, n):
    sampler = make("serial", ThreadsEnv, 2, 3, env_kwargs={}, max_decorrelation_steps=0).in_background(0, affinity)
    with started(sampler, random_agent()):
        env = sampler.obtain_samples(0)[0].env
        assert set(env.reward[env.valid].tolist()) == {n}
