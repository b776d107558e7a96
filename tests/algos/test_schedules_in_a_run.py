"""Hyper-parameters that follow a schedule, or are given another value, act from then on in the updates of a run."""

from __future__ import annotations

from typing import Any, ClassVar
from unittest.mock import patch

import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, DqnAgent, R2d1Agent, SacAgent, Td3Agent
from rlpyt.algos import A2C, DQN, PPO, R2D1, SAC, TD3
from rlpyt.algos.replay_feed import ReplayFeed
from rlpyt.core import rows_consumed, rows_per_update
from rlpyt.functional import Piecewise
from tests.algos.small_problems import RandomEnv, build, copied, optimize, set_up

STEPS = 32  # of an iteration: 8 time steps of 4 environments
REPLAY: dict[str, Any] = dict(min_steps_learn=2 * STEPS, replay_size=600, batch_size=8)
SMALL: dict[str, Any] = dict(hidden_sizes=8)
BOX: dict[str, Any] = dict(action_space=spaces.Box(-1, 1, (2,)))


def at(*values: float) -> Piecewise:
    """Return a schedule whose first value holds until iteration 2, and each other one for one iteration."""
    return Piecewise([0, *(STEPS * (2 + i) for i in range(1, len(values)))], values, interpolation="step")


def counts(algo: Any, agent: Any, n_itr: int, env_kwargs: Any = None, change: Any = None) -> list[int]:
    """Return the updates of each iteration; `change` is called with the algorithm and the iteration before it."""
    sampler = set_up(algo, agent, RandomEnv, env_kwargs)
    made = []
    for itr in range(n_itr):
        if change is not None:
            change(algo, itr)
        before = algo.update_counter
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
        made.append(algo.update_counter - before)
    return made


# ---- number of updates ----


def test_the_replay_ratio_is_rounded_to_whole_updates_in_each_iteration() -> None:
    # 32 rows an iteration over 8 rows an update: 4 updates at ratio 1, and 1.6, 0.4 and 2.4 are rounded.
    algo = DQN(**REPLAY, replay_ratio=at(1.0, 1.0, 0.4, 0.1, 0.6))
    assert counts(algo, DqnAgent(model_kwargs=SMALL), 7) == [0, 4, 4, 4, 2, 0, 2]


def test_the_replay_ratio_may_be_set_during_a_run() -> None:
    def change(algo: Any, itr: int) -> None:
        if itr == 3:
            algo.replay_ratio = 0.5

    algo = SAC(**REPLAY, replay_ratio=1)
    assert counts(algo, build(SacAgent, model_kwargs=SMALL, q_model_kwargs=SMALL), 5, BOX, change) == [0, 4, 4, 2, 2]


def test_a_replay_ratio_without_an_update_in_the_whole_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"replay_ratio 0.091 are 2.912 rows to consume, which is no update"):
        set_up(DQN(**REPLAY, replay_ratio="lin_0.1_0.01"), DqnAgent(model_kwargs=SMALL), RandomEnv)
    set_up(DQN(**REPLAY, replay_ratio="lin_0.01_1"), DqnAgent(model_kwargs=SMALL), RandomEnv)


def test_epochs_are_rounded_and_one_at_least() -> None:
    algo = PPO(minibatches=2, epochs=Piecewise([0, STEPS, 2 * STEPS, 3 * STEPS], [3, 1.6, 1.4, 0.2], "step"))
    assert counts(algo, CategoricalPgAgent(model_kwargs=SMALL), 5) == [6, 4, 2, 2, 2]
    assert algo.plan()["updates an iteration"] == 6


# ---- size of an update ----


class Sizes(DQN):
    """Keeps the shape of the batch of every update."""

    shapes: ClassVar[list[tuple[int, ...]]] = []

    def update(self, batch: Any, hyper: Any) -> Any:
        self.shapes.append(tuple(batch.return_.shape))
        return super().update(batch, hyper)


