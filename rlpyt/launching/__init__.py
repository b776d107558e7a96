"""Grids of runs: variants of a configuration, shares of a machine, and the queue that runs them."""

from rlpyt.launching.affinity import (
    Slots,
    affinity_from_code,
    encode_affinity,
    get_n_run_slots,
    make_affinity,
    prepend_run_slot,
    quick_affinity_code,
    remove_run_slot,
)
from rlpyt.launching.cluster import ClusterSlots
from rlpyt.launching.experiments import run_experiments
from rlpyt.launching.machine import Core, Machine
from rlpyt.launching.ray_nodes import RayNodes
from rlpyt.launching.script import LaunchedRun, launched_run
from rlpyt.launching.search import SearchResult, load_search, search_experiments
from rlpyt.launching.variants import VariantLevel, load_variant, make_variants, save_variant, update_config

__all__ = [
    # variants
    "VariantLevel",
    "make_variants",
    "save_variant",
    "load_variant",
    "update_config",
    # shares of a machine
    "Slots",
    "encode_affinity",
    "make_affinity",
    "affinity_from_code",
    "quick_affinity_code",
    "get_n_run_slots",
    "prepend_run_slot",
    "remove_run_slot",
    "Machine",
    "Core",
    # runs
    "run_experiments",
    "search_experiments",
    "SearchResult",
    "load_search",
    "ClusterSlots",
    "RayNodes",
    "launched_run",
    "LaunchedRun",
]
