"""Priorities of new rows: the errors that the actor's Q-values give are those that the learner would have found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.agents import DqnAgent, R2d1Agent
from rlpyt.algos import DQN, R2D1, CategoricalDQN
from rlpyt.algos.replay_settings import has_input_priorities
from rlpyt.functional import Linear
from rlpyt.replays import PrioritizedIndex
from tests.algos.small_problems import RandomEnv, copied, joined, set_up
from tests.pairs import crossed

B, ROWS = 3, 40
MODEL: dict[str, Any] = dict(hidden_sizes=6, rnn_size=5)
SIZES = [(1, 3), (2, 3), (4, 3), (8, 3), (1, 1), (5, 1)]
SEQUENCE: dict[str, Any] = dict(batch_T=4, batch_B=2, warmup_T=2, store_rnn_state_interval=2)


def filled(recurrent: bool, T: int, n: int, change: Any = None, **kwargs: Any) -> tuple[Any, Any, list[torch.Tensor]]:
    """Fill a replay by an agent that does not learn; return algorithm, rows, and the errors given batch by batch.

    With `change` every batch is what that makes of it.
    """
    h: dict[str, Any] = dict(
        n_step_return=n, prioritized_replay=True, input_priorities=True, discount=0.8, replay_size=3000, batch_size=6,
        min_steps_learn=ROWS * B, replay_ratio=20.0, delta_clip=None, double_dqn=False,
    )  # fmt: skip
    h |= {**(SEQUENCE if recurrent else {}), **kwargs}
    AlgoCls, AgentCls = (R2D1, R2d1Agent) if recurrent else (DQN, DqnAgent)
    algo: Any = AlgoCls(**h)
    agent = AgentCls(model_kwargs=MODEL if recurrent else dict(hidden_sizes=6))
    sampler = set_up(algo, agent, RandomEnv, T=T, B=B, n_itr=ROWS // T)
    errors, collected, given = [], [], algo.new_errors

    def input_errors(samples: Any, hyper: Any) -> torch.Tensor:
        errors.append(given(samples, hyper))
        return errors[-1]

    algo.feed.errors = input_errors
    for itr in range(ROWS // T):
        collected.append(copied(sampler.obtain_samples(itr)[0]))
        if change is not None:
            change(itr, collected[-1])
        algo.append(itr, collected[-1])
    return algo, joined(collected), errors


def errors_of_the_learner(algo: Any, stream: Any) -> torch.Tensor:
    """The errors [rows - n, B] that an update finds with the network as it is, from the rows' own inputs."""
    n, rows = algo.n_step_return, len(stream.env.reward) - algo.n_step_return
    errors = torch.full((rows, B), torch.nan)
    replay = algo.replay
    if not algo.agent.recurrent:
        places = np.indices((rows - 1, B)).reshape(2, -1)
        batch = replay.extract_batch(places[0] + 1, places[1])
        errors[1:] = algo.loss(batch, algo.hyper(0))[1].reshape(rows - 1, B)
        return errors
    # Sequence after sequence, each from the state that the actor had; warm-up rows say nothing.
    W, T = algo.warmup_T, algo.batch_T
    for t in range(2, rows - W - T + 1, algo.store_rnn_state_interval):
        batch = replay.extract_batch(np.full(B, t), np.arange(B))
        found = algo.loss(batch, algo.hyper(0))[1]
        errors[t + W : t + W + T] = torch.where(batch.valid, found, torch.nan)
    assert n == replay.reading.n_step_return
    return errors


