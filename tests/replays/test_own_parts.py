"""An index and a reading of one's own come in by the hooks of the algorithm, without touching the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.functional import select_at_indexes, valid_mean
from rlpyt.replays import Index, PrioritizedIndex, Sequences
from tests.algos.small_problems import RandomEnv, set_up

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

    def update_priorities(self, priorities: np.ndarray) -> None:
        self.got.append((self.beta, priorities))


class Own(DQN):
    IndexCls: Any = Newest

    def index(self, rng: np.random.Generator) -> Index:
        return self.IndexCls(rng)


class OwnTaking(Own):
    IndexCls = Taking


def learned(algo: Any, n_itr: int = 8) -> Any:
    sampler = set_up(algo, DqnAgent(model_kwargs=SMALL), RandomEnv, n_itr=n_itr)
    for itr in range(n_itr):
        algo.optimize_agent(itr, sampler.obtain_samples(itr)[0])
    return algo


def test_an_own_index_draws_what_it_says_and_no_final_row():
    replay = learned(Own(**REPLAY)).replay
    drawn = replay.index.draw(2000)
    assert replay.storage.rows.valid[drawn.S_idxs, drawn.B_idxs].all()
    assert set(drawn.S_idxs) == set(range(replay.index.end - 10, replay.index.end))
    assert not replay.storage.rows.valid[replay.index.end - 10 : replay.index.end].all()


def test_an_own_index_gets_priorities_and_the_exponent_of_its_weights():
    algo = learned(OwnTaking(**REPLAY, prioritized_replay=True, pri_beta_init=0.4, pri_beta_steps=256))
    betas, priorities = zip(*algo.replay.index.got, strict=True)
    assert len(betas) == algo.update_counter > 0
    assert all(p.shape == (8,) and (p >= 0).all() for p in priorities)
    assert list(betas) == sorted(betas)
    assert betas[0] < betas[-1]
    assert algo.replay.sample_batch(3).is_weights.tolist() == [0.5] * 3


def test_an_index_that_takes_no_priorities_does_not_go_with_a_prioritised_replay():
    with pytest.raises(
        ValueError, match="Own: prioritized_replay is True, but its index, a Newest, takes no priorities"
    ):
        set_up(Own(**REPLAY, prioritized_replay=True), DqnAgent(model_kwargs=SMALL), RandomEnv)


def test_the_index_of_the_settings_may_be_changed():
    class Sharper(DQN):
        def index(self, rng: np.random.Generator) -> Index:
            index = super().index(rng)
            assert isinstance(index, PrioritizedIndex)
            index.alpha = 1.0
            return index

    algo = learned(Sharper(**REPLAY, prioritized_replay=True))
    assert algo.replay.state_dict()["settings"]["pri_alpha"] == 1.0


class SequenceDQN(DQN):
    """A feed-forward DQN that learns from sequences, by one-step targets inside them."""

    def reading(self) -> Sequences:
        return Sequences(batch_T=4, warmup_T=0, n_step_return=self.n_step_return, rnn_state_interval=0)

    def loss(self, batch: Any, now: Any) -> tuple[torch.Tensor, torch.Tensor]:
        assert batch.init_rnn_state is None
        assert batch.all_inputs.observation.shape == (5, 8, 3)
        q = select_at_indexes(batch.action, self.agent(*batch.all_inputs)[:4])
        value = self.agent.target(*batch.all_inputs).amax(-1)[1:]
        error = (batch.return_ + batch.bootstrap_discount * value - q).abs()
        return valid_mean(error, batch.valid), error.detach()[0]


def test_a_feed_forward_agent_may_learn_from_sequences():
    algo = learned(SequenceDQN(**REPLAY))
    assert algo.update_counter > 0


# ---- mistakes ----


@pytest.mark.parametrize(
    ("method", "returned", "said"),
    [
        ("index", None, "Mine.index returned None; expected an rlpyt.replays.Index"),
        ("index", Newest, "Mine.index returned the class Newest; expected an rlpyt.replays.Index"),
        ("reading", None, "Mine.reading returned None; expected an rlpyt.replays.Reading"),
    ],
)
def test_a_part_that_is_none_is_refused(method: str, returned: Any, said: str):
    Mine: Any = type("Mine", (DQN,), {method: lambda self, *args: returned})
    with pytest.raises(TypeError, match=said):
        learned(Mine(**REPLAY))


class OnePlace(Newest):
    def draw_places(self, size: int) -> Any:
        return np.full(size, self.first)


class Fractions(Newest):
    def draw_places(self, size: int) -> Any:
        return self.rng.uniform(self.first, self.end, size), np.zeros(size, np.int64)


class Weighs(Newest):
    def weigh(self, places: np.ndarray, B_idxs: np.ndarray) -> np.ndarray:
        return np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("IndexCls", "error", "said"),
    [
        (OnePlace, TypeError, r"OnePlace.draw_places\(8\) gave array\(.*; expected a pair of arrays of integers"),
        (Fractions, TypeError, r"Fractions.draw_places\(8\) gave \(array\(.*; expected a pair of arrays of integers"),
        (Weighs, ValueError, r"Weighs.weigh gave weights \[3\]; expected \[8\], one for every place"),
    ],
)
def test_what_an_own_index_gives_is_checked(IndexCls: Any, error: Any, said: str):
    Mine: Any = type("Mine", (Own,), {"IndexCls": IndexCls})
    with pytest.raises(error, match=said.replace("array\\(.*;", "(?s:array\\(.*);")):
        learned(Mine(**REPLAY))
