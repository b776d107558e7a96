"""The sampler of simulators: its rows are those of `SerialSampler`, and learning from them gives the same weights."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rlpyt.agents import CategoricalPgAgent, GaussianPgAgent, PgAgent, PopulationAgent, PqnAgent
from rlpyt.agents.rules import Exploration
from rlpyt.algos import A2C, CMAES, PPO, PQN, VTrace
from rlpyt.core import Agent, Algorithm
from rlpyt.envs import EnvError
from rlpyt.runners import AsyncRl, MinibatchRl, MinibatchRlEval
from rlpyt.samplers import DeviceSampler, SerialSampler, TrajInfo
from rlpyt.samplers.device_statistics import SimulatorLog
from rlpyt.types import BatchSpec, Run, Samples
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from rlpyt.utils.compute import ComputeSettings
from tests.batched_envs import Batched, CartPole, Pendulum, Single
from tests.pairs import others_nightly

DIALECTS = ("final_obs", "final_observation", "reset_mask", "env_ids")
T = 24
SMALL: dict[str, Any] = dict(hidden_sizes=16)


class Greedy(CategoricalPgAgent):
    """Agent whose actions need no draw, so that rows without a step change nothing."""

    ExplorationCls = Exploration


class GreedyGaussian(GaussianPgAgent):
    ExplorationCls = Exploration


class GreedyPqn(PqnAgent):
    ExplorationCls = Exploration


class MaskedInfo(CartPole):
    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        *step, info = super().step(action)
        return *step, {**info, "action_mask": torch.ones(self.num_envs, 2, dtype=torch.bool)}


def collected(sampler: Any, agent: Agent, algo: Algorithm[Any] | None = None, n: int = 1, seed: int = 3) -> Any:
    """Return copies of batches and trajectories of an agent whose weights follow from a seed; None trains nothing."""
    algo = algo or A2C()
    run = Run(
        batch_spec=sampler.batch_spec,
        seed=seed,
        bootstrap_value=algo.bootstrap_value,
        bootstrap_inputs=algo.bootstrap_inputs,
        final_rows=sampler.final_rows,
        traj_info_kwargs=dict(discount=0.9),
    )
    torch.manual_seed(5)
    sampler.initialize(agent, run)
    batches, infos = [], []
    for itr in range(n):
        samples, completed = sampler.obtain_samples(itr)
        batches.append(buffer_func(samples, torch.clone))
        infos += completed
    return batches, infos, run


def stream(batches: list[Samples], field: str, part: str = "env") -> torch.Tensor:
    """Return a field of the steps of one environment, without rows of final observations."""
    rows = [(getattr(batch, part)[field], batch.env.valid) for batch in batches]
    return torch.cat([x[:, 0][valid[:, 0]] for x, valid in rows])


def serial(Cls: type[Batched], limit: int, first_id: int, n_rows: int) -> SerialSampler:
    return SerialSampler(Single, dict(Cls=Cls, limit=limit, first_id=first_id), n_rows, 1, max_decorrelation_steps=0)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_rows_are_those_of_a_serial_sampler_to_the_bit(dialect: str) -> None:
    sampler = DeviceSampler(CartPole, dict(dialect=dialect, limit=9, first_id=2), T, 1)
    mine, infos, _ = collected(sampler, Greedy(model_kwargs=SMALL), n=3)
    other, other_infos, _ = collected(serial(CartPole, 9, 2, 100), Greedy(model_kwargs=SMALL))
    n = 3 * T
    ends = stream(mine, "terminated") | stream(mine, "truncated")
    assert ends.sum() > 5
    assert stream(mine, "truncated").any()
    assert stream(mine, "terminated").any()
    for field in ("observation", "reward", "prev_reward", "terminated", "truncated"):
        assert torch.equal(stream(mine, field), stream(other, field)[:n]), field
    for field in ("action", "prev_action"):
        assert torch.equal(stream(mine, field, "agent"), stream(other, field, "agent")[:n]), field
    assert infos
    for info, other_info in zip(infos, other_infos, strict=False):  # sums in another order
        assert info.statistics() == pytest.approx(other_info.statistics(), rel=1e-14)
    finals = stream(mine, "final_observation")[ends]
    expected = other[0].env.observation[:, 0][~other[0].env.valid[:, 0]]
    assert torch.equal(finals, expected[: len(finals)])


class Traced(CartPole):
    is_compiled = False

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        self.is_compiled = torch.compiler.is_compiling()
        return super().step(action)


@pytest.mark.nightly
def test_a_compiled_simulator_gives_the_same_rows() -> None:
    kwargs: dict[str, Any] = dict(limit=9)
    sampler = DeviceSampler(Traced, kwargs, T, 5, compile_env=True)
    mine, infos, _ = collected(sampler, Greedy(model_kwargs=SMALL), n=2)
    assert sampler._open[0].env.is_compiled
    other, other_infos, _ = collected(DeviceSampler(Traced, kwargs, T, 5), Greedy(model_kwargs=SMALL), n=2)
    for pair in zip(mine, other, strict=True):
        for one, two in zip(*map(buffer_leaves, pair), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
    assert len(infos) == len(other_infos) > 10


def test_sampled_actions_are_those_of_a_serial_sampler_until_a_row_takes_no_step() -> None:
    mine, _, _ = collected(DeviceSampler(Pendulum, dict(limit=30), T, 1), GaussianPgAgent(model_kwargs=SMALL))
    other, _, _ = collected(serial(Pendulum, 30, 0, T), GaussianPgAgent(model_kwargs=SMALL))
    for field in ("observation", "reward"):
        assert torch.equal(stream(mine, field), stream(other, field))
    assert torch.equal(stream(mine, "action", "agent"), stream(other, "action", "agent"))
    assert torch.equal(mine[0].agent.bootstrap_value, other[0].agent.bootstrap_value)


def test_every_environment_has_its_own_rows_and_statistics() -> None:
    B = 5
    sampler = DeviceSampler(Pendulum, dict(limit=7), T, B, env_info_keys=())
    mine, infos, _ = collected(sampler, GreedyGaussian(model_kwargs=SMALL), n=2)
    for b in range(B):
        other, other_infos, _ = collected(serial(Pendulum, 7, b, 60), GreedyGaussian(model_kwargs=SMALL))
        mine_b = [buffer_func(batch, lambda x, b=b: x[:, b : b + 1]) for batch in mine]
        torch.testing.assert_close(stream(mine_b, "reward"), stream(other, "reward")[: 2 * T], rtol=1e-4, atol=1e-4)
        of_b = [info for info in infos if rank_of(info) == b]
        assert len(of_b) == 2 * T // 7
        for info, expected in zip(of_b, other_infos, strict=False):
            assert info.statistics() == pytest.approx(expected.statistics(), rel=1e-4)
    assert [info.ended_at for info in infos] == sorted(info.ended_at for info in infos)


def rank_of(info: TrajInfo) -> int:
    """Return the environment in which a trajectory ended."""
    assert info.ended_at is not None
    return info.ended_at[2]


PG: dict[str, Any] = dict(learning_rate=0.01, gae_lambda=0.9, discount=0.95, clip_grad_norm=float("inf"))
ALGOS: dict[str, Any] = {
    "A2C": lambda: A2C(**PG, normalize_reward=True, normalize_advantage=True),
    "PPO": lambda: PPO(**PG, epochs=1, minibatches=1),
    "VTrace": lambda: VTrace(**PG),
    "PQN": lambda: PQN(learning_rate=0.01, discount=0.95, epochs=1, minibatches=1, OptimCls=torch.optim.Adam),
}


@pytest.mark.parametrize("recurrent", [False, "lstm", "gru"])
@pytest.mark.parametrize("kind", ALGOS)
def test_an_update_is_that_of_rows_with_final_rows(kind: str, recurrent: Any) -> None:
    """The same steps in both layouts give the same weights: final observations are bootstrapped from, without rows."""
    AgentCls = GreedyPqn if kind == "PQN" else Greedy
    kwargs: dict[str, Any] = dict(hidden_sizes=8, **(dict(rnn_size=8) if recurrent else {}))
    trained = []
    samplers: list[Any] = [DeviceSampler(CartPole, dict(limit=9, first_id=4), T, 1)]
    batches, *_ = collected(samplers[0], AgentCls(recurrent=recurrent, model_kwargs=kwargs), ALGOS[kind]())
    n_ends = int(batches[0].env.done[:-1].sum())
    assert batches[0].env.truncated.any()
    samplers.append(serial(CartPole, 9, 4, T + n_ends))
    for sampler in samplers:
        agent, algo = AgentCls(recurrent=recurrent, model_kwargs=kwargs), ALGOS[kind]()
        _, _, run = collected(sampler, agent, algo, n=0)
        algo.initialize(agent, run)
        before = [parameter.detach().clone() for parameter in agent.parameters()]
        samples, _ = sampler.obtain_samples(0)
        assert int(samples.env.valid.sum()) == T
        agent.train_mode(0)
        metrics = algo.optimize_agent(0, samples)
        trained.append(([p.detach() - q for p, q in zip(agent.parameters(), before, strict=True)], metrics))
    (mine, my_metrics), (_other, other_metrics) = trained
    assert sum(float(x.abs().sum()) for x in mine) > 0.01
    torch.testing.assert_close(my_metrics["loss"], other_metrics["loss"], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(my_metrics["gradNorm"], other_metrics["gradNorm"], rtol=1e-5, atol=1e-6)


# ---- ends of episodes ----


def test_a_lost_final_observation_is_refused_and_may_be_stood_for_by_the_one_before() -> None:
    sampler = DeviceSampler(Pendulum, dict(limit=7, dialect="lost"), T, 3)
    with pytest.raises(EnvError, match=r"environment 0 was truncated \(3 environments .* no final_obs"):
        collected(sampler, GaussianPgAgent())
    sampler = sampler.replace(ends="last_observation")
    (samples, *_), *_ = collected(sampler, GreedyGaussian())
    assert torch.equal(samples.env.final_observation[:, 1], samples.env.observation[:, 1])
    torch.testing.assert_close(samples.agent.final_value[6], samples.agent.agent_info.value[6])
    assert sampler.diagnostics() == {"EstimatedFinals": 3 * (T // 7)}
    assert sampler.diagnostics() == {"EstimatedFinals": 0}
    assert "stands for it" in str(sampler.plan()["ends"])


def test_a_terminated_episode_needs_no_final_observation() -> None:
    class Falls(CartPole):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, terminated | truncated, truncated & ~truncated, info

    (samples, *_), *_ = collected(DeviceSampler(Falls, dict(dialect="lost", limit=5), T, 2), Greedy())
    assert samples.env.terminated.any()
    assert not samples.agent.final_value.any()


def test_a_mask_says_which_final_observations_are_there() -> None:
    class Masked(Pendulum):
        def step(self, action: Any) -> Any:
            *first, info = super().step(action)
            info["_final_observation"] = info["_final_observation"] & (self.ids != 2)
            return *first, info

    with pytest.raises(EnvError, match=r"environment 2 was truncated \(1 environments"):
        collected(DeviceSampler(Masked, dict(limit=7, dialect="final_observation"), T, 4), GaussianPgAgent())


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, "NextStep", "NEXT_STEP"])
@pytest.mark.parametrize("ends", ["auto", "final_obs", "last_observation", "reset"])
def test_next_step_resets_are_refused(mode: Any, ends: str) -> None:
    class NextStep(Pendulum):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs)
            self.metadata = {"autoreset_mode": mode}

    with pytest.raises(ValueError, match="SAME_STEP or DISABLED"):
        collected(DeviceSampler(NextStep, {}, T, 2, ends=ends), GaussianPgAgent())


# ---- what simulators do wrong ----


class Wrong(Pendulum):
    """Environment whose steps are changed by a function."""

    def __init__(self, num_envs: int, change: Any, limit: int = 7) -> None:
        super().__init__(num_envs, limit=limit)
        self.change, self.n_steps = change, 0

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        return self.change(self.n_steps, list(super().step(action)))


def nan_observation(n: int, step: list[Any]) -> Any:
    if n == 9:
        step[0][3, 1] = torch.nan
    return tuple(step)


def infinite_reward(n: int, step: list[Any]) -> Any:
    if n == 9:
        step[1][1] = torch.inf
    return tuple(step)


def nan_final(n: int, step: list[Any]) -> Any:
    step[4]["final_obs"][step[3], 0] = torch.nan
    return tuple(step)


def replaced(place: int, value: Any) -> Any:
    def change(n: int, step: list[Any]) -> Any:
        return *step[:place], value(step[place]), *step[place + 1 :]

    return change


def late_success(n: int, step: list[Any]) -> Any:
    success = torch.zeros(4, dtype=torch.bool)
    return *step[:4], step[4] | {"success": success if n < 5 else success.any()}


WRONG = {
    "NaN": (nan_observation, "environment 3 gave .* not finite"),
    "infinite reward": (infinite_reward, "environment 1 gave .* not finite"),
    "NaN of a final observation": (nan_final, r"environment 0 gave .* not finite \(4 environments"),
    "flags of floats": (replaced(2, torch.Tensor.float), r"terminated is torch.float32; expected torch.bool"),
    "an array": (replaced(0, torch.Tensor.numpy), r"observation is a ndarray; expected a tensor \[4, 3\]"),
    "another shape": (replaced(1, lambda x: x[:, None]), r"reward is \[4, 1\]; expected \[4\]"),
    "another device": (replaced(0, lambda x: x.to("meta")), "observation is on meta; expected cpu"),
    "one success for all": (late_success, r"info\['success'\] is \[\]; expected \[4\]"),
    "four values": (lambda n, step: tuple(step[:4]), "expected observation, reward, terminated, truncated and info"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_simulators_do_wrong_is_an_error_that_says_what(case: str) -> None:
    change, text = WRONG[case]
    with pytest.raises(EnvError, match=text):
        collected(DeviceSampler(Wrong, dict(change=change), T, 4), GaussianPgAgent())


def test_a_first_observation_that_is_not_finite_is_an_error_that_names_its_environment() -> None:
    class Begins(CartPole):
        def reset(self, **kwargs: Any) -> Any:
            observation, info = super().reset(**kwargs)
            return observation.index_fill(0, torch.tensor(2), torch.nan), info

    with pytest.raises(EnvError, match=r"environment 2 gave .* not finite \(1 env"):
        collected(DeviceSampler(Begins, {}, T, 4), Greedy())


def test_a_final_observation_may_be_anything_where_no_episode_was_truncated() -> None:
    class Elsewhere(Pendulum):
        def step(self, action: Any) -> Any:
            *first, info = super().step(action)
            info["final_obs"][~first[3]] = torch.nan
            return *first, info

    (samples, *_), *_ = collected(DeviceSampler(Elsewhere, dict(limit=7), T, 4), GreedyGaussian())
    assert samples.env.final_observation.isnan().any()
    assert samples.agent.final_value.isfinite().all()


def test_trajectories_are_made_when_they_are_looked_at_and_the_log_looks_at_its_window() -> None:
    made = []

    class Counted(TrajInfo):
        def terminate(self, observation: Any) -> TrajInfo:
            made.append(self)
            return super().terminate(observation)

    sampler = DeviceSampler(CartPole, dict(limit=9), T, 50, TrajInfoCls=Counted)
    _, infos, _ = collected(sampler, Greedy(model_kwargs=SMALL))
    assert len(infos) == len(made) > 50  # by `collected`, which looks at all
    table = sampler.obtain_samples(1)[1]
    assert [x.ended_at for x in table[-3:]] == [x.ended_at for x in table][-3:]
    assert table[-1].Length == table[len(table) - 1].Length
    made.clear()
    runner = MinibatchRl(A2C(), Greedy(model_kwargs=SMALL), sampler, n_steps=3 * T * 50, log_traj_window=4, seed=1)
    runner.train()
    assert len(made) == 1 + 3 * 4  # one whose values are checked at first


def test_settings_and_parts_that_do_not_fit_are_refused() -> None:
    class Reads(TrajInfo):
        def step(self, *args: Any) -> None:
            pass

    with pytest.raises(TypeError, match="method step reads every step on the host"):
        DeviceSampler(Pendulum, {}, T, 2, TrajInfoCls=Reads)
    with pytest.raises(ValueError, match="ends is 'same_step'"):
        DeviceSampler(Pendulum, {}, T, 2, ends="same_step")
    with pytest.raises(ValueError, match="eval_max_steps is 2, shared by 3 evaluation environments"):
        DeviceSampler(Pendulum, {}, T, 2, eval_n_envs=3, eval_max_steps=2)
    with pytest.raises(ValueError, match="num_envs is 3; expected 2"):
        DeviceSampler(lambda: Pendulum(3), {}, T, 2).initialize(GaussianPgAgent())
    with pytest.raises(TypeError, match="has no num_envs"):
        DeviceSampler(Single, dict(Cls=Pendulum), T, 2).initialize(GaussianPgAgent())
    with pytest.raises(ValueError, match=r"fields \['force'\]"):
        DeviceSampler(Pendulum, {}, T, 2, env_info_keys=["force"]).initialize(GaussianPgAgent())
    with pytest.raises(ValueError, match="info of MaskedInfo has 'action_mask', and its observation has not"):
        DeviceSampler(MaskedInfo, {}, T, 2).initialize(CategoricalPgAgent())
    with pytest.raises(ValueError, match="learns from final observations that are rows"):
        MinibatchRl(CMAES(), PopulationAgent(), DeviceSampler(Pendulum, {}, T, 16), n_steps=100).train()
    with pytest.raises(TypeError, match="cannot run in a process of its own"):
        AsyncRl(VTrace(), GaussianPgAgent(), DeviceSampler(Pendulum, {}, T, 2), n_steps=100).train()


def test_an_agent_on_another_device_is_refused() -> None:
    sampler = DeviceSampler(Pendulum, {}, T, 2)
    agent = GaussianPgAgent()
    sampler.initialize(agent)
    agent.networks.device = torch.device("meta")
    with pytest.raises(ValueError, match=r"the agent is on meta and .* on cpu; expected one device"):
        sampler.obtain_samples(0)


# ---- more of the sampler ----


class Informed(Pendulum):
    """With a number a step, a score, and successes; observations are a dictionary, and actions two choices."""

    single_observation_space: spaces.Space[Any] = spaces.Dict(
        {"place": spaces.Box(-8, 8, (3,), np.float64), "phase": spaces.Discrete(20, start=1)}
    )
    single_action_space: spaces.Space[Any] = spaces.Dict(
        {"a": spaces.Discrete(3, start=-1), "b": spaces.Box(-1, 1, (2,))}
    )

    def _shown(self) -> Any:
        return {"place": self.observe().double(), "phase": self.t + 1}

    def move(self, action: Any) -> Any:
        assert set(action["a"].unique().tolist()) <= {-1, 0, 1}
        assert action["b"].abs().max() <= 1
        return super().move(action["a"].float()[:, None])

    def step(self, action: Any) -> Any:
        *first, info = super().step(action)
        info["final_obs"] = {"place": info["final_obs"].double(), "phase": torch.full_like(self.t, self.limit)}
        info |= {"force": self.state, "game_score": 2 * first[1], "success": self.ids == 1}
        return *first, info

    def __init__(self, num_envs: int, limit: int = 7) -> None:
        super().__init__(num_envs, limit=limit)


class ResetsInfo(CartPole):
    """Has the info of the next episode where one ended, and that of its last step in `final_info`, as ManiSkill."""

    has_both: ClassVar[bool] = True

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        *step, info = super().step(action)
        succeeds = self.ids == 1
        final = {"final_info": {"success": succeeds, "speed": self.ids * 1.0}}
        done = step[2] | step[3]
        now = {"success": succeeds & ~done, "speed": torch.where(done, -1.0, self.ids * 1.0)}
        return *step, info | (now if self.has_both or not done.all() else {}) | (final if done.any() else {})


@pytest.mark.parametrize("has_both", [True, False])
def test_what_info_says_of_an_ended_episode_is_that_of_its_last_step(
    has_both: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ResetsInfo, "has_both", has_both)
    sampler = DeviceSampler(ResetsInfo, dict(limit=3), T, 2, env_info_keys=["speed"])
    (samples, *_), infos, _ = collected(sampler, CategoricalPgAgent(model_kwargs=SMALL))
    assert samples.env.env_info.speed.tolist() == [[0.0, 1.0]] * T
    assert [info.Success for info in infos] == [float(rank_of(info) == 1) for info in infos]
    assert len(infos) >= 2 * T // 3


def test_dictionaries_info_scores_and_successes_are_taken_in() -> None:
    sampler = DeviceSampler(Informed, {}, T, 3, env_info_keys=["force"])
    (samples, *_), infos, _ = collected(sampler, PgAgent(model_kwargs=SMALL))
    env = samples.env
    assert env.observation.place.dtype is torch.float32
    assert env.observation.phase[:9, 0].tolist() == [*range(7), 0, 1]
    assert env.env_info.force.shape == (T, 3, 2)
    assert env.final_observation.phase[6].tolist() == [6, 6, 6]
    for info in infos:
        assert info.GameScore == pytest.approx(2 * info.Return, rel=1e-5)
        assert float(info.Success) == (rank_of(info) == 1)
    assert {"GameScore", "Success"} <= set(sampler.new_traj_info())
    assert samples.agent.prev_action.a[7].tolist() == [0, 0, 0]
    assert not samples.agent.prev_action.b[7].any()


def test_a_score_that_is_no_number_spoils_its_own_episode_alone() -> None:
    class Scored(CartPole):
        def step(self, action: Any) -> Any:
            *first, info = super().step(action)
            score = torch.where((self.episode == 1) & (self.t == 1), torch.nan, 1.0)
            return *first, info | {"game_score": score}

    _, infos, _ = collected(DeviceSampler(Scored, dict(limit=3), T, 2), CategoricalPgAgent(model_kwargs=SMALL))
    scores = [info.GameScore for info in infos if rank_of(info) == 0]
    assert np.isnan(scores).tolist().count(True) == 1
    assert {x for x in scores if not np.isnan(x)} == {3.0}


def test_the_discount_of_the_statistics_may_be_ones_own() -> None:
    sampler = DeviceSampler(CartPole, dict(limit=3), T, 2, TrajInfoCls=partial(TrajInfo, discount=0.5))
    sampler.initialize(CategoricalPgAgent(model_kwargs=SMALL), Run(batch_spec=sampler.batch_spec, final_rows=False))
    _, infos = sampler.obtain_samples(0)
    assert infos[0].DiscountedReturn == 1.75


@pytest.mark.parametrize("SamplerCls", [DeviceSampler, SerialSampler])
def test_environments_compute_as_they_do_outside_where_networks_round(SamplerCls: Any) -> None:
    seen = set[torch.dtype]()

    class Multiplies(CartPole):
        def move(self, action: torch.Tensor) -> Any:
            seen.add((self.state @ torch.eye(4)).dtype)
            return super().move(action)

    made = (Multiplies, {}) if SamplerCls is DeviceSampler else (Single, dict(Cls=Multiplies))
    evaluates = dict(eval_n_envs=2, eval_max_trajectories=2)
    runner = MinibatchRlEval(
        A2C(),
        CategoricalPgAgent(model_kwargs=SMALL),
        SamplerCls(*made, T, 2, **evaluates),
        n_steps=2 * T,
        log_interval_steps=2 * T,
        settings=ComputeSettings(precision="bfloat16"),
    )
    runner.train()
    assert seen == {torch.float32}


class Logs(Pendulum):
    """With a dictionary `log`: a number, a tensor of no dimension that is written again, and one that seldom comes."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.n, self.height = 0, torch.zeros(())

    def step(self, action: Any) -> Any:
        *first, info = super().step(action)
        self.n += 1
        self.height.fill_(10 * self.n)
        info["log"] = {"/Reward/tracking": float(self.n), "height": self.height}
        if self.n == 6:
            info["log"] = {"falls": torch.tensor([1, 2]), "height": torch.tensor(0)}
        return *first, info


