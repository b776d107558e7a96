"""What the models with rlpyt 0.1's signatures are told of the spaces."""

from __future__ import annotations

from gymnasium import spaces

from rlpyt.spaces import EnvSpaces
from rlpyt.types import Kwargs


def image_model_kwargs(env_spaces: EnvSpaces) -> Kwargs:
    """Return `image_shape` [C, height, width] and `output_size`, the number of actions."""
    observation, action = env_spaces
    if (
        not isinstance(observation, spaces.Box)
        or len(observation.shape) != 3
        or not isinstance(action, spaces.Discrete)
    ):
        raise TypeError(
            f"An image model for discrete actions was given the spaces {observation} and {action}; expected a Box "
            "[C, height, width] and a Discrete. Use CategoricalPgAgent or DqnAgent, whose models fit any spaces."
        )
    return {"image_shape": observation.shape, "output_size": int(action.n)}


def vector_model_kwargs(env_spaces: EnvSpaces) -> Kwargs:
    """Return `observation_shape` and `action_size`."""
    observation, action = env_spaces
    if not isinstance(observation, spaces.Box) or not isinstance(action, spaces.Box) or len(action.shape) != 1:
        raise TypeError(
            f"A vector model for continuous actions was given the spaces {observation} and {action}; expected Boxes, "
            "the action's with one dimension. Use GaussianPgAgent, whose models fit any spaces."
        )
    return {"observation_shape": observation.shape, "action_size": action.shape[0]}


class AtariMixin:
    """Mixin of rlpyt 0.1: tells an agent's ModelCls `image_shape` and `output_size`, and nothing else."""

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> Kwargs:
        """Return the image's shape and the number of actions."""
        return image_model_kwargs(env_spaces)


class MujocoMixin:
    """Mixin of rlpyt 0.1: tells an agent's ModelCls `observation_shape` and `action_size`, and nothing else."""

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> Kwargs:
        """Return the observation's shape and the number of action dimensions."""
        return vector_model_kwargs(env_spaces)
