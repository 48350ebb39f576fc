"""`probssl parts`: what there is to choose from."""

from __future__ import annotations

from typing import Annotated

import typer

from probssl.cli.app import Json, app, command, print_json
from probssl.errors import InputError
from probssl.parts.describe import ABOUT_PLAN, Description, describe, describe_plan
from probssl.parts.recipe import PLAN
from probssl.parts.registry import KINDS


def _names(context: typer.Context, incomplete: str) -> list[str]:
    """Completion of a name in a shell, of the kind before it."""
    kind = context.params.get("kind")
    return [name for name in KINDS.get(kind or "", ()) if name.startswith(incomplete)]


def _kinds(incomplete: str) -> list[str]:
    return [kind for kind in (*KINDS, PLAN) if kind.startswith(incomplete)]


@app.command(epilog="Example: probssl parts objective snl")
@command
def parts(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help=f"{', '.join(KINDS)}, plan", autocompletion=_kinds),
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Part to explain", autocompletion=_names)] = None,
    as_json: Json = False,
) -> None:
    """List what can be chosen: kinds of parts, the parts of a kind, or the formula and settings of one part."""
    if kind == PLAN and name is None:
        _show(describe_plan(), as_json)
        return
    if kind is not None and kind not in KINDS:
        raise InputError(f"unknown kind of part {kind!r}: choose {', '.join(_kinds(''))}")
    if kind is not None and name is not None:
        _show(describe(kind, name), as_json)
        return
    listed = {of: {entry.name: entry.about for entry in KINDS[of].values()} for of in ([kind] if kind else KINDS)}
    if kind is None:
        listed[PLAN] = {"": ABOUT_PLAN}
    if as_json:
        print_json(listed)
        return
    from probssl.report.console import show_names

    show_names(listed)


def _show(found: Description, as_json: bool) -> None:
    from probssl.report.console import show_part

    if as_json:
        print_json(found.as_dict())
    else:
        show_part(found)
