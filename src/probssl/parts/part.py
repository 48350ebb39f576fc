"""The contract of every part: its constructor takes settings and nothing else, and `bind` gives it parameters.

So `SNL(Cosine(0.2))` can be written before any data is seen. What the data decides (dimensions, shapes, rows) comes
once, in a `Context`.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from probssl.errors import InputError
from probssl.parts.registry import options_of, registry_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from probssl.layout import Layout

Function = TypeVar("Function", bound=Callable[..., None])


@dataclass(frozen=True)
class Context:
    """What is known once the data is: the sizes that parameters take. A part asks for what it needs of it."""

    dim: int | None = None
    """Numbers of an embedding: what an encoder gives, or its head, and what an objective sees."""
    shape: tuple[int, ...] | None = None
    """Of one observation, as the encoder takes it."""
    rows: int | None = None
    """Of the data that is trained on."""
    batch_size: int | None = None
    encoder: nn.Module | None = None
    """The encoder that is trained, bound: teachers and second encoders are copies of it, decoders its mirror image."""
    sample: Tensor | None = None
    """Some observations [n, *shape], for parts that begin from what data looks like; absent where a file is loaded."""
    layout: Layout | None = None
    """Of the rows of a table as the encoder takes them: numbers, codes of levels, and NaN for gaps."""

    def twin(self) -> nn.Module:
        """A copy of the encoder, of the same weights."""
        return copy.deepcopy(self.need("encoder"))

    def need(self, name: str) -> Any:
        """What is known under that name; `InputError` where nothing is."""
        value = getattr(self, name)
        if value is None:
            raise InputError(f"a part cannot be bound without {name}: give bind({name}=…), or let fit bind it")
        return value


@dataclass(frozen=True)
class Setting:
    """One parameter of a part's constructor: its type, its default and the sentence that explains it."""

    name: str
    annotation: Any
    default: Any
    about: str


class Part:
    """Something that a person chooses, by name or as an object.

    A subclass documents each parameter of its constructor under `Settings:` in its docstring, and writes `build` if it
    has parameters to train, or sizes that depend on the data.
    """

    bound: bool = False
    """Whether `bind` made this."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _recording(vars(cls)["__init__"])  # type: ignore[method-assign]

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, defaults included, by name."""
        return dict(vars(self).get("_settings", {}))

    def build(self, context: Context) -> None:
        """Make parameters and whatever else depends on the data, in place; `bind` calls it on a copy."""

    def bind(self, context: Context | None = None, **known: Any) -> Self:
        """A copy of this part, and of the parts in it, ready for data: `bind(context)`, or `bind(dim=8)` for short.

        Initial weights come from torch's random state (`encoders.seeded` lends one). What is bound already is copied
        as it is, weights included.
        """
        context = dataclasses.replace(Context() if context is None else context, **known)
        made = copy.deepcopy(self)
        if self.bound:
            return made
        for name, child in list(getattr(made, "_modules", {}).items()):
            if isinstance(child, Part):
                setattr(made, name, child.bind(made.context_of(name, context)))
        made.build(context)
        made.bound = True
        return made

    def context_of(self, part: str, context: Context) -> Context:
        """What a part within, of that name, is bound with."""
        return context

    @property
    def unbound(self) -> bool:
        """Whether parameters are still to come."""
        if self.bound:
            return False
        children = getattr(self, "_modules", {}).values()
        return self.incomplete or any(isinstance(child, Part) and child.unbound for child in children)

    @property
    def incomplete(self) -> bool:
        """Whether `build` has something to make."""
        return type(self).build is not Part.build

    @classmethod
    def declared(cls) -> dict[str, Setting]:
        """The settings of this class, in the order of its constructor."""
        hints = typing.get_type_hints(cls.__init__)
        explained = explanations(cls)  # type: ignore[arg-type]
        return {
            name: Setting(
                name,
                hints.get(name, Any),
                None if parameter.default is inspect.Parameter.empty else parameter.default,
                explained.get(name, ""),
            )
            for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }

    def extra_repr(self) -> str:
        """Settings that are not the usual ones; torch shows parts within on lines of their own."""
        usual = {name: setting.default for name, setting in self.declared().items()}
        shown = {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in self.settings().items()
            if not hasattr(value, "named_modules")
        }
        return ", ".join(f"{name}={value!r}" for name, value in shown.items() if value != usual.get(name))

    @classmethod
    def formula(cls) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(cls) or "").split("\n", 1)[0]


