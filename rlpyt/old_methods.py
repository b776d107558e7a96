"""Methods of a subclass that nothing would call, or could not call: refused when the class is made.

Two things are checked of every class that a user derives from an algorithm, agent, runner, sampler, collector,
evaluator or `AtariEnv`. A method that rlpyt 0.1 called and nothing calls now is in a table, with what to define
instead. An override of a method of the library must take the arguments that the library gives it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlpyt.old_names import PAGE

_NOT_YET = "Asynchronous runs and runs on several GPUs are not there yet, so leave it out."
_Q_LOSS = "Override update_q(self, batch, rows, now), or q_target(self, batch, rows, now) for another target."
_PI_LOSS = "Override update_policy(self, batch, rows, now)."
_SCHEDULE = "Give the hyper-parameter a schedule, or override optimize_agent, whose now has the values at a step."
_EPSILON = "Override anneal_exploration(self, progress) of the agent; the algorithm's eps_steps or eps_schedule set it."
_STATE = "An agent with `recurrent = True` gets its state from step; override step to change it."
_PARAMETERS = "Override pi_parameters(self) or q_parameters(self)."
_Q_VALUES = "Override pi(self, rows), q(self, rows, action) or target_q(self, rows, action)."
_RESETS = "The environments and their resets are the sampler's. Override collect_batch(self, itr, first_t=None)."
_WORKERS = "Own environments in batches are a vector environment (docs/own_environment.md), for any sampler."
_OBSERVATION = "Override step and reset, which return the observation, or wrap the environment in another."

OLD_METHODS: dict[str, dict[str, tuple[str, str]]] = {
    "RlAlgorithm": {
        "async_initialize": ("set up a run in several processes", _NOT_YET),
    },
    "PolicyGradientAlgo": {
        "process_returns": (
            "computed returns and advantages with it",
            "Override loss_inputs(self, samples, now), which returns LossInputs with both and the first state.",
        ),
    },
    "OffPolicyAlgo": {
        "examples_to_buffer": (
            "made the replay's example with it",
            "Override samples_to_buffer(self, samples), which serves the example too.",
        ),
        "update_itr_hyperparams": ("set what changes during the run with it", _SCHEDULE),
        "compute_input_priorities": (
            "gave new rows their priorities with it",
            "Override input_errors(self, samples, now), which returns absolute TD errors [T, B].",
        ),
        "value_scale": (
            "scaled values with it",
            "Give value_scale_eps, or override backup(self, batch, next_value) of the algorithm.",
        ),
        "inv_value_scale": (
            "scaled values with it",
            "Give value_scale_eps, or override backup(self, batch, next_value) of the algorithm.",
        ),
    },
    "QpgAlgo": {
        "loss": ("computed all losses with it", f"{_PI_LOSS} {_Q_LOSS}"),
        "mu_loss": ("computed the loss of the policy with it", _PI_LOSS),
        "pi_loss": ("computed the loss of the policy with it", _PI_LOSS),
        "q_loss": ("computed the loss of the action values with it", _Q_LOSS),
        "get_action_prior": (
            "made the prior of actions with it",
            "Give action_prior, or override update_policy(self, batch, rows, now).",
        ),
        "append_opt_info_": (
            "collected metrics with it",
            "Override q_metrics(self, batch, q, losses, grad_norm), and return others from update_policy.",
        ),
    },
    "BaseAgent": {
        "data_parallel": ("wrapped the model for several GPUs with it", _NOT_YET),
        "async_cpu": ("prepared the agent of an asynchronous run with it", _NOT_YET),
        "send_shared_memory": ("sent weights to the sampler with it", "Override sync_shared_memory(self)."),
        "recv_shared_memory": ("received weights with it", "Override attach_shared_memory(self)."),
        "toggle_alt": ("alternated between two recurrent states with it", _STATE),
        "get_alt": ("alternated between two recurrent states with it", _STATE),
        "advance_rnn_state": ("kept the next recurrent state with it", _STATE),
        "prev_rnn_state": ("had the recurrent state in it", _STATE),
        "env_model_kwargs": (
            "had the model's sizes in it",
            "Override make_env_to_model_kwargs(self, env_spaces).",
        ),
        "make_vec_eps": ("spread epsilon over the environments with it", "Give eps_final_min, or override step."),
        "set_epsilon_itr_min_max": ("was told by it when to anneal epsilon", _EPSILON),
        "set_sample_epsilon_greedy": ("was told epsilon by it", _EPSILON),
        "give_min_itr_learn": (
            "was told by it when learning begins",
            "Override anneal_exploration(self, progress), which is called with 1.0 then.",
        ),
        "q_at_mu": ("computed Q(s, mu(s)) with it", _Q_VALUES),
        "target_q_at_mu": ("computed the target's Q(s, mu(s)) with it", _Q_VALUES),
        "mu_parameters": ("gave the optimiser its parameters with it", _PARAMETERS),
        "q1_parameters": ("gave the optimiser its parameters with it", _PARAMETERS),
        "q2_parameters": ("gave the optimiser its parameters with it", _PARAMETERS),
        "target_v": ("computed state values with it", _Q_VALUES),
    },
    "BaseSampler": {
        "_build_parallel_ctrl": ("made what its workers share with it", _WORKERS),
        "_assemble_common_kwargs": ("told its workers what to do by it", _WORKERS),
        "_assemble_workers_kwargs": ("told its workers what to do by it", _WORKERS),
        "_get_n_envs_lists": ("dealt environments to its workers with it", _WORKERS),
    },
    "Collector": {
        "start_envs": ("reset the environments with it", _RESETS),
        "start_agent": ("began to act with it", _RESETS),
        "reset_if_needed": ("reset environments between batches with it", _RESETS),
    },
    "Evaluator": {
        "collect_evaluation": (
            "ran an evaluation with it",
            "Override evaluate(self, itr, on_progress), which returns an rlpyt.core.EvalResult.",
        ),
    },
    "AtariEnv": {
        "_update_obs": ("put the newest image into the observation with it", _OBSERVATION),
        "_reset_obs": ("cleared the observation with it", _OBSERVATION),
        "get_obs": ("returned the observation with it", _OBSERVATION),
        "_check_life": ("looked for lost lives with it", "Override step, which returns `terminated`."),
        "_life_reset": ("went on after a lost life with it", "Override reset."),
    },
}
"""Base class -> method -> what rlpyt 0.1 did with it, and what to define now."""

OLD_ARGUMENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "BaseAgent": {"to_device": ("cuda_idx",)},
    "OffPolicyAlgo": {"initialize_replay_buffer": ("async_",)},
    "MinibatchRlBase": {"log_diagnostics": ("traj_infos", "eval_traj_infos", "eval_time")},
    "Collector": {"__init__": ("samples_np",)},
    "Evaluator": {"__init__": ("traj_infos_queue",)},
}
"""Base class -> method -> arguments of rlpyt 0.1 that mean that the method expects something else than it gets."""

CALLED_WITH: dict[str, dict[str, str]] = {
    "RlAlgorithm": {"initialize": "agent= n_itr= batch_spec= mid_batch_reset= examples= world_size= rank= seed="},
    "BaseAgent": {
        "initialize": "env_spaces global_B= env_ranks=",
        "collector_initialize": "global_B env_ranks seed evaluation= restarts=",
    },
    "BaseSampler": {
        "initialize": "agent= affinity= seed= bootstrap_value= traj_info_kwargs= world_size= rank=",
    },
    "Collector": {"__init__": "agent parts overlap"},
    "Evaluator": {"__init__": "agent envs group env_quotas max_T"},
}
"""Base class -> method -> the arguments that the library gives where they are more than the required ones, or given by
name, which a = says."""


class CheckedSubclasses:
    """Base of what users derive from: a subclass with a method that cannot mean what it says is refused."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        library = {c for c in cls.__mro__ if c.__module__.split(".")[0] == "rlpyt"}
        known = {c for base in library for c in base.__mro__}
        for i, owner in enumerate(cls.__mro__):
            if owner not in known:
                overridden = [c for c in cls.__mro__[i:] if c in library]
                for name, thing in vars(owner).items():
                    _check_gone(cls, name, overridden)
                    if inspect.isfunction(thing):
                        _check_override(cls, name, thing, overridden)


