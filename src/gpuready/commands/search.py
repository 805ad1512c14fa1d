"""Search what gpuready knows: for Python and MCP; on the command line, ``gpuready explain`` lists all codes."""

from typing import Annotated, TypedDict

from gpuready.commands.declaration import Command, Parameter, Request, call_command, collect_parameters
from gpuready.commands.parameters import WordList
from gpuready.commands.result import Result
from gpuready.workflow.search import ENTRY_KINDS, MAX_QUERY_LENGTH, MAX_RESULTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Unpack


class SearchOptions(TypedDict, total=False):
    """Keywords of search()."""

    kinds: Annotated[WordList, Parameter("kinds of entries", "LIST", tuple(ENTRY_KINDS), "list", mcp=True)]
    most: Annotated[int, Parameter("the most hits", "N", kind="count", most=MAX_RESULTS, default=10, mcp=True)]


def run(request: Request) -> Result:
    from gpuready.render import json_results, search_hits
    from gpuready.workflow.search import search_entries

    query, kinds = request.first_argument, request.get_option("kinds", "")
    rows = search_entries(query, kinds.split(",") if kinds else (), request.get_option("most", 10))
    return Result(rows, lambda rows: json_results.render_search_json(query, rows), search_hits.render_search_hits)


SEARCH = Command(
    "search",
    "search rules, contracts, facts and causes",
    run,
    collect_parameters(SearchOptions),
    "QUERY",
    1,
    1,
    argument=Parameter(
        "A few words, or an error message.", name="query", flag="query", mcp=True, max_length=MAX_QUERY_LENGTH
    ),
)
COMMANDS = (SEARCH,)


def search(query: str, **options: "Unpack[SearchOptions]") -> Result:
    """Search rules, contracts, facts and causes, best match first."""
    return call_command(SEARCH, (query,), options)
