"""Shell completion scripts: they ask gpuready what may follow the words that are there."""

_BASH = """\
# bash completion for gpuready. In ~/.bashrc: eval "$(gpuready completion bash)"
_gpuready() {
    local cur=${COMP_WORDS[COMP_CWORD]} word
    COMPREPLY=()
    while IFS=$'\\t' read -r word _; do
        [[ $cur == = ]] && cur=
        case $word in
        @files) compopt -o filenames 2>/dev/null; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur") ;;
        @folders) compopt -o filenames 2>/dev/null; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$cur") ;;
        *) [[ $word != "$cur"* ]] || COMPREPLY+=("$word") ;;
        esac
    done < <(command gpuready completion --words -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" ".$cur" 2>/dev/null)
}
complete -F _gpuready gpuready
"""
_ZSH = """\
#compdef gpuready
# zsh completion for gpuready. In ~/.zshrc, after compinit: eval "$(gpuready completion zsh)"
_gpuready() {
    local line
    local -a found
    for line in ${(f)"$(command gpuready completion --words -- ${words[2,CURRENT-1]} ".$words[CURRENT]" 2>/dev/null)"}; do
        case $line in
        @files) _files ;;
        @folders) _files -/ ;;
        *) found+=("${${line//:/\\\\:}/$'\\t'/:}") ;;
        esac
    done
    (( $#found )) && _describe gpuready found
}
compdef _gpuready gpuready
"""
_FISH = """\
# fish completion for gpuready. As a file: gpuready completion fish > ~/.config/fish/completions/gpuready.fish
function __gpuready_words
    set -l words (commandline -opc)
    set -e words[1]
    set -l cur (commandline -ct)
    for line in (command gpuready completion --words -- $words ".$cur" 2>/dev/null)
        switch $line
            case @files
                __fish_complete_path "$cur"
            case @folders
                __fish_complete_directories "$cur"
            case '*'
                printf '%s\\n' $line
        end
    end
end
complete -c gpuready -f -a '(__gpuready_words)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""By shell. A word that begins with @ is a kind that the shell completes itself: files or folders."""