def test_the_log_of_a_simulator_is_logged_as_means_over_steps() -> None:
    sampler = DeviceSampler(Logs, {}, 4, 2)
    collected(sampler, GaussianPgAgent(model_kwargs=SMALL))  # steps 2 to 5, after the one that is tried
    assert sampler.diagnostics() == {"Env/Reward/tracking": 3.5, "Env/height": 35.0}
    sampler.obtain_samples(1)  # 6 to 9
    assert sampler.diagnostics() == {"Env/Reward/tracking": 8.0, "Env/falls": 1.5, "Env/height": (70 + 80 + 90) / 4}
    sampler.obtain_samples(2)
    numbers = sampler.diagnostics()
    assert np.isnan(numbers.pop("Env/falls"))
    assert numbers == {"Env/Reward/tracking": 11.5, "Env/height": 115.0}


class LogsResets(CartPole):
    """Reset from outside by numbers, with one dictionary for the info of steps and resets, as mjlab has it."""

    def __init__(self, num_envs: int) -> None:
        self.info: dict[str, Any] = {}
        super().__init__(num_envs, "env_ids", 3)

    def _reset_ids(self, *, seed: int | None = None, env_ids: Any = None) -> Any:
        self.info["log"] = {"ended": float("nan") if env_ids is None else float(len(env_ids))}
        return super()._reset_ids(seed=seed, env_ids=env_ids)[0], self.info

    def step(self, action: Any) -> Any:
        self.info["log"] = {}
        return *super().step(action)[:4], self.info


