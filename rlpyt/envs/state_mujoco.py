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

CLASSES = ("mujoco._structs.MjModel", "mujoco._structs.MjData")
"""Names of the classes whose state this is."""
# Shapes and pictures, up to many MB, which no task changes.
_CONSTANT = ("mesh_", "tex_", "skin_", "bvh_", "oct_", "name", "paths")
# Whole numbers that a task may change. All others are places in arrays and sizes, which MuJoCo follows without a look:
# those of a file from elsewhere would lead out of its memory.
_NO_PLACES = ("_contype", "_conaffinity", "_group", "_priority", "_sameframe")
# Options that choose an algorithm, of which MuJoCo takes any number: one that is none may end the process.
_CHOICES = {"cone": "mjtCone", "integrator": "mjtIntegrator", "jacobian": "mjtJacobian", "solver": "mjtSolver"}
_FLAGS = ("flg_energypos", "flg_energyvel", "flg_subtreevel", "flg_rnepost")


def save_mujoco(value: Thing) -> StateDict:
    """Return the state of an MjModel, or of an MjData without its model."""
    fields = _fields(value)
    content = np.frombuffer(b"".join(x.tobytes() for x in fields.values()), np.uint8).copy()
    state = {"layout": _layout(fields), "bytes": content}
    if not _is_data(value):
        options = {name: x for name, x in _members(value.opt).items() if isinstance(x, bool | int | float)}
        return {**state, "constants": _digest(value), "options": options}
    mujoco = sys.modules["mujoco"]
    integration = np.empty(mujoco.mj_stateSize(value.model, _signature()))
    mujoco.mj_getState(value.model, value, integration, _signature())
    flags = {name: bool(getattr(value, name)) for name in _FLAGS if hasattr(value, name)}
    return {**state, "integration": integration, "flags": flags}


def load_mujoco(state: StateDict, fresh: Thing) -> Callable[[], None]:
    """Return a function that restores `fresh`.

    Raises:
        ValueError: if it is of another model.
        StateError: if the model has changed in a way that cannot be restored.
    """
    fields, is_data = _fields(fresh), _is_data(fresh)
    if (state["layout"], state.get("constants")) != (_layout(fields), None if is_data else _digest(fresh)):
        different = set(str(state["layout"]).split("; ")) ^ set(_layout(fields).split("; "))
        raise ValueError(
            f"loading the state of an environment: got the physics of another model, which differs in "
            f"{', '.join(sorted(different)[:2]) or 'its meshes, textures or names'}"
        )
    data, start, saved = np.asarray(state["bytes"], np.uint8).tobytes(), 0, dict[str, np.ndarray]()
    for name, array in fields.items():
        saved[name] = np.frombuffer(data, array.dtype, array.size, start).reshape(array.shape)
        start += array.nbytes
    places = [name for name, x in fields.items() if x.dtype.kind in "iu" and not name.endswith(_NO_PLACES)]
    if not is_data:  # those of the data follow from the rest
        other = [name for name in places if not np.array_equal(saved[name], fields[name])]
        choices = {name: getattr(sys.modules["mujoco"], kind).__members__.values() for name, kind in _CHOICES.items()}
        other += [f"opt.{name}" for name, all_ in choices.items() if state["options"][name] not in map(int, all_)]
        if other:
            raise StateError(
                f"loading the state of an environment: got other numbers of {', '.join(sorted(other)[:3])}, "
                "expected those of the fresh model, as they are places in its arrays or choices of an algorithm"
            )
    return lambda: _load(state, fresh, {name: x for name, x in saved.items() if name not in places}, fields)


def _load(state: StateDict, fresh: Thing, saved: dict[str, np.ndarray], fields: dict[str, np.ndarray]) -> None:
    if _is_data(fresh):
        mujoco = sys.modules["mujoco"]
        mujoco.mj_setState(fresh.model, fresh, np.asarray(state["integration"]), _signature())
        mujoco.mj_forward(fresh.model, fresh)
    for name, content in saved.items():
        if fields[name].flags.writeable:
            fields[name][...] = content
    for name in _FLAGS if _is_data(fresh) else ():
        if hasattr(fresh, name):
            setattr(fresh, name, state["flags"].get(name, False))
    for name, option in state.get("options", {}).items():
        setattr(fresh.opt, name, option)


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
    arrays = [(name, x) for name, x in _members(model).items() if isinstance(x, np.ndarray)]
    content = b"".join(name.encode() + x.tobytes() for name, x in arrays if name.startswith(_CONSTANT))
    return hashlib.sha256(content).hexdigest()


def _members(value: Thing) -> StateDict:
    return {name: getattr(value, name) for name in dir(value) if not name.startswith("_")}


def _is_data(value: Thing) -> bool:
    return type(value).__name__ == "MjData"


def _signature() -> int:
    return int(sys.modules["mujoco"].mjtState.mjSTATE_INTEGRATION)
