"""Stored data: rows by hand, every step once in the columns of a replay, what is refused, and rows beside new ones."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.replays import (
    Episode,
    MixedReplay,
    PrioritizedIndex,
    RecordEpisodes,
    ReplayBuffer,
    RowStorage,
    StoredData,
    Transitions,
    UniformIndex,
)
from rlpyt.spaces import EnvSpaces
from rlpyt.testing import check_replay
from rlpyt.testing.replays import random_rows
from rlpyt.utils.arrays import buffer_leaves, torchify_buffer
from tests.replays.replay_kit import assert_same_batches

SPACES = EnvSpaces(spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(4, start=1))
DISCOUNT = 0.5


def two_episodes() -> dict[str, Any]:
    """Observations 10, 11, (12) of an episode that terminated, and 20, 21, 22, (23) of one that was truncated."""
    return dict(
        observations=np.array([[10], [11], [20], [21], [22]], np.float64),
        actions=np.array([1, 2, 3, 4, 1]),
        rewards=[1.0, 2.0, 3.0, 4.0, 5.0],
        terminated=np.array([False, True, False, False, False]),
        truncated=np.array([False, False, False, False, True]),
        next_observations=np.array([[11], [12], [21], [22], [23]], np.float64),
    )


def episodes(n: int, seed: int = 0) -> list[Episode]:
    """Random episodes, no two observations or rewards alike."""
    rng, number, found = np.random.default_rng(seed), 0, []
    for _ in range(n):
        length = int(rng.integers(1, 7))
        ends = np.arange(length) == length - 1
        kind = int(rng.integers(3))  # terminated, truncated, or cut off
        found.append(
            Episode(
                observations=np.arange(number, number + length + 1, dtype=np.float32)[:, None],
                actions=rng.integers(1, 5, length),
                rewards=rng.normal(size=length),
                terminations=ends & (kind == 0),
                truncations=ends & (kind == 1),
            )
        )
        number += length + 1
    return found


def replay_of(data: StoredData, n: int, n_step: int = 1, index: Any = None, n_frames: int = 1) -> ReplayBuffer:
    """A replay of n environments that holds the data and nothing else."""
    before = max(1, n_frames - 1)
    rows = data.columns(n, before, n_step)
    storage = RowStorage(rows[0, 0], len(rows.valid), n, n_frames=n_frames)
    index = UniformIndex(np.random.default_rng(0)) if index is None else index
    replay = ReplayBuffer(storage, index, Transitions(n_step), discount=DISCOUNT)
    replay.append_samples(rows)
    assert replay.check_valid() == (True, "")
    return replay


def all_transitions(replay: Any) -> Any:
    """Every transition that may be drawn."""
    index = replay.index
    places = np.arange(index.first, index.end)
    starts, envs = np.nonzero(index.may_begin(places[:, None], np.arange(index.B)))
    return replay.extract_batch(places[starts] % replay.storage.T, envs)


def test_rows_by_hand() -> None:
    rows = StoredData.from_arrays(SPACES, **two_episodes()).rows
    assert rows.observation[:, 0].tolist() == [10, 11, 12, 20, 21, 22, 23]
    assert rows.observation.dtype == rows.reward.dtype == np.float32
    assert rows.action.tolist() == [0, 1, 0, 2, 3, 0, 0]
    assert rows.reward.tolist() == [1, 2, 0, 3, 4, 5, 0]
    assert np.flatnonzero(rows.terminated).tolist() == [1]
    assert np.flatnonzero(rows.truncated).tolist() == [5]
    assert np.flatnonzero(~rows.valid).tolist() == [2, 6]


def test_counts_and_a_last_step_that_has_no_end() -> None:
    arrays = two_episodes()
    data = StoredData.from_arrays(SPACES, **{**arrays, "truncated": np.zeros(5, bool)})
    assert repr(data) == "StoredData(5 steps of 2 episodes)"
    assert np.flatnonzero(data.rows.truncated).tolist() == [5]


def test_bootstraps_by_hand() -> None:
    batch = all_transitions(replay_of(StoredData.from_arrays(SPACES, **two_episodes()), 1, n_step=2))
    assert batch.agent_inputs.observation[:, 0].tolist() == [10, 11, 20, 21, 22]
    assert batch.agent_inputs.prev_reward.tolist() == [0, 1, 0, 3, 4]
    assert batch.return_.tolist() == [1 + 2 * 0.5, 2, 3 + 4 * 0.5, 4 + 5 * 0.5, 5]
    # What terminated is not bootstrapped; what was truncated is, from the observation that it stopped in.
    assert batch.bootstrap_discount.tolist() == [0, 0, 0.25, 0.25, 0.5]
    assert batch.target_inputs.observation[2:, 0].tolist() == [22, 23, 23]


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_every_step_may_be_drawn_once(n: int, n_step: int) -> None:
    found = episodes(12)
    batch = all_transitions(replay_of(StoredData.from_episodes(SPACES, found), n, n_step))
    came = dict(zip(batch.agent_inputs.observation[:, 0].tolist(), range(len(batch.action)), strict=True))
    assert len(came) == len(batch.action) == sum(len(episode.rewards) for episode in found)
    n_short = 0
    for episode in found:
        for t in range(len(episode.rewards)):
            m = came[episode.observations[t, 0].item()]
            target = batch.target_inputs.observation[m, 0].item()
            terminates = episode.terminations.any() and t + n_step >= len(episode.rewards)
            k = min(n_step, len(episode.rewards) - t)
            if not batch.bootstrap_discount[m]:
                assert terminates
            elif terminates or target != episode.observations[t + k, 0]:  # the column ends within the n steps
                k, n_short = int(target - episode.observations[t, 0]), n_short + 1
            rewards = sum(DISCOUNT**i * episode.rewards[t + i] for i in range(k))
            assert batch.return_[m].item() == pytest.approx(rewards, rel=1e-5)
            assert batch.bootstrap_discount[m] in (0, DISCOUNT**k)
            assert batch.action[m] == episode.actions[t] - 1
            assert batch.agent_inputs.prev_action[m] == (episode.actions[t - 1] - 1 if t else 0)
    assert n_short <= (n - 1) * (n_step - 1)


def test_stacked_frames_are_stored_once_and_come_back() -> None:
    frames = np.arange(1, 10, dtype=np.uint8)
    stacks = [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [5, 5, 5], [5, 5, 6], [5, 6, 7], [6, 7, 8], [7, 8, 9]]
    observations = np.array(stacks, np.uint8)[:, :, None, None] * np.ones((1, 1, 2, 2), np.uint8)
    box = EnvSpaces(spaces.Box(0, 255, (3, 2, 2), np.uint8), SPACES.action)
    parts = [observations[:4], observations[4:]]
    found = [
        Episode(
            observations=part,
            actions=np.ones(len(part) - 1, np.int64),
            rewards=np.ones(len(part) - 1),
            terminations=np.zeros(len(part) - 1, bool),
            truncations=np.zeros(len(part) - 1, bool),
        )
        for part in parts
    ]
    data = StoredData.from_episodes(box, found)
    for n in (1, 2, 3):
        batch = all_transitions(replay_of(data, n, n_frames=3))
        order = batch.agent_inputs.observation[:, 2, 0, 0].argsort()
        assert batch.agent_inputs.observation[order][:, :, 0, 0].tolist() == [*stacks[:3], *stacks[4:8]]
        assert batch.target_inputs.observation[order][:, :, 0, 0].tolist() == [*stacks[1:4], *stacks[5:]]
    again = StoredData.from_replay(replay_of(data, 1, n_frames=3), box)
    assert again.n_steps == 7
    assert frames.tolist() == sorted(set(again.rows.observation[:, 2, 0, 0].tolist()))


def test_nested_spaces() -> None:
    nested = EnvSpaces(
        spaces.Dict({"a": spaces.Box(0, 9, (2,)), "b": spaces.Tuple([spaces.Discrete(3, start=2)])}),
        spaces.Dict({"turn": spaces.MultiDiscrete([2, 3]), "push": spaces.MultiBinary(2)}),
    )
    values = dict(a=np.arange(6.0).reshape(3, 2), b=(np.array([2, 3, 4]),))
    actions = dict(push=np.array([[0, 1], [1, 0]], np.int8), turn=np.array([[0, 2], [1, 1]]))
    flags = np.zeros(2, bool)
    episode = Episode(observations=values, actions=actions, rewards=[1, 2], terminations=flags, truncations=flags)
    rows = StoredData.from_episodes(nested, [episode]).rows
    assert rows.observation.b["0"].tolist() == [0, 1, 2]
    assert rows.action.turn.tolist() == [[0, 2], [1, 1], [0, 0]]
    assert rows.action.push.tolist() == [[0, 1], [1, 0], [0, 0]]


def test_a_file_brings_the_same_back(tmp_path: Path) -> None:
    data = StoredData.from_episodes(SPACES, episodes(4))
    data.save(tmp_path / "data.npz")
    again = StoredData.load(tmp_path / "data.npz", SPACES)
    assert again.checksum() == data.checksum() != StoredData.from_episodes(SPACES, episodes(4, seed=1)).checksum()
    assert deepcopy(data) is data
    other = SPACES._replace(observation=spaces.Box(0, 1, (2,)))
    with pytest.raises(ValueError, match=r"has observation of float32 \[1\] a row; expected float32 \[2\]"):
        StoredData.load(tmp_path / "data.npz", other)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="has x; expected observation, action, reward"):
        StoredData.load(tmp_path / "other.npz", SPACES)


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = StoredData.from_episodes(SPACES, episodes(4))
    data.save(tmp_path / "data")
    before = (tmp_path / "data.npz").read_bytes()

    def fails(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", fails)
    with pytest.raises(OSError, match="No space"):
        data.save(tmp_path / "data.npz")
    assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]
    assert (tmp_path / "data.npz").read_bytes() == before


def test_rows_of_a_replay() -> None:
    rows = random_rows(SPACES, T=30, B=3, seed=1)
    storage = RowStorage(rows[0, 0], 20, 3)
    replay = ReplayBuffer(storage, UniformIndex(np.random.default_rng(0)), Transitions(1), discount=DISCOUNT)
    replay.append_samples(rows)
    data = StoredData.from_replay(replay, SPACES)
    with pytest.raises(TypeError, match=r"got a StoredData; expected a ReplayBuffer.*algo\.replay\.new"):
        StoredData.from_replay(cast("Any", data), SPACES)
    batch, again = all_transitions(replay), all_transitions(replay_of(data, 1))
    order, other = (x.agent_inputs.observation[:, 0].argsort() for x in (batch, again))
    for name in ("action", "return_", "terminated", "bootstrap_discount"):
        assert torch.equal(batch[name][order], again[name][other]), name
    ended = batch.terminated[order]
    of_target = [x.target_inputs.observation[i, 0] for x, i in ((batch, order), (again, other))]
    assert torch.equal(of_target[0][~ended], of_target[1][~ended])


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps in the observation, in the same array at every step; ends after `length` of them."""

    def __init__(self, length: int = 3) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 99, (1,), np.float64), spaces.Discrete(2)
        self.length, self.count = length, np.zeros(1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count[:] = 0
        return self.count, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.count, float(action), bool(self.count == self.length), False, {}


def test_episodes_that_are_played_are_recorded() -> None:
    env = RecordEpisodes(Counter())
    for n in (3, 2, 0):
        env.reset()
        for t in range(n):
            env.step(t % 2)
    rows = env.data().rows
    assert rows.observation[:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert rows.reward.tolist() == rows.action.tolist() == [0, 1, 0, 0, 0, 1, 0]
    assert (np.flatnonzero(rows.terminated), np.flatnonzero(rows.truncated)) == ([2], [5])
    with pytest.raises(ValueError, match="no episodes"):
        RecordEpisodes(Counter()).data()


# ---- what is refused ----

BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"actions": np.array([1, 2, 3, 4, 5])}, ValueError, "actions: values from 1 to 5 are none of Discrete"),
    ({"actions": np.array([1.0, 2, 3, 4, 1])}, TypeError, "actions: expected int64"),
    ({"actions": np.array([1, 2])}, ValueError, r"actions: expected shape \(5,\), got \(2,\)"),
    ({"rewards": [1.0, 2, 3, 4, np.nan]}, ValueError, "rewards: expected finite numbers, got 1 others"),
    ({"observations": np.full((5, 1), np.inf)}, ValueError, "observations: expected finite numbers"),
    ({"observations": np.zeros((5, 2))}, ValueError, "observations: expected shape"),
    ({"terminated": np.zeros(5)}, TypeError, r"terminated is float64 \[5\]; expected bool \[5\]"),
    ({"truncated": np.zeros(4, bool)}, ValueError, r"truncated is bool \[4\]; expected bool \[5\]"),
    ({"next_observations": np.zeros((5, 1))}, ValueError, r"next_observations\[0\] is not observations\[1\]"),
    ({key: [] for key in ("actions", "rewards")}, ValueError, "expected bool"),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD, ids=[message[:30] for _, _, message in BAD])