def shapes_of(agent: Any, **settings: Any) -> tuple[Sizes, list[tuple[int, ...]], list[int]]:
    """Return an algorithm after a run of 6 iterations, the shapes of its batches, and the updates of each iteration."""
    Sizes.shapes.clear()
    algo = Sizes(**settings)
    made = counts(algo, agent, 6, dict(p_end=0.0))
    return algo, Sizes.shapes, made


def test_the_batch_size_follows_a_schedule() -> None:
    settings: dict[str, Any] = {**REPLAY, "replay_ratio": 1, "batch_size": at(8, 8, 16, 31.6, 0.2)}
    algo, shapes, made = shapes_of(DqnAgent(model_kwargs=SMALL), **settings)
    # the replay ratio counts rows, so that larger batches are fewer
    assert made == [0, 4, 4, 4, 2, 1]
    assert shapes == [(8,)] * 12 + [(16,)] * 2 + [(32,)]
    assert rows_consumed(algo) == 12 * 8 + 2 * 16 + 32 == 5 * STEPS
    assert rows_per_update(algo) == 32
    assert algo.plan()["rows an update"] == "8 at first, 1 at the end"
    assert algo.optimizer.defaults["eps"] == 0.01 / 8


def test_the_number_of_sequences_follows_a_schedule() -> None:
    sequences: dict[str, Any] = dict(batch_T=4, warmup_T=4, store_rnn_state_interval=4, n_step_return=1)
    own: dict[str, Any] = dict(min_steps_learn=2 * STEPS, replay_size=600, replay_ratio=1, batch_B=at(4, 4, 1, 2))
    agent = R2d1Agent(model_kwargs=dict(**SMALL, rnn_size=4))
    algo, shapes, made = shapes_of(agent, **own, **sequences)
    assert made == [0, 1, 1, 1, 4, 2]
    assert shapes == [(4, 4)] * 3 + [(4, 1)] * 4 + [(4, 2)] * 2
    assert rows_consumed(algo) == 5 * STEPS
    assert algo.plan()["rows an update"] == "32 at first, 16 at the end"


@pytest.mark.parametrize("prefetch", [False, True])
def test_batches_are_those_of_runs_with_that_size(prefetch: bool) -> None:
    def losses(batch_size: Any) -> Any:
        torch.manual_seed(0)
        algo = DQN(**{**REPLAY, "batch_size": batch_size}, prefetch=prefetch, replay_ratio=1)
        sampler = set_up(algo, DqnAgent(model_kwargs=SMALL, eps_final=1.0), RandomEnv)
        return [optimize(algo, itr, sampler.obtain_samples(itr)[0]).get("loss") for itr in range(4)]

    one, other = losses(8), losses(at(8, 8, 16))
    assert torch.equal(one[2], other[2])
    assert not torch.equal(one[3][:2], other[3])


def test_replicas_refuse_to_divide_a_schedule() -> None:
    assert DQN(batch_size=32).share(2).batch_size == 16
    with pytest.raises(TypeError, match="batch_size is 'lin_64_8', given for 2 replicas together; expected a number"):
        DQN(batch_size="lin_64_8").share(2)


# ---- intervals ----


def due(algo: Any, agent: Any, n_itr: int, env_kwargs: Any = None) -> dict[str, list[int]]:
    """Return after which updates the targets moved and, of an algorithm that has one, the policy was updated."""
    found: dict[str, list[int]] = {"target": [], "policy": []}
    given = ReplayFeed.is_due

    def is_due(feed: ReplayFeed, what: str, interval: float) -> bool:
        answer = given(feed, what, interval)
        if answer:
            found[what].append(algo.update_counter)
        return answer

    with patch.object(ReplayFeed, "is_due", is_due):
        counts(algo, agent, n_itr, env_kwargs)
    return found


def test_the_interval_of_the_target_follows_a_schedule() -> None:
    # 4 updates an iteration, from the second on; an interval of 3, then of 5, of 1.4 and of 0
    algo = DQN(**REPLAY, replay_ratio=1, target_update_interval=at(3, 3, 5, 1.4, 0))
    found = due(algo, DqnAgent(model_kwargs=SMALL), 7)
    assert found["target"] == [3, 6, 9, 12, *range(17, 25)]


