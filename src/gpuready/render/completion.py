"""Shell completion scripts. Names that may change are requested from gpuready when needed, once per shell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CommandEntry = Mapping[str, Any]


def completion_script(shell: str, entries: Sequence[CommandEntry]) -> str:
    """Return the script for one shell; ``entries`` are the commands with their flags, as plain data.

    A value that begins with @ is a kind, not a word: @files, @folders, or a kind of ``gpuready completion --list``.
    """
    return {"bash": bash_completion, "zsh": zsh_completion, "fish": fish_completion}[shell](entries)


def _group_by_first_word(entries: Iterable[CommandEntry]) -> dict[str, list[str]]:
    """The first word of each command, with the second words of those that have two."""
    subcommands: dict[str, list[str]] = {}
    for entry in entries:
        head, _, tail = entry["name"].partition(" ")
        subcommands.setdefault(head, [])
        if tail:
            subcommands[head].append(tail)
    return subcommands


# -- bash ---------------------------------------------------------------------------------------------------

_BASH_TEMPLATE = """\
# bash completion for gpuready. In ~/.bashrc: eval "$(gpuready completion bash)"
_gpuready_words() {{ # KIND ...: adds what completes $cur to COMPREPLY
    local kind kept
    for kind in "$@"; do
        case $kind in
        @files) compopt -o filenames 2>/dev/null; mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$cur") ;;
        @folders) compopt -o filenames 2>/dev/null; mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -d -- "$cur") ;;
        @*)
            kind=${{kind#@}} kept=_gpuready_names_${{kind#@}}
            [[ -n ${{!kept+x}} ]] || printf -v "$kept" %s "$(command gpuready completion --list "$kind" 2>/dev/null)"
            mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -W "${{!kept}}" -- "$cur") ;;
        *) mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -W "$kind" -- "$cur") ;;
        esac
    done
}}
_gpuready() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} name=${{COMP_WORDS[1]}} i
    COMPREPLY=()
    if [[ $cur == = ]]; then cur=
    elif [[ $prev == = ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    if ((COMP_CWORD == 1)); then _gpuready_words {heads}; return; fi
    case $name in
{inner}
    esac
    for ((i = 2; i < COMP_CWORD; i++)); do
        [[ ${{COMP_WORDS[i]}} == -- ]] && {{ _gpuready_words @files; return; }}
    done
    case "$name $prev" in
{values}
    esac
    if [[ $cur == -* ]]; then
        case $name in
{flags}
        esac
        return
    fi
    case $name in
{arguments}
    esac
}}
complete -F _gpuready gpuready
"""


def bash_completion(entries: Sequence[CommandEntry]) -> str:
    """For bash 4 and later; does not need the package bash-completion."""
    heads = _group_by_first_word(entries)
    inner = [
        f"    {head})\n        if ((COMP_CWORD == 2)); then _gpuready_words {_quote_words(tails)}; return; fi\n"
        f'        name="{head} ${{COMP_WORDS[2]}}" ;;'
        for head, tails in heads.items()
        if tails
    ]
    values: dict[str, list[str]] = {}
    for entry in entries:
        for flag in entry["flags"]:
            if flag["metavar"] and not flag["bare"]:
                candidates = _flag_values(flag) or [":"]
                action = " ".join(candidates) if candidates == [":"] else f"_gpuready_words {_quote_words(candidates)}"
                values.setdefault(f"{action}; return", []).append(f'"{entry["name"]} {flag["name"]}"')
            elif flag["bare"]:
                bare_guard = f"[[ ${{COMP_WORDS[COMP_CWORD]}} == = || ${{COMP_WORDS[COMP_CWORD-1]}} == = ]] && {{ _gpuready_words {_quote_words(_flag_values(flag))}; return; }}"
                values.setdefault(bare_guard, []).append(f'"{entry["name"]} {flag["name"]}"')
    return _BASH_TEMPLATE.format(
        heads=_quote_words(heads),
        inner="\n".join(inner),
        values="\n".join(f"    {'|'.join(names)}) {candidates} ;;" for candidates, names in values.items()),
        flags="\n".join(
            f'        "{e["name"]}") _gpuready_words {_quote_words(f["name"] for f in e["flags"])} ;;' for e in entries
        ),
        arguments="\n".join(
            f'    "{e["name"]}") _gpuready_words {_quote_words(e["arguments"])} ;;' for e in entries if e["arguments"]
        ),
    )


def _flag_values(flag: Mapping[str, Any]) -> list[str]:
    return list(flag["choices"] or flag["kinds"])


def _quote_words(words: Iterable[str]) -> str:
    return " ".join(_quote_shell_word(word) for word in words)


def _quote_shell_word(word: str) -> str:
    """Quote for bash and zsh; plain words stay as they are."""
    plain = word.replace("-", "").replace("_", "").replace(".", "").replace("@", "").isalnum()
    return word if plain else "'" + word.replace("'", "'\\''") + "'"


# -- zsh ----------------------------------------------------------------------------------------------------

_ZSH_TEMPLATE = """\
#compdef gpuready
# zsh completion for gpuready. In ~/.zshrc, after compinit: eval "$(gpuready completion zsh)"
typeset -gA _gpuready_kept
_gpuready_names() {{ # KIND: asked once a shell
    (( ${{+_gpuready_kept[$1]}} )) || _gpuready_kept[$1]="$(command gpuready completion --list $1 2>/dev/null)"
    local -a names
    names=(${{(f)_gpuready_kept[$1]}})
    compadd -a names
}}
_gpuready_words() {{
    local kind
    for kind in "$@"; do
        case $kind in
        @files) _files ;;
        @folders) _files -/ ;;
        @*) _gpuready_names ${{kind#@}} ;;
        *) compadd -- $kind ;;
        esac
    done
}}
_gpuready() {{
    local -a found
    if (( CURRENT == 2 )); then
        found=({heads})
        _describe command found; return
    fi
    local name=$words[2]
    case $name in
{inner}
    esac
    shift words; (( CURRENT-- ))
    case $name in
{commands}
    esac
}}
compdef _gpuready gpuready
"""


def zsh_completion(entries: Sequence[CommandEntry]) -> str:
    """For zsh with its own completion system."""
    descriptions = {entry["name"]: entry["help"] for entry in entries}
    heads = _group_by_first_word(entries)
    inner = [
        f"    {head})\n        if (( CURRENT == 3 )); then found=({_quote_words(tails)}); _describe command found; return; fi\n"
        f'        name="{head} $words[3]"; shift words; (( CURRENT-- )) ;;'
        for head, tails in heads.items()
        if tails
    ]
    described = (
        _quote_shell_word(f"{head}:{_escape_colons(descriptions.get(head, f'commands of {head}'))}") for head in heads
    )
    return _ZSH_TEMPLATE.format(
        heads=" ".join(described),
        inner="\n".join(inner),
        commands="\n".join(f'    "{e["name"]}") _arguments -S {_zsh_argument_specs(e)} ;;' for e in entries),
    )


def _zsh_argument_specs(entry: CommandEntry) -> str:
    specs = [_zsh_flag_spec(flag) for flag in entry["flags"]]
    if entry["arguments"]:
        specs.append(f"*:argument:_gpuready_words {' '.join(entry['arguments'])}")
    return " ".join(_quote_shell_word(spec) for spec in specs)


def _zsh_flag_spec(flag: Mapping[str, Any]) -> str:
    description = flag["help"].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    name = ("*" if flag["many"] else "") + flag["name"]
    if not flag["metavar"]:
        return f"{name}[{description}]"
    values = _flag_values(flag)
    action = f"({' '.join(flag['choices'])})" if flag["choices"] else f"_gpuready_words {' '.join(values)}"
    separator = "=-" if flag["bare"] else "=" if name.lstrip("*").startswith("--") else "+"
    return f"{name}{separator}[{description}]:{':' if flag['bare'] else ''}{_escape_colons(flag['metavar'])}:{action if values else ' '}"


def _escape_colons(text: str) -> str:
    return text.replace(":", "\\:")


# -- fish ---------------------------------------------------------------------------------------------------

_FISH_HEADER = """\
# fish completion for gpuready. As a file: gpuready completion fish > ~/.config/fish/completions/gpuready.fish
function __gpuready_names # KIND: asked once a shell
    set -l kept __gpuready_kept_$argv[1]
    set -q $kept; or set -g $kept (command gpuready completion --list $argv[1] 2>/dev/null)
    printf '%s\\n' $$kept
