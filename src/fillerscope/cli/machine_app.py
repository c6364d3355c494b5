"""The commands about this machine: models, doctor."""

from __future__ import annotations

from typing import Annotated

import typer

from fillerscope.cli.options import Json, Licence

machine_app = typer.Typer()
models_app = typer.Typer()
machine_app.add_typer(models_app, name="models", rich_help_panel="This machine")


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context, json: Json = False) -> None:
    """List the catalogue: what is known, what is cached, sizes and licences.

    Example: `fillerscope models get gemma-3-270m --accept-licence`
    """
    if context.invoked_subcommand is None:
        from fillerscope.cli.model_commands import show_models

        show_models(json)


@models_app.command("get")
def models_get(
    name: Annotated[str, typer.Argument(help="Catalogue name, hub id, folder or .gguf file.")],
    accept_licence: Licence = False, json: Json = False,
) -> None:  # fmt: skip
    """Fetch a model into the cache. One that is there is read whole, and made again where its bytes have changed.

    Example: `fillerscope models get smollm2-135m`
    """
    from fillerscope.cli.model_commands import get_model

    get_model(name, accept_licence, json)


@models_app.command("verify")
def models_verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models; if none is named, all that were converted.")
    ] = None,
    json: Json = False,
) -> None:
    """Read every byte of models on this machine, and compare them with what was converted or downloaded.

    Example: `fillerscope models verify`
    """
    from fillerscope.cli.model_commands import verify_models

    if not verify_models(names or [], json):
        raise typer.Exit(1)


@machine_app.command(rich_help_panel="This machine")
def doctor(json: Json = False) -> None:
    """Check this machine: versions, devices, memory, disk, cache and who can write to it, where pip fetches packages
    from, and that measured attention equals eager attention.

    Example: `fillerscope doctor`
    """
    from fillerscope.cli.doctor import examine

    if not examine(json):
        raise typer.Exit(1)
