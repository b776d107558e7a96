"""The replay on a device: what it gives is told by the rows in plain Python, for any ring and any end of an episode."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DqnAgent, R2d1Agent, SacAgent
from rlpyt.algos import DQN, R2D1, SAC
from rlpyt.replays import DeviceReplay, SamplesToBuffer
from rlpyt.replays.device_replay import DeviceSumTree
from rlpyt.replays.reading import Sequences
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import DeviceSampler
from rlpyt.types import Places, Run
from tests.batched_envs import Batched, CartPole, Reach, Single
from tests.pairs import others_nightly

B, T = 3, 5
CPU = torch.device("cpu")
DISCOUNT = 0.9


def rows(n: int, p_end: float = 0.25, seed: int = 0) -> SamplesToBuffer:
    """Return rows [n, B] whose observations and actions are numbers of their own."""
    rng = np.random.default_rng(seed)
    number = torch.arange(n * B, dtype=torch.float32).view(n, B)
    kinds = torch.as_tensor(rng.choice(4, (n, B), p=[1 - p_end, p_end / 2, p_end / 4, p_end / 4]))
    terminated, truncated = kinds >= 2, (kinds == 1) | (kinds == 3)
    action, reward = number.long() % 7 + 1, torch.as_tensor(rng.normal(size=(n, B)), dtype=torch.float32)
    done = terminated | truncated
    prev_action, prev_reward = (
        torch.cat([torch.zeros_like(x[:1]), torch.where(done, 0, x)[:-1]]) for x in (action, reward)
    )
    return SamplesToBuffer(
        observation=number[..., None],
        action=action,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        valid=torch.ones(n, B, dtype=torch.bool),
        prev_action=prev_action,
        prev_reward=prev_reward,
        final_observation=-number[..., None] - 1,
    )


def drawn(replay: DeviceReplay, n: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Return a batch, and the time steps and environments that it begins at."""
    batch = replay.sample_batch(n)
    assert batch.places is not None
    return batch, batch.places.start, batch.places.env


def make(
    n_step: int = 1, size: int = 16, device: torch.device = CPU, prev_rnn_state: Any = None, **kwargs: Any
) -> DeviceReplay:
    flag = np.bool_(False)
    example = SamplesToBuffer(
        np.zeros(1, np.float32), np.int64(0), np.float32(0), flag, flag, flag, prev_rnn_state=prev_rnn_state
    )
    generator = torch.Generator(device if device.type == "cuda" else CPU).manual_seed(1)
    fixed: dict[str, Any] = dict(n_step_return=n_step, discount=DISCOUNT, generator=generator)
    return DeviceReplay(example, size, B, device, np.int64(0), **fixed, **kwargs)


def expected(all_rows: SamplesToBuffer, t: int, b: int, n: int) -> dict[str, Any]:
    """Return the transition that begins at a row, step by step."""
    r = all_rows
    return_, factor, k = 0.0, 1.0, 0
    while True:
        return_ += factor * float(r.reward[t + k, b])
        factor *= DISCOUNT
        done = bool(r.terminated[t + k, b] or r.truncated[t + k, b])
        k += 1
        if done or k == n:
            break
    last = t + k - 1
    terminated = bool(r.terminated[last, b])
    final = r.final_observation[last, b] if r.truncated[last, b] else r.observation[last + 1, b]
    return dict(
        observation=r.observation[t, b],
        prev=(r.prev_action[t, b], r.prev_reward[t, b]),
        action=r.action[t, b],
        return_=return_,
        terminated=terminated,
        bootstrap_discount=0.0 if terminated else factor,
        target_prev=(r.action[last, b], r.reward[last, b]),
        target=None if terminated else final,
    )


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("p_end", [0.25, 0.9])
def test_transitions_are_those_of_the_rows(n_step: int, prioritized: bool, p_end: float) -> None:
    """Over four rounds of the ring, with final observations in a memory that grows and is used again."""
    replay = make(n_step, alpha=0.6 if prioritized else None)
    all_rows, n = rows(60, p_end), 0
    seen = set()
    while n < 60:
        replay.append_samples(all_rows[n : n + T])
        n += T
        if n <= n_step + 1:
            continue
        batch, *where = drawn(replay, 800)
        first, end = max(0, n - 16) + 1, n - n_step
        starts, envs = (x.tolist() for x in where)
        assert set(zip(starts, envs, strict=True)) == {(t, b) for t in range(first, end) for b in range(B)}
        for i, (t, b) in list(enumerate(zip(starts, envs, strict=True)))[:100]:
            want = expected(all_rows, t, b, n_step)
            seen.add((t, b))
            assert torch.equal(batch.agent_inputs.observation[i], want["observation"])
            assert (batch.agent_inputs.prev_action[i], batch.agent_inputs.prev_reward[i]) == want["prev"]
            assert batch.action[i] == want["action"]
            assert batch.reward[i] == all_rows.reward[t, b]
            assert float(batch.return_[i]) == pytest.approx(want["return_"], abs=1e-5)
            assert bool(batch.terminated[i]) is want["terminated"]
            assert float(batch.bootstrap_discount[i]) == pytest.approx(want["bootstrap_discount"])
            assert (batch.target_inputs.prev_action[i], batch.target_inputs.prev_reward[i]) == want["target_prev"]
            if want["target"] is not None:
                assert torch.equal(batch.target_inputs.observation[i], want["target"])
    assert len(seen) > 100
    assert len(replay._finals) <= 2 * (16 + T) * B