def _recording(function: Function) -> Function:
    """A constructor that takes parts by name, and remembers what it was called with.

    It does not if a subclass's constructor called it.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        outermost = type(self).__init__ is wrapped
        called = type(self).__name__ if outermost else function.__qualname__.rpartition(".")[0]
        try:
            given = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(_misused(type(self), called, function, signature, kwargs, str(error))) from None
        given.apply_defaults()
        for name, value in given.arguments.items():
            if isinstance(value, str | type | int | float | list | tuple):
                given.arguments[name] = _by_name(value, _hints(function).get(name), f"{called}: {name}")
        if outermost:
            object.__setattr__(self, "_settings", dict(list(given.arguments.items())[1:]))
        function(*given.args, **given.kwargs)

    return wrapped  # type: ignore[return-value]


@functools.cache
def _hints(function: Callable[..., None]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError:  # of a class within a function
        return {}


def _by_name(value: Any, annotation: Any, where: str) -> Any:
    """The part of a name where a parameter takes parts of that kind; what can be no such part is refused."""
    options = options_of(annotation)
    if isinstance(value, list | tuple):
        inner = next((entry for option in options for entry in typing.get_args(option)), None)
        return [_by_name(entry, inner, where) for entry in value] if registry_of(options_of(inner)) else value
    registry = registry_of(options)
    if registry is None:
        return value
    if isinstance(value, type):
        raise InputError(f"{where} is the class {value.__name__}: give an object, {value.__name__}(…)")
    if isinstance(value, str) and (value in registry or str not in options):
        entry = registry.find(value, own=value not in registry)  # a class elsewhere is given as an object
        return entry.load()(**entry.preset)
    if not isinstance(value, tuple(option for option in options if isinstance(option, type))):
        raise InputError(f"{where} cannot be {value!r}: give its name, see probssl parts {registry.kind}, or an object")
    return value


def _misused(
    cls: type, called: str, function: Any, signature: inspect.Signature, kwargs: Mapping[str, Any], error: str
) -> str:
    """The sentence about a call of a constructor that does not fit it."""
    known = dict(list(signature.parameters.items())[1:])
    unknown = [name for name in kwargs if name not in known]
    if unknown and "unexpected keyword" in error:
        return unknown_setting(called, unknown[0], known)
    if "__init__" not in vars(cls) and error.startswith("missing"):
        base = function.__qualname__.rpartition(".")[0]
        needed = ", ".join(name for name, parameter in known.items() if parameter.default is parameter.empty)
        return (
            f"{called}: {error}, for {base}: give {needed}, or write an __init__ that calls super().__init__({needed})"
        )
    return f"{called}: {error}"


def unknown_setting(what: str, name: str, known: Mapping[str, Any]) -> str:
    """The sentence about a setting that a part does not have, with what might be meant."""
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f"{what} has no setting {name!r}: did you mean {close[0]!r}?"
    listed = f"its settings are {', '.join(known)}" if known else "it has none"
    return f"{what} has no setting {name!r}; {listed}"


@functools.cache
def explanations(cls: type) -> dict[str, str]:
    """The sentences under `Settings:` in the docstrings of a class and of those it derives from: name -> sentence."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        section = re.search(r"^Settings:\n((?:[ ]+.*\n?|\n)+)", inspect.cleandoc(vars(base).get("__doc__") or ""), re.M)
        if section:
            entries = re.split(r"^(\w+): ", textwrap.dedent(section[1]), flags=re.M)[1:]
            found |= {name: " ".join(text.split()) for name, text in zip(entries[::2], entries[1::2], strict=True)}
    return found
