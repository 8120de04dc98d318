"""`bds completion`: a script with which a shell completes commands and options, made from the table of commands.

zsh runs the script of bash by its bashcompinit.  Where no command or option matches, shells complete file names.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from textwrap import indent

from app.cli.command import Command

BASH = """\
# completion of bds for bash: source <(bds completion bash)
_bds() {
    local word=${COMP_WORDS[COMP_CWORD]} words=
    COMPREPLY=()
    case "${COMP_WORDS[*]:1:$((COMP_CWORD-1))} " in
%s
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _bds bds
"""
ZSH = """\
# completion of bds for zsh: source <(bds completion zsh)
autoload -U +X compinit bashcompinit && compinit && bashcompinit
"""
FISH = """\
# completion of bds for fish: bds completion fish | source
"""


def script(shell: str, commands: Sequence[Command], groups: Mapping[str, str]) -> str:
    """The script for a shell: bash, zsh or fish."""
    return {"bash": bash, "zsh": zsh, "fish": fish}[shell](commands, groups)


def bash(commands: Sequence[Command], groups: Mapping[str, str]) -> str:
    """The script for bash: cases for groups, commands and options with known values, by the words before the one to complete."""
    cases = [(f'"{command.name} "*', " ".join(_flags(command))) for command in commands]
    # a first argument that is one of some words
    cases = [(f'"{each.name} "', f"{words} {' '.join(_flags(each))}") for each in commands if (words := _choices(each))] + cases
    both = [command for command in commands if _actions(commands, command.name)]  # with actions beside what it does itself
    valued = [(command, each) for command in commands for each in command.arguments if each.values]
    cases = [(f'"{command.name} "*"{each.flags[0]} "', " ".join(each.values)) for command, each in valued] + cases
    cases = [(f'"{command.name} "', " ".join([*_actions(commands, command.name), *_flags(command)])) for command in both] + cases
    cases += [(f'"{group} "', " ".join(_actions(commands, group))) for group in groups]
    cases.append(('" "', " ".join([*_actions(commands, ""), *groups, "--help", "--version"])))
    return BASH % indent("\n".join(f"{pattern}) words={shlex.quote(words)} ;;" for pattern, words in cases), " " * 8)


def zsh(commands: Sequence[Command], groups: Mapping[str, str]) -> str:
    """The script for zsh."""
    return ZSH + bash(commands, groups).partition("\n")[2]


def fish(commands: Sequence[Command], groups: Mapping[str, str]) -> str:
    """The script for fish: a line for each group, command and option, with its help."""
    lines = [_fish("__fish_use_subcommand", f"-a {group}", help) for group, help in groups.items()]
    for command in commands:
        group, _, action = command.name.rpartition(" ")
        in_group = f"__fish_seen_subcommand_from {group}; and " if group else ""
        others = " ".join(_actions(commands, group))
        first = f"{in_group}not __fish_seen_subcommand_from {others}" if group else "__fish_use_subcommand"
        lines.append(_fish(first, f"-a {action}", command.help))
        if words := _choices(command):
            seen = f"{in_group}__fish_seen_subcommand_from {action}"
            lines.append(_fish(seen, f"-fa {_quoted(words)}", command.arguments[0].flags[0]))
        for each in command.arguments:
            for flag in each.flags:
                if flag.startswith("--"):
                    value = "" if "action" in each.options and each.options["action"] != "append" else " -r"
                    # each with a description of its own, for fish shows that of the option otherwise
                    values = " ".join(f"{word}\\t{flag[2:]}" for word in each.values)
                    value += f" -fa {_quoted(values)}" if each.values else ""
                    help = each.options["help"].replace("%(default)s", str(each.options.get("default")))
                    lines.append(_fish(f"{in_group}__fish_seen_subcommand_from {action}", f"-l {flag[2:]}{value}", help))
    return FISH + "".join(lines)


def _fish(condition: str, what: str, help: str) -> str:
    return f"complete -c bds -n '{condition}' {what} -d {_quoted(help)}\n"


def _quoted(text: str) -> str:
    """Text in single quotes, in which fish knows two escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _actions(commands: Sequence[Command], group: str) -> list[str]:
    """The actions of a group; the commands of one word for ''."""
    names = [command.name.rpartition(" ") for command in commands]
    return [action for of, _, action in names if of == group]


def _choices(command: Command) -> str:
    """The words of which the first argument is one; empty if it may be any."""
    first = command.arguments[0] if command.arguments else None
    return " ".join(first.options.get("choices", ())) if first and not first.flags[0].startswith("-") else ""


def _flags(command: Command) -> list[str]:
    return [*(flag for each in command.arguments for flag in each.flags if flag.startswith("--")), "--help"]
