"""The commands for a real Spark cluster on this machine: start it, look at it, stop it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidewise.cli.output import print_json, print_sentence
from tidewise.core import BadInputError
from tidewise.engines.spark.cluster import LocalCluster

cluster_commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="A real Spark cluster on this machine, on 127.0.0.1 only.",
    epilog="Begin with:  tidewise cluster up",
)

DEFAULT_FOLDER = Path("runs/cluster")

Folder = Annotated[Path, typer.Option("--folder", help="The folder that the cluster is kept in.", show_default=True)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


@cluster_commands.command()
def up(
    *,
    folder: Folder = DEFAULT_FOLDER,
    workers: Annotated[int, typer.Option("--workers", min=1, help="How many workers.")] = 2,
    slots: Annotated[
        int, typer.Option("--slots", min=1, help="Tasks that a worker can hold, whatever CPUs there are.")
    ] = 16,
    memory_mib: Annotated[
        int | None,
        typer.Option("--memory-mib", help="Memory of a worker; by default all together have 3/4 of the machine's."),
    ] = None,
    json: Json = False,
) -> None:
    """Start a Spark master and workers, which stay until `tidewise cluster down`.

    For example:

    tidewise cluster up

    tidewise cluster up --workers 3 --slots 8
    """
    cluster = LocalCluster.up(folder, workers=workers, slots_per_worker=slots, memory_mib_per_worker=memory_mib)
    _show(cluster, folder, json=json)


@cluster_commands.command()
def status(*, folder: Folder = DEFAULT_FOLDER, json: Json = False) -> None:
    """Say where the cluster listens, and what it holds.

    For example:  tidewise cluster status
    """
    _show(_find(folder), folder, json=json)


@cluster_commands.command()
def down(*, folder: Folder = DEFAULT_FOLDER, json: Json = False) -> None:
    """Stop the cluster and everything that runs on it; its logs stay.

    For example:  tidewise cluster down
    """
    cluster = _find(folder)
    was_running = cluster.is_running
    cluster.down()
    if json:
        print_json({"folder": str(folder), "was_running": was_running})
        return
    told = "The cluster is stopped" if was_running else "The cluster did not run any more; what it left is removed"
    print_sentence(f"{told}. Its logs: {folder / 'logs'}")


def _find(folder: Path) -> LocalCluster:
    cluster = LocalCluster.find(folder)
    if cluster is None:
        raise BadInputError(
            f"there is no cluster in {folder}: start one (tidewise cluster up --folder {folder}) "
            f"or name its folder by --folder"
        )
    return cluster


def _show(cluster: LocalCluster, folder: Path, *, json: bool) -> None:
    if not cluster.is_running:
        raise BadInputError(
            f"the cluster in {folder} does not run any more: clear it (tidewise cluster down --folder {folder}) "
            f"and start it again"
        )
    alive = sum(process.is_alive() for process in cluster.worker_processes)
    capacity = cluster.capacity()
    if json:
        print_json(
            {
                "folder": str(folder),
                "master_url": cluster.master_url,
                "ui_url": cluster.ui_url,
                "workers": len(cluster.worker_processes),
                "workers_alive": alive,
                "slots_total": None if capacity is None else capacity.cores_total,
                "slots_free": None if capacity is None else capacity.cores_free,
                "memory_mib_total": None if capacity is None else capacity.memory_mib_total,
                "memory_mib_free": None if capacity is None else capacity.memory_mib_free,
                "cpu_is_limited": cluster.cpu_reason is None,
                "cpu_reason": cluster.cpu_reason,
            }
        )
        return
    print_sentence(f"Master:         {cluster.master_url}")
    print_sentence(f"Web interface:  {cluster.ui_url}")
    print_sentence(f"Workers:        {alive} of {len(cluster.worker_processes)} alive")
    if capacity is None:
        print_sentence(f"Free:           {cluster.blind_spot()}")
    else:
        print_sentence(
            f"Free:           {capacity.cores_free} of {capacity.cores_total} slots, "
            f"{capacity.memory_mib_free:,} of {capacity.memory_mib_total:,} MiB"
        )
    print_sentence(
        f"CPU:            {cluster.cpu_reason or 'each executor is limited to its share by a control group'}"
    )
    print_sentence(f"Stop it:        tidewise cluster down --folder {folder}")
