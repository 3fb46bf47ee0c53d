"""A command that has commands of its own beside what it does itself."""

from __future__ import annotations

from typing import Any

import typer.core


class WithCommands(typer.core.TyperGroup):
    """``digest SOURCE...``, and also ``digest compare BEFORE AFTER``: the first word decides.

    A source that is named like a command is written ./compare.
    """

    allow_interspersed_args = True
    allow_extra_args = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.invoked_subcommand, *ctx.args = args
            return list(ctx.args)
        # A group's own way of reading its arguments ends at the first that is no option.
        rest: list[str] = super(typer.core.TyperGroup, self).parse_args(ctx, args)
        return rest

    def invoke(self, ctx: Any) -> Any:
        if ctx.invoked_subcommand is None:
            return super(typer.core.TyperGroup, self).invoke(ctx)
        with (
            ctx,
            self.commands[ctx.invoked_subcommand].make_context(
                ctx.invoked_subcommand, ctx.args, parent=ctx
            ) as child,
        ):
            return child.command.invoke(child)

    def get_params(self, ctx: Any) -> list[Any]:
        """Also asked for the path of a command of its own, which has not the arguments of this one."""
        params: list[Any] = super().get_params(ctx)
        return [each for each in params if ctx.command is self or each.param_type_name != "argument"]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        *own, command = super().collect_usage_pieces(ctx)
        return [*own, f"| {command}"]