def final_rows(all_rows: SamplesToBuffer, t: int, b: int, length: int) -> list[dict[str, Any]]:
    """Return the rows from t on as they would be with final rows: each row, and after a cut the final observation."""
    r, laid_out = all_rows, list[dict[str, Any]]()
    while len(laid_out) < length:
        prev = r.action[t - 1, b], r.reward[t - 1, b]
        terminated, truncated = bool(r.terminated[t, b]), bool(r.truncated[t, b])
        starts = bool(r.terminated[t - 1, b] or r.truncated[t - 1, b])
        null = torch.zeros_like(prev[0]), torch.zeros_like(prev[1])
        row = dict(observation=r.observation[t, b], prev=null if starts else prev, action=r.action[t, b])
        row |= dict(reward=r.reward[t, b], ends=(terminated, truncated), valid=True, starts=starts)
        laid_out.append(row)
        if truncated and not terminated:
            row = dict(observation=r.final_observation[t, b], prev=(r.action[t, b], r.reward[t, b]), action=None)
            row |= dict(reward=torch.zeros(()), ends=(False, False), valid=False, starts=False)
            laid_out.append(row)
        t += 1
    return laid_out[:length]


def check_sequence(batch: Any, m: int, want: list[dict[str, Any]], lengths: Sequences) -> None:
    """Hold a sequence to rows with final rows, and its returns to a loop over these."""
    inputs, first = batch.all_inputs, lengths.trained.start
    for j, row in enumerate(want):
        assert torch.equal(inputs.observation[j, m], row["observation"])
        assert (inputs.prev_action[j, m], inputs.prev_reward[j, m]) == row["prev"]
        assert bool(batch.rows.valid[j, m]) is row["valid"]
        assert (bool(batch.rows.terminated[j, m]), bool(batch.rows.truncated[j, m])) == row["ends"]
        assert batch.rows.reward[j, m] == row["reward"]
        assert bool(batch.episode_start[j, m]) is (row["starts"] and j > 0)
    for i, row in enumerate(want[first : lengths.trained.stop]):
        assert bool(batch.valid[i, m]) is row["valid"]
        if not row["valid"]:
            continue
        return_, factor, steps, terminated = 0.0, 1.0, 0, False
        for later in want[first + i :][: lengths.n_step_return]:
            return_ += factor * float(later["reward"])
            factor, steps, terminated = factor * DISCOUNT, steps + 1, later["ends"][0]
            if any(later["ends"]):
                break
        assert batch.action[i, m] == row["action"]
        assert float(batch.return_[i, m]) == pytest.approx(return_, abs=1e-5)
        assert bool(batch.terminated[i, m]) is terminated
        assert float(batch.bootstrap_discount[i, m]) == pytest.approx(0.0 if terminated else factor)
        assert int(batch.steps[i, m]) == steps


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("interval", [0, 2])
@pytest.mark.parametrize("p_end", [0.25, 0.9])
def test_sequences_are_those_of_rows_with_final_rows(interval: int, prioritized: bool, p_end: float) -> None:
    lengths, n = Sequences(4, 3, 2, interval), 2
    state = np.zeros((1, 2), np.float32) if interval else None
    replay = make(n, size=20, alpha=0.6 if prioritized else None, sequences=lengths, prev_rnn_state=state)
    all_rows, written = rows(80, p_end), 0
    all_rows = all_rows._replace(prev_rnn_state=all_rows.observation[..., None].expand(-1, -1, 1, 2) + 0.5)
    while written < 80:
        replay.append_samples(all_rows[written : written + T])
        written += T
        if written < replay.least_rows:
            with pytest.raises(RuntimeError, match=f"at least {replay.least_rows}"):
                drawn(replay, 1)
            continue
        batch, *where = drawn(replay, 600)
        starts, envs = (x.tolist() for x in where)
        every = lengths.interval
        may = {t for t in range(max(0, written - 20) + 1, written - lengths.rows_after) if t % every == 0}
        assert set(zip(starts, envs, strict=True)) == {(t, b) for t in may for b in range(B)}
        for m, (t, b) in list(enumerate(zip(starts, envs, strict=True)))[:15]:
            check_sequence(batch, m, final_rows(all_rows, t, b, lengths.length), lengths)
            if interval:
                assert torch.equal(batch.init_rnn_state[m], all_rows.prev_rnn_state[t, b])
            else:
                assert batch.init_rnn_state is None
        if prioritized:
            replay.update_priorities(batch.places, torch.rand(600) + 0.5)