@pytest.mark.parametrize(("size", "recurrent", "scaled"), crossed(SIZES, [False, True], [False, True]))
def test_errors_of_the_actor_are_those_of_the_learner(size, recurrent, scaled):
    (T, n), value_scale_eps, double_dqn = size, 0.05 if scaled else None, scaled
    algo, stream, errors = filled(recurrent, T, n, value_scale_eps=value_scale_eps, double_dqn=double_dqn)
    assert [x.shape for x in errors] == [(T, B)] * (ROWS // T)
    given = torch.cat(errors)[n:]  # the first of them are of rows before the first
    expected = errors_of_the_learner(algo, stream)
    known = expected.isfinite() & stream.env.valid[: len(expected)]
    assert known.sum() > 0.3 * known.numel()
    torch.testing.assert_close(given[known], expected[known], rtol=1e-3, atol=1e-4)


def test_an_environment_lost_between_two_batches_is_a_truncation_to_both():
    """The replay sees it when it writes: the row before is truncated, and bootstraps from the one put in its place."""
    lost = []

    def lose(itr: int, samples: Any) -> None:
        samples.env.valid[0, 1] = False  # of another environment, put in place of it
        lost.append(8 * itr - 1)

    T, n = 8, 3
    algo, stream, errors = filled(False, T, n, lose)
    given, expected = torch.cat(errors)[n:], errors_of_the_learner(algo, stream)
    env = stream.env
    known = expected.isfinite() & env.valid[: len(expected)]
    borders = [t for t in lost[1:] if known[t, 1] and not (env.terminated | env.truncated)[t, 1]]
    assert borders
    torch.testing.assert_close(given[known], expected[known], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("size", "recurrent"), crossed(SIZES, [False, True], strength=1))
def test_new_places_have_the_priorities_of_their_errors(size, recurrent):
    """Of transitions the error itself, of sequences the mix of largest and mean over the rows trained on."""
    T, n = size
    algo, stream, errors = filled(recurrent, T, n, pri_alpha=0.7, pri_eta=0.6)
    known, valid = torch.cat(errors)[n:], stream.env.valid
    index, interval = algo.replay.index, algo.replay.reading.interval
    length = SEQUENCE["warmup_T"] + SEQUENCE["batch_T"] if recurrent else 1
    assert 0 < index.first < index.end == (len(valid) - length - n) // interval + 1
    tree = torch.from_numpy(index._tree.values[: index.S * B].reshape(index.S, B))
    for place in range(index.first, index.end):
        for b in range(B):
            trained = range(place * interval + (SEQUENCE["warmup_T"] if recurrent else 0), place * interval + length)
            each = [float(known[t, b]) for t in trained if valid[t, b]]
            mixed = 0.6 * max(each) + 0.4 * sum(each) / len(each) if each else 0.0
            expected = max(mixed, 1e-6) ** 0.7 if recurrent or valid[place, b] else 0.0
            assert tree[place, b].item() == pytest.approx(expected, rel=1e-4), (place, b)


def test_the_newest_discount_counts():
    _, stream, errors = filled(False, 4, 1, discount=Linear(0.9, 0.1))
    q, env = stream.agent.agent_info.q, stream.env
    for itr in (0, 5, 9):
        rows = slice(max(4 * itr - 1, 0), 4 * itr + 3)  # those whose next row has come with the batch
        after = q[rows.start + 1 : rows.stop + 1].amax(-1) * ~env.terminated[rows]
        taken = q[rows].gather(-1, stream.agent.action[rows].unsqueeze(-1)).squeeze(-1)
        expected = (env.reward[rows] + (0.9 - 0.8 * itr / 10) * after - taken).abs()
        valid = env.valid[rows]
        torch.testing.assert_close(errors[itr][-len(valid) :][valid], expected[valid], rtol=1e-4, atol=1e-5)


def test_without_them_new_rows_have_the_largest_priority_or_the_one_given():
    for default, expected in ((None, 1.0), (3.0, 3.0**0.6)):
        kwargs: dict[str, Any] = dict(prioritized_replay=True, default_priority=default, min_steps_learn=100)
        algo: Any = DQN(**kwargs)
        sampler = set_up(algo, DqnAgent(model_kwargs=dict(hidden_sizes=6)), RandomEnv, T=8, B=B)
        algo.append(0, sampler.obtain_samples(0)[0])
        values = algo.replay.index._tree.values
        assert values[values > 0] == pytest.approx(expected)


def test_they_follow_the_priorities_where_nothing_was_said():
    assert has_input_priorities(R2D1()) is True
    assert has_input_priorities(R2D1(prioritized_replay=False)) is False
    assert has_input_priorities(R2D1(input_priorities=False)) is False
    assert has_input_priorities(DQN(prioritized_replay=True)) is False
    assert has_input_priorities(CategoricalDQN(prioritized_replay=True)) is False


@pytest.mark.parametrize("own", [dict(unique_draws=True), dict(IndexCls=PrioritizedIndex)])
def test_an_index_has_the_settings_of_the_algorithm_from_the_start(own):
    algo: Any = DQN(prioritized_replay=True, pri_alpha=0.3, pri_beta=0.7, min_steps_learn=100, **own)
    set_up(algo, DqnAgent(model_kwargs=dict(hidden_sizes=6)), RandomEnv, T=8, B=B)
    index = algo.replay.index
    assert (index.alpha, index.beta, index.unique) == (0.3, 0.7, own.get("unique_draws", False))