end
function __gpuready_at # WORD ...: whether the command line begins with exactly these words
    set -l words (commandline -opc)
    set -e words[1]
    test (count $words) -ge (count $argv); or return 1
    for i in (seq (count $argv))
        test "$words[$i]" = "$argv[$i]"; or return 1
    end
end
complete -c gpuready -f
"""


def fish_completion(entries: Sequence[CommandEntry]) -> str:
    """For fish 3 and later."""
    descriptions = {entry["name"]: entry["help"] for entry in entries}
    lines = [_FISH_HEADER.rstrip("\n")]
    for head, tails in _group_by_first_word(entries).items():
        description = _quote_for_fish(descriptions.get(head, f"commands of {head}"))
        lines.append(f"complete -c gpuready -n 'test (count (commandline -opc)) -eq 1' -a {head} -d {description}")
        for tail in tails:
            lines.append(
                f"complete -c gpuready -n '__gpuready_at {head}; and test (count (commandline -opc)) -eq 2' "
                f"-a {tail} -d {_quote_for_fish(descriptions[f'{head} {tail}'])}"
            )
    for entry in entries:
        lines += _fish_command_lines(entry)
    return "\n".join(lines) + "\n"


def _fish_command_lines(entry: CommandEntry) -> list[str]:
    at = f"complete -c gpuready -n '__gpuready_at {entry['name']}'"
    lines = [f"{at} {_fish_flag_options(flag)}" for flag in entry["flags"]]
    if entry["arguments"]:
        lines.append(f"{at} {_fish_value_options(entry['arguments'], required=False)}")
    return lines


def _fish_flag_options(flag: Mapping[str, Any]) -> str:
    name = flag["name"]
    named = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
    options = f"{named} -d {_quote_for_fish(flag['help'])}"
    if not flag["metavar"] or flag["bare"]:
        return options + (f" -a {_quote_for_fish(' '.join(flag['choices']))}" if flag["bare"] else "")
    return f"{options} {_fish_value_options(_flag_values(flag), required=True)}"


def _fish_value_options(kinds: Sequence[str], required: bool) -> str:
    """``-r`` requires a value, ``-F`` allows files, ``-f`` does not."""
    candidates = ["(__fish_complete_directories)"] if "@folders" in kinds else []
    for kind in kinds:
        if kind not in ("@files", "@folders"):
            candidates.append(f"(__gpuready_names {kind[1:]})" if kind.startswith("@") else kind)
    files = "-F" if "@files" in kinds else "-f"
    return f"{'-r ' if required else ''}{files}" + (
        f" -a {_quote_for_fish(' '.join(candidates))}" if candidates else ""
    )


def _quote_for_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