def test_rows_are_drawn_in_proportion_to_their_priorities() -> None:
    replay = make(alpha=0.5, beta=1.0)
    replay.append_samples(rows(12))
    t, b = torch.meshgrid(torch.arange(1, 11), torch.arange(B), indexing="ij")
    places = Places(t.flatten(), b.flatten())
    given = torch.linspace(0.0, 4.0, 30)
    replay.update_priorities(places, given)
    batch, start, env = drawn(replay, 12_000)
    counts = torch.bincount((start - 1) * B + env, minlength=30)
    p = given.clamp(min=1e-6).sqrt()
    torch.testing.assert_close(counts / 12_000, p / p.sum(), atol=1e-2, rtol=0)
    of_drawn = p[(start - 1) * B + env]
    torch.testing.assert_close(batch.is_weights, of_drawn.min() / of_drawn, rtol=1e-4, atol=0)
    replay.divides_by_largest = False  # one of several replicas: (N P(i))^-beta, which another divides
    batch, start, env = drawn(replay, 50)
    torch.testing.assert_close(batch.is_weights, p.sum() / (30 * p[(start - 1) * B + env]), rtol=1e-4, atol=0)
    # New rows have the largest priority so far, and priorities of rows that are gone change nothing.
    replay.append_samples(rows(9, seed=1))
    assert replay._priorities is not None
    assert replay._tree is not None
    before = replay._priorities.clone()
    replay.update_priorities(Places(places.start[:6], places.env[:6]), torch.full((6,), 9.0))
    assert torch.equal(replay._priorities, before)
    assert float(before.max()) == 4.0
    replay.set_hyper(alpha=0.0)
    assert set(replay._tree.values.tolist()) == {0.0, 1.0}


def test_the_sum_tree_draws_what_its_numbers_say() -> None:
    tree, generator = DeviceSumTree(1000, CPU), torch.Generator().manual_seed(0)
    values = torch.rand(1000, dtype=torch.float64) * (torch.arange(1000) % 3 > 0)
    tree.set_all(values)
    changed = torch.tensor([5, 700, 999, 5])
    tree.set(changed, torch.tensor([9.0, 50.0, 30.0, 9.0], dtype=torch.float64))
    values[changed] = torch.tensor([9.0, 50.0, 30.0, 9.0], dtype=torch.float64)
    torch.testing.assert_close(tree._sums, tree._blocks.sum(1))
    counts = torch.bincount(tree.draw(30_000, generator), minlength=1000).double() / 30_000
    torch.testing.assert_close(counts, values / values.sum(), atol=5e-3, rtol=0)
    assert not counts[values == 0].any()


