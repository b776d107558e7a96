"""Games of several players as columns: rows and trajectories against a game played by hand, and what is refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlpyt.agents import CategoricalPgAgent, DqnAgent
from rlpyt.algos import DQN, PPO
from rlpyt.envs import EnvError, make_vector_env, players_make_vec
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import CpuSampler, SerialSampler
from rlpyt.types import Run
from rlpyt.utils.watched import WorkerError

LENGTHS = {"a": 2, "b": 4, "c": 3}
"""Steps that a player is in play; c is truncated, the others terminate."""


class Leaving:
    """Game that its players leave one after the other; an observation is the game, the player, and its step.

    Every call of `step` is written to `log`.
    """

    possible_agents = ("a", "b", "c")
    log: list[tuple[int, dict[str, int]]]

    def __init__(self, masks: bool = False, forgets: str = "", begins_without: str = "") -> None:
        self.masks, self.forgets, self.begins_without = masks, forgets, begins_without
        self.game, self.log, self.seeds = -1, [], list[int | None]()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        space = spaces.Box(-1, 1000, (3,), np.float32)
        if not self.masks:
            return space
        return spaces.Dict(observation=space, action_mask=spaces.Box(0, 1, (2,), np.int8))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seeds.append(seed)
        self.game, self.t = 0 if seed is not None else self.game + 1, 0
        return {p: self._seen(p) for p in self.possible_agents if p != self.begins_without}, {}

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        assert set(actions) == {p for p in self.possible_agents if self.t < LENGTHS[p]}, "only those in play act"
        self.t += 1
        self.log.append((self.game, {p: int(a) for p, a in actions.items()}))
        of = [p for p in actions if p != self.forgets]
        ends = {p: self.t == LENGTHS[p] for p in of}
        return (
            {p: self._seen(p) for p in of},
            {p: 10.0 * self.t + int(actions[p]) for p in of},
            {p: ends[p] and p != "c" for p in of},
            {p: ends[p] and p == "c" for p in of},
            {p: {} for p in of},
        )

    def close(self) -> None: ...

    def _seen(self, p: str) -> Any:
        seen = np.array([self.game, self.possible_agents.index(p), self.t], np.float32)
        return {"observation": seen, "action_mask": np.array([1, self.t % 2], np.int8)} if self.masks else seen


class TurnGame(Leaving):
    def agent_iter(self) -> None: ...


class UnequalGame(Leaving):
    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2 if agent == "a" else 3)


class PartlyMasked(Leaving):
    """Gives masks in info, to those in play."""

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        observations, _ = super().reset(seed)
        return observations, {p: {"action_mask": np.array([1, 0])} for p in observations}

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        *rest, infos = super().step(actions)
        return (*rest, {p: {"action_mask": np.array([1, 0])} for p in infos})


def sampler(n_games: int = 2, T: int = 7, make: Any = Leaving, **kwargs: Any) -> SerialSampler:
    own: dict[str, Any] = {name: kwargs.pop(name) for name in ("masks", "forgets", "begins_without") if name in kwargs}
    kwargs = {"max_decorrelation_steps": 0, "batch_T": T, "batch_B": 3 * n_games, **kwargs}
    return SerialSampler(EnvCls=players_make_vec, env_kwargs=dict(make=make, **own), **kwargs)


def expected_rows(T: int, n_games: int) -> dict[str, Any]:
    """Return the rows of games played one after the other: four steps, a final row, and so on."""
    rows: dict[str, Any] = defaultdict(lambda: np.zeros((T, 3 * n_games)))
    for column in range(3 * n_games):
        p = column % 3
        length = list(LENGTHS.values())[p]
        for t in range(T):
            game, step = divmod(t, max(LENGTHS.values()) + 1)
            rows["game"][t, column], rows["player"][t, column] = game, p
            rows["t"][t, column] = min(step, length)
            rows["valid"][t, column] = step < length
            rows["terminated"][t, column] = step == length - 1 and p != 2
            rows["truncated"][t, column] = step == length - 1 and p == 2
            rows["paid"][t, column] = 10 * (step + 1) if step < length else 0
    return rows


@pytest.mark.parametrize("n_games", [1, 2])
def test_rows_are_those_of_games_by_hand(n_games: int) -> None:
    one = sampler(n_games)
    one.initialize(CategoricalPgAgent(), Run(batch_spec=one.batch_spec, seed=0))
    batches, trajs = list[Any](), list[Any]()
    for itr in range(3):
        samples, traj_infos = one.obtain_samples(itr)
        env = samples.env
        fields = (samples.agent.action, env.observation, env.reward, env.terminated, env.truncated, env.valid)
        batches.append([x.numpy().copy() for x in fields])
        trajs += traj_infos
    one.shutdown()
    action, observation, reward, terminated, truncated, valid = map(np.concatenate, zip(*batches, strict=True))
    expected = expected_rows(21, n_games)
    np.testing.assert_array_equal(observation, np.stack([expected[k] for k in ("game", "player", "t")], axis=-1))
    np.testing.assert_array_equal(valid, expected["valid"])
    np.testing.assert_array_equal(terminated, expected["terminated"])
    np.testing.assert_array_equal(truncated, expected["truncated"])
    np.testing.assert_array_equal(reward, expected["paid"] + action * expected["valid"])
    assert not action[~valid].any(), "those who wait have the null action"
    assert sorted(int(traj.Length) for traj in trajs) == sorted(list(LENGTHS.values()) * 4 * n_games)
    assert [traj.Length for traj in trajs[: 3 * n_games]] == [2] * n_games + [3] * n_games + [4] * n_games


def test_each_game_has_the_seed_of_its_first_column() -> None:
    env = make_vector_env(players_make_vec, dict(make=Leaving), ranks=range(6))
    env.reset([10, 11, 12, 13, 14, 15])
    env.reset()
    assert [game.seeds for game in env.env.games] == [[10, None], [13, None]]
    env.env.reset(seed=5)
    assert [game.seeds[-1] for game in env.env.games] == [5, 6]


def test_observations_are_kept_by_whoever_took_them() -> None:
    env = players_make_vec(Leaving, 3)
    first, _ = env.reset()
    env.step(np.zeros(3, int))
    assert (first[:, 2] == 0).all()


@pytest.mark.parametrize("make", [Leaving, PartlyMasked], ids=["in observations", "in info"])
def test_masks_of_players_who_wait_ask_nothing(make: Any) -> None:
    one = sampler(make=make, masks=make is Leaving)
    MinibatchRl(PPO(minibatches=2), CategoricalPgAgent(), one, n_steps=126, log_interval_steps=126, seed=0).train()
    samples = one.batches[0]
    mask = samples.env.observation.action_mask
    taken = np.take_along_axis(np.asarray(mask), samples.agent.action[..., None], -1)[..., 0]
    assert taken[samples.env.valid].all()


def test_the_replay_draws_no_row_of_a_player_who_waits() -> None:
    algo = DQN(min_steps_learn=30, batch_size=256, n_step_return=2, replay_size=600)
    MinibatchRl(algo, DqnAgent(), sampler(T=10), n_steps=300, log_interval_steps=300, seed=0).train()
    batch = algo.replay.sample_batch(512)
    length = np.array(list(LENGTHS.values()))[batch.agent_inputs.observation[:, 1].long().numpy()]
    assert (batch.agent_inputs.observation[:, 2].numpy() < length).all()


def test_workers_share_whole_games() -> None:
    kwargs: Any = dict(EnvCls=players_make_vec, env_kwargs=dict(make=Leaving), batch_T=7, max_decorrelation_steps=0)
    rows = []
    for one in (
        CpuSampler(**kwargs, batch_B=6, n_workers=2, start_method="here"),
        SerialSampler(**kwargs, batch_B=6),
    ):
        one.initialize(CategoricalPgAgent(), Run(batch_spec=one.batch_spec, seed=0))
        rows.append(one.obtain_samples(0)[0].env.observation.clone())
        one.shutdown()
    assert (rows[0] == rows[1]).all()
    apart = CpuSampler(**kwargs, batch_B=6, n_workers=3, start_method="here")
    with pytest.raises(WorkerError, match=r"2 columns were asked for; expected a multiple of 3.*share of each worker"):
        apart.initialize(CategoricalPgAgent(), Run(batch_spec=apart.batch_spec, seed=0))


@pytest.mark.parametrize(
    ("make", "kwargs", "message"),
    [
        (TurnGame, {}, "its players take turns; expected a ParallelEnv of PettingZoo.*one player, in which the others"),
        (dict, {}, "dict is not a game .*: it has no possible_agents"),
        (UnequalGame, {}, r"the action_space of 'b' is Discrete\(3\), and that of 'a' is Discrete\(2\).*Pad"),
        (Leaving, dict(forgets="b"), "step of Leaving: 'b' is in play, and observations and rewards .*has nothing"),
        (Leaving, dict(begins_without="c"), "reset of Leaving gave no observation of 'c'; expected all"),
    ],
)
def test_what_is_refused(make: Any, kwargs: dict[str, Any], message: str) -> None:
    one = sampler(make=make, **kwargs)
    with pytest.raises(EnvError, match=message):
        MinibatchRl(PPO(minibatches=2), CategoricalPgAgent(), one, n_steps=42, log_interval_steps=42, seed=0).train()