@pytest.mark.parametrize("interval", [1, 2, 3, 7])
def test_a_number_is_every_multiple_of_it(interval: int) -> None:
    algo = TD3(**REPLAY, replay_ratio=1, target_update_interval=interval, policy_update_interval="const_2")
    found = due(algo, build(Td3Agent, model_kwargs=SMALL, q_model_kwargs=SMALL), 5, BOX)
    assert found == {"target": list(range(interval, 17, interval)), "policy": list(range(2, 17, 2))}


def test_a_checkpoint_of_an_earlier_version_goes_on_with_the_same_updates() -> None:
    algo = DQN(**REPLAY, replay_ratio=1, target_update_interval=3)
    counts(algo, DqnAgent(model_kwargs=SMALL), 3)
    assert algo.update_counter == 8
    state = algo.state_dict()
    del state["last_done"], state["rows_consumed"]
    other = DQN(**REPLAY, replay_ratio=1, target_update_interval=3)
    set_up(other, DqnAgent(model_kwargs=SMALL), RandomEnv)
    other.load_state_dict(state)
    assert rows_consumed(other) == rows_consumed(algo) == 64
    for one in (algo, other):
        one.update_counter += 1
        assert one.feed.is_due("target", 3)


# ---- numbers in the updates ----


def seen_by_the_replay(algo: Any, agent: Any, n_itr: int = 5) -> list[dict[str, float | None]]:
    """Return the hyper-parameters that the replay is given, iteration by iteration."""
    sampler = set_up(algo, agent, RandomEnv)
    seen, given = dict[int, dict[str, Any]](), algo.replay.set_hyper

    def set_hyper(**kwargs: Any) -> None:
        assert seen.setdefault(itr, kwargs) == kwargs, "the same to append and to learn"
        given(**kwargs)

    algo.replay.set_hyper = set_hyper
    for itr in range(n_itr):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    return list(seen.values())


@pytest.mark.parametrize(("setting", "name"), [("pri_alpha", "alpha"), ("pri_beta", "beta"), ("pri_eta", "eta")])
def test_exponents_of_priorities_follow_their_schedules(setting: str, name: str) -> None:
    algo = build(DQN, **REPLAY, replay_ratio=0.25, prioritized_replay=True, **{setting: at(0.9, 0.8, 0.3)})
    seen = seen_by_the_replay(algo, DqnAgent(model_kwargs=SMALL))
    assert [x[name] for x in seen] == pytest.approx([0.9, 0.9, 0.9, 0.8, 0.3])


def test_pri_beta_takes_the_place_of_the_line() -> None:
    line: dict[str, Any] = dict(pri_beta_init=0.2, pri_beta_final=0.6, pri_beta_steps=4 * STEPS)
    settings: dict[str, Any] = dict(**REPLAY, replay_ratio=0.25, prioritized_replay=True)
    agent = DqnAgent(model_kwargs=SMALL)
    seen = seen_by_the_replay(DQN(**settings, **line), agent)
    assert [x["beta"] for x in seen] == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6])
    seen = seen_by_the_replay(DQN(**settings, **line, pri_beta=0.7), DqnAgent(model_kwargs=SMALL))
    assert [x["beta"] for x in seen] == [0.7] * 5


def test_the_line_of_pri_beta_may_be_set_during_a_run() -> None:
    algo = DQN(**REPLAY, replay_ratio=0.25, prioritized_replay=True, pri_beta_init=0.2, pri_beta_final=0.2)
    set_up(algo, DqnAgent(model_kwargs=SMALL), RandomEnv)
    assert algo.hyper(STEPS).pri_beta == pytest.approx(0.2)
    algo.pri_beta_init = algo.pri_beta_final = 0.7
    assert algo.hyper(STEPS).pri_beta == pytest.approx(0.7)


