"""Cost of averaging gradients: its share of an update of 0.1M, 1.7M and 10M parameters in two replicas, one core each.

    python benchmarks/reduction.py [--rounds 3] [--updates 30]

An update is forward, backward, clipping and Adam over a batch of 256. "alone" are the same two processes at the same
time, which average nothing. Both ways of averaging are measured in turn, round after round. The last line is the same
as JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import time
from statistics import median
from typing import Any

import psutil
import torch
import torch.distributed as dist

from rlpyt.algos.gradient_descent import GradientDescent
from rlpyt.models import MlpModel
from rlpyt.utils.process_group import ProcessGroup
from rlpyt.utils.processes import available_cpus
from rlpyt.utils.replicas import Replicas

SIZES = {"0.1M": [256, 256], "1.7M": [1_200, 1_200], "10M": [3_050, 3_050]}
"""Widths of the hidden layers, by the number of parameters."""
N_INPUTS, ROWS, WARM_UP = 64, 256, 5
WAYS = ("alone", "flat", "ddp")


def seconds_of_updates(hidden_sizes: list[int], replicas: Replicas, n_updates: int) -> float:
    """Return the median seconds of an update."""
    torch.manual_seed(0)
    model = MlpModel(N_INPUTS, hidden_sizes, 1)
    descent = GradientDescent(torch.optim.Adam(model.parameters(), lr=1e-4), 1e-4, replicas)
    inputs, times = torch.randn(ROWS, N_INPUTS), []
    for _ in range(WARM_UP + n_updates):
        start = time.perf_counter()
        descent(model(inputs).square().mean(), 1e-4, 1.0)
        times.append(time.perf_counter() - start)
    return median(times[WARM_UP:])


def replica(rank: int, port: int, n_rounds: int, n_updates: int, pipe: Any) -> None:
    """Measure all sizes in all ways, in turn, and send what was measured."""
    cores = available_cpus()
    psutil.Process().cpu_affinity([cores[rank % len(cores)]])
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0)
    measured: dict[str, dict[str, list[float]]] = {size: {way: [] for way in WAYS} for size in SIZES}
    for i in range(n_rounds):
        for way in WAYS:
            reduction: Any = "flat" if way == "alone" else way
            group = ProcessGroup(dist.PrefixStore(f"{i} {way}", store), rank, 2, reduction=reduction)
            for size, hidden_sizes in SIZES.items():
                group.any(False)  # both begin at the same time
                replicas = Replicas() if way == "alone" else group
                measured[size][way].append(seconds_of_updates(hidden_sizes, replicas, n_updates))
            group.leave()
    pipe.send(measured)


def main() -> None:
    """Start both replicas and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=30, help="in each way and round")
    args = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    processes = [
        context.Process(target=replica, args=(rank, port, args.rounds, args.updates, theirs)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    measured = ours.recv()
    for process in processes:
        process.join()
    print(f"{'parameters':<12}" + "".join(f"{f'{way}, ms':>12}" for way in WAYS) + "   share of flat, of ddp")
    for size, ways in measured.items():
        medians = [median(ways[way]) for way in WAYS]
        shares = [f"{1 - medians[0] / reduced:.0%}" for reduced in medians[1:]]
        print(f"{size:<12}" + "".join(f"{1e3 * x:>12.2f}" for x in medians) + f"   {', '.join(shares)}")
    print("JSON " + json.dumps(measured))


if __name__ == "__main__":
    main()
