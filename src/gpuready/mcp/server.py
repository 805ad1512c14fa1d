"""The MCP server: the tool table behind the official SDK. Changes need a person's consent first."""

from __future__ import annotations

import anyio
import mcp_types as types
from anyio import to_thread
from mcp.server.lowlevel import Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gpuready import __version__
from gpuready.mcp import changes, tools
from gpuready.workflow.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.mcp.tools import Tool
    from gpuready.workflow.fencing import Yard

INSTRUCTIONS = (
    "gpuready judges GPU machines for LLM frameworks. To find requirements: search, then contract or explain. To verify a set of "
    "versions or a machine: check or plan, with `on` and `what_if` for machines that are not here. Before a training run: fit. "
    "After a failure: diagnose with the logs. Answers in JSON are long; pass answer=screen for the short page. "
    + tools.QUOTED
)
_YES = {
    "type": "object",
    "properties": {"install": {"type": "boolean", "title": "Install this now"}},
    "required": ["install"],
}
_NO = "nothing was changed: the person did not agree"
_CANNOT_ASK = (
    "nothing was changed: this client cannot ask the person; show them the plan, and call again with agreed=true "
    "when they have said yes"
)


class Desk:
    """The tools of one server, and how a call is handled."""

    def __init__(self, yard: Yard, allow_changes: bool = False):
        self.yard = yard
        self.changes = changes.Changes() if allow_changes else None
        self.table: dict[str, Tool] = tools.table(allow_changes)
        if self.changes is not None:
            self.table |= {tool.name: tool for tool in self.changes.tools()}
        self.heavy = anyio.CapacityLimiter(1)  # proofs and installs run one at a time
        self.light = anyio.CapacityLimiter(4)

    def listed(self) -> list[types.Tool]:
        return [_described(tool) for tool in self.table.values()]

    async def answer(self, context: Any, params: types.CallToolRequestParams) -> Any:
        """Handle one call: return a result, or a consent question that must be answered first."""
        tool = self.table.get(params.name)
        given = params.arguments or {}
        try:
            if tool is None:
                raise Refused(f"there is no tool {params.name[:60]!r}; there are {', '.join(self.table)}")
            if not tool.reads_only:
                question = await self._agreed(context, params, tool, given)
                if question is not None:
                    return question
            limit = self.heavy if tool.name in ("prove", changes.APPLY) else self.light
            return _result(await to_thread.run_sync(tools.called, tool, self.yard, given, limiter=limit))
        except Refused as refused:
            return _result([str(refused)], wrong=True)
        except Exception as error:  # a bug of ours must not stop the server
            return _result([f"gpuready failed: {type(error).__name__}: {str(error)[:300]}"], wrong=True)

    async def _agreed(
        self, context: Any, params: types.CallToolRequestParams, tool: Tool, given: dict[str, Any]
    ) -> types.InputRequiredResult | None:
        """Return None if the person agreed, else the question to ask. Refused if they declined."""
        from gpuready.mcp import schema

        assert self.changes is not None
        asked = self.changes.question(schema.checked(tool.takes, given, tool.name))
        if not _can_ask(context):
            if given.get("agreed") is not True:
                raise Refused(_CANNOT_ASK)
            return None
        form = types.ElicitRequestFormParams(message=asked, requested_schema=_YES)
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            told = (params.input_responses or {}).get("agreed")
            if told is None:
                return types.InputRequiredResult(input_requests={"agreed": types.ElicitRequest(params=form)})
        else:
            told = await context.session.elicit_form(asked, _YES, related_request_id=context.request_id)
        if getattr(told, "action", "") != "accept" or (told.content or {}).get("install") is not True:
            raise Refused(_NO)
        return None


def _can_ask(context: Any) -> bool:
    told = context.session.client_capabilities
    asks = told.elicitation if told is not None else None
    return asks is not None and (asks.form is not None or asks.url is None)


def _described(tool: Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        title=tool.title,
        read_only_hint=tool.reads_only,
        destructive_hint=not tool.reads_only,
        idempotent_hint=tool.reads_only,
        open_world_hint=tool.outside,
    )
    return types.Tool(
        name=tool.name, title=tool.title, description=tool.says, input_schema=tool.takes, annotations=hints
    )


def _result(texts: list[str], wrong: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text) for text in texts], is_error=wrong
    )


def made(desk: Desk) -> Server[Any]:
    """Build the SDK server, ready for a transport."""

    async def listed(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=desk.listed())

    return Server(
        "gpuready",
        version=__version__,
        title="gpuready",
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=desk.answer,
    )


def over_stdio(yard: Yard, allow_changes: bool = False) -> None:
    """Serve until stdin closes."""
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        server = made(Desk(yard, allow_changes))
        async with stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())

    anyio.run(serve)
