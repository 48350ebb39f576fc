"""The contract of every part: its constructor takes settings and nothing else, and `bind` gives it parameters.

So `SNL(Cosine(0.2))` can be written before any data is seen. What the data decides (dimensions, shapes, rows) comes
once, in a `Context`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import re
import textwrap
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

from probssl.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

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
                setattr(made, name, child.bind(context))
        made.build(context)
        made.bound = True
        return made

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

    @classmethod
    def formula(cls) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(cls) or "").split("\n", 1)[0]


def _recording(function: Function) -> Function:
    """A constructor that remembers what it was called with, unless a subclass's constructor called it."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self).__init__ is wrapped:
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            object.__setattr__(self, "_settings", dict(list(given.arguments.items())[1:]))
        function(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


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