def test_a_state_goes_on_and_lost_episodes_end_where_they_were() -> None:
    all_rows = rows(20, p_end=0.0)
    replay, other, lost = (make(2, alpha=0.6) for _ in range(3))
    replay.append_samples(all_rows[:10])
    state = copy.deepcopy(replay.state_dict())
    for one in (other, lost):
        one.load_state_dict(state)
    for one in (replay, other):
        one.append_samples(all_rows[10:15])
    (a, *where), (b, *there) = drawn(replay, 50), drawn(other, 50)
    assert torch.equal(torch.stack(where), torch.stack(there))
    assert torch.equal(a.target_inputs.observation, b.target_inputs.observation)
    # New episodes: nothing is known of what row 9 led to, so row 8 ends with its observation, and row 9 is dropped.
    fresh = rows(5, p_end=0.0, seed=7)
    lost.append_samples(fresh)
    batch, start, env = drawn(lost, 400)
    at = start == 8
    assert torch.equal(batch.target_inputs.observation[at, 0], all_rows.observation[9, :, 0][env[at]])
    torch.testing.assert_close(batch.bootstrap_discount[at], torch.full_like(batch.bootstrap_discount[at], DISCOUNT))
    at = start == 9
    assert at.any()
    assert torch.equal(batch.agent_inputs.observation[at, 0], fresh.observation[0, :, 0][env[at]])
    assert not batch.agent_inputs.prev_action[at].any(), "an episode begins with the null action"
    assert not batch.agent_inputs.prev_reward[at].any()
    with pytest.raises(ValueError, match="got one of size"):
        make(3, alpha=0.6).load_state_dict(state)


@pytest.mark.parametrize("alpha", [None, 0.6])
def test_nothing_leads_over_several_resumes_with_a_row_between(alpha: float | None) -> None:
    replay = make(1, alpha=alpha)
    replay.append_samples(rows(8, p_end=0.0))
    for seed in (7, 8):
        state, replay = replay.state_dict(), make(1, alpha=alpha)
        replay.load_state_dict(state)
        fresh = rows(4, p_end=0.0, seed=seed)
        replay.append_samples(fresh[:1])
    replay.append_samples(fresh[1:])
    batch, _, _ = drawn(replay, 400)
    assert torch.equal(batch.target_inputs.observation, batch.agent_inputs.observation + B)


def test_sequences_pass_over_what_was_lost_in_a_resume() -> None:
    all_rows = rows(10, p_end=0.0)
    old, replay = (make(1, 20, sequences=Sequences(4, 2, 1, 0)) for _ in range(2))
    old.append_samples(all_rows)
    replay.load_state_dict(old.state_dict())
    fresh = rows(8, p_end=0.0, seed=7)
    replay.append_samples(fresh)
    batch, start, env = drawn(replay, 200)
    m = int((start == 6).nonzero()[0])
    b = env[m]
    expected = [*all_rows.observation[6:10, b, 0], *fresh.observation[:2, b, 0]]  # row 9 is what row 8 led to
    assert batch.all_inputs.observation[:6, m, 0].tolist() == expected
    assert batch.rows.truncated[:6, m].tolist() == [False, False, True, False, False, False]
    assert batch.rows.valid[:6, m].tolist() == [True, True, True, False, True, True]
    assert batch.episode_start[:6, m].tolist() == [False] * 4 + [True, False]
    assert batch.all_inputs.prev_reward[4, m] == 0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="expected it to hold 23 at least"):
        make().append_samples(rows(20))
    with pytest.raises(RuntimeError, match="expected at least 3"):
        make().sample_batch(4)
    with pytest.raises(TypeError, match="draws uniformly"):
        make().update_priorities(Places(torch.zeros(1).long(), torch.zeros(1).long()), torch.ones(1))
    sampler = DeviceSampler(CartPole, {}, 8, 4)
    for algo, text in ((DQN(prioritized_replay=True, input_priorities=True), "input_priorities set"),):
        agent = DqnAgent(recurrent=isinstance(algo, R2D1))
        run = Run(batch_spec=sampler.batch_spec, n_itr=10_000, final_rows=False)
        with pytest.raises(ValueError, match=f"{text}.*DeviceSampler"):
            algo.initialize(agent, Run(**{**vars(run), "example": sampler.initialize(agent, run)}))


