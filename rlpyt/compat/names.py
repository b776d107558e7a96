"""The names of rlpyt 0.1 and where each of them is now: old import lines work, and say the new one."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from rlpyt.old_rlpyt import PAGE

_REPLAY = (
    "one ReplayBuffer serves all kinds of replay, AsyncRl and time limits too, and the algorithm's settings choose its "
    "parts: prioritized_replay, n_step_return, frame_stack, input_priorities, batch_T, store_rnn_state_interval, "
    "replay_folder. To change what it is made of give ReplayCls, IndexCls or ReadingCls, and sequences are read by "
    "rlpyt.replays.Sequences (docs/howto/replay.md)"
)
_SEQUENCES = "sequences of a replay are read by rlpyt.replays.Sequences (docs/howto/replay.md)"
_TIME_LIMIT = "every algorithm bootstraps where a time limit cut the episode: rows have terminated and truncated"
_ASYNC = "rlpyt.runners.AsyncRl does it with the usual parts (docs/howto/asynchronous.md). Use them"
_SYNC = "rlpyt.runners.SyncRl starts its replicas, and they find each other (docs/howto/replicas.md). Use it"
_SLOTS = "rlpyt.launching.affinity_from_code makes the affinity of every kind of run. Use it"
_QUEUE = "rlpyt.launching.run_experiments keeps the whole queue. Use it"
_COLLECTOR = "the loop over environments is rlpyt.samplers.Collector, which all samplers share (docs/howto/samplers.md)"
_SAMPLER_PARTS = (
    "samplers are put together differently. Write your own batch of environments as a vector environment "
    "(docs/howto/own_environment.md), and your own loop as a subclass of rlpyt.samplers.Collector"
)
_ALTERNATING = "any recurrent agent works under AlternatingSampler. Use that agent"
_RECURRENT = (
    "give the agent recurrent=True; agent.rnn_state is its state before the next step (docs/howto/own_agent.md)"
)
_EPSILON = "rlpyt.agents.DqnAgent has the epsilon-greedy exploration; derive from it"
_SCHEMA = "rlpyt.namedarraytuple makes types that pickle under every start method. Use it"
_LOGITS = "models return logits instead of probabilities: use rlpyt.distributions.DistInfoLogits"
_OPT_INFO = (
    "name the metrics in opt_info_fields of the algorithm (docs/howto/own_algorithm.md), and define your own tuple"
)
_SPACE = "spaces are gymnasium's, and Dict spaces are served as they are (docs/howto/own_environment.md)"
_ENV_INFO = "an environment's info may have any numbers in it, and need not have all at every step"
_ONLY_SAC = "the SAC with a network of state values is gone. Use rlpyt.algos.SAC and rlpyt.agents.SacAgent"
_N_ATOMS = "rlpyt.models.DuelingHeadModel and QHeadModel take n_atoms"
_SEEDS = "every environment gets a seed of its own from the run's (rlpyt.utils.seeds)"
_RETURNS = "rlpyt.functional.{} takes other arguments, among them terminated and truncated instead of done; import that"
_NUMPY = "rlpyt.functional and rlpyt.utils.tensors have it for tensors: torch.from_numpy shares the memory of an array"
_NOT_MADE = "rlpyt.logging.current_logger().log(text) writes to console and debug.log; for the rest write your own"
_WRITER = (
    "a hook of yours makes one, torch.utils.tensorboard.SummaryWriter(runner.logger.directory / 'mine') "
    "(docs/howto/logging.md)"
)
_HISTOGRAMS = "the hook rlpyt.runners.Histograms writes them (docs/howto/logging.md)"
_SINKS = (
    "logger_context takes sinks and use_summary_writer, and without it the console is all (docs/howto/own_algorithm.md)"
)

# (old module without "rlpyt.", new module, or the sentence that says what to do instead, names or OLD=NEW).
_TABLE = (
    # ---- agents ----
    ("agents.base", "rlpyt.agents", "AgentInputs AgentStep"),
    ("agents.base", "rlpyt.types", "AgentInputsRnn"),
    ("agents.base", _RECURRENT, "RecurrentAgentMixin"),
    ("agents.base", _ALTERNATING, "AlternatingRecurrentAgentMixin"),
    ("agents.pg.base", "rlpyt.agents.policy_gradient", "AgentInfo AgentInfoRnn=AgentInfo"),
    ("agents.pg.categorical", "rlpyt.agents", "CategoricalPgAgent RecurrentCategoricalPgAgent"),
    ("agents.pg.categorical", "rlpyt.agents", "AlternatingRecurrentCategoricalPgAgent=RecurrentCategoricalPgAgent"),
    ("agents.pg.categorical", "rlpyt.agents", "RecurrentCategoricalPgAgentBase=RecurrentCategoricalPgAgent"),
    ("agents.pg.gaussian", "rlpyt.agents", "GaussianPgAgent RecurrentGaussianPgAgent"),
    ("agents.pg.gaussian", "rlpyt.agents", "AlternatingRecurrentGaussianPgAgent=RecurrentGaussianPgAgent"),
    ("agents.pg.gaussian", "rlpyt.agents", "RecurrentGaussianPgAgentBase=RecurrentGaussianPgAgent"),
    ("agents.pg.atari", "rlpyt.agents", "AtariFfAgent AtariLstmAgent AtariMixin"),
    ("agents.pg.atari", "rlpyt.agents", "AlternatingAtariLstmAgent=AtariLstmAgent"),
    ("agents.pg.mujoco", "rlpyt.agents", "MujocoFfAgent MujocoLstmAgent MujocoMixin"),
    ("agents.pg.mujoco", "rlpyt.agents", "AlternatingMujocoLstmAgent=MujocoLstmAgent"),
    ("agents.dqn.dqn_agent", "rlpyt.agents", "DqnAgent"),
    ("agents.dqn.dqn_agent", "rlpyt.agents.dqn", "AgentInfo=DqnAgentInfo"),
    ("agents.dqn.catdqn_agent", "rlpyt.agents", "CatDqnAgent"),
    ("agents.dqn.r2d1_agent", "rlpyt.agents", "R2d1Agent R2d1AgentBase=R2d1Agent R2d1AlternatingAgent=R2d1Agent"),
    ("agents.dqn.r2d1_agent", "rlpyt.agents.dqn", "AgentInfo=DqnAgentInfo"),
    ("agents.dqn.epsilon_greedy", _EPSILON, "EpsilonGreedyAgentMixin"),
    ("agents.dqn.atari.mixin", "rlpyt.agents", "AtariMixin"),
    ("agents.dqn.atari.atari_dqn_agent", "rlpyt.agents", "AtariDqnAgent"),
    ("agents.dqn.atari.atari_catdqn_agent", "rlpyt.agents", "AtariCatDqnAgent"),
    ("agents.dqn.atari.atari_r2d1_agent", "rlpyt.agents", "AtariR2d1Agent AtariR2d1AlternatingAgent=AtariR2d1Agent"),
    ("agents.qpg.ddpg_agent", "rlpyt.agents", "DdpgAgent"),
    ("agents.qpg.ddpg_agent", "rlpyt.agents.ddpg", "AgentInfo=MuAgentInfo"),
    ("agents.qpg.td3_agent", "rlpyt.agents", "Td3Agent"),
    ("agents.qpg.sac_agent", "rlpyt.agents", "SacAgent"),
    ("agents.qpg.sac_agent", "rlpyt.agents.sac", "AgentInfo=SacAgentInfo"),
    ("agents.qpg.sac_v_agent", _ONLY_SAC, "SacAgent"),
    # ---- algos ----
    ("algos.pg.base", "rlpyt.algos", "PolicyGradientAlgo"),
    ("algos.pg.base", _OPT_INFO, "OptInfo"),
    ("algos.pg.a2c", "rlpyt.algos", "A2C"),
    ("algos.pg.ppo", "rlpyt.algos", "PPO LossInputs"),
    ("algos.dqn.dqn", "rlpyt.algos", "DQN"),
    ("algos.dqn.dqn", "rlpyt.replays", "SamplesToBuffer"),
    ("algos.dqn.dqn", _OPT_INFO, "OptInfo"),
    ("algos.dqn.cat_dqn", "rlpyt.algos", "CategoricalDQN"),
    ("algos.dqn.r2d1", "rlpyt.algos", "R2D1"),
    ("algos.dqn.r2d1", "rlpyt.replays", "SamplesToBufferRnn=SamplesToBuffer"),
    ("algos.dqn.r2d1", _OPT_INFO, "OptInfo"),
    ("algos.dqn.r2d1", "self.feed.errors of the algorithm returns them for the replay", "PrioritiesSamplesToBuffer"),
    ("algos.qpg.ddpg", "rlpyt.algos", "DDPG"),
    ("algos.qpg.ddpg", "rlpyt.replays", "SamplesToBuffer"),
    ("algos.qpg.ddpg", _OPT_INFO, "OptInfo"),
    ("algos.qpg.td3", "rlpyt.algos", "TD3"),
    ("algos.qpg.sac", "rlpyt.algos", "SAC"),
    ("algos.qpg.sac", "rlpyt.replays", "SamplesToBuffer"),
    ("algos.qpg.sac", _OPT_INFO, "OptInfo"),
    ("algos.qpg.sac_v", _ONLY_SAC, "SAC_V OptInfo"),
    ("algos.utils", _RETURNS.format("lambda_return (with lambda_=1)"), "discount_return discount_return_tl"),
    ("algos.utils", _RETURNS.format("n_step_return"), "discount_return_n_step"),
    ("algos.utils", _RETURNS.format("generalized_advantage_estimation"), "generalized_advantage_estimation"),
    ("algos.utils", _TIME_LIMIT, "generalized_advantage_estimation_tl"),
    ("algos.utils", "samples.env.valid and batch.valid say which rows to train on", "valid_from_done"),
    # ---- distributions ----
    ("distributions.categorical", _LOGITS, "DistInfo"),
    ("distributions.gaussian", "use rlpyt.distributions.DistInfoStd(mean, log_std)", "DistInfo"),
    ("distributions.discrete", "rlpyt.functional has to_onehot and from_onehot", "DiscreteMixin"),
    ("distributions.epsilon_greedy", _EPSILON, "CategoricalEpsilonGreedy"),
    # ---- envs and spaces ----
    ("envs.gym", _ENV_INFO, "EnvInfoWrapper infill_info build_info_tuples info_to_nt"),
    ("envs.gym_schema", "rlpyt.envs", "GymEnvWrapper"),
    ("envs.gym_schema", "rlpyt.envs.gym", "make"),
    ("envs.gym_schema", _ENV_INFO, "EnvInfoWrapper infill_info build_info_schemas info_to_nt"),
    ("envs.atari.atari_env", "rlpyt.envs", "AtariEnv AtariTrajInfo EnvInfo"),
    ("envs.atari.atari_env", "the images are 84 x 84 unless image_size of AtariEnv says otherwise", "W H"),
    ("spaces.int_box", "rlpyt.spaces", "IntBox"),
    ("spaces.float_box", "rlpyt.spaces", "FloatBox"),
    ("spaces.composite", _SPACE, "Composite"),
    ("spaces.gym_wrapper", _SPACE, "GymSpaceWrapper"),
    ("spaces.gym_wrapper_schema", _SPACE, "GymSpaceWrapper"),
    ("spaces.base", _SPACE, "Space"),
    # ---- models ----
    ("models.conv2d", "rlpyt.models", "Conv2dModel Conv2dHeadModel"),
    ("models.dueling", "rlpyt.models", "DuelingHeadModel"),
    ("models.dueling", _N_ATOMS, "DistributionalDuelingHeadModel"),
    ("models.utils", "rlpyt.compat.functions", "update_state_dict"),
    ("models.utils", "rlpyt.models.scale_grad(x, scale) does it", "ScaleGrad"),
    ("models.utils", "no network is wrapped in DistributedDataParallel", "strip_ddp_state_dict"),
    ("models.dqn.atari_dqn_model", "rlpyt.models", "AtariDqnModel"),
    ("models.dqn.atari_catdqn_model", "rlpyt.models", "AtariCatDqnModel"),
    ("models.dqn.atari_catdqn_model", _N_ATOMS, "DistributionalHeadModel"),
    ("models.dqn.atari_r2d1_model", "rlpyt.models", "AtariR2d1Model RnnState"),
    ("models.dqn.dueling", "rlpyt.models", "DuelingHeadModel"),
    ("models.dqn.dueling", _N_ATOMS, "DistributionalDuelingHeadModel"),
    ("models.pg.atari_ff_model", "rlpyt.models", "AtariFfModel"),
    ("models.pg.atari_lstm_model", "rlpyt.models", "AtariLstmModel RnnState"),
    ("models.pg.mujoco_ff_model", "rlpyt.models", "MujocoFfModel"),
    ("models.pg.mujoco_lstm_model", "rlpyt.models", "MujocoLstmModel RnnState"),
    ("models.qpg.mlp", "rlpyt.models", "MuMlpModel PiMlpModel QofMuMlpModel"),
    ("models.qpg.mlp", _ONLY_SAC, "VMlpModel"),
    # ---- replays ----
    ("replays.base", _REPLAY, "BaseReplayBuffer"),
    ("replays.n_step", _REPLAY, "BaseNStepReturnBuffer"),
    ("replays.frame", _REPLAY, "FrameBufferMixin"),
    ("replays.async_", _ASYNC, "AsyncReplayBufferMixin"),
    ("replays.sum_tree", _ASYNC, "AsyncSumTree"),
    # ---- runners ----
    ("runners.base", "rlpyt.runners", "BaseRunner=MinibatchRlBase"),
    ("runners.sync_rl", _SYNC, "SyncRlMixin SyncWorkerBase SyncWorker SyncWorkerEval"),
    ("runners.async_rl", _ASYNC, "AsyncOptWorker"),
    # ---- samplers ----
    ("samplers.collections", "rlpyt.samplers", "BatchSpec Samples AgentSamples EnvSamples TrajInfo"),
    ("samplers.collections", "rlpyt.samplers", "AgentSamplesBsv=AgentSamples"),
    ("samplers.collectors", "rlpyt.samplers", "BaseCollector=Collector DecorrelatingStartCollector=Collector"),
    ("samplers.collectors", "rlpyt.samplers", "BaseEvalCollector=Evaluator"),
    ("samplers.buffer", _SAMPLER_PARTS, "build_samples_buffer get_example_outputs"),
    ("samplers.serial.sampler", "rlpyt.samplers", "SerialSampler"),
    ("samplers.serial.collectors", "rlpyt.samplers", "SerialEvalCollector=Evaluator"),
    ("samplers.parallel.base", _SAMPLER_PARTS, "ParallelSamplerBase"),
    ("samplers.parallel.worker", _SAMPLER_PARTS, "initialize_worker sampling_process"),
    ("samplers.parallel.cpu.sampler", "rlpyt.samplers", "CpuSampler"),
    ("samplers.parallel.cpu.collectors", "rlpyt.samplers", "CpuResetCollector=Collector CpuEvalCollector=Evaluator"),
    ("samplers.parallel.cpu.collectors", "rlpyt.samplers", "CpuWaitResetCollector=WaitResetCollector"),
    ("samplers.parallel.gpu.sampler", "rlpyt.samplers", "GpuSampler"),
    ("samplers.parallel.gpu.sampler", _SAMPLER_PARTS, "GpuSamplerBase build_step_buffer"),
    ("samplers.parallel.gpu.action_server", _COLLECTOR, "ActionServer"),
    ("samplers.parallel.gpu.collectors", "rlpyt.samplers", "GpuResetCollector=Collector GpuEvalCollector=Evaluator"),
    ("samplers.parallel.gpu.collectors", "rlpyt.samplers", "GpuWaitResetCollector=WaitResetCollector"),
    ("samplers.parallel.gpu.alternating_sampler", "rlpyt.samplers", "AlternatingSampler NoOverlapAlternatingSampler"),
    ("samplers.parallel.gpu.alternating_sampler", _SAMPLER_PARTS, "AlternatingSamplerBase AlternatingActionServer"),
    ("samplers.async_.base", _ASYNC, "AsyncParallelSamplerMixin AsyncSamplerMixin"),
    ("samplers.async_.serial_sampler", "rlpyt.samplers", "AsyncSerialSampler"),
    ("samplers.async_.cpu_sampler", "rlpyt.samplers", "AsyncCpuSampler"),
    ("samplers.async_.gpu_sampler", "rlpyt.samplers", "AsyncGpuSampler"),
    ("samplers.async_.alternating_sampler", "rlpyt.samplers", "AsyncAlternatingSampler"),
    ("samplers.async_.alternating_sampler", "rlpyt.samplers", "AsyncNoOverlapAlternatingSampler"),
    ("samplers.async_.action_server", _COLLECTOR, "AsyncActionServer AsyncAlternatingActionServer"),
    ("samplers.async_.gpu_sampler", _COLLECTOR, "AsyncGpuSamplerBase"),
    ("samplers.async_.collectors", "rlpyt.samplers", "DbCpuResetCollector DbCpuWaitResetCollector"),
    ("samplers.async_.collectors", "rlpyt.samplers", "DbGpuResetCollector DbGpuWaitResetCollector"),
    # ---- utils ----
    ("utils.array", _NUMPY, "select_at_indexes to_onehot from_onehot valid_mean"),
    ("utils.array", _NUMPY, "infer_leading_dims restore_leading_dims"),
    ("utils.tensor", "rlpyt.functional", "select_at_indexes to_onehot from_onehot valid_mean"),
    ("utils.tensor", "rlpyt.utils.tensors", "infer_leading_dims restore_leading_dims"),
    ("utils.buffer", "rlpyt.utils.arrays", "buffer_from_example build_array torchify_buffer numpify_buffer buffer_to"),
    ("utils.buffer", "rlpyt.utils.arrays", "buffer_method buffer_func get_leading_dims"),
    ("utils.buffer", "rlpyt.utils.shared_memory", "np_mp_array=shared_array"),
    ("utils.collections", "rlpyt", "namedarraytuple"),
    ("utils.collections", "rlpyt.utils.affinity", "AttrDict"),
    ("utils.collections", _SCHEMA, "NamedTupleSchema NamedTuple NamedArrayTupleSchema NamedArrayTuple"),
    ("utils.collections", _SCHEMA, "NamedArrayTupleSchema_like namedarraytuple_like"),
    ("utils.collections", "ask isinstance(x, rlpyt.NamedArrayTuple)", "is_namedarraytuple is_namedarraytuple_class"),
    ("utils.collections", "ask whether type(x) has _fields", "is_namedtuple is_namedtuple_class"),
    ("utils.misc", "rlpyt.compat.functions", "iterate_mb_idxs"),
    ("utils.misc", _SEQUENCES, "extract_sequences"),
    ("utils.misc", "call numpy's or torch's", "zeros empty"),
    ("utils.prog_bar", "rlpyt.logging", "ProgBarCounter"),
    ("utils.quick_args", "rlpyt.compat.functions", "save__init__args"),
    ("utils.seed", "rlpyt.utils.seeds", "set_seed make_seed"),
    ("utils.seed", _SEEDS, "get_seed set_envs_seeds"),
    ("utils.shmemarray", "rlpyt.utils.shared_memory.shared_array(shape, dtype) makes one", "NpShmemArray"),
    ("utils.synchronize", _ASYNC, "RWLock drain_queue"),
    ("utils.synchronize", _SYNC, "find_port"),
    ("utils.logging", "rlpyt.logging", "logger"),
    ("utils.logging.logger", "rlpyt.logging.logger", "log prefix push_prefix pop_prefix tabular_prefix"),
    ("utils.logging.logger", "rlpyt.logging.logger", "push_tabular_prefix pop_tabular_prefix record_tabular"),
    ("utils.logging.logger", "rlpyt.logging.logger", "record_tabular_misc_stat dump_tabular set_iteration"),
    ("utils.logging.logger", "rlpyt.logging.logger", "save_itr_params get_snapshot_dir get_snapshot_mode"),
    ("utils.logging.logger", "rlpyt.logging.logger", "set_snapshot_mode get_snapshot_gap set_snapshot_gap"),
    ("utils.logging.logger", _SINKS, "disable enable disable_tabular enable_tabular"),
    ("utils.logging.logger", _SINKS, "add_text_output remove_text_output add_tabular_output remove_tabular_output"),
    ("utils.logging.logger", _WRITER, "get_tf_summary_writer"),
    ("utils.logging.logger", _HISTOGRAMS, "record_histogram"),
    ("utils.logging.context", "rlpyt.logging", "logger_context"),
    ("utils.logging.context", "params.json of a run is written once", "add_exp_param"),
    ("utils.logging.context", "status.json of a run says how it stands", "check_progress"),
    ("utils.logging.context", "logger_context takes log_dir as it is given", "get_log_dir LOG_DIR"),
    ("utils.launching.affinity", "rlpyt.launching", "encode_affinity make_affinity affinity_from_code"),
    ("utils.launching.affinity", "rlpyt.launching", "quick_affinity_code get_n_run_slots"),
    ("utils.launching.affinity", "rlpyt.launching", "prepend_run_slot remove_run_slot"),
    *(("utils.launching.affinity", _SLOTS, f"build_{x}_affinity") for x in ("cpu", "gpu", "multigpu", "async")),
    ("utils.launching.variant", "rlpyt.launching", "VariantLevel make_variants load_variant save_variant"),
    ("utils.launching.variant", "rlpyt.launching", "update_config"),
    ("utils.launching.exp_launcher", "rlpyt.launching", "run_experiments"),
    ("utils.launching.exp_launcher", _QUEUE, "launch_experiment get_log_dir log_exps_tree log_num_launched"),
)

_SUBCLASSES = "write its parts as subclasses (docs/howto/own_agent.md, docs/howto/own_algorithm.md)"
GONE = {
    "rlpyt.replays.non_sequence": _REPLAY,
    "rlpyt.replays.sequence": _REPLAY,
    **{f"rlpyt.utils.logging.{name}": _NOT_MADE for name in ("console", "autoargs", "tabulate")},
    "rlpyt.ul": _SUBCLASSES,
    "rlpyt.projects": _SUBCLASSES,
    "rlpyt.experiments": "experiments/ of the repository has the configurations as functions, in files of the old "
    "names (docs/reference/experiments.md). To go on with dictionaries copy the old file beside your script: it is "
    "plain Python, and its numbers hold",
}
"""Folders and files of rlpyt 0.1 without a counterpart, and what to do instead."""

SETTINGS = {
    # algorithms
    "bootstrap_timelimit": "Every algorithm bootstraps where a time limit cut the episode. Delete it.",
    "reparameterize": "SAC always draws actions with a gradient. Delete it.",
    "input_priority_shift": "The replay knows which row a priority belongs to. Delete it.",
    "ReplayBufferCls": "The settings of the algorithm say what its replay is made of, and ReplayCls, IndexCls and "
    "ReadingCls take parts of your own (docs/howto/replay.md). Delete it.",
    "updates_per_sync": "Asynchronous runs send the weights after every iteration. Delete it.",
    "mu_learning_rate": "That of the policy is learning_rate. Rename it.",
    "policy_output_regularization": "The SAC with a network of state values is gone. Delete it.",
    # agents
    "share_memory": "The sampler moves the weights into shared memory where it has workers. Delete it.",
    "global_B": "The sampler tells agent.actor of the environments. Delete it.",
    "env_ranks": "The sampler tells agent.actor of the environments. Delete it.",
    "v_model_kwargs": "There is no network of state values. Delete it.",
    "VModelCls": "There is no network of state values. Delete it.",
    "initial_q2_model_state_dict": "All action values are one network, for initial_q_model_state_dict. Delete it.",
    "action_squash": "Actions are scaled to the bounds of their space. Delete it.",
    "eps_itr_min": "Epsilon falls from the first step on. Delete it, or give eps_schedule to the algorithm.",
    "eps_itr_max": "Epsilon falls over eps_steps of the algorithm. Delete it, and give eps_steps there.",
    # spaces and environments
    "null_value": "The null value is zero, and of bounded continuous actions the centre. Delete it.",
    "act_null_value": "The null action is zero, and of bounded continuous actions the centre. Delete it.",
    "obs_null_value": "There is no observation before the first. Delete it.",
    "force_float32": "Observations of float64 become float32. Delete it.",
}
"""Settings of rlpyt 0.1 that nothing here has, and sentences on each: for messages about unknown arguments."""


NAMES: dict[str, dict[str, str]] = {}
"""Old module -> old name -> its dotted name today, or the words that say what to do where there is none."""
for _module, _place, _names in _TABLE:
    for _name in _names.split():
        _old, _, _new = _name.partition("=")
        NAMES.setdefault(f"rlpyt.{_module}", {})[_old] = _place if " " in _place else f"{_place}.{_new or _old}"
_WORDS = [path.split(".") for path in NAMES]
_PATHS = {".".join(words[:n]) for words in _WORDS for n in range(2, len(words) + 1)}


class OldModule(ModuleType):
    """Module of rlpyt 0.1 that finds its names in the new ones, when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        where = NAMES.get(self.__name__, {}).get(name)
        if where is None:
            raise AttributeError(f"{self.__name__!r} has no attribute {name!r}. What rlpyt 0.1 had is in {PAGE}.")
        if " " in where:
            raise AttributeError(_gone(f"{self.__name__}.{name}", where))
        return _found(f"{self.__name__}.{name}", where, stacklevel=3)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to replace a name: nobody would look for it here."""
        if where := NAMES.get(self.__name__, {}).get(name):
            now = where if " " in where else f"it is {where} now"
            raise AttributeError(
                f"{self.__name__}.{name} of rlpyt 0.1 was set, which changes nothing: {now}. See {PAGE}."
            )
        super().__setattr__(name, value)

    @classmethod
    def create_module(cls, spec: ModuleSpec) -> OldModule:
        """Return the module of an old path, as its loader."""
        return cls(spec.name, f"Names of rlpyt 0.1; see {PAGE}.")

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Fill in what `from module import *` takes."""
        vars(module)["__all__"] = [name for name, where in NAMES.get(module.__name__, {}).items() if " " not in where]


def find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module of rlpyt 0.1; None for another.

    Python asks for `module.Name` too where `from module import Name` has found none: then the name is put into a module
    of today whose path is an old one as well.

    Raises:
        ImportError: if there is no such name or folder any more; the text says what to do.
    """
    if name in GONE:
        raise ModuleNotFoundError(_gone(name, GONE[name]), name=name)
    if name in _PATHS:
        return ModuleSpec(name, OldModule, is_package=True)  # type: ignore[arg-type]
    module, _, wanted = name.rpartition(".")
    if where := NAMES.get(module, {}).get(wanted):
        if " " in where:
            raise ImportError(_gone(name, where), name=module)
        vars(sys.modules[module])[wanted] = _found(name, where, stacklevel=4)
    return None


def _gone(old: str, instead: str) -> str:
    return f"{old} of rlpyt 0.1 has no counterpart: {instead}. See {PAGE}."


def _found(old: str, new: str, stacklevel: int) -> Any:
    """Return what an old name stands for, with a warning at the user's line that tells the new one."""
    module, _, name = new.rpartition(".")
    text = f"{old} of rlpyt 0.1 is {new} now. Write: from {module} import {name}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)
    return getattr(importlib.import_module(module), name)
