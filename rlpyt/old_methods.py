"""Methods of a subclass that nothing would call, or could not call: refused when the class is made.

Two things are checked of every class that a user derives from an algorithm, agent, runner, sampler, collector,
evaluator, distribution or `AtariEnv`. A method that rlpyt 0.1 called and nothing calls now is in a table, with what to
define instead. An override of a method of the library must take the arguments that the library gives it.

A third table has the attributes that objects of rlpyt 0.1 had: asked for one of them, an object says what to do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rlpyt.old_names import PAGE

_Q_LOSS = "Override q_losses(self, batch, outputs, hyper), or q_target with the same arguments for another target."
_PI_LOSS = "Override update_policy(self, batch, features, hyper)."
_ADD = (
    'self.descents.add(name, parameters, rate="learning_rate") builds one; rate names the setting of its learning rate.'
)
_SCHEDULE = "Give the hyper-parameter a schedule, or set it in an override of optimize_agent: it holds from then on."
_EPSILON = "Override anneal_exploration(self, fraction) of the agent; the algorithm's eps_steps or eps_schedule set it."
_STATE = "agent.rnn_state is the state before the next step, and may be set; step goes on to the next one."
_PARAMETERS = "Override pi_parameters(self) or q_parameters(self)."
_Q_VALUES = "Override pi(self, rows), q(self, rows, action) or target_q(self, rows, action)."
_RESETS = "The environments and their resets are the sampler's. Override collect_batch(self, itr, first_t=None)."
_WORKERS = "Write environments in batches as a vector environment (docs/own_environment.md), which any sampler takes."
_WEIGHTS = "The sampler sends what is in agent.networks.acting and agent.numbers."
_OBSERVATION = "Override step and reset, which return the observation, or wrap the environment in another."

OLD_METHODS: dict[str, dict[str, tuple[str, str]]] = {
    "RlAlgorithm": {
        "async_initialize": ("set up a run in several processes", "Override initialize(self, agent, run)."),
        "descend": ("or an early 1.0 took steps by name with it", "Call self.descents.step(name, loss, hyper)."),
        "make_descent": ("or an early 1.0 built optimisers with it", _ADD),
        "learning_rate_of": ("or an early 1.0 asked it for learning rates", _ADD),
        "optim_arguments": (
            "or an early 1.0 asked it for arguments of the optimiser",
            "Give optim_kwargs, or override optim_initialize(self, rank).",
        ),
        "load_optim_state_dict": ("or an early 1.0 loaded optimisers with it", "Call self.descents.load_state_dict."),
        "remarks": (
            "or an early 1.0 had cautions of the plan from it",
            "Return rlpyt.core.Remark(text) in plan(self).",
        ),
        "warnings": (
            "or an early 1.0 had warnings at the start from it",
            'Return a list of sentences as the entry "warnings" of plan(self).',
        ),
        "rows_per_update": (
            "or an early 1.0 counted rows by it",
            "Set self.rows_of_update in initialize; rlpyt.core.rows_per_update(algo) has the number.",
        ),
        "hyper_parameters": ("or an early 1.0 recorded settings by it", "Call rlpyt.core.hyper_parameters(algo)."),
        "weighted": ("or an early 1.0 weighted losses with it", "Call self.descents.weighted(mean)."),
    },
    "PolicyGradientAlgo": {
        "take_step": (
            "or an early 1.0 took the steps with it",
            "Override update(self, batch, hyper): batch has rows, init_rnn_state and weight.",
        ),
        "normalized_reward": (
            "or an early 1.0 scaled rewards with it",
            "Set self.reward_scale in initialize: called with (samples.env, hyper), it returns rewards [T, B].",
        ),
        "process_returns": (
            "computed returns and advantages with it",
            "Override loss_inputs(self, samples, hyper), which returns LossInputs with both and the first state.",
        ),
    },
    "ReplaySettings": {
        "examples_to_buffer": (
            "made the replay's example with it",
            "Override samples_to_buffer(self, samples), which serves the example too.",
        ),
        "reading": ("or an early 1.0 made the reading of the replay with it", "Give ReadingCls."),
        "index": ("or an early 1.0 made the index of the replay with it", "Give IndexCls."),
        "sample_batch": (
            "or an early 1.0 drew batches with it",
            "self.feed.sample_batch() draws one. Give augment, or change the batch in update(self, batch, hyper).",
        ),
        "update_priorities": (
            "or an early 1.0 set priorities with it",
            "Call self.feed.update_priorities(batch, td_abs_error, hyper).",
        ),
        "input_errors": ("or an early 1.0 gave new rows their priorities with it", "Set self.feed.errors."),
        "n_updates": ("or an early 1.0 counted updates with it", "Call self.feed.n_updates(hyper)."),
        "mean_loss": ("or an early 1.0 took means with it", "Call rlpyt.algos.mean_loss(loss, batch)."),
        "greedy_q": (
            "or an early 1.0 chose the next action with it",
            "Call greedy_q(self.agent, outputs) of rlpyt.algos.dqn.",
        ),
        "update_itr_hyperparams": ("set what changes during the run with it", _SCHEDULE),
        "compute_input_priorities": (
            "gave new rows their priorities with it",
            "Set self.feed.errors in initialize: called with (samples, hyper), it returns absolute TD errors [T, B].",
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
        "next_value": ("or an early 1.0 computed the value of the next rows with it", _Q_LOSS),
        "update_q": ("or an early 1.0 took the step of the action values with it", _Q_LOSS),
        "q_metrics": (
            "or an early 1.0 made the metrics of the action values with it",
            "Return a dictionary of metrics as the fourth value of q_losses(self, batch, outputs, hyper).",
        ),
        "policy_loss": ("or an early 1.0 computed the loss of the policy with it", _PI_LOSS),
        "get_action_prior": (
            "made the prior of actions with it",
            "Give action_prior, or override update_policy(self, batch, features, hyper).",
        ),
        "append_opt_info_": (
            "collected metrics with it",
            "Return metrics from update_policy, and as a dictionary from q_losses(self, batch, outputs, hyper).",
        ),
    },
    "ReplayBuffer": {
        "update_batch_priorities": (
            "set the priorities of the batch drawn last with it",
            "Call update_priorities(batch.places, priorities), or override update_priorities.",
        ),
    },
    "BaseAgent": {
        "collector_initialize": (
            "told an agent of its environments by it",
            "agent.actor(env_ranks, global_B, seed) returns an actor of some. An Exploration "
            "(docs/own_agent.md) keeps what is kept of them. A script that acts by hand calls nothing before step.",
        ),
        "data_parallel": (
            "wrapped the model for several GPUs with it",
            "SyncRl averages the gradients where the optimiser steps, so leave it out.",
        ),
        "async_cpu": (
            "prepared the agent of an asynchronous run with it",
            "AsyncRl sends the weights itself, so leave it out.",
        ),
        "send_shared_memory": ("sent weights to the sampler with it", _WEIGHTS),
        "recv_shared_memory": ("received weights with it", _WEIGHTS),
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
            "Override anneal_exploration(self, fraction), which is called with 1.0 then.",
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
    "Distribution": {
        "log_likelihood": ("computed log-probabilities with it", "log_prob(self, action, dist_info) does that now."),
        "sample_loglikelihood": (
            "sampled actions and their log-probabilities with it",
            "sample(self, dist_info, noise) and log_prob(self, action, dist_info) do that now.",
        ),
        "evaluate": (
            "or an early 1.0 computed log-probability and entropy with it",
            "log_prob_and_entropy(self, action, dist_info) does that now.",
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

_HEAD = "Write read(self, output) or best(self, output) of a rlpyt.agents.Head, which the class names as HeadCls."
_RULE = "Write begin, state or action of a rlpyt.agents.Exploration, which the class names as ExplorationCls."
_MODEL = "Give ModelCls, or name a default as DefaultModelCls in the class."
_NETWORKS = "Override initialize(self, env_spaces): call super().initialize(env_spaces), and then add networks."

MOVED_METHODS: dict[str, dict[str, str]] = {
    "BaseAgent": {
        **dict.fromkeys(("acts_on", "best_action"), _HEAD),
        **dict.fromkeys(("exploration", "exploration_state", "noisy_layers"), _RULE),
        **dict.fromkeys(("make_default_model", "default_model_kwargs", "preset_kwargs"), _MODEL),
        **dict.fromkeys(("make_networks", "make_model", "unrolled"), _NETWORKS),
        "value_of": "What agent_info returns has the field value.",
        "update_obs_rms": "Write update_obs_rms(self, observation, valid=None) of the model, a rlpyt.models.Model.",
        "encode": "Override encode(self, action) of the distribution.",
    },
    "DqnAgent": {"q_values": _HEAD, "epsilon": _RULE},
    "QpgAgent": {
        "explore": "Write explore of a PolicyExploration, which the class names as ExplorationCls.",
        "make_body": "Name the class of the features as BodyCls in the class.",
        "make_q_model": "Give QModelCls.",
    },
}
"""Base class -> method of agents before their parts were held -> what to do now."""

OLD_ARGUMENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "BaseAgent": {"to_device": ("cuda_idx",), "initialize": ("share_memory", "global_B", "env_ranks")},
    "ReplaySettings": {"initialize_replay_buffer": ("async_",)},
    "MinibatchRlBase": {"log_diagnostics": ("traj_infos", "eval_traj_infos", "eval_time", "prefix")},
    "Collector": {"__init__": ("samples_np",)},
    "Evaluator": {"__init__": ("traj_infos_queue",)},
}
"""Base class -> method -> arguments of rlpyt 0.1 that mean that the method expects something else than it gets."""

_PI, _Q = 'Use self.descents["pi"].optimizer.', 'Use self.descents["q"].optimizer, which has all action values.'
_BY_STEPS = "Hyper-parameters count steps; self.hyper(step) has their values."
_INITIALIZE = "RlAlgorithm.initialize sets it. Call super().initialize, with all arguments, first in your own."
_INIT = "The constructor of the base sets it. Call super().__init__ in your own, with the settings of the base."
_BATCH = "obtain_samples returns the batch; numpify_buffer of it has the same memory."
_LOOP = "Environments and loop are the sampler's own. Put your own loop into a Collector or an Evaluator."
_PARTS = "Collector.parts has the parts of the fleet, each as part.envs with its rows."
_NOISE = "Noise is an argument of sample. The agent's eps_init, eps_final, action_std and their like set it."
_ONE_Q = "q_model has the networks of all action values, target_q_model their targets."
_ALL_INPUTS = "all_inputs has observation, prev_action and prev_reward of all rows; action is of those to train on."
_GIVEN = "It is an argument of the constructor, as you gave it; env_kwargs of the sampler has it."
_TRAIN = "A loop of your own does what MinibatchRlBase.train does with self._log, self._stop and self._checkpoints."
_AT_WORK = "initialize makes it. Where a sampler works in another process, runner.training.sampler has it."
_ENDED = "terminated says so, and bootstrap_discount is 0 there."

SET_LATER: dict[str, dict[str, str]] = {
    "Algorithm": {"batch_size": "It is the rows that one update consumes. Set it in initialize."},
    "RlAlgorithm": {
        **dict.fromkeys(("_bound", "descents", "generator", "batch_spec", "steps_per_itr", "n_steps"), _INITIALIZE),
        "optim_kwargs": _INIT,
    },
    "BaseAgent": dict.fromkeys(("networks", "numbers", "head", "by_hand"), _INIT),
    "BaseSampler": {"batches": _AT_WORK},
    "MinibatchRlBase": dict.fromkeys(("check_finite", "agree_to_stop", "save_due_checkpoint"), _TRAIN),
}
"""Class -> attribute that its objects have once they are set up -> what to do."""

OLD_ATTRIBUTES: dict[str, dict[str, str]] = {
    "RlAlgorithm": {
        "sampler_bs": "Use self.batch_spec.size.",
        "lr_scheduler": "Give learning_rate a schedule, or set self.lr_scheduler in optim_initialize.",
    },
    "PolicyGradientAlgo": {"_ratio_clip": "Give ratio_clip a schedule, or set self.ratio_clip at any time."},
    "ReplaySettings": {
        "_batch_size": "Use self.batch_size.",
        "updates_per_optimize": "Use self.feed.n_updates(hyper), of an iteration's hyper = self.hyper(step).",
        **dict.fromkeys(("eps_itr_min", "eps_itr_max", "pri_beta_itr"), _BY_STEPS),
    },
    "QpgAlgo": {
        **dict.fromkeys(("pi_optimizer", "mu_optimizer"), _PI),
        **dict.fromkeys(("q_optimizer", "q1_optimizer", "q2_optimizer"), _Q),
    },
    "SAC": {
        "_alpha": "Use self.log_alpha.exp().",
        "alpha": "Use self.log_alpha.exp(), or the setting fixed_alpha.",
        "alpha_optimizer": 'Use self.descents["alpha"].optimizer.',
    },
    "BaseAgent": {
        "shared_model": "The sampler sends the weights of self.model to its workers.",
        "alternating": "Any agent alternates.",
        "min_itr_learn": "The algorithm has it.",
        "progress": "Use self.fraction.",
        "_prev_rnn_state": _STATE,
    },
    "DqnAgent": {"eps_sample": "Use self.epsilon(actor)."},
    "QpgAgent": dict.fromkeys(("q1_model", "q2_model", "target_q1_model", "target_q2_model"), _ONE_Q),
    "BaseSampler": {
        **dict.fromkeys(("samples_np", "samples_pyt"), _BATCH),
        **dict.fromkeys(("envs", "collector", "eval_collector", "ctrl", "workers", "sync"), _LOOP),
    },
    "Collector": dict.fromkeys(("envs", "samples_np", "step_buffer_np", "TrajInfoCls", "batch_T", "env_ranks"), _PARTS),
    "MinibatchRlBase": {
        "_opt_infos": "_log_infos of the base records the metrics of the updates: call it. "
        "store_diagnostics(self, itr, traj_infos, metrics) is given them.",
        "min_itr_learn": "Use self.algo.min_itr_learn.",
        "itr_batch_size": "Use self.steps_per_itr.",
    },
    "Distribution": {
        "likelihood_ratio": "Use (log_prob(action, new) - log_prob(action, old)).exp().",
        "perplexity": "Use entropy(dist_info).exp().",
        "mean_entropy": "Use valid_mean(entropy(dist_info), valid) of rlpyt.functional.",
        "mean_perplexity": "Use mean_perplexity(entropy(dist_info), valid) of rlpyt.functional.",
    },
    "EpsilonGreedy": {
        "set_epsilon": _NOISE,
        **dict.fromkeys(("epsilon", "_epsilon"), "agent.epsilon(actor) is that of training."),
    },
    "ActionUnits": {
        **dict.fromkeys(("set_std", "set_noise_clip"), _NOISE),
        **dict.fromkeys(("set_clip", "set_squash"), "Actions are scaled to the bounds of their space."),
        "sample_loglikelihood": "Use sample_with_log_prob(dist_info, noise) of SAC's distribution.",
    },
    "AtariEnv": dict.fromkeys(
        ("frame_skip", "num_img_obs", "clip_reward", "max_start_noops", "repeat_action_probability", "horizon"), _GIVEN
    ),
    "ReplayBuffer": {
        **dict.fromkeys(("T", "B"), "Use replay.storage.T and replay.storage.B."),
        **dict.fromkeys(("t", "samples"), "replay.storage has the ring of rows, and how many it holds."),
        "n_step_return": "Use replay.reading.n_step_return.",
        "set_beta": "Use replay.set_hyper(beta=...).",
        "priority_tree": "replay.index has the priorities.",
    },
    "SamplesFromReplay": {
        **dict.fromkeys(("done", "done_n"), _ENDED),
        **dict.fromkeys(("timeout", "timeout_n"), "An episode that a limit cut bootstraps from its final observation."),
    },
    "SequencesFromReplay": {
        **dict.fromkeys(("done", "done_n"), _ENDED),
        **dict.fromkeys(("all_observation", "all_action", "all_reward"), _ALL_INPUTS),
    },
}
"""Class -> attribute that its objects had in rlpyt 0.1 -> what to do."""

CALLED_WITH: dict[str, dict[str, str]] = {
    "RlAlgorithm": {"initialize": "agent= run="},
    "BaseAgent": {"bind": "n_steps steps_per_itr", "anneal_exploration": "fraction"},
    "DqnAgent": {"target": "observation prev_action prev_reward"},
    "QpgAgent": {
        **dict.fromkeys(("features", "target_features"), "observation prev_action prev_reward"),
        **dict.fromkeys(("q", "first_q", "target_q"), "rows action"),
        "pi": "rows",
    },
    "BaseSampler": {
        "initialize": "agent= run=",
    },
    "Collector": {"__init__": "agent parts overlap"},
    "Evaluator": {"__init__": "agent envs actor env_quotas max_T"},
}
"""Base class -> method -> the arguments that the library gives where they are more than the required ones, or given by
name, which a = says."""


def tell_old_attribute(part: Any, name: str) -> Any:
    """Refuse an attribute that an object lacks, and say what to do where rlpyt 0.1 had it; a class's `__getattr__`."""
    asked = [vars(cls)["__getattr__"] for cls in type(part).__mro__ if "__getattr__" in vars(cls)]
    above = [one for one in asked[asked.index(tell_old_attribute) :] if one is not tell_old_attribute]
    if above:  # of a base of the user's, such as torch.nn.Module
        with suppress(AttributeError):
            return above[0](part, name)
    for cls in type(part).__mro__:
        text = {**SET_LATER.get(cls.__name__, {}), **OLD_ATTRIBUTES.get(cls.__name__, {})}.get(name, "")
        did, now = OLD_METHODS.get(cls.__name__, {}).get(name, ("", text))
        if now:
            before = f" rlpyt 0.1 {did}." if did else ""
            raise AttributeError(f"{type(part).__name__} has no {name!r}.{before} {now} See {PAGE}.")
    return object.__getattribute__(part, name)