def test_arrays_that_are_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        StoredData.from_arrays(SPACES, **{**two_episodes(), **changes})


def test_episodes_that_are_refused() -> None:
    good = episodes(1)[0]
    n = len(good.rewards)
    assert n > 1
    for changes, message in (
        ({"observations": good.observations[:-1]}, f"episode 0 has {n} observations and {n} rewards; expected one"),
        ({"truncations": np.ones(n, bool)}, "episode 0 has an end before its last step"),
        ({"terminations": np.zeros(n)}, f"episode 0: terminations is float64 \\[{n}\\]"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            StoredData.from_episodes(SPACES, [good._replace(**changes)])
    with pytest.raises(ValueError, match="no episodes"):
        StoredData.from_episodes(SPACES, [])
    rows = StoredData.from_episodes(SPACES, [good]).rows
    with pytest.raises(ValueError, match="of which 1 are the last of an episode and 0 end one"):
        StoredData(rows._replace(truncated=np.zeros(n + 1, bool), terminated=np.zeros(n + 1, bool)), SPACES)


def test_data_of_another_environment_are_refused() -> None:
    data = StoredData.from_arrays(SPACES, **two_episodes())
    wide = StoredData.from_arrays(
        SPACES._replace(action=spaces.Box(-2, 2, (1,))),
        **{**two_episodes(), "actions": np.linspace(-2, 2, 5)[:, None]},
    )
    data.check_fits(SPACES._replace(observation=spaces.Box(-1, 1, (1,), np.float64)))  # float32 in rows, as these
    for other in (
        SPACES._replace(observation=spaces.Box(-1, 1, (2,))),
        SPACES._replace(action=spaces.Discrete(5, start=1)),
        SPACES._replace(action=spaces.Box(-1, 1, (1,))),
    ):
        with pytest.raises(ValueError, match=r"space is .* and that of the environment is"):
            data.check_fits(other)
    with pytest.raises(ValueError, match=r"actions go from \[-2\.\] to \[2\.\]; expected them within the bounds"):
        wide.check_fits(SPACES._replace(action=spaces.Box(-1, 1, (1,))))
    both = SPACES._replace(action=spaces.Dict(turn=spaces.Discrete(2), speed=spaces.Box(-2, 2, (1,))))
    actions = dict(turn=np.zeros(5, np.int64), speed=np.linspace(-2, 2, 5)[:, None])
    wide = StoredData.from_arrays(both, **{**two_episodes(), "actions": actions})
    wide.check_fits(both)
    narrow = spaces.Dict(turn=spaces.Discrete(2), speed=spaces.Box(-1, 1, (1,)))
    with pytest.raises(ValueError, match=r"actions of speed go from \[-2\.\] to \[2\.\]; expected them within"):
        wide.check_fits(both._replace(action=narrow))


@pytest.mark.parametrize(
    ("action_space", "good", "bad"),
    [
        (spaces.Discrete(3, start=2), [2, 4, 2, 4, 2], [2, 4, 2, 3, 2]),
        (
            spaces.MultiDiscrete([2, 1]),
            [[0, 0], [0, 0], [0, 0], [0, 0], [0, 0]],
            [[0, 0], [0, 0], [1, 0], [0, 0], [1, 0]],
        ),
    ],
)
def test_actions_that_a_mask_forbids_are_refused(action_space: Any, good: Any, bad: Any) -> None:
    space = spaces.Dict(x=spaces.Box(0, 99, (1,), np.float64), action_mask=spaces.MultiBinary(3))
    both, given = EnvSpaces(space, action_space), two_episodes()
    masks = np.tile(np.array([1, 0, 1], np.int8), (5, 1))
    given |= {name: dict(x=given[name], action_mask=masks) for name in ("observations", "next_observations")}
    StoredData.from_arrays(both, **{**given, "actions": np.array(good)}).check_fits(both)
    first = next(t for t in range(5) if bad[t] != good[t])
    n = sum(x != y for x, y in zip(good, bad, strict=True))
    with pytest.raises(ValueError, match=f"mask of step {first} forbids the action .* of {n} of 5 steps"):
        StoredData.from_arrays(both, **{**given, "actions": np.array(bad)}).check_fits(both)


# ---- beside new rows ----


def mixed(fraction: float, prioritized: bool = False, seed: int = 0, T: int = 12, B: int = 2) -> MixedReplay:
    """An empty replay for new rows, whose observations are random, beside stored ones, which are whole numbers."""
    data = StoredData.from_episodes(SPACES, episodes(6))
    rng = np.random.default_rng(seed)
    make: Any = PrioritizedIndex if prioritized else UniformIndex
    storage = RowStorage(data.rows[0], T, B)
    new = ReplayBuffer(storage, make(rng), Transitions(1), discount=DISCOUNT)
    return MixedReplay(new, replay_of(data, 1, index=make(rng)), fraction, data.checksum())


def test_a_batch_has_its_share_of_stored_rows_and_they_stay() -> None:
    replay, rows = mixed(0.25), random_rows(SPACES, T=60, B=2)
    stored = all_transitions(replay.stored)
    for t in range(0, 60, 5):
        replay.append_samples(rows[t : t + 5])
        batch = replay.sample_batch(16)
        whole = batch.agent_inputs.observation[:, 0] % 1 == 0
        assert whole.tolist() == [False] * 12 + [True] * 4
        assert (batch.places.env >= 2).tolist() == whole.tolist()
    assert_same_batches(stored, all_transitions(replay.stored))
    assert len(mixed(1.0).sample_batch(8).action) == 8  # nothing new is drawn, or needed
    assert (mixed(0.01).sample_batch(1).places.env == 2).all()


@pytest.mark.parametrize("prioritized", [False, True])
def test_it_keeps_the_contract_of_a_replay(prioritized: bool) -> None:
    rows = random_rows(SPACES, T=40, B=2)
    data = StoredData.from_episodes(SPACES, episodes(6))

    def make() -> MixedReplay:
        return mixed(0.5, prioritized)

    # Rows of both kinds: the stored ones are appended first, too, where new ones soon overwrite them.
    n = len(data.rows.valid)
    every = random_rows(SPACES, T=n + 40, B=2)
    every[n:] = rows
    for whole, leaf in zip(
        buffer_leaves(every._replace(prev_action=None, prev_reward=None)), buffer_leaves(data.rows), strict=True
    ):
        whole[:n] = leaf[:, None]
    check_replay(make, every)


def test_priorities_go_to_the_replay_that_a_row_is_from() -> None:
    replay = mixed(0.5, prioritized=True)
    replay.append_samples(random_rows(SPACES, T=10, B=2))
    batch = replay.sample_batch(40)
    of_stored = batch.places.env >= 2
    replay.update_priorities(batch.places, torch.where(of_stored, 3.0, 7.0))
    largest = [max(part.index.state_dict()["priorities"]).item() for part in (replay.new, replay.stored)]
    assert largest == [7.0, 3.0]
    one = batch.places[:1]._replace(env=torch.tensor([2]), start=batch.places.start[-1:])
    replay.update_priorities(one, torch.tensor([1e6]))
    assert (replay.sample_batch(8).places.start[4:] == one.start).all()
    uniform = mixed(0.5)
    with pytest.raises(TypeError, match="expected a PrioritizedIndex"):
        uniform.update_priorities(batch.places, torch.ones(40))


def test_importance_weights_by_hand() -> None:
    replay = mixed(0.5, prioritized=True)
    replay.append_samples(random_rows(SPACES, T=10, B=2))
    replay.set_hyper(alpha=1.0, beta=1.0)
    batch = replay.sample_batch(200)
    replay.update_priorities(batch.places[-1:], torch.tensor([9.0]))
    batch = replay.sample_batch(200)
    n = replay.stored.index.n_drawable()
    p_large, p_small = 9 / (n + 8), 1 / (n + 8)
    weights = {1.0, 1 / (n * p_large), 1 / (n * p_small)}  # new rows are all alike: N P(i) = 1
    expected = sorted(w / max(weights) for w in weights)
    assert sorted(set(batch.is_weights.tolist())) == pytest.approx(expected, rel=1e-5)


def test_a_state_is_loaded_beside_the_same_rows_alone() -> None:
    rows = random_rows(SPACES, T=20, B=2)
    first, second = mixed(0.5, prioritized=True), mixed(0.5, prioritized=True, seed=5)
    first.append_samples(rows[:11])
    batch = first.sample_batch(8)
    first.update_priorities(batch.places, torch.rand(8))
    state = first.state_dict()
    assert "storage" not in state["stored"]
    second.load_state_dict(state)
    for replay in (first, second):
        replay.append_samples(rows[11:])
    assert_same_batches(first.sample_batch(32), second.sample_batch(32))
    with pytest.raises(ValueError, match=r"stored_fraction': 0\.5.*expected.*0\.25"):
        mixed(0.25, prioritized=True).load_state_dict(state)
    with pytest.raises(ValueError, match=r"the state has .*stored_fraction 0\.5, expected None"):
        first.new.load_state_dict(state)


def test_a_copy_that_appends_has_no_stored_rows() -> None:
    with pytest.raises(TypeError, match="it has no lock"):
        mixed(0.5).appending_copy()


# ---- Minari ----


@pytest.mark.filterwarnings("ignore")
def test_minari_brings_the_same_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    pytest.importorskip("h5py")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    nested = SPACES._replace(observation=spaces.Dict({"x": SPACES.observation, "y": spaces.Discrete(99)}))
    found = [
        episode._replace(observations={"x": episode.observations, "y": np.arange(len(episode.observations))})
        for episode in episodes(5)
    ]
    data = StoredData.from_episodes(nested, found)
    dataset = data.to_minari("rlpyt/test-v0", algorithm_name="none")
    assert len(list(dataset.iterate_episodes())) == 5
    for came in (StoredData.from_minari(dataset), StoredData.from_minari("rlpyt/test-v0")):
        assert came.checksum() == data.checksum()
        for a, b in zip(
            buffer_leaves(torchify_buffer(came.rows)), buffer_leaves(torchify_buffer(data.rows)), strict=True
        ):
            assert torch.equal(a, b)


def test_minari_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(ImportError, match=r"pip install rlpyt\[minari\]"):
        StoredData.from_minari("rlpyt/test-v0")


def test_new_rows_after_stored_ones_may_begin_amid_an_episode() -> None:
    def rows(*stacks: list[int]) -> Any:
        one = random_rows(EnvSpaces(spaces.Box(0, 255, (3, 1, 1), np.uint8), SPACES.action), T=len(stacks), B=1)
        return one._replace(observation=np.array(stacks, np.uint8)[:, None, :, None, None])

    storage = RowStorage(rows([0, 0, 0])[0, 0], 8, 1, n_frames=3)
    storage.write(rows([0, 0, 1], [0, 1, 2]))
    with pytest.raises(ValueError, match="is no stack of 3 frames"):
        storage.write(rows([7, 8, 9], [8, 9, 10]))
    storage.break_off()
    storage.write(rows([7, 8, 9], [8, 9, 10], [9, 10, 11]))
    assert storage.observation(np.array([1, 4]), np.array([0, 0]))[:, :, 0, 0].tolist() == [[0, 1, 2], [9, 10, 11]]
