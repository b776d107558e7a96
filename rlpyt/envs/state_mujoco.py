"""Physics of MuJoCo as plain data: `MjModel`, which tasks change at a reset, and `MjData`.

The integration state of MuJoCo is not enough: positions of bodies lag behind it by a step, and Ant and Humanoid give
them out. So all fields of fixed size are saved, too. The forces of contacts and limits, whose number changes, are
computed again: dm-control starts a step from them.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable

import numpy as np

from rlpyt.envs.state_data import StateError, Thing
from rlpyt.types import StateDict

_CLASSES = ("mujoco._structs.MjModel", "mujoco._structs.MjData")
# Shapes and pictures, up to many MB, which no task changes.
_CONSTANT = ("mesh_", "tex_", "skin_", "bvh_", "oct_", "name", "paths")
# Whole numbers that a task may change. All others are places in arrays and sizes, which MuJoCo follows without a look:
# those of a file from elsewhere would lead out of its memory.
_NO_PLACES = ("_contype", "_conaffinity", "_group", "_priority", "_sameframe")
_LOOKS = {"_matid": "nmat", "_texid": "ntex"}  # materials and textures, of which there are so many
# Options that choose an algorithm, of which MuJoCo takes any number: one that is none may end the process.
_CHOICES = {"cone": "mjtCone", "integrator": "mjtIntegrator", "jacobian": "mjtJacobian", "solver": "mjtSolver"}
_FLAGS = ("flg_energypos", "flg_energyvel", "flg_subtreevel", "flg_rnepost")


def is_mujoco(name: str) -> bool:
    """Return whether a class, given by its name, is the model or the data of MuJoCo."""
    return name in _CLASSES


def mujoco_state(value: Thing) -> StateDict:
    """Return the state of an MjModel, or of an MjData without its model."""
    fields = _fields(value)
    content = np.frombuffer(b"".join(x.tobytes() for x in fields.values()), np.uint8).copy()
    state = {"layout": _layout(fields), "bytes": content}
    if not _is_data(value):
        options = {name: x for name, x in _members(value.opt).items() if isinstance(x, bool | int | float)}
        return {**state, "constants": _digest(value), "options": options}
    flags = {name: bool(x) for name, x in _members(value).items() if name in _FLAGS}
    return {**state, "integration": _integration(value), "flags": flags}


def load_mujoco(state: StateDict, fresh: Thing, place: str) -> Callable[[], None]:
    """Return a function that restores `fresh`.

    Raises:
        ValueError: if it is of another model.
        StateError: if the model has changed in a way that cannot be restored.
    """
    fields = _fields(fresh)
    mine = {"layout": _layout(fields), "constants": None if _is_data(fresh) else _digest(fresh)}
    for part in ("layout", "constants"):
        if state.get(part) != mine.get(part):
            raise ValueError(
                f"loading the state of an environment: {place}: got the physics of another model ({part}: "
                f"{_first_difference(str(state.get(part)), str(mine.get(part)))})."
            )
    data, start, saved = np.asarray(state["bytes"], np.uint8).tobytes(), 0, dict[str, np.ndarray]()
    for name, array in fields.items():
        saved[name] = np.frombuffer(data, array.dtype, array.size, start).reshape(array.shape)
        start += array.nbytes
    places = {name for name, x in fields.items() if x.dtype.kind in "iu" and not name.endswith(_NO_PLACES)}
    if not _is_data(fresh):  # those of the data follow from the rest
        places -= {name for name in places if _looks_right(name, saved[name], fresh)}
        other = sorted(name for name in places if not np.array_equal(saved[name], fields[name]))
        other += [f"opt.{name}" for name, kind in _CHOICES.items() if not _is_one_of(kind, state["options"][name])]
        if other:
            raise StateError(
                f"loading the state of an environment: {place}: got other numbers of {', '.join(other[:3])}, expected "
                "those of the fresh model, as they are places in its arrays or choices of an algorithm"
            )
    return lambda: _load(state, fresh, {name: x for name, x in saved.items() if name not in places}, fields)


def _load(state: StateDict, fresh: Thing, saved: dict[str, np.ndarray], fields: dict[str, np.ndarray]) -> None:
    if _is_data(fresh):
        mujoco = sys.modules["mujoco"]
        mujoco.mj_setState(fresh.model, fresh, np.asarray(state["integration"]), _signature(mujoco))
        mujoco.mj_forward(fresh.model, fresh)
    for name, content in saved.items():
        if fields[name].flags.writeable:
            fields[name][...] = content
    for name, flag in state.get("flags", {}).items():
        if name in _FLAGS:
            setattr(fresh, name, flag)
    for name, option in state.get("options", {}).items():
        setattr(fresh.opt, name, option)


def _looks_right(name: str, numbers: np.ndarray, model: Thing) -> bool:
    """Return whether a field of a model has materials or textures, all of which there are."""
    count = next((getattr(model, n) for ending, n in _LOOKS.items() if name.endswith(ending)), None)
    return count is not None and bool(((numbers >= -1) & (numbers < count)).all())


def _is_one_of(kind: str, number: object) -> bool:
    """Return whether a number is a member of one of MuJoCo's enumerations."""
    members: StateDict = getattr(sys.modules["mujoco"], kind).__members__
    return number in [int(member.value) for member in members.values()]


def _fields(value: Thing) -> dict[str, np.ndarray]:
    """Return the arrays, in alphabetical order; of an MjData those whose size does not depend on contacts."""
    members = {name: x for name, x in _members(value).items() if isinstance(x, np.ndarray)}
    if _is_data(value):
        fixed = sys.modules["mujoco"].MjData(value.model)
        return {name: x for name, x in members.items() if getattr(fixed, name).size}
    options = {f"opt.{name}": x for name, x in _members(value.opt).items() if isinstance(x, np.ndarray)}
    return {**{name: x for name, x in members.items() if not name.startswith(_CONSTANT)}, **options}


def _layout(fields: dict[str, np.ndarray]) -> str:
    return "; ".join(f"{name} {array.dtype.str} {array.shape}" for name, array in fields.items())


def _digest(model: Thing) -> str:
    digest = hashlib.sha256()
    for name, x in _members(model).items():
        if isinstance(x, np.ndarray) and name.startswith(_CONSTANT):
            digest.update(name.encode() + x.tobytes())
    return digest.hexdigest()


def _members(value: Thing) -> StateDict:
    return {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}


def _is_data(value: Thing) -> bool:
    return type(value).__name__ == "MjData"


def _signature(mujoco: Thing) -> int:
    return int(mujoco.mjtState.mjSTATE_INTEGRATION)


def _integration(data: Thing) -> np.ndarray:
    mujoco = sys.modules["mujoco"]
    state = np.empty(mujoco.mj_stateSize(data.model, _signature(mujoco)))
    mujoco.mj_getState(data.model, data, state, _signature(mujoco))
    return state


def _first_difference(came: str, expected: str) -> str:
    for one, other in zip(came.split("; "), expected.split("; "), strict=False):
        if one != other:
            return f"{one}, expected {other}"
    return "one has more fields"
