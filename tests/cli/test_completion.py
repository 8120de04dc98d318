"""Completion scripts, run by the shells that this machine has."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from app.cli.completion import bash, fish, zsh
from app.cli.main import main
from app.cli.parser import COMMANDS, GROUPS

pytestmark = pytest.mark.processes


def shell(name: str, script: str, *arguments: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name} on this machine")
    done = subprocess.run([path, *arguments], input=script, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


WORDS = [
    ("", {"serve", "company", "hook", "completion", "--version"}, {"list", "--company"}),
    ("comp", {"company", "completion"}, {"serve"}),
    ("hook ", {"list", "create", "test", "rotate", "enable", "disable", "delete"}, {"dump", "hook"}),
    ("hook ro", {"rotate"}, {"list"}),
    ("hook rotate ", {"--revoke", "--help"}, {"--company"}),
    ("hook rotate 4f0c2a6e --re", {"--revoke"}, {"--help"}),
    ("company create --", {"--tenant"}, {"--yes"}),
    ("import ", {"list", "show", "revert", "--company"}, {"--force"}),
    ("import l", {"list"}, {"show"}),
    ("import revert ", {"--force", "--dry-run"}, {"list", "--entity"}),
    ("import --company acme --", {"--entity", "--mapper", "--dry-run"}, {"--top"}),
    ("export units --format ", {"csv", "excel", "xsd"}, {"--entity", "--company"}),
    ("key create --scope ", {"read", "import", "hooks", "propose"}, {"--company"}),
    ("completion ", {"bash", "zsh", "fish"}, {"list"}),
    ("import x", set(), {"--entity"}),
]


@pytest.mark.parametrize(("typed", "offered", "others"), WORDS, ids=[typed or "nothing" for typed, _, _ in WORDS])
def test_bash_completes_commands_actions_and_options(typed: str, offered: set[str], others: set[str]) -> None:
    words = ["bds", *typed.split(" ")]
    ask = f'COMP_WORDS=({" ".join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; _bds; echo "${{COMPREPLY[*]}}"\n'
    found = set(shell("bash", bash(COMMANDS, GROUPS) + ask, "--norc").split())
    assert offered <= found and not others & found
    if not offered:
        assert not found, "then bash completes names of files"


def test_zsh_completes_by_the_same_function() -> None:
    ask = 'COMP_WORDS=(bds hook ro); COMP_CWORD=2\nemulate -L sh\n_bds\necho "${COMPREPLY[*]}"\n'
    script = zsh(COMMANDS, GROUPS)
    assert script.splitlines()[1].startswith("autoload ")
    assert "rotate" in shell("zsh", script + ask, "-f").split()


def test_fish_completes_commands_actions_and_options() -> None:
    for typed, offered, others in WORDS[:-1]:
        found = shell("fish", fish(COMMANDS, GROUPS) + f"complete -C 'bds {typed}'\n", "--no-config")
        names = {line.split("\t")[0] for line in found.splitlines()}
        if typed.rpartition(" ")[2].startswith("-"):  # fish offers options only then, and --help is in none of its lines
            assert offered - {"--help"} <= names, typed
        else:
            assert {each for each in offered if not each.startswith("--")} <= names, typed
        assert not others & names, typed


def test_fish_describes_a_value_in_a_word() -> None:
    found = shell("fish", fish(COMMANDS, GROUPS) + "complete -C 'bds export units --format '\n", "--no-config")
    assert "csv\tformat" in found.splitlines()


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == bash(COMMANDS, GROUPS)
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert "tcsh" in capsys.readouterr().err