def test_a_script_learns_without_a_new_batch_by_the_settings_of_now() -> None:
    """From the replay of another algorithm too, which has a discount of its own."""
    settings: dict[str, Any] = dict(**REPLAY, replay_ratio=0.25, prioritized_replay=True, pri_beta="lin_0_1")
    algos = [DQN(**settings, discount=discount) for discount in (0.9, 0.7)]
    samplers = [set_up(algo, DqnAgent(model_kwargs=SMALL), RandomEnv) for algo in algos]
    first, second = algos
    for itr in range(4):
        optimize(first, itr, samplers[0].obtain_samples(itr)[0])
    replay: Any = first.replay
    second.replay = replay
    for algo, itr, discount in ((second, 4, 0.7), (first, 5, 0.9), (first, 6, 0.5)):
        algo.discount = discount
        algo.learn(itr)
        assert (replay.discount, replay.index.beta) == (discount, algo.hyper(itr * STEPS).pri_beta)


def test_a_priority_is_raised_to_the_exponent_of_its_time() -> None:
    algo = DQN(**REPLAY, replay_ratio=0.25, prioritized_replay=True, pri_alpha=0.5)
    sampler = set_up(algo, DqnAgent(model_kwargs=SMALL), RandomEnv)
    for itr in range(3):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    replay: Any = algo.replay
    for alpha in (0.5, 2.0):
        algo.pri_alpha = alpha
        algo.append(3, copied(sampler.obtain_samples(3)[0]))
        batch = algo.feed.sample_batch()
        algo.feed.update_priorities(batch, torch.full((8,), 3.0), algo.hyper(0))
        assert replay.index.alpha == alpha
        assert pytest.approx(3.0**alpha) in replay.index._tree.values.tolist()


def test_the_priority_of_a_sequence_follows_pri_eta() -> None:
    algo = R2D1(
        batch_T=4, batch_B=2, warmup_T=0, store_rnn_state_interval=4, min_steps_learn=2 * STEPS, replay_size=600,
        n_step_return=1, replay_ratio=0.25, pri_eta="lin_1_0",
    )  # fmt: skip
    sampler = set_up(algo, R2d1Agent(model_kwargs=dict(**SMALL, rnn_size=4)), RandomEnv, dict(p_end=0.0))
    for itr in range(3):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    batch = algo.feed.sample_batch()
    errors = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 0.0], [0.0, 8.0]])
    found = [
        algo.feed.update_priorities(batch, errors, algo.hyper(step)).tolist() for step in (0, 5 * STEPS, 10 * STEPS)
    ]
    assert found == [pytest.approx(x) for x in ([3.0, 8.0], [2.0, 5.0], [1.0, 2.0])]


def test_the_priorities_of_new_sequences_follow_pri_eta() -> None:
    algo = R2D1(
        batch_T=4, batch_B=2, warmup_T=0, store_rnn_state_interval=4, min_steps_learn=2 * STEPS, replay_size=600,
        n_step_return=1, replay_ratio=0.25, pri_eta=at(1.0, 0.5, 0.0),
    )  # fmt: skip
    sampler = set_up(algo, R2d1Agent(model_kwargs=dict(**SMALL, rnn_size=4)), RandomEnv, dict(p_end=0.0))
    replay: Any = algo.replay
    etas, given = list[float](), replay._input_priorities

    def watched(first: int, end: int) -> Any:
        etas.append(replay.eta)
        return given(first, end)

    replay._input_priorities = watched
    for itr in range(5):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    assert etas == [1.0, 1.0, 1.0, 0.5, 0.0]


def test_exploration_follows_a_schedule_of_its_own() -> None:
    algo, agent = DQN(**REPLAY, eps_schedule=at(0.25, 0.5, 1.0)), DqnAgent(model_kwargs=SMALL)
    sampler = set_up(algo, agent, RandomEnv)
    fractions = [agent.fraction]
    for itr in range(4):
        sampler.obtain_samples(itr)
        agent.train_mode(itr)
        fractions.append(agent.fraction)
    assert fractions == [0.25, 0.25, 0.25, 0.5, 1.0]


