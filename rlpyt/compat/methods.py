"""Methods and attributes of rlpyt 0.1 that nothing calls, calls otherwise, or has, and what to do about each.

A class that a user derives from a part of the library is checked when its first object is made (`check_subclass`). An
object that is asked for an attribute that it lacks says what to do where rlpyt 0.1 had it (`old_attribute`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlpyt.old_rlpyt import PAGE

Table = dict[str, dict[str, str]]


def _table(*rows: tuple[str, str, str]) -> Table:
    """Return class -> name -> sentence, of rows with a class, a sentence, and names that it holds for."""
    table: Table = {}
    for cls, sentence, names in rows:
        table.setdefault(cls, {}).update(dict.fromkeys(names.split(), sentence))
    return table


_Q_LOSS = "Override q_losses(self, batch, outputs, hyper), or q_target with the same arguments for another target."
_PI_LOSS = "Override update_policy(self, batch, features, hyper)."
_SCHEDULE = "Give the hyper-parameter a schedule, or set it in an override of optimize_agent: it holds from then on."
_LOSS_INPUTS = "Override loss_inputs(self, samples, hyper), which returns LossInputs with both and the first state."
_ERRORS = "Set self.feed.errors in initialize: called with (samples, hyper), it returns absolute TD errors [T, B]."
_VALUE_SCALE = "Give value_scale_eps, or override backup(self, batch, next_value) of the algorithm."
_METRICS = "Return metrics from update_policy, and as a dictionary from q_losses(self, batch, outputs, hyper)."
_EPSILON = "Override anneal_exploration(self, fraction) of the agent; the algorithm's eps_steps or eps_schedule set it."
_STATE = "agent.rnn_state is the state before the next step, and may be set; step goes on to the next one."
_PARAMETERS = "Override pi_parameters(self) or q_parameters(self)."
_Q_VALUES = "Override pi(self, rows), q(self, rows, action) or target_q(self, rows, action)."
_ACTOR = (
    "agent.actor(env_ranks, global_B, seed) returns an actor of some environments. An Exploration "
    "(docs/howto/own_agent.md) keeps what is kept of them. A script that acts by hand calls nothing before step."
)
_OBS_RMS = "Write update_obs_rms(self, observation, valid=None) of the model, a rlpyt.models.Model."
_RESETS = "The environments and their resets are the sampler's. Override collect_batch(self, itr, first_t=None)."
_WORKERS = (
    "Write environments in batches as a vector environment (docs/howto/own_environment.md), which any sampler takes."
)
_WEIGHTS = "The sampler sends what is in agent.networks.acting and agent.numbers."
_OBSERVATION = "Override step and reset, which return the observation, or wrap the environment in another."

OLD_METHODS = _table(
    ("RlAlgorithm", "Override initialize(self, agent, run).", "async_initialize"),
    ("RlAlgorithm", "Call self.descents.load_state_dict.", "load_optim_state_dict"),
    ("PolicyGradientAlgo", _LOSS_INPUTS, "process_returns"),
    (
        "ReplaySettings",
        "Override samples_to_buffer(self, samples), which serves the replay's example too.",
        "examples_to_buffer",
    ),
    ("ReplaySettings", _SCHEDULE, "update_itr_hyperparams"),
    ("ReplaySettings", _ERRORS, "compute_input_priorities"),
    ("ReplaySettings", _VALUE_SCALE, "value_scale inv_value_scale"),
    ("QpgAlgo", f"{_PI_LOSS} {_Q_LOSS}", "loss"),
    ("QpgAlgo", _PI_LOSS, "mu_loss"),
    ("QpgAlgo", _Q_LOSS, "q_loss"),
    ("QpgAlgo", f"Give action_prior. {_PI_LOSS}", "get_action_prior"),
    ("QpgAlgo", _METRICS, "append_opt_info_"),
    (
        "ReplayBuffer",
        "Call update_priorities(batch.places, priorities), or override update_priorities.",
        "update_batch_priorities",
    ),
    ("BaseAgent", _ACTOR, "collector_initialize"),
    ("BaseAgent", "SyncRl averages the gradients where the optimiser steps, so leave it out.", "data_parallel"),
    ("BaseAgent", "AsyncRl sends the weights itself, so leave it out.", "async_cpu"),
    ("BaseAgent", _WEIGHTS, "send_shared_memory recv_shared_memory"),
    ("BaseAgent", _STATE, "toggle_alt get_alt advance_rnn_state prev_rnn_state"),
    ("BaseAgent", "Override make_env_to_model_kwargs(self, env_spaces).", "env_model_kwargs"),
    ("BaseAgent", "Give eps_final_min, or override step.", "make_vec_eps"),
    ("BaseAgent", _EPSILON, "set_epsilon_itr_min_max set_sample_epsilon_greedy"),
    (
        "BaseAgent",
        "Override anneal_exploration(self, fraction), which is called with 1.0 when learning begins.",
        "give_min_itr_learn",
    ),
    ("BaseAgent", _Q_VALUES, "q_at_mu target_q_at_mu target_v"),
    ("BaseAgent", _PARAMETERS, "mu_parameters q1_parameters q2_parameters"),
    ("BaseAgent", _OBS_RMS, "update_obs_rms"),
    ("BaseSampler", _WORKERS, "_build_parallel_ctrl _assemble_common_kwargs"),
    ("BaseSampler", _WORKERS, "_assemble_workers_kwargs _get_n_envs_lists"),
    ("Collector", _RESETS, "start_envs start_agent reset_if_needed"),
    (
        "Evaluator",
        "Override evaluate(self, itr, on_progress), which returns an rlpyt.core.EvalResult.",
        "collect_evaluation",
    ),
    ("Distribution", "log_prob(self, action, dist_info) does that now.", "log_likelihood"),
    ("Distribution", "encode(self, action) does that now.", "to_onehot"),
    (
        "Distribution",
        "sample(self, dist_info, noise) and log_prob(self, action, dist_info) do that now.",
        "sample_loglikelihood",
    ),
    ("AtariEnv", _OBSERVATION, "_update_obs _reset_obs get_obs"),
    ("AtariEnv", "Override step, which returns `terminated`.", "_check_life"),
    ("AtariEnv", "Override reset.", "_life_reset"),
)
"""Base class -> method that nothing calls any more -> what to define or do now."""

OLD_ARGUMENTS = {
    "BaseAgent": {"to_device": "cuda_idx", "initialize": "share_memory global_B env_ranks"},
    "ReplaySettings": {"initialize_replay_buffer": "async_"},
    "MinibatchRlBase": {"log_diagnostics": "traj_infos eval_traj_infos eval_time prefix"},
    "Collector": {"__init__": "samples_np"},
    "Evaluator": {"__init__": "traj_infos_queue"},
}
"""Base class -> method -> arguments of rlpyt 0.1 that mean that the method expects something else than it gets."""

CALLED_WITH = {
    "RlAlgorithm": {"initialize": "agent= run="},
    "BaseAgent": {"bind": "n_steps steps_per_itr", "anneal_exploration": "fraction"},
    "DqnAgent": {"target": "observation prev_action prev_reward"},
    "QpgAgent": {
        **dict.fromkeys(("features", "target_features"), "observation prev_action prev_reward"),
        **dict.fromkeys(("q", "first_q", "target_q"), "rows action"),
        "pi": "rows",
    },
    "BaseSampler": {"initialize": "agent= run="},
    "Collector": {"__init__": "agent parts overlap"},
    "Evaluator": {"__init__": "agent envs actor env_quotas max_T"},
}
"""Base class -> method -> the arguments that the library gives where they are more than the required ones, or given by
name, which a = says."""

_PI, _Q = 'Use self.descents["pi"].optimizer.', 'Use self.descents["q"].optimizer, which has all action values.'
_BY_STEPS = "Hyper-parameters count steps; self.hyper(step) has their values."
_LR = "Give learning_rate a schedule."
_N_UPDATES = "Use self.feed.n_updates(hyper), of an iteration's hyper = self.hyper(step)."
_INITIALIZE = "RlAlgorithm.initialize sets it. Call super().initialize, with all arguments, first in your own."
_INIT = "The constructor of the base sets it. Call super().__init__ in your own, with the settings of the base."
_BATCH = "obtain_samples returns the batch; numpify_buffer of it has the same memory."
_LOOP = "Environments and loop are the sampler's own. Put your own loop into a Collector or an Evaluator."
_PARTS = "Collector.parts has the parts of the fleet, each as part.envs with its rows."
_NOISE = "Noise is an argument of sample. The agent's eps_init, eps_final, action_std and their like set it."
_ONE_Q = "q_model has the networks of all action values, target_q_model their targets."
_ALL_INPUTS = "all_inputs has observation, prev_action and prev_reward of all rows; action is of those to train on."
_GIVEN = "It is an argument of the constructor, as you gave it; env_kwargs of the sampler has it."
_AT_WORK = "initialize makes it. Where a sampler works in another process, runner.training.sampler has it."
_ENDED = "terminated says so, and bootstrap_discount is 0 there."
_CUT = "An episode that a limit cut bootstraps from its final observation."
_OPT_INFOS = (
    "_log_infos of the base records the metrics of the updates: call it. store_diagnostics(self, itr, traj_infos, "
    "metrics) is given them."
)

SET_LATER = _table(
    ("Algorithm", "It is the rows that one update consumes. Set it in initialize.", "batch_size"),
    ("RlAlgorithm", _INITIALIZE, "descents generator batch_spec steps_per_itr n_steps"),
    ("RlAlgorithm", _INIT, "optim_kwargs"),
    ("BaseAgent", _INIT, "networks numbers head exploration by_hand"),
    ("BaseSampler", _AT_WORK, "batches"),
)
"""Class -> attribute that its objects have once they are set up -> what to do."""

OLD_ATTRIBUTES = _table(
    ("RlAlgorithm", "Use self.batch_spec.size.", "sampler_bs"),
    ("RlAlgorithm", _LR, "lr_scheduler"),
    ("PolicyGradientAlgo", "Give ratio_clip a schedule, or set self.ratio_clip at any time.", "_ratio_clip"),
    ("ReplaySettings", "Use self.batch_size.", "_batch_size"),
    ("ReplaySettings", _N_UPDATES, "updates_per_optimize"),
    ("ReplaySettings", _BY_STEPS, "eps_itr_min eps_itr_max pri_beta_itr"),
    ("QpgAlgo", _PI, "pi_optimizer mu_optimizer"),
    ("QpgAlgo", _Q, "q_optimizer q1_optimizer q2_optimizer"),
    ("SAC", "Use self.log_alpha.exp().", "_alpha"),
    ("SAC", "Use self.log_alpha.exp(), or the setting fixed_alpha.", "alpha"),
    ("SAC", 'Use self.descents["alpha"].optimizer.', "alpha_optimizer"),
    ("BaseAgent", "The sampler sends the weights of self.model to its workers.", "shared_model"),
    ("BaseAgent", "Any agent alternates.", "alternating"),
    ("BaseAgent", "The algorithm has it.", "min_itr_learn"),
    ("BaseAgent", "Use self.fraction.", "progress"),
    ("BaseAgent", _STATE, "_prev_rnn_state"),
    ("DqnAgent", "Use self.epsilon(actor).", "eps_sample"),
    ("QpgAgent", _ONE_Q, "q1_model q2_model target_q1_model target_q2_model"),
    ("BaseSampler", _BATCH, "samples_np samples_pyt"),
    ("BaseSampler", _LOOP, "envs collector eval_collector ctrl workers sync"),
    ("Collector", _PARTS, "envs samples_np step_buffer_np TrajInfoCls batch_T env_ranks"),
    ("MinibatchRlBase", _OPT_INFOS, "_opt_infos"),
    ("MinibatchRlBase", "Use self.algo.min_itr_learn.", "min_itr_learn"),
    ("MinibatchRlBase", "Use self.steps_per_itr.", "itr_batch_size"),
    ("Distribution", "Use (log_prob(action, new) - log_prob(action, old)).exp().", "likelihood_ratio"),
    ("Distribution", "Use entropy(dist_info).exp().", "perplexity"),
    ("Distribution", "Use valid_mean(entropy(dist_info), valid) of rlpyt.functional.", "mean_entropy"),
    ("Distribution", "Use mean_perplexity(entropy(dist_info), valid) of rlpyt.functional.", "mean_perplexity"),
    ("EpsilonGreedy", _NOISE, "set_epsilon"),
    ("EpsilonGreedy", "agent.epsilon(actor) is that of training.", "epsilon _epsilon"),
    ("ActionUnits", _NOISE, "set_std set_noise_clip"),
    ("ActionUnits", "Actions are scaled to the bounds of their space.", "set_clip set_squash"),
    ("ActionUnits", "Use sample_with_log_prob(dist_info, noise) of SAC's distribution.", "sample_loglikelihood"),
    ("AtariEnv", _GIVEN, "frame_skip num_img_obs clip_reward max_start_noops repeat_action_probability horizon"),
    ("ReplayBuffer", "Use replay.storage.T and replay.storage.B.", "T B"),
    ("ReplayBuffer", "replay.storage has the ring of rows, and how many it holds.", "t samples"),
    ("ReplayBuffer", "Use replay.reading.n_step_return.", "n_step_return"),
    ("ReplayBuffer", "Use replay.set_hyper(beta=...).", "set_beta"),
    ("ReplayBuffer", "replay.index has the priorities.", "priority_tree"),
    ("SamplesFromReplay", _ENDED, "done done_n"),
    ("SamplesFromReplay", _CUT, "timeout timeout_n"),
    ("SequencesFromReplay", _ENDED, "done done_n"),
    ("SequencesFromReplay", _ALL_INPUTS, "all_observation all_action all_reward"),
)
"""Class -> attribute that its objects had in rlpyt 0.1 -> what to do."""


def old_attribute(cls: type, name: str) -> str:
    """Return the message about an attribute that the objects of a class lack; "" where rlpyt 0.1 had none."""
    for base in cls.__mro__:
        for table in (SET_LATER, OLD_METHODS, OLD_ATTRIBUTES):
            if now := table.get(base.__name__, {}).get(name):
                return f"{cls.__name__} has no {name!r}. {now} See {PAGE}."
    return ""


def check_subclass(cls: type) -> None:
    """Refuse a class with a method that nothing would call, or that cannot be called as the library calls it."""
    library = [c for c in cls.__mro__ if c.__module__.split(".")[0] == "rlpyt"]
    known = {c for base in library for c in base.__mro__}
    for i, owner in enumerate(cls.__mro__):
        bases = [c for c in cls.__mro__[i:] if c in library]
        for name, thing in vars(owner).items() if owner not in known else ():
            if now := next((t[name] for b in bases if name in (t := OLD_METHODS.get(b.__name__, {}))), ""):
                raise TypeError(
                    f"{cls.__name__}.{name}: rlpyt 0.1 called it, and nothing calls it now. {now} If it is a method "
                    f"of your own, rename it. See {PAGE}."
                )
            if inspect.isfunction(thing):
                _check_override(cls, name, thing, bases)


def _check_override(cls: type, name: str, function: Callable[..., Any], bases: list[type]) -> None:
    form = next((CALLED_WITH[b.__name__][name] for b in bases if name in CALLED_WITH.get(b.__name__, ())), None)
    ours = [vars(base)[name] for base in bases if inspect.isfunction(vars(base).get(name))]
    if form is None and (not ours or name.startswith("_")):
        return
    signature, words = inspect.signature(function), [] if form is None else form.split()
    expected = f"(self, {', '.join(words)})"
    if ours:  # where the call is told, its arguments stand in the first definition; a later one may pass them through
        wanted = inspect.signature(ours[0 if form is None else -1])
        expected, words = _plain(wanted), words or _required(wanted)
    try:
        signature.bind(None, *[w for w in words if w[-1] != "="], **{w[:-1]: w for w in words if w[-1] == "="})
    except TypeError as error:
        why = str(error)
    else:
        tables = [OLD_ARGUMENTS.get(base.__name__, {}) for base in bases]
        old = [p for table in tables for p in table.get(name, "").split() if p in signature.parameters]
        if not old:
            return
        why = f"{' and '.join(old)}, which rlpyt 0.1 gave, is given by nothing"
    raise TypeError(
        f"{cls.__name__}.{name}{_plain(signature)} does not fit how the library calls it: {why}. Expected "
        f"def {name}{expected}. If it is a method of your own, rename it. See {PAGE}."
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
