"""`layercert completion bash`: a script that completes commands, options and their values, made from the parser."""

from __future__ import annotations

import argparse

from layercert.cli.options import METHODS
from layercert.errors import unknown

SHELLS = ("bash", "fish", "zsh")
#: What may follow an option whose values are a short list.
VALUES = {"--norm": ("l1", "l2", "linf"), "--method": METHODS, "--stack": ("default", "library", "paper")}


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for one shell; OptionError for another."""
    commands = options_of(parser)
    if shell == "fish":
        return _fish(parser, commands)
    if shell not in SHELLS:
        raise unknown("shell", shell, SHELLS)
    cases = "\n".join(f'    {name}) words="{" ".join(options)}" ;;' for name, options in commands.items())
    values = "\n".join(f'    {option}) words="{" ".join(known)}" ;;' for option, known in VALUES.items())
    start = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return f"""{start}_layercert() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  case "$before" in
{values}
  esac
  if [ -z "$words" ]; then
    if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(commands)}"
    elif [[ "$word" == -* ]]; then case "${{COMP_WORDS[1]}}" in
{cases}
    esac; fi
  fi
  COMPREPLY=( $(compgen -W "$words" -- "$word") )
}}
complete -o default -F _layercert layercert
"""


def _fish(parser: argparse.ArgumentParser, commands: dict[str, list[str]]) -> str:
    top = "not __fish_seen_subcommand_from " + " ".join(commands)
    lines = [f"complete -c layercert -n '{top}' -a '{name}'" for name in commands]
    for name, options in commands.items():
        for option in options:
            known = f" -xa '{' '.join(VALUES[option])}'" if option in VALUES else ""
            lines.append(
                f"complete -c layercert -n '__fish_seen_subcommand_from {name}' -l {option.removeprefix('--')}{known}"
            )
    return "\n".join(lines) + "\n"


def options_of(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Each command with its long options, as the parser knows them."""
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return {
        name: [
            option
            for action in command._actions
            if action.help != argparse.SUPPRESS
            for option in action.option_strings
            if option.startswith("--")
        ]
        for name, command in commands.choices.items()
    }