def test_the_log_of_a_reset_from_outside_is_logged_and_not_that_of_the_first() -> None:
    sampler = DeviceSampler(LogsResets, {}, 4, 2)
    collected(sampler, CategoricalPgAgent(model_kwargs=SMALL))
    assert sampler.diagnostics() == {"Env/ended": 2.0}  # once, both environments after their third step


def test_a_log_that_a_reset_does_not_write_counts_once() -> None:
    class OneInfo(LogsResets):
        def _reset_ids(self, *, seed: int | None = None, env_ids: Any = None) -> Any:
            return CartPole._reset_ids(self, seed=seed, env_ids=env_ids)[0], self.info

        def step(self, action: Any) -> Any:
            result = super().step(action)
            self.info["log"] = {"ends": float((result[2] | result[3]).any())}
            return result

    sampler = DeviceSampler(OneInfo, {}, 4, 2)
    collected(sampler, CategoricalPgAgent(model_kwargs=SMALL))
    assert sampler.diagnostics() == {"Env/ends": 0.25}


def test_a_log_may_have_tensors_of_the_cpu_beside_those_of_a_device() -> None:
    log = SimulatorLog()
    meta = torch.ones(3, device="meta")  # as if on another device, where no number is read
    log.add({"falls": torch.tensor([1.0, 2.0]), "height": meta, "n": 20_000_001, "width": meta.sum()})
    assert {names: x.device.type for names, (x, _) in log._sums.items()} == {
        ("falls", "n"): "cpu",
        ("height", "width"): "meta",
    }


