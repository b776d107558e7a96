"""Products of distributions: hand numbers, all joint actions of small spaces, and what a product asks of its parts."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt import agents
from rlpyt.agents import CategoricalPgAgent, GaussianPgAgent, PgAgent, export_policy
from rlpyt.distributions import (
    Composite,
    DistInfoStd,
    Gaussian,
    MultiCategorical,
    distribution_of,
    leaf_distributions,
)
from rlpyt.models import PgModel
from rlpyt.spaces import EnvSpaces, leaf_spaces, null_action, to_env
from rlpyt.utils.arrays import buffer_func, buffer_leaves, torchify_buffer

BOX = spaces.Box(np.float32(-1), np.float32(3), (1,))
MIXED = spaces.Dict([("move", spaces.Discrete(3)), ("aim", BOX)])
"""In an order that is not that of the alphabet."""
DISCRETE = spaces.Tuple(
    [spaces.Discrete(2), spaces.Dict({"a": spaces.MultiDiscrete([2, 3]), "b": spaces.MultiBinary(2)})]
)
DEEP = spaces.Dict({"deep": spaces.Tuple([MIXED, BOX]), "move": spaces.MultiDiscrete([2, 4])})


def of(space: Any) -> Any:
    return distribution_of(space, "the action space")


def parameters(distribution: Any, *lead: int, seed: int = 0) -> Any:
    """Random parameters; half as wide for a standard deviation."""
    g, fields = torch.Generator().manual_seed(seed), []
    leaf: Any
    for leaf in leaf_distributions(distribution):
        width = sum(leaf.dims) if isinstance(leaf, MultiCategorical) else leaf.dim
        fields += [torch.randn(*lead, width, generator=g) for _ in leaf.DistInfo._fields]
    return distribution.DistInfo(*fields)


def test_hand_numbers() -> None:
    distribution = of(MIXED)
    assert distribution.DistInfo._fields == ("move_logits", "aim_mean", "aim_log_std")
    logits = torch.tensor([0.0, math.log(2), math.log(5)])
    dist_info = distribution.DistInfo(logits, torch.tensor([0.5]), torch.tensor([math.log(0.25)]))
    # The Box is [-1, 3], so an action is 1 + 2 x; x is 0.75, one standard deviation above its mean.
    action = distribution.mode(dist_info)._replace(aim=torch.tensor([2.5]))
    assert int(action.move) == 2
    density = math.exp(-0.5) / (0.25 * math.sqrt(2 * math.pi)) / 2
    h_move = -(1 / 8 * math.log(1 / 8) + 1 / 4 * math.log(1 / 4) + 5 / 8 * math.log(5 / 8))
    h_aim = 0.5 * math.log(2 * math.pi * math.e) + math.log(0.25 * 2)
    log_prob, entropy = distribution.log_prob_and_entropy(action, dist_info)
    assert log_prob.item() == pytest.approx(math.log(5 / 8) + math.log(density))
    assert entropy.item() == pytest.approx(h_move + h_aim)
    assert distribution.log_prob(action, dist_info).item() == pytest.approx(log_prob.item())
    assert distribution.entropy(dist_info).item() == pytest.approx(entropy.item())
    other = distribution.DistInfo(torch.zeros(3), torch.tensor([0.0]), torch.tensor([math.log(0.5)]))
    kl_aim = math.log(0.5 / 0.25) + (0.25**2 + 0.5**2) / (2 * 0.5**2) - 0.5
    assert distribution.kl(dist_info, other).item() == pytest.approx(math.log(3) - h_move + kl_aim)
    assert distribution.encode(action).tolist() == [0, 0, 1, 0.75]
    assert distribution.mode(dist_info).aim.tolist() == [2.0]


def joint(space: Any) -> list[Any]:
    """All actions of a discrete space, nested too, as rows of tensors."""
    leaves = []
    for leaf in leaf_spaces(space):
        sizes = (
            [leaf.n] if isinstance(leaf, spaces.Discrete) else getattr(leaf, "nvec", [2] * math.prod(leaf.shape or ()))
        )
        leaves.append([np.array(x).reshape(leaf.shape) for x in itertools.product(*map(range, sizes))])
    rows = []
    for values in itertools.product(*leaves):
        rest = iter(values)
        rows.append(buffer_func(null_action(space), lambda _, rest=rest: torch.from_numpy(next(rest).astype(np.int64))))
    return rows


def test_against_all_joint_actions_of_a_small_space() -> None:
    distribution, actions = of(DISCRETE), joint(DISCRETE)
    assert len(actions) == 2 * 2 * 3 * 2 * 2
    old, new = (parameters(distribution, seed=seed) for seed in (1, 2))
    log_old, log_new = (
        torch.tensor([distribution.log_prob(a, info).item() for a in actions], dtype=torch.float64)
        for info in (old, new)
    )
    p = log_old.exp()
    assert p.sum().item() == pytest.approx(1)
    assert distribution.entropy(old).item() == pytest.approx(-(p * log_old).sum().item())
    assert distribution.kl(old, new).item() == pytest.approx((p * (log_old - log_new)).sum().item())
    best = actions[int(p.argmax())]
    assert all(map(torch.equal, buffer_leaves(best), [x.long() for x in buffer_leaves(distribution.mode(old))]))
    n = 40_000
    noise = distribution.draw_noise(n, torch.Generator().manual_seed(3))
    sampled = distribution.encode(distribution.sample(buffer_func(old, lambda x: x.expand(n, -1)), noise))
    codes = torch.stack([distribution.encode(a) for a in actions])
    counts = (sampled[:, None] == codes).all(-1).sum(0)
    assert counts.sum() == n
    df = len(actions) - 1
    assert (((counts - n * p) ** 2) / (n * p)).sum() < df + 5 * math.sqrt(2 * df)


@pytest.mark.parametrize("lead", [(), (5,), (3, 5)])
@pytest.mark.parametrize("space", [MIXED, DISCRETE, DEEP])
def test_any_leading_dimensions_are_the_sums_over_the_leaves(space: Any, lead: tuple[int, ...]) -> None:
    distribution, B = of(space), math.prod(lead)
    old, new = (parameters(distribution, *lead, seed=seed) for seed in (1, 2))
    drawn = distribution.draw_noise(B, torch.Generator().manual_seed(0))
    noise = buffer_func(drawn, lambda x: x.reshape(*lead, *x.shape[1:]))
    action = distribution.sample(old, noise)
    log_prob, entropy = distribution.log_prob_and_entropy(action, new)
    kl = distribution.kl(old, new)
    expected = [torch.zeros(lead), torch.zeros(lead), torch.zeros(lead)]
    rest_old, rest_new = iter(tuple(old)), iter(tuple(new))
    for leaf, x in zip(leaf_distributions(distribution), buffer_leaves(action), strict=True):
        a, b = (leaf.DistInfo(*[next(rest) for _ in leaf.DistInfo._fields]) for rest in (rest_old, rest_new))
        for i, term in enumerate((leaf.log_prob(x, b), leaf.entropy(b), leaf.kl(a, b))):
            expected[i] = expected[i] + term
    for got, term in zip((log_prob, entropy, kl), expected, strict=True):
        torch.testing.assert_close(got, term)
        assert got.shape == lead
    convert = to_env(space)
    rows = buffer_func(action, lambda x: x.reshape(B, *x.shape[len(lead) :]).numpy())
    assert all(space.contains(convert(rows[b])) for b in range(B))


def test_a_row_of_noise_is_that_of_its_environment() -> None:
    distribution = of(DEEP)
    noise = distribution.draw_noise(6, torch.Generator().manual_seed(0))
    info = parameters(distribution, 6)
    whole = distribution.sample(info, noise)
    mine = torch.tensor([4, 1])
    some = distribution.sample(info[mine], noise[mine])
    assert all(map(torch.equal, buffer_leaves(some), buffer_leaves(whole[mine])))


def test_the_default_model_gives_its_parameters() -> None:
    for by_state, n in ((False, 3 + 1 + 1 + 6), (True, 3 + 1 + 1 + 6 + 2)):
        model: Any = PgModel(spaces.Box(-1, 1, (2,)), DEEP, init_log_std=-0.5, state_dependent_std=by_state)
        assert model.policy[-1].out_features == n
        *outputs, value = model(torch.zeros(4, 2), None, torch.zeros(4))
        distribution = of(DEEP)
        info = distribution.DistInfo(*outputs)
        assert distribution.DistInfo._fields == (
            *("deep_0_move_logits", "deep_0_aim_mean", "deep_0_aim_log_std"),
            *("deep_1_mean", "deep_1_log_std", "move_logits"),
        )
        assert [x.shape[-1] for x in tuple(info)] == [3, 1, 1, 1, 1, 6]
        assert torch.all(info["deep_1_log_std"] == -0.5)
        assert torch.all(info["deep_0_aim_log_std"] == -0.5)
        (distribution.entropy(info).sum() + value.sum()).backward()
        assert all(p.grad is not None for p in model.policy.parameters())


def test_a_model_of_ones_own_is_told_what_is_asked_of_it() -> None:
    class Short(torch.nn.Module):
        def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
            B = len(observation)
            return torch.zeros(B, 3), torch.zeros(B, 2), torch.zeros(B, 1), torch.zeros(B)

    class Probabilities(Short):
        def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
            mean = observation[:, :1]
            return (3 * observation[:, :1] * torch.arange(3)).softmax(-1), mean, mean, mean[:, 0]

    own = EnvSpaces(spaces.Box(-1, 1, (2,)), MIXED)
    with pytest.raises(
        ValueError, match=r"expected move_logits \[3, 3\], aim_mean \[3, 1\], aim_log_std \[3, 1\], value"
    ):
        PgAgent(ModelCls=Short).initialize(own)
    with pytest.raises(ValueError, match="these look like probabilities"):
        PgAgent(ModelCls=Probabilities).initialize(own)


def test_it_goes_to_other_processes() -> None:
    distribution = of(DEEP)
    info = parameters(distribution, 2)
    for other in (copy.deepcopy(distribution), pickle.loads(cloudpickle.dumps(distribution))):
        assert torch.equal(other.entropy(info), distribution.entropy(info))
        assert other.DistInfo._fields == distribution.DistInfo._fields


# ---- masks ----


def test_a_mask_is_dealt_to_the_discrete_parts() -> None:
    distribution, info = of(DEEP), parameters(of(DEEP), 1)
    legal = torch.tensor([[True, False, True, True, False, False, False, True, True]])
    masked = distribution.restrict(info, legal)
    assert (masked["deep_0_move_logits"] == -torch.inf).tolist() == [[False, True, False]]
    assert (masked["move_logits"] == -torch.inf).tolist() == [[False, True, True, True, False, False]]
    assert torch.equal(masked["deep_1_mean"], info["deep_1_mean"])
    action = distribution.sample(buffer_func(masked, lambda x: x.expand(500, -1)),
                                 distribution.draw_noise(500, torch.Generator().manual_seed(0)))  # fmt: skip
    assert set(action.deep.get(0).move.tolist()) == {0, 2}
    assert set(map(tuple, action.move.tolist())) == {(0, 2), (0, 3)}


def test_a_discrete_part_without_logits_has_no_mask() -> None:
    class Counts(Gaussian):
        """A distribution of one's own over a discrete part."""

    distribution = Composite({"move": Counts(3), "turn": MultiCategorical([2])})
    info = distribution.DistInfo(*[torch.zeros(1, n) for n in (3, 3, 2)])
    with pytest.raises(TypeError, match="a mask forbids actions of a part without logits"):
        distribution.restrict(info, torch.ones(1, 5, dtype=torch.bool))