NET: dict[str, Any] = dict(hidden_sizes=32)


class Cue(Batched):
    """Which of two actions pays at the fourth step is shown at the first; then the episode is truncated."""

    single_observation_space = spaces.Box(-1, 1, (2,), np.float32)
    single_action_space = spaces.Discrete(2)
    state_size = 2

    def first(self) -> torch.Tensor:
        cue = (self.ids * 7919 + self.episode * 104729) % 1009 % 2
        return torch.stack([2.0 * cue - 1, torch.zeros_like(cue)], 1)

    def observe(self) -> Any:
        shown, asked = self.t == 0, self.t == self.limit - 1
        return torch.stack([self.state[:, 0] * shown, asked.float()], 1)

    def move(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        right = action == (self.state[:, 0] > 0)
        return right.float() * (self.t == self.limit), torch.zeros_like(right)


LEARNS: dict[str, Any] = {
    # By chance it is 20.
    "DQN": lambda: (
        DQN(batch_size=64, replay_ratio=16, min_steps_learn=500, replay_size=20_000, learning_rate=2e-3, eps_steps=3000,
            target_update_interval=50, prioritized_replay=True, n_step_return=3, normalize_reward=True, discount=0.97,
            pri_beta_steps=6000),
        DqnAgent(model_kwargs=NET), CartPole, 6000, 45.0,
    ),
    # By chance it is about -20.
    "SAC": lambda: (
        SAC(batch_size=64, replay_ratio=32, min_steps_learn=500, replay_size=20_000, learning_rate=3e-3, discount=0.9,
            target_update_tau=0.02),
        SacAgent(model_kwargs=NET, q_model_kwargs=NET), Reach, 2600, -13.0,
    ),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("kind", LEARNS)
def test_a_simulator_is_learned_from_a_replay(kind: str) -> None:
    algo, agent, Env, n_steps, least = LEARNS[kind]()
    limit = 20 if Env is Reach else 100
    sampler = DeviceSampler(Env, dict(limit=limit), 8, 16)
    MinibatchRl(algo, agent, sampler, n_steps=n_steps, log_interval_steps=1e9, seed=0).train()
    result = np.mean([x.Return for x in agent.play(Single(Env, limit=limit), n_episodes=10)])
    assert result > least, result


@pytest.mark.parametrize("prioritized", others_nightly([False, True], [True]))
def test_a_cue_is_remembered_by_sequences(prioritized: bool) -> None:
    algo = R2D1(
        batch_T=4, batch_B=32, warmup_T=2, store_rnn_state_interval=2, replay_ratio=6, min_steps_learn=500,
        replay_size=8_000, learning_rate=3e-3, discount=0.9, n_step_return=2, target_update_interval=50,
        eps_steps=2_000, prioritized_replay=prioritized,
    )  # fmt: skip
    agent = R2d1Agent(eps_final=0.02, model_kwargs=dict(hidden_sizes=16, rnn_size=16))
    sampler = DeviceSampler(Cue, dict(limit=4), 8, 16)
    MinibatchRl(algo, agent, sampler, n_steps=9_000, log_interval_steps=1e9, seed=0).train()
    result = np.mean([x.Return for x in agent.play(Single(Cue, limit=4, first_id=0), n_episodes=20)])
    assert result > 0.8, result


def test_a_replay_ratio_below_one_takes_an_update_of_some_rows() -> None:
    algo = DQN(batch_size=64, replay_ratio=0.125, min_steps_learn=600, replay_size=20_000)
    sampler = DeviceSampler(CartPole, {}, 8, 64)
    MinibatchRl(algo, DqnAgent(), sampler, n_steps=6 * 512, log_interval_steps=1e9).train()
    assert algo.update_counter == 5