def test_a_log_that_is_no_numbers_is_refused() -> None:
    class Talks(Pendulum):
        def step(self, action: Any) -> Any:
            *first, info = super().step(action)
            return *first, info | {"log": {"state": "standing"}}

    with pytest.raises(EnvError, match=r"Talks: adding up the numbers of log in info raised ValueError: .*standing"):
        collected(DeviceSampler(Talks, {}, T, 2), GaussianPgAgent())


def test_an_evaluation_runs_whole_episodes_and_touches_no_training() -> None:
    sampler = DeviceSampler(
        CartPole, dict(limit=30), T, 4, eval_n_envs=3, eval_max_trajectories=5, eval_env_overrides=dict(limit=50)
    )
    agent = CategoricalPgAgent(model_kwargs=SMALL)
    collected(sampler, agent)
    first = sampler.evaluate_agent(2)
    batch = buffer_func(sampler.obtain_samples(1)[0], torch.clone)
    again = sampler.evaluate_agent(2)
    assert [dict(x) for x in first.traj_infos] == [dict(x) for x in again.traj_infos]
    assert [rank_of(x) for x in first.traj_infos].count(0) == 2
    assert len(first.traj_infos) == 5
    assert first.steps == sum(x.Length for x in first.traj_infos)
    assert first.unfinished == 0
    without, _, _ = collected(sampler.replace(eval_n_envs=0), CategoricalPgAgent(model_kwargs=SMALL), n=2)
    for x, y in zip(buffer_leaves(batch), buffer_leaves(without[1]), strict=True):
        assert torch.equal(x, y)
    cut = sampler.replace(eval_max_steps=3 * 4)
    collected(cut, CategoricalPgAgent(model_kwargs=SMALL))
    result = cut.evaluate_agent(0)
    assert (result.steps, result.unfinished, result.traj_infos) == (12, 5, [])


