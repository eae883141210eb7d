"""`distrl completion`: a script that lets a shell complete verbs, flags, settings and their values.

The script is made from the parsers of the verbs and from the settings, and holds all words itself: completing starts no Python.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from textwrap import dedent

import msgspec

from distrl.bench.base import names
from distrl.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
HELP = """\
bash  distrl completion bash > ~/.local/share/bash-completion/completions/distrl
zsh   distrl completion zsh > "${fpath[1]}/_distrl"
fish  distrl completion fish > ~/.config/fish/completions/distrl.fish"""


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """A word that begins with two dashes."""

    name: str
    takes_value: bool
    values: tuple[str, ...] = ()
    """What may follow, where it can be counted; empty: a file, or anything."""
    help: str = ""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A verb, or an action of a verb such as `tasks list`."""

    path: tuple[str, ...]
    flags: tuple[Flag, ...]
    words: tuple[str, ...]
    """What may stand next instead of a flag; empty: a file."""
    help: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = HELP
    parser.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    commands = list_commands()
    make = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    print(make[args.shell](commands), end="")
    return 0


# --- what there is ----------------------------------------------------------------------------------------------------


def list_commands() -> list[Command]:
    """Every command, `distrl` itself first."""
    from distrl.cli.main import VERBS

    top = Command(path=(), flags=(_plain("--help"), _plain("--version")), words=tuple(VERBS))
    return [top, *(command for verb in VERBS for command in _of_verb(verb))]


def _plain(name: str) -> Flag:
    return Flag(name=name, takes_value=False)


def _of_verb(verb: str) -> list[Command]:
    from distrl.cli.main import VERBS

    takes_config = getattr(import_module(f"distrl.cli.{verb}"), "TAKES_CONFIG", False)
    return _of_parser(verb_parser(verb), (verb,), VERBS[verb], _settings() if takes_config else ())


