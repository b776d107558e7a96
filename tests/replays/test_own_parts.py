"""An index, a replay and a reading of one's own are handed to the algorithm, without touching the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.core import Replay
from rlpyt.functional import select_at_indexes, valid_mean
from rlpyt.old_rlpyt import check_class
from rlpyt.replays import (
    Index,
    Places,
    ReplayBuffer,
    SamplesFromReplay,
    Sequences,
    Transitions,
)
from rlpyt.types import AgentInputs
from tests.algos.small_problems import RandomEnv, optimize, set_up

REPLAY: dict[str, Any] = dict(replay_size=400, min_steps_learn=100, batch_size=8, replay_ratio=2)
SMALL: dict[str, Any] = dict(hidden_sizes=8)


class Newest(Index):
    """Draws among the newest ten places, and knows nothing of final rows."""

    def draw_places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        return self.end - 1 - self.rng.integers(10, size=size), self.rng.integers(self.B, size=size)


class Taking(Newest):
    """The same, and takes priorities; no `PrioritizedIndex`."""

    takes_priorities = True

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.got: list[tuple[float, np.ndarray]] = []

    def weigh(self, places: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        return np.full(len(places), 0.5, np.float32)

    def set_priorities(self, places: np.ndarray, B_idxs: np.ndarray, priorities: np.ndarray) -> None:
        self.got.append((self.beta, priorities))


def learned(algo: Any, n_itr: int = 8) -> Any:
    sampler = set_up(algo, DqnAgent(model_kwargs=SMALL), RandomEnv, n_itr=n_itr)
    for itr in range(n_itr):
        optimize(algo, itr, sampler.obtain_samples(itr)[0])
    return algo


def test_an_own_index_gets_priorities_and_the_exponent_of_its_weights():
    algo = learned(DQN(**REPLAY, IndexCls=Taking, prioritized_replay=True, pri_beta_init=0.4, pri_beta_steps=256))
    betas, priorities = zip(*algo.replay.index.got, strict=True)
    assert len(betas) == algo.update_counter > 0
    assert all(p.shape == (8,) and (p >= 0).all() for p in priorities)
    assert list(betas) == sorted(betas)
    assert betas[0] < betas[-1]
    assert algo.replay.sample_batch(3).is_weights.tolist() == [0.5] * 3


def test_an_index_that_takes_no_priorities_does_not_go_with_a_prioritised_replay():
    algo = DQN(**REPLAY, prioritized_replay=True, IndexCls=Newest)
    with pytest.raises(
        ValueError, match="DQN: prioritized_replay is True, but its index, a Newest, takes no priorities"
    ):
        set_up(algo, DqnAgent(model_kwargs=SMALL), RandomEnv)


class BoundedPriorities(Index):
    """Prioritized index of ten lines: it accepts a proposal in proportion to its priority, up to a bound."""

    takes_priorities = True

    def initialize(self, S: int, B: int, may_begin: Any, allocate: Any) -> None:
        super().initialize(S, B, may_begin, allocate)
        self.odds = allocate(np.float64(0), (S, B))

    def move(self, first: int, end: int, priorities: np.ndarray | None) -> None:
        self.odds[np.arange(self.end, end) % self.S] = 1.0
        super().move(first, end, None)

    def draw_places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        places, B_idxs = self.rng.integers(self.first, self.end, 20 * size), self.rng.integers(self.B, size=20 * size)
        kept = np.argsort(self.rng.random(20 * size) > self.odds[places % self.S, B_idxs], kind="stable")[:size]
        return places[kept], B_idxs[kept]

    def set_priorities(self, places: np.ndarray, B_idxs: np.ndarray, priorities: np.ndarray) -> None:
        self.odds[places % self.S, B_idxs] = np.clip(priorities, 0.01, 1.0) ** self.alpha


def test_a_prioritized_index_of_thirty_lines_draws_by_its_priorities_and_no_final_row():
    algo = learned(DQN(**REPLAY, IndexCls=BoundedPriorities, prioritized_replay=True, pri_alpha=0.5), n_itr=20)
    index = algo.replay.index
    valid = algo.replay.storage.rows.valid[np.arange(index.first, index.end) % index.S]
    assert index.alpha == 0.5
    assert 0.1 <= index.odds.min() < 1.0
    assert not valid.all()
    starts, B_idxs = np.divmod(np.arange(index.first * index.B, index.end * index.B), index.B)
    index.set_priorities(starts, B_idxs, np.where(starts == index.first + 3, 1.0, 0.01))
    drawn = index.draw(20_000)
    assert valid[drawn.places - index.first, drawn.B_idxs].all()
    n_high, n_all = valid[3].sum(), valid.sum()
    share = (drawn.places == index.first + 3).mean()
    assert share == pytest.approx(n_high / (n_high + 0.1 * (n_all - n_high)), rel=0.1)


class RowList(Replay):
    """Replay of nothing but the interface: rows in a list, which it gives in order, one environment after the other."""

    takes_priorities = True
    size, nbytes, least_rows, interval, n_priorities_dropped = 400, 0, 2, 1, 0

    def __init__(self, storage: Any, index: Any, reading: Any, **settings: Any) -> None:
        self.rows, self.hyper, self.got = [], settings, []  # type: ignore[var-annotated]

    def set_hyper(self, **hyper: Any) -> None:
        self.hyper |= hyper

    def append_samples(self, samples: Any, td_abs_error: Any = None) -> None:
        self.rows.append(samples)

    def sample_batch(self, batch_size: int) -> Any:
        rows = self.rows[-1]
        inputs = AgentInputs(rows.observation[:, 0], rows.prev_action[:, 0], rows.prev_reward[:, 0])
        flat = len(rows.reward)
        places = Places(torch.arange(flat), torch.zeros(flat, dtype=torch.int64))
        zeros = torch.zeros(flat)
        return SamplesFromReplay(inputs, rows.action[:, 0], rows.reward[:, 0], zeros > 0, zeros, inputs, None, places)

    def update_priorities(self, places: Places, priorities: torch.Tensor) -> None:
        assert places.start.device == priorities.device == torch.device("cpu")
        self.got.append((places.start.tolist(), priorities))

    def check_valid(self) -> tuple[bool, str]:
        return True, ""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: Any) -> None:
        pass


def test_algorithms_use_only_what_the_interface_of_a_replay_has():
    algo = learned(DQN(**REPLAY, ReplayCls=RowList))
    assert algo.update_counter == len(algo.replay.got) > 0
    assert all(starts == [*range(len(p))] for starts, p in algo.replay.got)
    assert {"discount", "beta", "eta"} <= algo.replay.hyper.keys()
    assert algo.plan()["replay rows"] == 400
    assert algo.state_dict()["replay"] == {}


@pytest.mark.parametrize("replay_size", [400, 60])
def test_a_batch_keeps_its_places_on_the_cpu_and_they_say_where_it_is_from(replay_size):
    algo = learned(DQN(**{**REPLAY, "replay_size": replay_size}), n_itr=30)
    storage, batch = algo.replay.storage, algo.feed.sample_batch()
    start, env = batch.places
    assert (start.dtype, env.dtype, start.device.type) == (torch.int64, torch.int64, "cpu")
    assert storage.written - storage.T < start.min() < start.max() < storage.written
    again = algo.replay.extract_batch(start.numpy() % storage.T, env.numpy())
    assert torch.equal(again.agent_inputs.observation, batch.agent_inputs.observation)
    assert torch.equal(again.action, batch.action)


class SequenceDQN(DQN):
    """A feed-forward DQN that learns from sequences, by one-step targets inside them."""

    def loss(self, batch: Any, now: Any) -> tuple[torch.Tensor, torch.Tensor]:
        assert batch.init_rnn_state is None
        assert batch.all_inputs.observation.shape == (5, 8, 3)
        q = select_at_indexes(batch.action, self.agent(*batch.all_inputs)[:4])
        value = self.agent.target(*batch.all_inputs).amax(-1)[1:]
        error = (batch.return_ + batch.bootstrap_discount * value - q).abs()
        return valid_mean(error, batch.valid), error.detach()[0]


def test_a_feed_forward_agent_may_learn_from_sequences():
    algo = learned(SequenceDQN(**REPLAY, ReadingCls=lambda n: Sequences(4, 0, n, rnn_state_interval=0)))
    assert algo.update_counter > 0


# ---- mistakes ----


@pytest.mark.parametrize(
    ("setting", "returned", "said"),
    [
        ("IndexCls", None, "IndexCls returned None; expected an rlpyt.replays.Index"),
        ("IndexCls", Newest, "IndexCls returned the class Newest; expected an rlpyt.replays.Index"),
        ("ReadingCls", None, "ReadingCls returned None; expected an rlpyt.replays.Reading"),
        ("IndexCls", Transitions(1), "IndexCls returned a Transitions; expected an rlpyt.replays.Index"),
        ("ReplayCls", 3, "ReplayCls returned a int; expected an rlpyt.core.Replay"),
    ],
)
def test_a_part_that_is_none_is_refused(setting: str, returned: Any, said: str):
    parts: Any = {setting: lambda *args, **kwargs: returned}
    with pytest.raises(TypeError, match=rf"^DQN.{said}"):
        learned(DQN(**REPLAY, **parts))


def test_parts_that_cannot_be_made_are_refused_at_once():
    with pytest.raises(TypeError, match=r"DQN: IndexCls is <.*Newest object.*>; expected a class, or a function"):
        DQN(IndexCls=Newest(np.random.default_rng(0)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"DQN: ReplayCls is 'ReplayBuffer'; expected a class.*Give the class itself"):
        DQN(ReplayCls="ReplayBuffer")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="DQN: IndexCls and default_priority are set; expected one of"):
        DQN(IndexCls=Taking, prioritized_replay=True, default_priority=1.0, unique_draws=True)


def test_the_way_of_rlpyt_0_1_to_give_priorities_is_told_the_new_one():
    replay = learned(DQN(**REPLAY)).replay
    with pytest.raises(AttributeError, match=r"update_batch_priorities.* Call update_priorities\(batch.places, prior"):
        replay.update_batch_priorities(torch.ones(8))
    with pytest.raises(TypeError, match=r"Mine.update_batch_priorities: .*or override update_priorities"):
        check_class(type("Mine", (ReplayBuffer,), {"update_batch_priorities": lambda self, priorities: None}))
