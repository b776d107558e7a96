"""Two and three replicas with a share of the batch each learn what one process with the whole batch does.

One process learns first, and every batch is kept. The replicas then learn from their columns or draws of these batches.
What is random in an update (minibatches, noise, fractions) the one process draws as the union of the replicas' draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import (
    DdpgAgent,
    DiscreteSacAgent,
    DqnAgent,
    IqnAgent,
    PgAgent,
    PqnAgent,
    R2d1Agent,
    RecurrentCatDqnAgent,
    RecurrentIqnAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import A2C, DDPG, DQN, IQN, PPO, PQN, R2D1, SAC, TD3, CategoricalDQN, VTrace
from rlpyt.algos.minibatching import random_parts
from rlpyt.samplers import SerialSampler
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.seeds import Role, torch_generator
from tests.algos.small_problems import RandomEnv, copied, optimize, run_of
from tests.pairs import crossed
from tests.replica_kit import DealtReplay, UnionGenerator, columns_of, dealt, run_replicas, share, union_draws

SEED, N_UPDATES = 3, 8


@dataclass
class Case:
    """Pairs of an algorithm and an agent to make, and the batches that they learn from."""

    algo: Callable[..., Any]
    agent: Callable[[], Any]
    T: int = 5
    B: int = 6
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    compute: ComputeSettings = field(default_factory=ComputeSettings)

    def part(self, world_size: int, **settings: Any) -> tuple[Any, Any, Any, Any]:
        """Return algorithm, agent, sampler and run of one of some replicas, but for the algorithm's `initialize`."""
        torch.manual_seed(SEED)
        algo, agent = self.algo(**{**self.settings, **settings}), self.agent()
        sampler = SerialSampler(
            RandomEnv, self.env_kwargs, batch_T=self.T, batch_B=self.B // world_size, max_decorrelation_steps=0
        )
        run = run_of(sampler, n_itr=100, seed=SEED, **recorded(algo))
        run = replace(run, example=sampler.initialize(agent, run))
        agent.to_device(self.compute)
        return algo, agent, sampler, run


def recorded(algo: Any) -> dict[str, bool]:
    """Return what the sampler is asked to record."""
    return {name: getattr(algo, name) for name in ("bootstrap_value", "bootstrap_inputs")}


@dataclass
class Learned:
    """What an iteration left behind."""

    state: dict[str, torch.Tensor]
    grads: list[torch.Tensor]
    metrics: dict[str, torch.Tensor]

    @classmethod
    def of(cls, algo: Any, metrics: Any) -> Learned:
        tensors: dict[str, torch.Tensor] = {}
        for i, module in enumerate(algo.agent.networks.modules()):
            tensors |= {f"{i}.{name}": x.detach().clone() for name, x in module.state_dict().items()}
        for name, descent in algo.descents.items():
            if name == "alpha":
                tensors["log_alpha"] = descent.optimizer.param_groups[0]["params"][0].detach().clone()
        grads = [p.grad.clone() for m in algo.agent.networks.modules() for p in m.parameters() if p.grad is not None]
        return cls(tensors, grads, {name: torch.as_tensor(x).clone() for name, x in metrics.items()})


def hold_to(one: Sequence[Learned], replicas: Sequence[Sequence[Learned]], tolerance: float = 1e-5) -> None:
    """Hold the replicas to the one process, iteration by iteration."""
    for itr, (whole, shares) in enumerate(zip(one, zip(*replicas, strict=True), strict=True)):
        for own in shares:
            assert own.state.keys() == whole.state.keys()
            assert len(own.grads) == len(whole.grads) > 0 or not whole.metrics
            for grad, expected in zip(own.grads, whole.grads, strict=True):
                torch.testing.assert_close(grad, expected, rtol=10 * tolerance, atol=tolerance, msg=f"gradient {itr}")
            for name, x in own.state.items():
                torch.testing.assert_close(x, whole.state[name], rtol=0, atol=tolerance, msg=f"{name} {itr}")
            assert own.metrics.keys() == whole.metrics.keys()
        for name, value in whole.metrics.items():
            values = [own.metrics[name].float() for own in shares]
            # One number an update is averaged, numbers of rows are joined, as a runner does.
            of_all = torch.stack(values).mean(0) if values[0].dim() < 2 else torch.cat(values, -1)
            torch.testing.assert_close(of_all, value.float(), rtol=1e2 * tolerance, atol=10 * tolerance, msg=name)
    first, last = one[0].state, one[-1].state
    assert any((first[name] - last[name]).abs().max() > 1e-3 for name in first)


# ---- policy gradient ----