def verb_parser(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb; settings that are given as flags are not in it."""
    parser = argparse.ArgumentParser(prog=verb, allow_abbrev=False)
    import_module(f"distrl.cli.{verb}").configure(parser)
    return parser


def _of_parser(
    parser: argparse.ArgumentParser, path: tuple[str, ...], help: str, more: tuple[Flag, ...]
) -> list[Command]:
    flags = [_flag(action) for action in parser._actions if action.option_strings]
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    positional = [action for action in parser._actions if not action.option_strings and action not in below]
    words = [str(choice) for action in positional for choice in action.choices or ()]
    words += names() if path == ("bench",) else ()
    actions = {name: inner for action in below for name, inner in action.choices.items()}
    helps = {str(told.dest): told.help or "" for action in below for told in action._choices_actions}
    found = [Command(path=path, flags=(*flags, *more), words=(*actions, *words), help=help)]
    for name, inner in actions.items():
        found += _of_parser(inner, (*path, name), helps.get(name, ""), more)
    return found


def _flag(action: argparse.Action) -> Flag:
    return Flag(
        name=action.option_strings[-1],
        takes_value=action.nargs != 0,
        values=tuple(str(choice) for choice in action.choices or ()),
        help=(action.help or "").replace("%%", "%"),
    )


def _settings() -> tuple[Flag, ...]:
    from distrl import plugins
    from distrl.config.reference import settings

    names = {setting: plugins.names(kind) for kind, setting in plugins.SETTING.items()}
    seed = Flag(name="--seed", takes_value=True, help="short for --run.seed")
    return (seed, *(
        Flag(
            name=f"--{key}",
            takes_value=True,
            values=tuple(names.get(key) or setting.choices or _truth(setting.default)),
            help=setting.meaning,
        )
        for key, setting in settings().items()
    ))  # fmt: skip


def _truth(default: object) -> tuple[str, ...]:
    return ("true", "false") if isinstance(default, bool) else ()


# --- scripts ----------------------------------------------------------------------------------------------------------


def bash_script(commands: list[Command]) -> str:
    """For bash 4 and later; needs no bash-completion."""
    return dedent("""\
        # distrl: completion for bash. Made by `distrl completion bash`.
        _distrl() {{
            local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" path="" part
            for part in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
                case "$path $part" in
        {paths}
                esac
            done
            local words="" flags="" values=""
            case "$path" in
        {words}
            esac
            case "$path $before" in
        {values}
            esac
            if [[ $values == - ]]; then COMPREPLY=($(compgen -f -- "$word"))
            elif [[ -n $values ]]; then COMPREPLY=($(compgen -W "$values" -- "$word"))
            elif [[ $word == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$word"))
            elif [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$word"))
            else COMPREPLY=($(compgen -f -- "$word")); fi
        }}
        complete -o filenames -F _distrl distrl
        """).format(**_cases(commands, indent=12))


def zsh_script(commands: list[Command]) -> str:
    """For zsh."""
    return dedent("""\
        #compdef distrl
        # distrl: completion for zsh. Made by `distrl completion zsh`.
        _distrl() {{
            local word="${{words[CURRENT]}}" before="${{words[CURRENT-1]}}" _path="" part
            for part in "${{(@)words[2,CURRENT-1]}}"; do
                case "$_path $part" in
        {paths}
                esac
            done
            local nouns="" flags="" values=""
            case "$_path" in
        {words}
            esac
            case "$_path $before" in
        {values}
            esac
            if [[ $values == - ]]; then _files
            elif [[ -n $values ]]; then compadd -- ${{=values}}
            elif [[ $word == -* ]]; then compadd -- ${{=flags}}
            elif [[ -n $nouns ]]; then compadd -- ${{=nouns}}
            else _files; fi
        }}
        if [[ $funcstack[1] == _distrl ]]; then _distrl "$@"; else compdef _distrl distrl; fi
        """).format(**{
        name: text.replace(" words=", " nouns=").replace("path=", "_path=")
        for name, text in _cases(commands, indent=12).items()
    })  # fmt: skip


def _cases(commands: list[Command], *, indent: int) -> dict[str, str]:
    """The branches of the three `case` blocks: where we are, what may follow, and what a flag may take."""
    space = " " * indent
    paths = [f'{space}"{_joined(c.path[:-1])} {c.path[-1]}") path="{_joined(c.path)}" ;;' for c in commands if c.path]
    words = [
        f'{space[4:]}"{_joined(c.path)}") words="{" ".join(c.words)}" flags="{" ".join(f.name for f in c.flags)}" ;;'
        for c in commands
    ]
    values = [
        f'{space[4:]}"{_joined(c.path)} {flag.name}") values="{" ".join(map(_safe, flag.values)) or "-"}" ;;'
        for c in commands
        for flag in c.flags
        if flag.takes_value
    ]
    return {"paths": "\n".join(paths), "words": "\n".join(words), "values": "\n".join(values)}


def fish_script(commands: list[Command]) -> str:
    """For fish, with descriptions."""
    lines = ["# distrl: completion for fish. Made by `distrl completion fish`."]
    by_path = {command.path: command for command in commands}
    for command in commands:
        known = {path[-1] for path in by_path if path and path[:-1] == command.path}
        here = _fish_condition(command, known)
        for word in command.words:
            help = by_path[*command.path, word].help if (*command.path, word) in by_path else ""
            lines.append(f"complete -c distrl -n '{here}' -f -a '{_safe(word)}'{_fish_help(help)}")
        for flag in command.flags:
            value = (
                f" -x -a '{' '.join(map(_safe, flag.values))}'" if flag.values else " -r" if flag.takes_value else ""
            )
            lines.append(f"complete -c distrl -n '{here}' -l '{flag.name[2:]}'{value}{_fish_help(flag.help)}")
    return "\n".join(lines) + "\n"


def _fish_condition(command: Command, below: set[str]) -> str:
    if not command.path:
        return "__fish_use_subcommand"
    seen = [f"__fish_seen_subcommand_from {part}" for part in command.path]
    return "; and ".join(seen + ([f"not __fish_seen_subcommand_from {' '.join(sorted(below))}"] if below else []))


def _fish_help(text: str) -> str:
    plain = text.replace("\\", "").replace("'", "").split(";")[0].split(" (")[0]
    return f" -d '{plain[:80]}'" if plain else ""


def _joined(path: tuple[str, ...]) -> str:
    return " ".join(path)


def _safe(word: str) -> str:
    """A word that a shell takes as it is; `UsageError` for one that would end a string."""
    if any(letter in word for letter in "\"'`$\\\n "):
        raise UsageError(f"{word!r} cannot be completed", fix="give the choice a name of letters, digits, - and .")
    return word
