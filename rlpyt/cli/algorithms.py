"""Algorithms by name, each with settings that fit the environment: published ones for images and for MuJoCo.

Command `rlpyt algos` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from gymnasium import spaces

import rlpyt.agents as agents
import rlpyt.algos as algos
from rlpyt.cli.environment import Actions, Environment
from rlpyt.cli.text import columns, did_you_mean
from rlpyt.cli.values import Values
from rlpyt.distributions import ActionUnits
from rlpyt.envs import dm_control_make
from rlpyt.samplers import WaitResetCollector
from rlpyt.settings import Settings
from rlpyt.types import Kwargs


class Parts(NamedTuple):
    """Parts of a run, beside the classes of sampler and runner."""

    algo: Settings
    agent: agents.BaseAgent
    n_steps: float
    """Length of the run where the user says nothing."""
    sampler: Kwargs
    """Settings of the sampler."""


class Algorithm(NamedTuple):
    """Entry of the table of algorithms."""

    make: Callable[[Environment], Parts]
    actions: tuple[Actions, ...]
    about: str
    """One line."""


def small_network(env: Environment, *sizes: int) -> Values:
    """Return the arguments of a model for vectors; for images the default, or that of MinAtar for small ones."""
    if env.has_images:
        return MINATAR if env.has_small_images else {}
    normalizes = isinstance(env.spaces.observation, spaces.Box)
    return dict(hidden_sizes=sizes, **(dict(normalize_observation=True) if normalizes else {}))


MINATAR: Values = dict(channels=(16,), kernel_sizes=(3,), strides=(1,), fc_sizes=128)
"""Layers for planes of a small grid: Young and Tian 2019."""


# ---- policy gradient ----


def ppo(env: Environment, recurrent: bool = False) -> Parts:
    """Return PPO: Schulman et al. 2017, with the details of Huang et al. 2022."""
    shared: Values = dict(
        gae_lambda=0.95, value_loss_coeff=0.5, clip_grad_norm=0.5, normalize_advantage=True, optim_kwargs=dict(eps=1e-5)
    )
    if env.has_images:
        algo = algos.PPO(learning_rate=2.5e-4, ratio_clip=0.1, epochs=4, minibatches=4, **shared)
        agent = agents.PgAgent(model_kwargs=small_network(env), recurrent=recurrent)
        return Parts(algo, agent, 10e6, dict(batch_T=128, batch_B=8))
    if env.actions == "continuous":
        shared |= dict(normalize_reward=True, entropy_loss_coeff=0.0, ratio_clip=0.2, epochs=10)
        if env.kind == "mujoco":
            agent = agents.PgAgent(model_kwargs=dict(normalize_observation=True), recurrent=recurrent)
            n_envs = 8 if recurrent else 1  # the minibatches of a recurrent agent are whole environments
            algo = algos.PPO(learning_rate=3e-4, minibatches=4 if recurrent else 32, value_clip=0.2, **shared)
            return Parts(algo, agent, 1e6, dict(batch_T=2048 // n_envs, batch_B=n_envs))
        # Pendulum is learned sooner with a short horizon; of other environments nothing is known.
        discount = 0.9 if env.name.rpartition(":")[2].startswith("Pendulum-") else 0.99
        algo = algos.PPO(learning_rate=1e-3, discount=discount, minibatches=4 if recurrent else 32, **shared)
        return Parts(algo, agents.PgAgent(recurrent=recurrent), 300_000, dict(batch_T=512, batch_B=4))
    shared |= dict(gae_lambda=0.98, discount=0.98, ratio_clip=0.2, epochs=10)
    algo = algos.PPO(learning_rate=1e-3, minibatches=4 if recurrent else 8, **shared)
    n_steps, batch_T = (200_000, 64) if recurrent else (100_000, 32)
    return Parts(algo, agents.PgAgent(recurrent=recurrent), n_steps, dict(batch_T=batch_T, batch_B=8))


def a2c(env: Environment, recurrent: bool = False) -> Parts:
    """Return A2C: Mnih et al. 2016, with environments in step."""
    if env.has_images:
        algo = algos.A2C(learning_rate=3e-4, value_loss_coeff=0.5, entropy_loss_coeff=0.01, clip_grad_norm=1.0)
        sampler = dict(batch_T=20 if recurrent else 5, batch_B=32, max_decorrelation_steps=1000)
        agent = agents.PgAgent(model_kwargs=small_network(env), recurrent=recurrent)
        return Parts(algo, agent, 10e6, sampler)
    if env.actions == "continuous":
        algo = algos.A2C(
            learning_rate=3e-4, gae_lambda=0.95, entropy_loss_coeff=0.0, normalize_advantage=True, normalize_reward=True
        )
        agent = agents.PgAgent(model_kwargs=small_network(env, 64, 64), recurrent=recurrent)
        return Parts(algo, agent, 1e6, dict(batch_T=32, batch_B=8))
    algo = algos.A2C(learning_rate="lin_5e-3", discount=0.98, gae_lambda=0.95, normalize_advantage=True)
    return Parts(algo, agents.PgAgent(recurrent=recurrent), 100_000, dict(batch_T=16, batch_B=16))


def vtrace(env: Environment, recurrent: bool = False) -> Parts:
    """Return V-trace actor-critic, IMPALA: Espeholt et al. 2018."""
    if env.has_images:
        algo = algos.VTrace(
            learning_rate="lin_6e-4", clip_grad_norm=40.0, value_loss_coeff=0.5, entropy_loss_coeff=0.01
        )
        sampler = dict(batch_T=20, batch_B=32, max_decorrelation_steps=1000)
        agent = agents.PgAgent(model_kwargs=small_network(env), recurrent=recurrent)
        return Parts(algo, agent, 10e6, sampler)
    algo = algos.VTrace(learning_rate="lin_5e-3", discount=0.98, gae_lambda=0.95, normalize_advantage=True)
    agent = agents.PgAgent(
        model_kwargs=small_network(env, 64, 64) if env.actions == "continuous" else {}, recurrent=recurrent
    )
    return Parts(algo, agent, 1e6 if env.kind == "mujoco" else 100_000, dict(batch_T=16, batch_B=16))


# ---- deep Q-learning ----


ATOMS: Kwargs = dict(V_min=-100.0, V_max=100.0)


def q_learning(
    env: Environment,
    Algo: Callable[..., Settings],
    Agent: Callable[..., agents.BaseAgent],
    sizes: tuple[int, ...] = (256, 256),
    *,
    network: Kwargs | None = None,
    agent: Kwargs | None = None,
    **changes: object,
) -> Parts:
    """Return an algorithm of deep Q-learning; with priorities and 3-step returns where there are no images.

    `network` and `agent` have more arguments of the two, and `changes` has settings that are others than those that all
    share.
    """
    if env.has_images:
        settings: Values = dict(
            **dict(batch_size=32, replay_ratio=8, replay_size=1_000_000, min_steps_learn=20_000, eps_steps=250_000),
            **dict(target_update_interval=1_000, learning_rate=1e-4),
        )
        n_steps, sampler = 10e6, dict(batch_T=4, batch_B=8, max_decorrelation_steps=1_000)
    else:
        settings = dict(
            **dict(batch_size=64, replay_ratio=32, replay_size=50_000, min_steps_learn=1_000, eps_steps=5_000),
            **dict(target_update_interval=50, learning_rate="lin_1e-3", n_step_return=3),
            **dict(prioritized_replay=True, pri_beta_steps=30_000),
        )
        n_steps, sampler = 30_000, dict(batch_T=4, batch_B=4)
    model = {**small_network(env, *sizes), **(network or {})}
    return Parts(Algo(**settings | changes), Agent(model_kwargs=model, **(agent or {})), n_steps, sampler)


def dqn(env: Environment) -> Parts:
    """Return DQN: Mnih et al. 2015."""
    return q_learning(env, algos.DQN, agents.DqnAgent, (64, 64))


def double_dqn(env: Environment) -> Parts:
    """Return double DQN: van Hasselt et al. 2016."""
    return q_learning(env, algos.DQN, agents.DqnAgent, (64, 64), double_dqn=True)


def c51(env: Environment) -> Parts:
    """Return categorical DQN: Bellemare et al. 2017."""
    # A start over the whole range takes some two hundred target updates: docs/reference/algorithms/c51.md.
    own = dict(learning_rate=2.5e-4, target_update_interval=500) if env.has_images else ATOMS
    return q_learning(env, algos.CategoricalDQN, agents.CatDqnAgent, **own)


def qrdqn(env: Environment) -> Parts:
    """Return quantile-regression DQN: Dabney et al. 2018."""
    return q_learning(env, algos.QRDQN, agents.QrDqnAgent, agent={} if env.has_images else dict(n_quantiles=50))


def iqn(env: Environment) -> Parts:
    """Return IQN, implicit quantiles: Dabney et al. 2018."""
    return q_learning(
        env, algos.IQN, agents.IqnAgent, network={} if env.has_images else dict(n_tau=16, stratified=True)
    )


def rainbow(env: Environment) -> Parts:
    """Return Rainbow: Hessel et al. 2018."""
    own: Kwargs = dict(pri_beta_steps=30_000, **ATOMS)
    if env.has_images:
        own = dict(pri_beta_steps=10e6, pri_alpha=0.5, learning_rate=6.25e-5, optim_kwargs=dict(eps=1.5e-4))
        own |= dict(target_update_interval=2_000)
    return q_learning(
        env,
        algos.CategoricalDQN,
        agents.CatDqnAgent,
        network=dict(dueling=True, noisy=True),
        agent=dict(eps_init=0.0, eps_final=0.0),
        **dict(n_step_return=3, double_dqn=True, prioritized_replay=True, **own),
    )


def btr(env: Environment) -> Parts:
    """Return BTR, IQN with the parts that gained most: Clark et al. 2024, arXiv:2411.03820."""
    parts: Kwargs = dict(munchausen=0.9, munchausen_tau=0.03, n_step_return=3, prioritized_replay=True)
    network: Kwargs = dict(dueling=True, noisy=True)
    if not env.has_images:
        return q_learning(env, algos.IQN, agents.IqnAgent, network=dict(**network, n_tau=8), **parts)
    algo = algos.IQN(
        **parts,
        batch_size=256,
        replay_ratio=4,  # an update for each step of the 64 environments
        min_steps_learn=200_000,
        discount=0.997,
        learning_rate=1e-4,
        target_update_interval=500,
        pri_alpha=0.2,
        pri_beta_steps=50e6,
        eps_steps=2e6,
    )
    convolutions: Kwargs = dict(
        **dict(channels=(32, 64, 64), kernel_sizes=(3, 3, 3), strides=(2, 2, 2), paddings=(1, 1, 1)),
        **dict(residual_blocks=2, spectral_norm=True, pool_to=6, fc_sizes=512),
    )
    agent = agents.IqnAgent(model_kwargs=dict(**network, n_tau=8, **convolutions), eps_final=0.01)
    return Parts(algo, agent, 50e6, dict(batch_T=1, batch_B=64, max_decorrelation_steps=1_000))


def r2d1(env: Environment) -> Parts:
    """Return R2D1, recurrent replay without many actors: Kapturowski et al. 2019."""
    if env.has_images:
        algo = algos.R2D1(batch_B=32, replay_ratio=4, pri_alpha=0.9, pri_beta_init=0.6, pri_beta_final=0.6)
        sampler = dict(batch_T=30, batch_B=32, max_decorrelation_steps=1_000)
        return Parts(algo, agents.R2d1Agent(model_kwargs=dict(**small_network(env), dueling=True)), 50e6, sampler)
    algo = algos.R2D1(
        learning_rate=1e-3,
        replay_size=50_000,
        min_steps_learn=1_000,
        replay_ratio=24,
        batch_T=10,
        batch_B=16,
        warmup_T=5,
        store_rnn_state_interval=5,
        target_update_interval=50,
        eps_steps=5_000,
        n_step_return=3,
        discount=0.99,
    )
    agent = agents.R2d1Agent(eps_final=0.02, model_kwargs=dict(hidden_sizes=64, rnn_size=64))
    return Parts(algo, agent, 50_000, dict(batch_T=10, batch_B=8))


def pqn(env: Environment, recurrent: bool = False) -> Parts:
    """Return PQN, Q-learning on policy: Gallici et al. 2024."""
    model: Values = dict(layer_norm=True)
    if env.has_images:
        small = env.has_small_images
        model |= small_network(env) | (dict(rnn_size=256) if recurrent else {})
        algo = algos.PQN(
            learning_rate="lin_5e-4" if small else 2.5e-4, minibatches=16 if recurrent else 32, eps_steps=1e6
        )
        agent = agents.PqnAgent(eps_final=0.05 if small else 0.001, model_kwargs=model, recurrent=recurrent)
        return Parts(algo, agent, 10e6, dict(batch_T=32, batch_B=128))
    model |= dict(hidden_sizes=(256, 256), **(dict(rnn_size=256) if recurrent else {}))
    algo = algos.PQN(
        learning_rate="lin_1e-4", q_lambda=0.95, reward_scale=0.1, minibatches=16, epochs=4, eps_steps=100_000
    )
    agent = agents.PqnAgent(eps_final=0.2, model_kwargs=model, recurrent=recurrent)
    return Parts(algo, agent, 500_000, dict(batch_T=64, batch_B=32))


# ---- Q-function policy gradient ----


def sac(env: Environment) -> Parts:
    """Return SAC: Haarnoja et al. 2018."""
    if env.kind == "mujoco":
        return Parts(algos.SAC(q_learning_rate=1e-3, alpha_learning_rate=1e-3), agents.SacAgent(), 1e6, ONE_STEP)
    return Parts(algos.SAC(**SMALL_QPG), agents.SacAgent(**networks(env)), 20_000, ONE_STEP)


def discrete_sac(env: Environment) -> Parts:
    """Return SAC over discrete actions: Christodoulou 2019."""
    if env.has_images:
        algo = algos.SAC(
            batch_size=64,
            replay_ratio=16,
            replay_size=1_000_000,
            min_steps_learn=20_000,
            target_update_interval=2_000,
            target_update_tau=1.0,
            optim_kwargs=dict(eps=1e-4),
        )
        agent = agents.DiscreteSacAgent(**networks(env))
        return Parts(algo, agent, 10e6, dict(batch_T=4, batch_B=8, max_decorrelation_steps=1_000))
    algo = algos.SAC(**{**SMALL_QPG, "alpha_learning_rate": 1e-3}, batch_size=64, replay_ratio=32)
    return Parts(algo, agents.DiscreteSacAgent(**networks(env)), 30_000, dict(batch_T=4, batch_B=4))


def td3(env: Environment) -> Parts:
    """Return TD3: Fujimoto et al. 2018."""
    if env.kind == "mujoco":
        return Parts(algos.TD3(batch_size=256, replay_ratio=256), agents.Td3Agent(**networks(env)), 1e6, ONE_STEP)
    return Parts(algos.TD3(**SMALL_QPG), agents.Td3Agent(**networks(env)), 20_000, ONE_STEP)


def ddpg(env: Environment) -> Parts:
    """Return DDPG: Lillicrap et al. 2016."""
    if env.kind == "mujoco":
        return Parts(algos.DDPG(learning_rate=1e-3, target_update_tau=0.005), agents.DdpgAgent(), 1e6, ONE_STEP)
    return Parts(algos.DDPG(**SMALL_QPG), agents.DdpgAgent(**networks(env)), 40_000, ONE_STEP)


def crossq(env: Environment) -> Parts:
    """Return CrossQ: Bhatt et al. 2024, with action values of 256 units a layer where the paper has 2,048."""
    algo = algos.SAC(
        joint_pass=True,
        policy_update_interval=3,
        optim_kwargs=dict(betas=(0.5, 0.999)),
        learning_rate=1e-3,
        q_learning_rate=1e-3,
        alpha_learning_rate=1e-3,
        **first_steps(env),
    )
    layers: Kwargs = dict(layers="batch_norm", hidden_sizes=(256, 256))
    agent = agents.SacAgent(has_targets=False, model_kwargs=layers, q_model_kwargs=layers)
    return Parts(algo, agent, 1e6 if env.kind == "mujoco" else 20_000, ONE_STEP)


def xqc(env: Environment) -> Parts:
    """Return XQC: Palenicek et al. 2025, with action values of 256 units a layer where the paper has 512."""
    algo = algos.SAC(joint_pass=True, policy_update_interval=3, normalize_reward=True, **deep_sac(env, "lin_3e-4_3e-5"))
    layers: Kwargs = dict(layers="xqc", hidden_sizes=(256,) * 4)
    agent = agents.SacAgent(model_kwargs=layers, q_model_kwargs=layers, value_head="c51:-5,5,101")
    return Parts(algo, agent, 1e6 if env.kind == "mujoco" else 20_000, ONE_STEP)


def simba(env: Environment, version: int = 1) -> Parts:
    """Return SAC with the networks of SimBa or SimbaV2: Lee et al. 2024 and 2025, with 128 units for their 512."""
    rate: float | str = 1e-4 if version == 1 else "lin_1e-4_5e-5"
    own: Values = dict(OptimCls=torch.optim.AdamW, optim_kwargs=dict(weight_decay=1e-2))
    algo = algos.SAC(**(own if version == 1 else dict(normalize_reward=True, return_limit=5.0)), **deep_sac(env, rate))
    kind = "simba" if version == 1 else "simbav2"
    agent = agents.SacAgent(
        model_kwargs=dict(layers=kind, hidden_sizes=(128,)),
        q_model_kwargs=dict(layers=kind, hidden_sizes=(128, 128)),
        feature_kwargs={} if env.has_images else dict(normalize_observation=True),
        value_head="expectation" if version == 1 else "c51:-5,5,101",
        # The authors take the smaller of two values where episodes terminate; those of the Control Suite do not.
        n_q=1 if env.EnvCls is dm_control_make else 2,
    )
    return Parts(algo, agent, 1e6 if env.kind == "mujoco" else 20_000, ONE_STEP)


def deep_sac(env: Environment, rate: float | str) -> Values:
    """Return the settings that SimBa, SimbaV2 and XQC share."""
    return dict(
        learning_rate=rate,
        q_learning_rate=rate,
        alpha_learning_rate=rate,
        alpha_init=0.01,
        target_entropy=-0.5 * ActionUnits.from_space(env.spaces.action).n_free,
        replay_ratio=512,
        **first_steps(env),
    )


def recurrent_qpg(
    env: Environment,
    Algo: type[algos.SAC | algos.TD3],
    Agent: type[agents.RecurrentSacAgent | agents.RecurrentTd3Agent],
) -> Parts:
    """Return SAC or TD3 whose networks remember."""
    sizes = dict(hidden_sizes=(64, 64))
    agent = Agent(model_kwargs=sizes, q_model_kwargs=sizes, feature_kwargs=dict(rnn_size=64))
    n_steps = 1e6 if env.kind == "mujoco" else 40_000
    return Parts(Algo(**SEQUENCES), agent, n_steps, dict(batch_T=20, batch_B=4))


def first_steps(env: Environment) -> Values:
    """Return when learning begins, and the size of a replay for a short run."""
    return dict(min_steps_learn=5_000) if env.kind == "mujoco" else dict(min_steps_learn=500, replay_size=100_000)


ONE_STEP: Kwargs = dict(batch_T=1, batch_B=1)
SMALL_QPG: Kwargs = dict(
    learning_rate=1e-3, q_learning_rate=1e-3, min_steps_learn=500, replay_size=100_000, target_update_tau=0.005
)
# An update consumes (10 + 20) x 16 rows, warm-up included: about one for every 2 rows collected.
SEQUENCES: Kwargs = dict(
    **dict(learning_rate=1e-3, q_learning_rate=1e-3, replay_size=100_000, min_steps_learn=2_000, replay_ratio=256),
    **dict(batch_T=20, batch_B=16, warmup_T=10, store_rnn_state_interval=10),
)


def networks(env: Environment) -> Values:
    """Return the sizes of both networks; for images the default ones, or those of MinAtar."""
    if env.has_images:
        return dict(feature_kwargs=MINATAR) if env.has_small_images else {}
    sizes = dict(hidden_sizes=(256, 256))
    return dict(model_kwargs=sizes, q_model_kwargs=sizes)


# ---- without a gradient ----


def cmaes(env: Environment) -> Parts:
    """Return CMA-ES: Hansen and Ostermeier 2001. A batch is one episode of every individual."""
    batch_T = min(env.episode_steps or 1_000, 1_000)
    sampler = dict(batch_T=batch_T, batch_B=32, CollectorCls=WaitResetCollector, max_decorrelation_steps=0)
    model: Values = dict(hidden_sizes=8, **(MINATAR if env.has_small_images else {}))
    agent = agents.PopulationAgent(model_kwargs=model, population_size=16)
    return Parts(algos.CMAES(sigma=0.5), agent, 30 * batch_T * 32, sampler)


NOT_COMPOSITE: tuple[Actions, ...] = ("discrete", "several discrete", "continuous")
ANY: tuple[Actions, ...] = (*NOT_COMPOSITE, "composite")

ALGORITHMS: dict[str, Algorithm] = {
    "ppo": Algorithm(ppo, ANY, "Proximal policy optimisation: the one to try first."),
    "ppo_lstm": Algorithm(lambda env: ppo(env, True), ANY, "PPO with a memory."),
    "a2c": Algorithm(a2c, ANY, "Advantage actor-critic: one update a batch."),
    "a2c_lstm": Algorithm(lambda env: a2c(env, True), ANY, "A2C with a memory."),
    "vtrace": Algorithm(vtrace, ANY, "V-trace (IMPALA): actor-critic that may learn behind the sampler (--lag)."),
    "vtrace_lstm": Algorithm(lambda env: vtrace(env, True), ANY, "V-trace with a memory."),
    "pqn": Algorithm(pqn, ("discrete",), "Q-learning on policy, in many environments: no replay, no target."),
    "pqn_lstm": Algorithm(lambda env: pqn(env, True), ("discrete",), "PQN with a memory."),
    "dqn": Algorithm(dqn, ("discrete",), "Deep Q-network, with a replay."),
    "double_dqn": Algorithm(double_dqn, ("discrete",), "DQN whose target is not the maximum of its own errors."),
    "c51": Algorithm(c51, ("discrete",), "Categorical DQN: a distribution of the return over fixed atoms."),
    "qrdqn": Algorithm(qrdqn, ("discrete",), "DQN over fixed quantiles of the return."),
    "iqn": Algorithm(iqn, ("discrete",), "DQN over drawn quantiles of the return."),
    "rainbow": Algorithm(rainbow, ("discrete",), "C51, double, prioritised, multi-step, dueling and noisy."),
    "btr": Algorithm(btr, ("discrete",), "IQN with Munchausen targets, residual convolutions and what Rainbow has."),
    "r2d1": Algorithm(r2d1, ("discrete",), "Recurrent DQN that learns from sequences."),
    "sac": Algorithm(sac, ("continuous",), "Soft actor-critic: few steps, many updates."),
    "sac_lstm": Algorithm(
        lambda env: recurrent_qpg(env, algos.SAC, agents.RecurrentSacAgent), ("continuous",), "SAC with a memory."
    ),
    "discrete_sac": Algorithm(discrete_sac, ("discrete",), "SAC by the values of all actions."),
    "crossq": Algorithm(crossq, ("continuous",), "SAC with batch normalisation, and without targets: fewer steps."),
    "simba": Algorithm(simba, ("continuous",), "SAC with residual networks and layer normalisation."),
    "xqc": Algorithm(xqc, ("continuous",), "SAC with batch normalisation, weights of norm 1 and values by atoms."),
    "simbav2": Algorithm(lambda env: simba(env, 2), ("continuous",), "SAC with features and weights of norm 1."),
    "td3": Algorithm(td3, ("continuous",), "Twin delayed deep deterministic policy gradient."),
    "td3_lstm": Algorithm(
        lambda env: recurrent_qpg(env, algos.TD3, agents.RecurrentTd3Agent), ("continuous",), "TD3 with a memory."
    ),
    "ddpg": Algorithm(ddpg, ("continuous",), "Deep deterministic policy gradient."),
    "cmaes": Algorithm(cmaes, NOT_COMPOSITE, "Search without a gradient; its population is evaluated by the sampler."),
}
"""Algorithm -> its parts for an environment, the actions that it takes, and one line."""


def algorithm(name: str) -> Algorithm:
    """Return an algorithm by its name, such as "sac" or "SAC"; the error for another name has the close ones."""
    key = name.lower().replace("-", "_")
    if key in ALGORITHMS:
        return ALGORITHMS[key]
    hint = did_you_mean(key, ALGORITHMS, f"; expected one of {', '.join(ALGORITHMS)}.")
    raise ValueError(f"there is no algorithm {name!r}{hint} rlpyt algos lists them.")


def check_fits(name: str, chosen: Algorithm, env: Environment) -> None:
    """Refuse an algorithm that does not take the actions of an environment, and name those that do."""
    if env.actions in chosen.actions:
        return
    fitting = [other for other, entry in ALGORITHMS.items() if env.actions in entry.actions]
    raise ValueError(
        f"{name} takes {' and '.join(chosen.actions)} actions, and those of {env.name} are {env.actions}: "
        f"{env.spaces.action}. These take them: {', '.join(fitting)}."
    )


def algos_command() -> int:
    """List the algorithms, and the actions that they take."""
    short = {ANY: "any", NOT_COMPOSITE: "any but composite"}
    rows = [
        (name, short.get(entry.actions, ", ".join(entry.actions)), entry.about) for name, entry in ALGORITHMS.items()
    ]
    print(columns([("algorithm", "actions", ""), *rows]))
    print("\nThe settings of one: rlpyt train ALGO ENV --help")
    return 0