class Union:
    """Algorithm in one process, whose minibatches are the unions of those of replicas."""

    union: ClassVar[int] = 1
    batch_spec: Any
    minibatches: int
    generator: Any

    def initialize(self, agent: Any, run: Any) -> None:
        super().initialize(agent, run)  # type: ignore[misc]
        self.generators = [torch_generator(run.seed, Role.ALGO, rank) for rank in range(self.union)]

    def union_parts(self, idxs: torch.Tensor) -> Any:
        shares = []
        for rank, generator in enumerate(self.generators):
            columns = columns_of(rank, self.union, self.batch_spec.B)
            b = idxs % self.batch_spec.B
            own = idxs[(b >= columns.start) & (b < columns.stop)]
            shares.append(own[torch.randperm(len(own), generator=generator)].tensor_split(int(self.minibatches)))
        return [torch.cat(parts) for parts in zip(*shares, strict=True)]


class UnionPPO(Union, PPO):
    pass


class UnionPQN(Union, PQN):
    pass


@pytest.fixture(autouse=True)
def minibatches_are_unions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a `Union` deal its rows as its replicas do."""

    def parts(algo: Any, idxs: torch.Tensor, n: int) -> Any:
        return algo.union_parts(idxs) if isinstance(algo, Union) else random_parts(algo, idxs, n)

    monkeypatch.setattr("rlpyt.algos.minibatching.random_parts", parts)


def learn_on_policy(
    case: Case, world_size: int, spoil: Callable[[int, Any], None] | None = None, n_itr: int = N_UPDATES
) -> tuple[list[Learned], list[list[Learned]]]:
    """Return what one process has learned, and what replicas have from shares of its batches.

    Args:
        case: of A2C or PPO.
        world_size: replicas.
        spoil: changes the batch of an iteration.
        n_itr: iterations.
    """
    algo, agent, sampler, run = case.part(1)
    algo.union = world_size
    algo.initialize(agent, run)
    batches, one = [], []
    for itr in range(n_itr):
        samples = copied(sampler.obtain_samples(itr)[0])
        if spoil is not None:
            spoil(itr, samples)
        batches.append(samples)
        one.append(Learned.of(algo, optimize(algo, itr, samples)))
    parts = [case.part(world_size) for _ in range(world_size)]

    def work(replicas: Replicas) -> list[Learned]:
        algo, agent, _, run = parts[replicas.rank]
        algo.union = 1
        algo.initialize(agent, replace(run, replicas=replicas))
        if isinstance(algo, Union):
            algo.generators = [algo.generator]
        shares = [share(batch, replicas.rank, world_size) for batch in batches]
        return [Learned.of(algo, optimize(algo, itr, samples)) for itr, samples in enumerate(shares)]

    return one, run_replicas(world_size, work)


def lose_rows(itr: int, samples: Any) -> None:
    """Leave other numbers of valid rows to each replica: none at all to the first one in some iterations."""
    valid = samples.env.valid
    B = valid.shape[1]
    if itr % 4 == 1:
        valid[:, : B // 2] = False
        samples.env.observation[:, : B // 2] = 1e3
        samples.env.reward[:, : B // 2] = 1e3
    if itr % 4 == 2:
        valid[1:, B // 2 :] = False
    if itr == 7:
        valid[:] = False


def pg_agent(recurrent: bool = False, **model: Any) -> Callable[[], Any]:
    sizes = dict(hidden_sizes=8, rnn_size=6) if recurrent else dict(hidden_sizes=8)
    return lambda: PgAgent(model_kwargs={**sizes, **model}, recurrent=recurrent)


NORMALIZED: dict[str, Any] = dict(normalize_advantage=True, normalize_reward=True, gae_lambda=0.9)
EPOCHS: dict[str, Any] = dict(epochs=2, linear_lr_schedule=False, learning_rate=3e-3)
OF_PQN: dict[str, Any] = dict(epochs=2, learning_rate=3e-3, q_lambda=0.8)
CONTINUOUS = dict(action_space=spaces.Box(-1, 1, (2,)))
ON_POLICY: dict[str, Case] = {
    "A2C": Case(A2C, pg_agent(), settings=dict(learning_rate=3e-3)),
    "A2C recurrent": Case(A2C, pg_agent(True), settings=dict(learning_rate=3e-3)),
    "A2C of one row": Case(A2C, pg_agent(), T=1, settings=dict(learning_rate=3e-3, normalize_advantage=True)),
    "V-trace": Case(
        VTrace, pg_agent(normalize_observation=True), settings=dict(NORMALIZED, learning_rate=3e-3, rho_bar=0.9)
    ),
    "V-trace recurrent": Case(VTrace, pg_agent(True), settings=dict(learning_rate=3e-3, rho_bar=0.9)),
    "PPO": Case(UnionPPO, pg_agent(), T=6, settings=dict(EPOCHS, minibatches=3, value_clip=0.2)),
    "PPO normalised": Case(
        UnionPPO, pg_agent(normalize_observation=True), settings=dict(EPOCHS, **NORMALIZED, minibatches=5)
    ),
    "PPO recurrent": Case(
        UnionPPO, pg_agent(True, normalize_observation=True), B=12, settings=dict(EPOCHS, **NORMALIZED, minibatches=2)
    ),
    "PQN": Case(
        UnionPQN,
        lambda: PqnAgent(model_kwargs=dict(hidden_sizes=8, layer_norm=True, normalize_observation=True)),
        settings=dict(OF_PQN, minibatches=5),
    ),
    "PQN recurrent": Case(
        UnionPQN,
        lambda: PqnAgent(recurrent=True, model_kwargs=dict(hidden_sizes=8, rnn_size=6)),
        B=12,
        settings=dict(OF_PQN, minibatches=2),
    ),
}


@pytest.mark.parametrize(("name", "world_size"), crossed(list(ON_POLICY), [2, 3], strength=1))
def test_policy_gradients_of_replicas_equal_those_of_one(name: str, world_size: int) -> None:
    hold_to(*learn_on_policy(ON_POLICY[name], world_size, lose_rows))


@pytest.mark.parametrize("recurrent", [False, True])
def test_replicas_of_one_environment(recurrent: bool) -> None:
    settings = dict(EPOCHS, **NORMALIZED, minibatches=1)
    case = Case(UnionPPO, pg_agent(recurrent), B=2, settings=settings, env_kwargs=CONTINUOUS)
    hold_to(*learn_on_policy(case, 2, lose_rows, n_itr=10))


def test_replicas_stop_their_epochs_together() -> None:
    settings = dict(EPOCHS, minibatches=2, target_kl=1e-3, epochs=4, learning_rate=1e-2)
    one, replicas = learn_on_policy(Case(UnionPPO, pg_agent(), T=6, settings=settings), 2, lose_rows, n_itr=20)
    hold_to(one, replicas)
    assert {len(x.metrics["kl"]) for x in one if x.metrics} == {4, 6, 8}
    lasts = [[float(own[itr].metrics["kl"][-1]) for own in replicas] for itr, x in enumerate(one) if x.metrics]
    assert any(min(kls) < 1e-3 < max(kls) for kls in lasts)  # they alone would have decided differently


def test_in_bfloat16_replicas_come_near() -> None:
    case = replace(ON_POLICY["PPO"], compute=ComputeSettings(precision="bfloat16"))
    hold_to(*learn_on_policy(case, 2, lose_rows, n_itr=5), tolerance=3e-2)


# ---- from a replay ----


def q_agent(AgentCls: Any, **settings: Any) -> Callable[[], Any]:
    model = dict(hidden_sizes=(8, 8) if "Iqn" in AgentCls.__name__ else 8, **settings.pop("model", {}))
    if issubclass(AgentCls, R2d1Agent) or AgentCls.__name__.startswith("Recurrent"):
        model |= dict(rnn_size=6)
    return lambda: AgentCls(model_kwargs=model, **settings)


def qpg_agent(AgentCls: Any, recurrent: bool = False) -> Callable[[], Any]:
    sizes: dict[str, Any] = dict(model_kwargs=dict(hidden_sizes=8), q_model_kwargs=dict(hidden_sizes=8))
    body = dict(recurrent=True, feature_kwargs=dict(hidden_sizes=8, rnn_size=6)) if recurrent else {}
    return lambda: AgentCls(**sizes, **body)


REPLAY: dict[str, Any] = dict(replay_size=2000, min_steps_learn=120, n_step_return=2, learning_rate=3e-3)
PRIORITIES: dict[str, Any] = dict(prioritized_replay=True, input_priorities=False)
SEQUENCES: dict[str, Any] = dict(batch_T=4, warmup_T=4, store_rnn_state_interval=4)
TAUS: dict[str, Any] = dict(n_tau=4, n_acting_tau=3, n_cosines=3)
POLICY: dict[str, Any] = dict(q_learning_rate=3e-3)
OFF_POLICY: dict[str, Case] = {
    "DQN": Case(DQN, q_agent(DqnAgent), settings=dict(PRIORITIES, double_dqn=True, target_update_interval=3)),
    "DQN of equal weights": Case(DQN, q_agent(DqnAgent), settings=dict(target_update_interval=3)),
    "IQN": Case(IQN, q_agent(IqnAgent, model=TAUS), settings=PRIORITIES),
    "SAC": Case(SAC, qpg_agent(SacAgent), settings=dict(POLICY, alpha_learning_rate=3e-3), env_kwargs=CONTINUOUS),
    "discrete SAC": Case(SAC, qpg_agent(DiscreteSacAgent), settings=dict(POLICY, alpha_learning_rate=3e-3)),
    "TD3": Case(TD3, qpg_agent(Td3Agent), settings=dict(POLICY, **PRIORITIES), env_kwargs=CONTINUOUS),
    "R2D1": Case(R2D1, q_agent(R2d1Agent), settings=dict(PRIORITIES, **SEQUENCES, target_update_interval=3)),
    "recurrent DQN": Case(DQN, q_agent(R2d1Agent), settings=SEQUENCES),
    "recurrent C51": Case(
        CategoricalDQN, q_agent(RecurrentCatDqnAgent, n_atoms=5), settings=dict(SEQUENCES, V_min=-2, V_max=2)
    ),
    "recurrent IQN": Case(IQN, q_agent(RecurrentIqnAgent, model=TAUS), settings=dict(PRIORITIES, **SEQUENCES)),
    "recurrent SAC": Case(
        SAC,
        qpg_agent(SacAgent, True),
        settings=dict(POLICY, **SEQUENCES, **PRIORITIES, alpha_learning_rate=3e-3),
        env_kwargs=CONTINUOUS,
    ),
    "recurrent DDPG": Case(DDPG, qpg_agent(DdpgAgent, True), settings=dict(POLICY, **SEQUENCES), env_kwargs=CONTINUOUS),
}
DRAWS = 12


def draw_batches(algo: Any, sampler: Any) -> list[Any]:
    """Return batches of a filled replay with weights that are not divided; some replicas have no row to train on."""
    for itr in range(12):
        algo.append(itr, copied(sampler.obtain_samples(itr)[0]))
    batches, rng = [], np.random.default_rng(SEED)
    for i in range(N_UPDATES):
        batch = algo.replay.sample_batch(DRAWS)
        if algo.prioritized_replay:
            weights = rng.uniform(0.2, 3.0, DRAWS).astype(np.float32)
            batch = batch._replace(is_weights=torch.from_numpy(weights))
        if algo.agent.recurrent and i % 4 == 1:
            batch.valid[:, : DRAWS // 2] = False
        if algo.agent.recurrent and i == 7:
            batch.valid[:] = False
        batches.append(batch)
    return batches


def divided(batch: Any) -> Any:
    """Return a batch as one process draws it."""
    weights = batch.is_weights
    return batch if weights is None else batch._replace(is_weights=weights / weights.max())


@pytest.mark.parametrize(("name", "world_size"), crossed(list(OFF_POLICY), [2, 3], strength=1))
def test_updates_from_replays_of_replicas_equal_those_of_one(name: str, world_size: int) -> None:
    case = OFF_POLICY[name]
    size = "batch_B" if "batch_T" in case.settings else "batch_size"
    rows = DRAWS * sum(case.settings.get(key, 0) for key in ("batch_T", "warmup_T")) or DRAWS
    settings = {**REPLAY, "replay_ratio": rows / case.T / case.B}  # one update an iteration

    algo, agent, sampler, run = case.part(1, **settings, **{size: DRAWS})
    algo.initialize(agent, run)
    batches = draw_batches(algo, sampler)
    replay = algo.replay = DealtReplay([divided(batch) for batch in batches])
    algo.generator = UnionGenerator([torch_generator(SEED, Role.ALGO, rank) for rank in range(world_size)])
    itrs = range(algo.min_itr_learn, algo.min_itr_learn + N_UPDATES)
    one = []
    with union_draws():
        for itr in itrs:
            agent.train_mode(itr)
            one.append(Learned.of(algo, algo.learn(itr)))
    parts = [case.part(world_size, **settings, **{size: DRAWS // world_size}) for _ in range(world_size)]

    def work(replicas: Replicas) -> tuple[list[Learned], list[torch.Tensor]]:
        algo, agent, _, run = parts[replicas.rank]
        algo.initialize(agent, replace(run, replicas=replicas))
        replay = algo.replay = DealtReplay([dealt(batch, replicas.rank, world_size) for batch in batches])
        learned = []
        for itr in itrs:
            agent.train_mode(itr)
            learned.append(Learned.of(algo, algo.learn(itr)))
        return learned, replay.priorities

    learned, priorities = zip(*run_replicas(world_size, work), strict=True)
    hold_to(one, learned)
    assert len(replay.priorities) == N_UPDATES
    for whole, *shares in zip(replay.priorities, *priorities, strict=True):
        torch.testing.assert_close(torch.cat(shares), whole, rtol=1e-3, atol=1e-5)