def check_subclass(cls: type) -> None:
    """Refuse a class with a method that cannot mean what it says: the `__init_subclass__` of what users derive from."""
    library = {c for c in cls.__mro__ if c.__module__.split(".")[0] == "rlpyt"}
    known = {c for base in library for c in base.__mro__}
    for i, owner in enumerate(cls.__mro__):
        if owner not in known:
            overridden = [c for c in cls.__mro__[i:] if c in library]
            for name, thing in vars(owner).items():
                _check_gone(cls, name, overridden)
                if inspect.isfunction(thing):
                    _check_moved(cls, name, overridden)
                    _check_override(cls, name, thing, overridden)


def own_names(cls: type) -> set[str]:
    """Return the names that a class, or a base of it, defines outside of the library."""
    return {name for c in cls.__mro__ if c.__module__.split(".")[0] != "rlpyt" for name in vars(c)}


class TellsOldAttributes:
    """Base of classes whose objects, asked for an attribute of rlpyt 0.1 that they lack, say what to do."""

    __slots__ = ()

    if not TYPE_CHECKING:  # to a type checker an object has what its class says
        __getattr__ = tell_old_attribute


class CheckedSubclasses:
    """Base of what users derive from: a subclass with a method that cannot mean what it says is refused."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_subclass(cls)

    if not TYPE_CHECKING:
        __getattr__ = tell_old_attribute


def _check_gone(cls: type, name: str, bases: list[type]) -> None:
    for base in bases:
        if name in OLD_METHODS.get(base.__name__, ()) and not any(name in vars(b) for b in bases):
            did, now = OLD_METHODS[base.__name__][name]
            raise TypeError(
                f"{cls.__name__}.{name}: rlpyt 0.1 {did}; nothing calls it now. {now} If it is a method of your own, "
                f"rename it. See {PAGE}."
            )


def _check_moved(cls: type, name: str, bases: list[type]) -> None:
    for base in bases:
        if name in MOVED_METHODS.get(base.__name__, ()):
            raise TypeError(
                f"{cls.__name__}.{name}: nothing calls this method of an agent any more. "
                f"{MOVED_METHODS[base.__name__][name]} If it is a method of your own, rename it. See docs/own_agent.md."
            )


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
        old = [p for table in tables for p in table.get(name, ()) if p in signature.parameters]
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
