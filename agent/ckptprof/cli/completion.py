"""Print the completion script of a shell."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer
import typer.completion

EXAMPLES = """
# bash: paste this line, or add it to ~/.bashrc
eval "$(ckptprof completion bash)"
# zsh: paste this line, or add it to ~/.zshrc, below `compinit`
eval "$(ckptprof completion zsh)"
# fish: paste this line, or add it to ~/.config/fish/config.fish
ckptprof completion fish | source
"""


def command(shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell."""
    script = typer.completion.get_completion_script(  # type: ignore[attr-defined] # not in its __all__, but documented
        prog_name="ckptprof", complete_var="_CKPTPROF_COMPLETE", shell=shell
    )
    sys.stdout.write(script.rstrip("\n") + "\n")
