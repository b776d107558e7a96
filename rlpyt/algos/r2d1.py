"""R2D2 on one machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from rlpyt.algos.dqn import DQN
from rlpyt.functional import CountLike, ScheduleLike


@dataclass(kw_only=True, eq=False)
class R2D1(DQN):
    """`DQN` with the settings of R2D2; for recurrent agents such as `R2d1Agent`.

    The exponents of priorities and importance weights, `pri_alpha` 0.6 and `pri_beta_init` 0.9, are those of rlpyt 0.1.
    R2D2 itself has them the other way round: 0.9 and 0.6.

    Sequences begin at stored recurrent states; `warmup_T` rows bring network and target network up to date, `batch_T`
    rows are trained on. Where an episode ends inside a sequence the state is reset and training goes on.

    Source: Kapturowski et al. 2019, Recurrent Experience Replay in Distributed Reinforcement Learning.
    """

    opt_info_fields: ClassVar[tuple[str, ...]] = ("loss", "gradNorm", "tdAbsErr", "priority")

    discount: ScheduleLike = 0.997
    learning_rate: ScheduleLike = 1e-4
    optim_kwargs: dict[str, Any] = field(default_factory=lambda: {"eps": 1e-3})
    """Further arguments of the optimiser."""
    clip_grad_norm: ScheduleLike = 80.0
    delta_clip: ScheduleLike | None = None
    min_steps_learn: int = int(1e5)
    replay_ratio: ScheduleLike = 1.0
    n_step_return: int = 5
    target_update_interval: CountLike = 2500
    """Updates between target updates."""
    double_dqn: bool = True
    value_scale_eps: float | None = 1e-3

    prioritized_replay: bool = True
    pri_beta_init: float = 0.9
    pri_beta_final: float = 0.9
    input_priorities: bool | None = None
    """Whether new sequences get priorities from the Q-values that the agent acted by; None where replay is
    prioritised."""

    batch_T: int | None = 80
    batch_B: CountLike | None = 64
    warmup_T: int = 40
    store_rnn_state_interval: int = 40
