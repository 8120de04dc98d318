"""`bds mcp`: a server of the Model Context Protocol on standard input and output, with which an assistant asks a service.

Tools (tools.py) read and try; none writes.  The package `mcp` is imported when the command runs.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

from app import extras
from app.cli.command import Command, argument
from app.cli.remote import KEY_FILE, URL, Remote, given_service
from app.config import Config
from app.errors import ServiceError
from app.resources import version

INSTRUCTIONS = (
    "Business data of companies: current rows, every earlier state, who changed what. Nothing that these tools do changes a row."
    " Begin with describe. Times are UTC. An answer with truncated: true is not whole: ask for fewer rows, or for a part."
)


def serve(options: argparse.Namespace, config: Config) -> int:
    """Serve one client until standard input ends."""
    service = given_service(options, config)
    if service is None:
        options.refuse("expected --url URL, the service that an assistant asks")
        raise AssertionError
    extras.require("mcp")
    import anyio
    from mcp.server.stdio import stdio_server

    logging.getLogger("mcp").setLevel(logging.WARNING)

    async def run() -> None:
        server = _server(service, options.company)
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    anyio.run(run)
    return 0


def _server(service: Remote, company: str | None) -> Any:
    from anyio import to_thread
    from mcp import types
    from mcp.server.lowlevel import Server

    from app.cli.tools import TOOLS, problem, run

    hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    listed = [
        types.Tool(name=name, description=tool.about, input_schema=tool.schema(), annotations=hints) for name, tool in TOOLS.items()
    ]

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    def answer(params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text, is_error = run(service, company, params.name, params.arguments or {}), False
        except (ServiceError, OSError) as error:
            text, is_error = problem(error), True
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await to_thread.run_sync(answer, params, abandon_on_cancel=True)

    return Server("bds", version=version(), instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)


COMMANDS = (
    Command(
        "mcp",
        serve,
        "serve the Model Context Protocol on standard input and output: an assistant reads a service and tries imports",
        """\
  BDS_KEY=... bds mcp --company acme --url https://data.example.com
  bds mcp --url https://data.example.com --key-file key.txt        each call names its company
A key with the scopes read and propose is enough: tools read, and try imports in dry runs; none writes.""",
        (argument("--company", metavar="ID", help="the company of calls that name none"), URL, KEY_FILE),
    ),
)