def test_epsilon_may_be_any_function_of_the_step() -> None:
    agent = DqnAgent(model_kwargs=SMALL, eps_train=lambda step: 0.25 if step % (2 * STEPS) else 0.75)
    algo = DQN(**REPLAY)
    sampler = set_up(algo, agent, RandomEnv)
    seen, logged = [], []
    for itr in range(4):
        sampler.obtain_samples(itr)
        seen.append(agent.epsilon().tolist())
        logged.append(algo.row_numbers(itr)["Epsilon"])
        agent.train_mode(itr)
    assert seen == [[0.75], [0.25], [0.75], [0.25]] == [[epsilon] for epsilon in logged]
    plan: dict[str, Any] = algo.plan()
    assert "eps_steps" not in plan
    assert not any("eps_steps" in warning for warning in plan["warnings"])


def test_epsilon_is_of_one_way() -> None:
    with pytest.raises(ValueError, match=r"eps_final_min is 0.001 and eps_train 0.1; expected one of them"):
        DqnAgent(eps_train=0.1, eps_final_min=0.001)
    with pytest.raises(TypeError, match=r"eps_init is 'lin_1_0.1' .* Give eps_train the schedule"):
        build(DqnAgent, eps_init="lin_1_0.1")
    with pytest.raises(ValueError, match=r"eps_train is 'lin_2_0'; expected a probability"):
        DqnAgent(eps_train="lin_2_0")


def test_the_bound_of_normalised_rewards_follows_its_schedule() -> None:
    algo, agent = A2C(normalize_reward=True, reward_clip="lin_0.5_0"), CategoricalPgAgent(model_kwargs=SMALL)
    sampler = set_up(algo, agent, RandomEnv)
    assert algo.reward_scale is not None
    largest = []
    for itr in range(3):
        env = copied(sampler.obtain_samples(itr)[0]).env
        largest.append(float(algo.reward_scale(env, algo.hyper(4 * itr * STEPS)).abs().max()))
    assert largest == pytest.approx([0.5, 0.3, 0.1])


@pytest.mark.parametrize("way", ["schedule", "set"])
def test_alpha_follows_the_target_entropy(way: str) -> None:
    """Far below the policy's entropy alpha falls, far above it rises."""
    switch = Piecewise([0, 4 * STEPS], [-50.0, 50.0], interpolation="step")
    target = switch if way == "schedule" else -50.0
    algo = SAC(**REPLAY, replay_ratio=1, target_entropy=target, OptimCls=torch.optim.SGD)

    def change(algo: Any, itr: int) -> None:
        alphas.append(float(algo.log_alpha.detach().exp()) if itr else 1.0)
        if way == "set" and itr == 4:
            algo.target_entropy = 50.0

    alphas: list[float] = []
    counts(algo, build(SacAgent, model_kwargs=SMALL, q_model_kwargs=SMALL), 7, BOX, change)
    assert alphas[2] > alphas[3] > alphas[4] < alphas[5] < alphas[6]


def test_the_automatic_target_entropy_is_minus_the_number_of_dimensions() -> None:
    algo = SAC(**REPLAY)
    set_up(algo, build(SacAgent, model_kwargs=SMALL, q_model_kwargs=SMALL), RandomEnv, BOX)
    assert algo.hyper(0).target_entropy == -2.0
    assert algo.target_entropy == "auto"


def test_a_run_with_schedules_of_the_replay_is_saved_and_loaded() -> None:
    def started() -> tuple[Any, Any, Any]:
        algo = DQN(**REPLAY, replay_ratio="lin_1_0.5", prioritized_replay=True, pri_alpha="lin_0.9_0.1")
        agent = DqnAgent(model_kwargs=SMALL)
        return algo, agent, set_up(algo, agent, RandomEnv)

    algo, agent, sampler = started()
    collected = [copied(sampler.obtain_samples(itr)[0]) for itr in range(5)]
    for itr in range(4):
        optimize(algo, itr, collected[itr])
    other, other_agent, _ = started()
    other.load_state_dict(algo.state_dict())
    other_agent.load_state_dict(agent.state_dict())
    expected, metrics = optimize(algo, 4, collected[4]), optimize(other, 4, collected[4])
    assert torch.equal(expected["loss"], metrics["loss"])
