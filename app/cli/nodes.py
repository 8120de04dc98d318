"""Workers of a Citus cluster at the command line: adding one, giving each its share of the companies."""

from __future__ import annotations

import argparse

from app.cli import stdio
from app.cli.arguments import read_port
from app.cli.command import Command, argument
from app.config import Config
from app.database import connections
from app.places import cluster, rebalance


def add_node(options: argparse.Namespace, config: Config) -> int:
    home = connections.resolve(config)
    cluster.require(home)
    for step in cluster.add_node(home, options.host, options.port):
        stdio.message(step)
    return 0


def rebalance_nodes(options: argparse.Namespace, config: Config) -> int:
    cluster.require(connections.resolve(config))
    rebalance.rebalance(connections.urls_of_places(config), stdio.message)
    return 0


COMMANDS = (
    Command(
        "node add",
        add_node,
        "add a worker to the Citus cluster whose coordinator is home, and make it a place",
        """\
  bds node add db-3                            then: bds node rebalance
  bds node add db-3 5433
Its database has the name of the coordinator's, and the extension citus.""",
        (
            argument("host", metavar="HOST", help="the worker's address, for the coordinator, the other workers and the service"),
            argument("port", metavar="PORT", type=read_port, nargs="?", default=5432, help="its port (%(default)s)"),
        ),
    ),
    Command(
        "node rebalance",
        rebalance_nodes,
        "move companies between workers of a Citus cluster, so that each has its share; prints each step",
        """\
  bds node rebalance                           after bds node add; may be repeated after an interruption
Companies are read and written meanwhile; writers wait for a moment. bds place drain NAME moves all away from a worker.""",
    ),
)