# ---- what is refused ----


def test_what_is_refused_is_named() -> None:
    with pytest.raises(ValueError, match="Composite: got no parts"):
        Composite({})
    unbounded = spaces.Dict({"a": spaces.Tuple([spaces.Box(-np.inf, np.inf, (1,))])})
    with pytest.raises(ValueError, match=r"the action space\['a'\]\['0'\]: Scaling actions to their bounds"):
        of(unbounded)
    with pytest.raises(TypeError, match=r"the action space\['a'\] is Text.*; expected Discrete, .*own_agent\.md"):
        of(spaces.Dict({"a": spaces.Text(3)}))
    assert isinstance(of(spaces.Dict({"a": BOX})).parts["a"], Gaussian)
    assert of(BOX).DistInfo is DistInfoStd


@pytest.mark.parametrize(
    ("name", "space", "text"),
    [
        ("CategoricalPgAgent", MIXED, "expected a discrete one. Use PgAgent"),
        ("GaussianPgAgent", MIXED, "expected a Box. Use PgAgent"),
        ("GaussianPgAgent", DISCRETE, "expected a Box. Use CategoricalPgAgent"),
        *((name, MIXED, "PgAgent with A2C, PPO or VTrace, which")
          for name in ("DqnAgent", "IqnAgent", "R2d1Agent", "SacAgent", "DdpgAgent", "Td3Agent", "PopulationAgent")),
    ],
)  # fmt: skip
def test_agents_that_do_not_take_a_space_name_those_that_do(name: str, space: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        getattr(agents, name)().initialize(EnvSpaces(BOX, space))


def test_an_export_of_composite_actions_is_refused(tmp_path: Path) -> None:
    agent = PgAgent(model_kwargs=dict(hidden_sizes=4))
    with pytest.raises(RuntimeError, match="is not initialised"):
        export_policy(agent, tmp_path / "policy.pt2")
    agent.initialize(EnvSpaces(BOX, MIXED))
    with pytest.raises(TypeError, match=r"export_policy: the actions are Dict.*save_weights"):
        export_policy(agent, tmp_path / "policy.pt2")


def test_all_parts_of_one_kind_suit_the_agents_of_that_kind() -> None:
    CategoricalPgAgent().initialize(EnvSpaces(BOX, DISCRETE))
    GaussianPgAgent().initialize(EnvSpaces(BOX, spaces.Tuple([BOX, BOX])))


def test_rows_keep_the_null_action() -> None:
    """The null action is encoded as zeros in a Box, and as the first of the choices, as it is alone."""
    null = buffer_func(torchify_buffer(null_action(DEEP)), torch.as_tensor)
    assert of(DEEP).encode(null).tolist() == [1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0]
