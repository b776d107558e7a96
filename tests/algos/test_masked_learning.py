"""Masks of legal actions: an illegal action raises in these environments, and the best legal one is learned."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlpyt.agents import (
    CatDqnAgent,
    CategoricalPgAgent,
    DiscreteSacAgent,
    DqnAgent,
    IqnAgent,
    PgAgent,
    PopulationAgent,
    QrDqnAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    RecurrentIqnAgent,
)
from rlpyt.algos import A2C, CMAES, DQN, IQN, PPO, QRDQN, R2D1, SAC, CategoricalDQN, VTrace
from rlpyt.algos.dqn import greedy_q
from rlpyt.algos.replay_rows import run_over
from rlpyt.samplers import AlternatingSampler, CpuSampler, GpuSampler, SerialSampler
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from rlpyt.utils.compute import ComputeSettings
from tests.algos.small_problems import end, learn_from, optimize, set_up, train
from tests.masked_envs import MaskedEnv
from tests.pairs import crossed, others_nightly

SMALL: dict[str, Any] = {"hidden_sizes": 16}
RECURRENT: dict[str, Any] = {**SMALL, "rnn_size": 8}
OFF: dict[str, Any] = dict(batch_size=16, min_steps_learn=64, replay_size=2000, replay_ratio=2, eps_steps=500)
SEQUENCES: dict[str, Any] = dict(
    batch_T=4, batch_B=4, warmup_T=2, store_rnn_state_interval=4, min_steps_learn=128, replay_size=2000, eps_steps=500
)
OFF_SAC: dict[str, Any] = dict(batch_size=16, min_steps_learn=64, replay_size=2000, replay_ratio=2)
ALGOS: dict[str, Any] = {
    "A2C": lambda: (A2C(), CategoricalPgAgent(model_kwargs=SMALL)),
    "PPO": lambda: (PPO(), CategoricalPgAgent(model_kwargs=SMALL)),
    "PPO, normalised": lambda: (
        PPO(), CategoricalPgAgent(model_kwargs={**SMALL, "normalize_observation": True})
    ),
    "V-trace": lambda: (VTrace(), CategoricalPgAgent(model_kwargs=SMALL)),
    "LSTM PPO": lambda: (PPO(minibatches=2), RecurrentCategoricalPgAgent(model_kwargs=RECURRENT)),
    "DQN": lambda: (DQN(**OFF), DqnAgent(model_kwargs=SMALL)),
    "double, dueling, noisy, prioritised DQN": lambda: (
        DQN(**OFF, double_dqn=True, n_step_return=3, prioritized_replay=True, input_priorities=True),
        DqnAgent(model_kwargs={**SMALL, "dueling": True, "noisy": True}),
    ),
    "C51": lambda: (CategoricalDQN(**OFF), CatDqnAgent(model_kwargs=SMALL, n_atoms=11)),
    "QR-DQN": lambda: (QRDQN(**OFF, double_dqn=True), QrDqnAgent(model_kwargs=SMALL, n_quantiles=8)),
    "IQN": lambda: (IQN(**OFF), IqnAgent(model_kwargs=SMALL)),
    "R2D1": lambda: (R2D1(**SEQUENCES, n_step_return=2), R2d1Agent(model_kwargs=RECURRENT)),
    "recurrent IQN": lambda: (IQN(**SEQUENCES, double_dqn=True), RecurrentIqnAgent(model_kwargs=RECURRENT)),
    "discrete SAC": lambda: (SAC(**OFF_SAC), DiscreteSacAgent(model_kwargs=SMALL, q_model_kwargs=SMALL)),
    "CMA-ES": lambda: (CMAES(), PopulationAgent(model_kwargs=SMALL, population_size=4)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "of_info"),
    crossed(list(ALGOS), (False, True), strength=1),
    ids=lambda x: ["Dict", "info"][x] if isinstance(x, bool) else x,
)
def test_no_illegal_action_is_taken_and_all_numbers_are_finite(name: str, of_info: bool) -> None:
    algo, agent = ALGOS[name]()
    sampler = set_up(
        algo, agent, MaskedEnv, dict(of_info=of_info), T=16, B=8, n_itr=4,
        max_decorrelation_steps=10, eval_n_envs=2, eval_max_trajectories=4,
    )  # fmt: skip
    n_updates = 0
    try:
        for itr in range(4):
            samples, _ = sampler.obtain_samples(itr)
            valid, mask = samples.env.valid, samples.env.observation.action_mask
            legal = mask.gather(-1, samples.agent.action.unsqueeze(-1)).squeeze(-1)
            assert (legal[valid] == 1).all()
            assert not mask[~valid].any(), "final rows have their masks, too"
            metrics = optimize(algo, itr, samples)
            n_updates += np.asarray(metrics.get("loss", metrics.get("fitness", metrics.get("piLoss", [])))).size
            for metric, values in metrics.items():
                assert np.isfinite(torch.as_tensor(values).numpy()).all(), f"{metric} is {values}"
            for deterministic in (False, True):
                sampler.evaluate_agent(itr, deterministic)
    finally:
        sampler.shutdown()
    assert n_updates > 0
    assert all(torch.isfinite(x).all() for x in agent.parameters())


@pytest.mark.parametrize("name", others_nightly(["PPO", "DQN"], ["PPO"]))
def test_the_best_legal_action_is_learned(name: str) -> None:
    settings: dict[str, Any] = {**OFF, "replay_ratio": 4, "target_update_interval": 20, "discount": 0.5}
    algo, agent = {
        "PPO": lambda: (PPO(learning_rate=0.01, linear_lr_schedule=False), CategoricalPgAgent(model_kwargs=SMALL)),
        "DQN": lambda: (DQN(**settings, learning_rate=0.003), DqnAgent(model_kwargs=SMALL)),
    }[name]()
    curve = train(algo, agent, MaskedEnv, n_itr=40, T=16, B=8)
    assert curve[0] < -0.8, "actions at random lie far below"
    assert end(curve, 5) > -0.1, curve


@pytest.mark.parametrize(("name", "double"), crossed(["DQN", "C51", "QR-DQN", "R2D1"], [False, True], strength=1))
def test_targets_are_of_the_best_legal_action(name: str, double: bool) -> None:
    """Against a loop over the rows, with networks whose best action is often illegal."""
    algo, agent = ALGOS[name]()
    algo = algo.replace(double_dqn=double)
    sampler = set_up(algo, agent, MaskedEnv, T=16, B=8, n_itr=8)
    try:
        for itr in range(8):
            samples, _ = sampler.obtain_samples(itr)
            optimize(algo, itr, samples)
        for parameter in agent.networks.named("target").parameters():
            torch.nn.init.normal_(parameter)
        batch = algo.replay.sample_batch(16)
    finally:
        sampler.shutdown()
    with torch.no_grad():
        outputs = run_over(batch, agent, agent, agent.target, with_next=double, warmup_T=int(algo.warmup_T))
        q, chosen = agent.q_values(outputs.next_online if double else outputs.next_target), greedy_q(agent, outputs)
    if name == "R2D1":
        T, M = batch.steps.shape
        masks = batch.all_inputs.observation.action_mask[int(algo.warmup_T) :]
        masks = torch.stack([torch.stack([masks[t + batch.steps[t, m], m] for m in range(M)]) for t in range(T)])
    else:
        masks = batch.target_inputs.observation.action_mask
    n_differ = 0
    for row_q, mask, got in zip(q.flatten(0, -2), masks.flatten(0, -2), chosen.flatten(0, -2), strict=True):
        legal = [a for a in range(4) if mask[a]] or list(range(4))  # a final observation forbids all
        assert int(got.argmax()) == max(legal, key=lambda a: float(row_q[a]))
        n_differ += int(got.argmax()) != int(row_q.argmax())
    assert n_differ > 0, "the best action is legal in every row: nothing was tested"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "env_kwargs"),
    [("PPO", {}), ("DQN", {}), ("discrete SAC", {}), ("PPO, composite", dict(sizes=(2, 3), composite=True))],
)
def test_compiled_updates_have_the_same_numbers(
    name: str, env_kwargs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What torch would generate code of runs as it is: without a compiler, and in seconds.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    states: list[Any] = []
    for compiles in (False, True):
        algo, agent = {**ALGOS, "PPO, composite": lambda: (PPO(), PgAgent(model_kwargs=SMALL))}[name]()
        sampler = set_up(algo, agent, MaskedEnv, env_kwargs, B=8, n_itr=2, settings=ComputeSettings(compile=compiles))
        try:
            learn_from(algo, sampler, 2)
        finally:
            sampler.shutdown()
        assert algo.update_counter > 0
        assert algo.compiled.is_on == compiles
        states.append(agent.state_dict()["model"])
    torch._dynamo.reset()
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-5)


def many(num_envs: int, **kwargs: Any) -> SyncVectorEnv:
    return SyncVectorEnv([partial(MaskedEnv, **kwargs)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize(
    ("EnvCls", "env_kwargs"),
    [
        (MaskedEnv, dict(sizes=(2, 3), as_tuple=True)),
        (MaskedEnv, dict(sizes=(3, 2, 3), composite=True, of_info=True)),
        (many, dict(of_info=False)),
        (many, dict(of_info=True)),
    ],
)
def test_all_samplers_collect_the_same_legal_rows(EnvCls: Any, env_kwargs: dict[str, Any]) -> None:
    """Also where environments rest to the end of a batch, or of an evaluation."""
    here: dict[str, Any] = dict(n_workers=2, start_method="here")
    batches = []
    for SamplerCls, settings in (
        (SerialSampler, {}),
        (CpuSampler, here),
        (GpuSampler, here),
        (AlternatingSampler, here),
    ):
        sampler = set_up(
            A2C(), PgAgent(model_kwargs=SMALL), EnvCls, env_kwargs, T=8, B=4, n_itr=2,
            SamplerCls=SamplerCls, eval_n_envs=3, eval_max_trajectories=4, **settings,
        )  # fmt: skip
        try:
            sampler.obtain_samples(0)
            assert len(sampler.evaluate_agent(1).traj_infos) == 4
            samples, _ = sampler.obtain_samples(1)
            batches.append(buffer_func((samples.env, samples.agent.action), torch.clone))
        finally:
            sampler.shutdown()
    for other in batches[1:]:
        assert all(map(torch.equal, buffer_leaves(other), buffer_leaves(batches[0])))


def test_a_resumed_sampler_goes_on_with_the_same_masks() -> None:
    def begun() -> Any:
        return set_up(A2C(), CategoricalPgAgent(model_kwargs=SMALL), MaskedEnv, dict(of_info=True), n_itr=3)

    one, other = begun(), begun()
    try:
        one.obtain_samples(0)
        other.load_state_dict(one.state_dict())
        ahead, after = one.obtain_samples(1)[0], other.obtain_samples(1)[0]
        assert all(map(torch.equal, buffer_leaves(after), buffer_leaves(ahead)))
        assert other.n_cut_episodes == 0
    finally:
        one.shutdown()
        other.shutdown()