class Seeded(CartPole):
    """Notes the seeds; its episodes do not depend on them."""

    seeds: ClassVar[list[int | None]] = []

    def reset(self, *args: Any, seed: int | None = None, **kwargs: Any) -> Any:
        self.seeds.append(seed)
        return super().reset(*args, seed=seed, **kwargs)


def test_an_evaluation_is_that_of_its_iteration_and_its_mode() -> None:
    sampler = DeviceSampler(Seeded, dict(limit=100), T, 4, eval_n_envs=6)
    collected(sampler, CategoricalPgAgent(model_kwargs=SMALL))
    Seeded.seeds.clear()
    of_2, of_3, of_2_again = ([dict(x) for x in sampler.evaluate_agent(itr).traj_infos] for itr in (2, 3, 2))
    best_2, best_3 = ([dict(x) for x in sampler.evaluate_agent(itr, deterministic=True).traj_infos] for itr in (2, 3))
    assert of_2 == of_2_again
    lengths = [[x["Length"] for x in infos] for infos in (of_2, of_3, best_2, best_3)]
    assert lengths[0] != lengths[1], "actions are drawn anew in each iteration"
    assert lengths[0] != lengths[2] == lengths[3], "the best actions are the same in each"
    a, b, *others = Seeded.seeds
    assert a != b
    assert others == [a, a, b]