def _check_gone(cls: type, name: str, bases: list[type]) -> None:
    for base in bases:
        if name in OLD_METHODS.get(base.__name__, ()) and not any(name in vars(b) for b in bases):
            did, now = OLD_METHODS[base.__name__][name]
            raise TypeError(
                f"{cls.__name__}.{name}: rlpyt 0.1 {did}; nothing calls it now. {now} If it is a method of your own, "
                f"rename it. See {PAGE}."
            )


def _check_override(cls: type, name: str, function: Callable[..., Any], bases: list[type]) -> None:
    form = next((CALLED_WITH[b.__name__][name] for b in bases if name in CALLED_WITH.get(b.__name__, ())), None)
    ours = [vars(base)[name] for base in bases if inspect.isfunction(vars(base).get(name))]
    if not ours or (name.startswith("_") and form is None):
        return
    # Where the call is told, its arguments stand in the first definition; a later one may pass them through.
    expected, signature = inspect.signature(ours[0 if form is None else -1]), inspect.signature(function)
    words = _required(expected) if form is None else form.split()
    try:
        signature.bind(None, *[w for w in words if w[-1] != "="], **{w[:-1]: w for w in words if w[-1] == "="})
    except TypeError as error:
        why = str(error)
    else:
        tables = [OLD_ARGUMENTS.get(base.__name__, {}) for base in bases]
        old = [p for table in tables for p in table.get(name, ()) if p in signature.parameters]
        if not old:
            return
        why = f"{' and '.join(old)}, which rlpyt 0.1 gave, is given by nothing"
    raise TypeError(
        f"{cls.__name__}.{name}{_plain(signature)} does not fit how the library calls it: {why}. Expected "
        f"def {name}{_plain(expected)}. If it is a method of your own, rename it. See {PAGE}."
    )


def _required(signature: inspect.Signature) -> list[str]:
    """Return the arguments of a method, but self, that must be given; those that go by name alone end with =."""
    parameters = [p for p in list(signature.parameters.values())[1:] if p.default is p.empty]
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [f"{p.name}=" if p.kind is p.KEYWORD_ONLY else p.name for p in named]


def _plain(signature: inspect.Signature) -> str:
    """Return a signature without annotations."""
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))
