"""Games of several players as a vector environment with a column for each player, so that one policy plays them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from rlpyt.envs.base import Reset
from rlpyt.envs.info import vector_info
from rlpyt.namedarraytuple import Buffer
from rlpyt.spaces import Space
from rlpyt.types import Info

_RESULTS = ("observations", "rewards", "terminations", "truncations")


class ParallelGame(Protocol):
    """Game in which all players act at the same time, as PettingZoo's `ParallelEnv`; all mappings are by player."""

    @property
    def possible_agents(self) -> Sequence[str]:
        """Return all players, in the order of the columns."""

    def observation_space(self, agent: str, /) -> Space:
        """Return the space of what a player sees."""

    def action_space(self, agent: str, /) -> Space:
        """Return the space of what a player does."""

    def reset(self, seed: int | None = None) -> tuple[Mapping[str, Buffer], Mapping[str, Info]]:
        """Begin a game; return observations and infos."""

    def step(self, actions: Mapping[str, Buffer], /) -> tuple[Mapping[str, Buffer], ...]:
        """Step the players in play; return observations, rewards, terminations, truncations and infos."""

    def close(self) -> None:
        """Close the game."""


def players_make_vec(make: Callable[..., ParallelGame], num_envs: int, **game_kwargs: object) -> PlayersVec:
    """Return games of several players as one vector environment: an `EnvCls` for any sampler.

    Args:
        make: makes a game, such as `parallel_env` of a module of PettingZoo.
        num_envs: columns, which are the players of all games together.
        **game_kwargs: arguments of `make`.

    Raises:
        TypeError: if the players of the game take turns.
        ValueError: if the columns are no whole number of games, or the spaces of two players differ.
    """
    first = make(**game_kwargs)
    name = type(getattr(first, "unwrapped", first)).__name__
    if not hasattr(first, "possible_agents") or hasattr(first, "agent_iter"):
        what = "its players take turns" if hasattr(first, "agent_iter") else "it has no possible_agents"
        raise TypeError(
            f"players_make_vec: {name} is not a game in which all players act at the same time: {what}; expected a "
            "ParallelEnv of PettingZoo, such as pettingzoo.sisl.pursuit_v5.parallel_env makes, or the same methods. "
            "For turns make an environment of one player, in which the others move inside of step "
            "(docs/howto/several_players.md)."
        )
    n_players = len(first.possible_agents)
    if num_envs % n_players:
        first.close()
        raise ValueError(
            f"players_make_vec: {name} has {n_players} players, each a column of the batch, and {num_envs} columns "
            f"were asked for; expected a multiple of {n_players}. batch_B and eval_n_envs count players, and so does "
            "the share of each worker, or part, of a sampler."
        )
    return PlayersVec([first, *(make(**game_kwargs) for _ in range(num_envs // n_players - 1))], name)


class PlayersVec(VectorEnv[Buffer, Buffer, Buffer]):
    """Games of several players; the columns of game g are g * P to g * P + P - 1 for P players.

    The players of a game begin together. One that is out before the others has its final observation in the next row,
    as at any end of an episode, and then waits: the rows until the game is over are no steps. `info["traj_done"]` is
    False in them, so that no trajectory is counted for the wait. Then all players begin the next game.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, games: Sequence[ParallelGame], name: str) -> None:
        self.games, self._name, self.players = list(games), name, list(games[0].possible_agents)
        self.num_envs = len(self.games) * len(self.players)
        self.single_observation_space = self._space_of_all("observation_space")
        self.single_action_space = self._space_of_all("action_space")
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._observations: list[Buffer] = [None] * self.num_envs
        self._out = np.ones((len(self.games), len(self.players)), bool)  # players who wait for the next game

    def _space_of_all(self, kind: str) -> Space:
        spaces: dict[str, Space] = {player: getattr(self.games[0], kind)(player) for player in self.players}
        first, *others = self.players
        for other in others:
            if spaces[other] != spaces[first]:
                raise ValueError(
                    f"{self._name}: the {kind} of {other!r} is {spaces[other]}, and that of {first!r} is "
                    f"{spaces[first]}; expected one for all, as one policy plays them. Pad the smaller in a wrapper."
                )
        return spaces[first]

    def reset(self, *, seed: int | Sequence[int] | None = None, options: Info | None = None) -> Reset:
        """Begin all games, each with the seed of its first column; one number is that of the first game."""
        seeds: Sequence[int | None] = [None] * len(self.games)
        if isinstance(seed, int):
            seeds = range(seed, seed + len(self.games))
        elif seed is not None:
            seeds = [int(one) for one in seed[:: len(self.players)]]
        infos: list[Info] = []
        for g, of_game in enumerate(seeds):
            infos += self._begin(g, of_game)
        return self._batch(), vector_info(infos, self.num_envs)

    def step(self, actions: Buffer) -> tuple[Buffer, np.ndarray, np.ndarray, np.ndarray, dict[str, Buffer]]:
        """Step all games that are under way, and begin those that are over."""
        by_column = list(iterate(self.action_space, actions))
        n_players = len(self.players)
        reward, infos = np.zeros(self.num_envs, np.float32), list[Info]()
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for g in range(len(self.games)):
            if self._out[g].all():
                infos += self._begin(g)
            else:
                columns = slice(g * n_players, (g + 1) * n_players)
                infos += self._step_game(
                    g, by_column[columns], reward[columns], terminated[columns], truncated[columns]
                )
        return self._batch(), reward, terminated, truncated, vector_info(infos, self.num_envs)

    def close_extras(self, **kwargs: object) -> None:
        """Close all games."""
        for game in self.games:
            game.close()

    def _begin(self, g: int, seed: int | None = None) -> list[Info]:
        observations, infos = self.games[g].reset(seed=seed)
        self._out[g] = False
        for p, player in enumerate(self.players):
            if player not in observations:
                raise ValueError(
                    f"reset of {self._name} gave no observation of {player!r}; expected all of possible_agents in play "
                    "at the beginning of a game. One may be out after its first step."
                )
            self._observations[g * len(self.players) + p] = observations[player]
        return [infos.get(player, {}) for player in self.players]

    def _step_game(
        self, g: int, actions: Sequence[Buffer], reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray
    ) -> list[Info]:
        """Step a game, and write to its columns; return their infos."""
        out = self._out[g]
        live = {player: p for p, player in enumerate(self.players) if not out[p]}
        results = self.games[g].step({player: actions[p] for player, p in live.items()})
        infos: list[Info] = [{"traj_done": False}] * len(self.players)
        terminated[out] = True  # those who wait: their episode is over, still
        for player, p in live.items():
            if missing := [name for name, of in zip(_RESULTS, results[:4], strict=True) if player not in of]:
                raise ValueError(
                    f"step of {self._name}: {player!r} is in play, and {' and '.join(missing)} has nothing of it; "
                    f"expected {', '.join(_RESULTS)} of every player whose episode has not ended."
                )
            observations, rewards, terminations, truncations, of_players = results
            self._observations[g * len(self.players) + p] = observations[player]
            reward[p], terminated[p], truncated[p] = rewards[player], terminations[player], truncations[player]
            out[p] = terminated[p] or truncated[p]
            infos[p] = {**of_players.get(player, {}), "traj_done": bool(out[p])}
        return infos

    def _batch(self) -> Buffer:
        """Return the observations of all columns in memory of their own."""
        space = self.single_observation_space
        memory: Buffer = create_empty_array(space, self.num_envs)
        return concatenate(space, self._observations, memory)