@pytest.mark.parametrize(("limit", "n_completed"), [(4, 3), (5, 0)])
def test_an_evaluation_counts_what_ends_within_its_steps(limit: int, n_completed: int) -> None:
    sampler = DeviceSampler(CartPole, dict(limit=limit), T, 4, eval_n_envs=3, eval_max_steps=3 * 4)
    collected(sampler, CategoricalPgAgent(model_kwargs=SMALL))
    result = sampler.evaluate_agent(0)
    assert (len(result.traj_infos), result.unfinished, result.steps) == (n_completed, 3 - n_completed, 12)


class Saved(CartPole):
    def state_dict(self) -> Any:
        return {name: getattr(self, name).clone() for name in ("state", "t", "episode", "_observation")}

    def load_state_dict(self, state: Any) -> None:
        for name, x in state.items():
            setattr(self, name, x.clone())


def test_environments_without_a_state_begin_with_other_seeds_each_time_a_run_goes_on() -> None:
    sampler = DeviceSampler(Seeded, dict(limit=100), T, 2)
    collected(sampler, CategoricalPgAgent(model_kwargs=SMALL))
    states = [sampler.state_dict()]
    sampler.obtain_samples(1)
    states.append(sampler.state_dict())
    Seeded.seeds.clear()
    for state in states:
        sampler.load_state_dict(state)
    assert len(set(Seeded.seeds)) == 2


