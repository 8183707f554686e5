"""Tests of tools made from functions, and of the toolbox."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pydoc
import threading

import pytest

from agenticx.errors import ToolError
from agenticx.tools import Assessment, FunctionTool, Tool, Toolbox, ToolContext, as_tool, tool
from agenticx.tools.base import is_parallel
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.anyio


@tool(risk="read")
def add(left: int, right: int) -> int:
    """Add."""
    return left + right


@tool
async def launch(target: str, context: ToolContext) -> str:
    """Launch."""
    return f"{target} by {context.agent_id}"


def test_a_tool_without_a_declared_risk_has_the_risk_execute(runner) -> None:
    assert (launch.risk, launch.read_only, add.risk, add.read_only) == ("execute", False, "read", True)
    assessment = runner.assess(launch, target="x")
    assert assessment.risk == "execute"
    assert assessment.reasons == ("launch is code of this application that may do anything.",)


def test_a_decorated_function_is_a_tool_and_still_a_function() -> None:
    assert isinstance(add, FunctionTool)
    assert isinstance(add, Tool)
    assert add(1, 2) == 3


async def test_functions_run_with_validated_arguments_and_their_context(runner) -> None:
    assert await runner.call(add, left=1, right=2) == 3
    assert await runner.call(launch, target="moon") == "moon by meta"


async def test_a_plain_function_runs_in_a_thread_and_its_error_is_raised(runner) -> None:
    @tool
    def where() -> str:
        if threading.current_thread() is threading.main_thread():
            raise AssertionError("on the loop")
        raise LookupError(threading.current_thread().name)

    with pytest.raises(LookupError, match="agx tool where"):
        await runner.call(where)


async def test_a_plain_function_may_have_a_parameter_called_name(runner) -> None:
    @tool
    def greet(name: str) -> str:
        return f"hello {name}"

    assert await runner.call(greet, name="Ada") == "hello Ada"


async def test_a_plain_function_that_returns_a_coroutine_is_awaited(runner) -> None:
    assert await runner.call(tool(lambda: launch.function("x", runner.context), name="later")) == "x by meta"


async def test_cancelling_does_not_wait_for_the_thread(runner) -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool
    def stuck() -> None:
        started.set()
        release.wait(PATIENCE)
        ended.set()

    call = asyncio.ensure_future(runner.call(stuck))
    assert await asyncio.to_thread(started.wait, PATIENCE)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not ended.is_set()
    release.set()


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool(risk="read")
    async def price(self, item: str, context: ToolContext) -> str:
        """Return a price."""
        return f"{item} at {self.name} for {context.agent_id}"

    @tool(risk="read")
    @classmethod
    def known(cls, item: str) -> str:
        """Return whether an item is known."""
        return f"{item} of {cls.__name__}"

    @classmethod
    @tool(risk="read")
    def listed(cls, item: str) -> str:
        """Return whether an item is listed."""
        return f"{item} by {cls.__name__}"

    @tool(risk="read")
    @staticmethod
    def rounded(item: str) -> str:
        """Return a rounded price."""
        return f"{item}!"

    def plain(self, item: str) -> str:
        return f"plain {item} at {self.name}"


async def test_a_method_of_an_object_is_a_tool_bound_to_the_object(runner) -> None:
    corner = Shop("Corner")
    tools = Toolbox([corner.price, corner.known, Shop.listed, corner.rounded, corner.plain])
    assert {tuple(made.schema.parameters["properties"]) for made in tools} == {("item",)}
    results = [await runner.call(made, item="tea") for made in tools]
    assert results == [
        *("tea at Corner for meta", "tea of Shop", "tea by Shop", "tea!", "plain tea at Corner"),
    ]
    assert (await Shop("Kiosk").price("milk", runner.context), corner.known("jam")) == (
        "milk at Kiosk for meta",
        "jam of Shop",
    )


@pytest.mark.parametrize("method", [Shop.price, Shop.plain])
def test_a_method_without_an_object_is_refused_as_a_tool(method) -> None:
    with pytest.raises(TypeError, match=r"is a method of 'Shop', .* give the tool of an object, as in Shop\(…\)\.p"):
        Toolbox([method])


def test_an_assessment_is_bound_to_the_current_schema(runner) -> None:
    def assess(arguments, context) -> Assessment:
        return Assessment(risk="write", binding={"left": arguments["left"]})

    one = tool(add.function, assess=assess)
    other = tool(add.function, description="Subtract.", assess=assess)

    first, second = runner.assess(one, left=1, right=2), runner.assess(other, left=1, right=2)
    assert (first.risk, first.binding["left"]) == ("write", 1)
    assert first.binding["schema"] != second.binding["schema"]


@pytest.mark.parametrize("name", ["", "with space", "é", "a" * 65, "a.b"])
def test_a_name_that_a_provider_would_refuse_is_refused(name) -> None:
    with pytest.raises(ValueError, match="cannot be a tool's name"):
        tool(lambda: None, name=name or "?")


def test_other_objects_are_refused_as_tools() -> None:
    assert as_tool(add) is add
    assert as_tool(lambda_named := launch.function).name == launch.schema.name == lambda_named.__name__
    with pytest.raises(TypeError, match="5 is neither a tool nor a function"):
        as_tool(5)  # type: ignore[arg-type]


def yields():
    """Yield."""
    yield "a"


async def yields_later():
    """Yield."""
    yield "a"


class Yields:
    """A callable object whose calls return generators."""

    __name__ = "yields"

    def __call__(self):
        yield "a"

    def method(self):
        yield "a"

    async def async_method(self):
        yield "a"

    @staticmethod
    def static():
        yield "a"


@pytest.mark.parametrize(
    "function",
    [
        yields,
        yields_later,
        functools.partial(yields),
        functools.partial(functools.partial(yields_later)),
        functools.cache(yields),
        Yields(),
        functools.partial(Yields()),
        Yields().method,
        Yields().async_method,
        Yields.static,
        functools.partial(functools.cache(Yields().method)),
    ],
)
def test_a_generator_function_is_refused_with_advice(function) -> None:
    for make in (lambda: tool(function, name="yields"), lambda: as_tool(function), lambda: Toolbox([function])):
        with pytest.raises(TypeError, match=r"is a generator function, but .*: return a value"):
            make()


def test_a_tool_whose_run_is_a_generator_function_is_refused() -> None:
    class Handmade:
        schema, read_only, timeout = add.schema, True, None

        def assess(self, arguments, context): ...

        def validate(self, arguments): ...

        async def run(self, arguments, context):
            yield "a"

    with pytest.raises(TypeError, match="'add' is a generator function"):
        as_tool(Handmade())


async def test_a_wrapper_that_collects_what_a_generator_yields_is_a_tool(runner) -> None:
    def collecting(function):
        @functools.wraps(function)
        def collect(*args, **kwargs):
            return list(function(*args, **kwargs))

        return collect

    assert await runner.call(tool(collecting(yields))) == ["a"]


def test_calls_run_concurrently_if_they_only_read_or_are_declared_parallel() -> None:
    class Handmade:
        read_only = True

    marked = tool(launch.function, parallel=True)
    assert [is_parallel(one) for one in (add, launch, marked, tool(add.function, risk="read", parallel=False))] == [
        True,
        False,
        True,
        False,
    ]
    handmade = Handmade()
    assert is_parallel(handmade)
    handmade.parallel = lambda: None  # something else of that name
    assert not is_parallel(handmade)


def test_a_toolbox_keeps_its_order_and_returns_the_same_schemas() -> None:
    toolbox = Toolbox([launch, add])

    assert (toolbox.names, len(toolbox), "add" in toolbox, "nope" in toolbox) == (("launch", "add"), 2, True, False)
    assert toolbox.schemas() == (launch.schema, add.schema)
    assert toolbox.schemas() is toolbox.schemas()
    assert toolbox.find("nope") is None
    assert list(toolbox.only(["add"])) == [add]
    assert toolbox.only(["add", "launch"]).names == ("launch", "add")


def test_an_unknown_name_is_refused_with_a_list_of_known_names() -> None:
    toolbox = Toolbox([launch, add])
    for ask in (lambda: toolbox.get("nope"), lambda: toolbox.only(["add", "nope"])):
        with pytest.raises(ToolError) as caught:
            ask()
        assert str(caught.value) == "unknown tool 'nope'; known tools: launch, add"
    with pytest.raises(ToolError, match="known tools: none"):
        Toolbox().get("x")


def test_an_empty_allow_list_selects_no_tools() -> None:
    assert Toolbox([launch, add]).only([]).names == ()


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are called 'add'"):
        Toolbox([add, add])


def test_help_and_signature_of_a_tool_are_those_of_its_function() -> None:
    @tool(risk="read")
    def add(left: int, right: int = 0) -> int:
        """Add two numbers."""
        return left + right

    assert str(inspect.signature(add)) == "(left: 'int', right: 'int' = 0) -> 'int'"
    text = pydoc.render_doc(add, renderer=pydoc.plaintext)
    assert "add(left: 'int', right: 'int' = 0) -> 'int'\n    Add two numbers." in text
    assert str(FunctionTool.__doc__).startswith("A tool made from a function")