@pytest.mark.parametrize(("Cls", "n_cut"), [(Saved, 0), (CartPole, 3)])
def test_a_state_goes_on_where_environments_have_one(Cls: type[CartPole], n_cut: int) -> None:
    def make() -> tuple[DeviceSampler, Any]:
        sampler = DeviceSampler(Cls, dict(limit=30), T, 3)
        agent = CategoricalPgAgent(recurrent=True, model_kwargs=dict(SMALL, rnn_size=4))
        return sampler, collected(sampler, agent, n=0)

    (sampler, _), (other, _) = make(), make()
    sampler.obtain_samples(0)
    state = sampler.state_dict()
    assert (sampler.why_no_state() is None) is (n_cut == 0)
    expected, infos = sampler.obtain_samples(1)
    other.load_state_dict(state)
    came, came_infos = other.obtain_samples(1)
    assert other.n_cut_episodes == n_cut
    same = all(torch.equal(x, y) for x, y in zip(buffer_leaves(expected), buffer_leaves(came), strict=True))
    assert same is (n_cut == 0)
    if n_cut == 0:
        assert [dict(x) for x in infos] == [dict(x) for x in came_infos]
    else:
        assert not came.agent.prev_action[0].any()


def test_environments_are_closed_and_shared_out() -> None:
    sampler = DeviceSampler(CartPole, {}, T, 4, eval_n_envs=1)
    collected(sampler, CategoricalPgAgent())
    envs: list[Any] = [env.env for env in sampler._open]
    sampler.shutdown()
    assert len(envs) == 2
    assert all(env.closed for env in envs)
    with pytest.raises(RuntimeError, match="not running"):
        sampler.obtain_samples(0)
    assert sampler.share(2).batch_spec == BatchSpec(T, 2)


# ---- learning ----


QUICK: dict[str, Any] = dict(learning_rate=1e-2, gae_lambda=0.95, epochs=8, ratio_clip=0.2, linear_lr_schedule=False)

LEARNS: dict[str, Any] = {
    "PPO": lambda: (PPO(**QUICK, minibatches=8), CategoricalPgAgent(model_kwargs=SMALL)),
    "PPO LSTM": lambda: (
        PPO(**QUICK, normalize_reward=True),
        CategoricalPgAgent(recurrent="lstm", model_kwargs=dict(SMALL, rnn_size=16)),
    ),
    "PQN": lambda: (
        PQN(learning_rate=1e-2, minibatches=8, epochs=8, eps_steps=6000, reward_scale=0.1),
        PqnAgent(model_kwargs=dict(hidden_sizes=32, layer_norm=True)),
    ),
}


@pytest.mark.parametrize("kind", others_nightly(LEARNS, ("PPO",)))
def test_cart_pole_is_learned(kind: str) -> None:
    algo, agent = LEARNS[kind]()
    sampler = DeviceSampler(CartPole, dict(limit=100), 32, 16)
    MinibatchRl(algo, agent, sampler, n_steps=16 * 512, log_interval_steps=1e9, seed=1).train()
    # A random policy holds the pole for some 20 steps, and 100 is the limit.
    result = np.mean([x.Return for x in agent.play(Single(CartPole, limit=100), n_episodes=5)])
    assert result > 45, result


STEADY: dict[str, Any] = dict(learning_rate=3e-3, gae_lambda=0.95, epochs=8, minibatches=4, normalize_advantage=True)

SOLVES: dict[str, Any] = {
    "PPO": lambda: (PPO(**STEADY, ratio_clip=0.2), CategoricalPgAgent()),
    "PPO LSTM": lambda: (  # its policy and value share layers, so that large returns would drown the policy
        PPO(**STEADY, ratio_clip=0.2, normalize_reward=True),
        CategoricalPgAgent(recurrent="lstm", model_kwargs=dict(hidden_sizes=32, rnn_size=32)),
    ),
    "PQN": lambda: (
        PQN(learning_rate=1e-3, minibatches=8, epochs=4, eps_steps=50_000, reward_scale=0.1),
        PqnAgent(model_kwargs=dict(hidden_sizes=(64, 64), layer_norm=True)),
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", SOLVES)
def test_the_pole_is_held_for_the_500_steps_of_gymnasium(kind: str) -> None:
    algo, agent = SOLVES[kind]()
    sampler = DeviceSampler(CartPole, dict(limit=500), 32, 32)
    MinibatchRl(algo, agent, sampler, n_steps=100_000, log_interval_steps=1e9, seed=1).train()
    result = np.mean([x.Return for x in agent.play(gymnasium.make("CartPole-v1"), n_episodes=20)])
    assert result > 475, result
