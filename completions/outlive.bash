# Completions for detach, jobdir, watchdog, reap and sweep. (bash)
#
# Source this file, or install it under the name of each tool where bash-completion looks
# (/usr/share/bash-completion/completions). tests/tests/completions.rs holds it against the tools.
# shellcheck shell=bash

# The options of a tool, or of a verb of jobdir.
_outlive_options() {
    case $1 in
        detach) echo '--chdir --input --output --error --pid --ready --keep-fd' ;;
        watchdog)
            echo '--job --root --log --idle --hard --grace --watch --capture --require-output --max-output --max-log'
            echo '--contain --keep-children --root-first'
            ;;
        reap) echo '--grace --signal --root-first --dry-run --json' ;;
        sweep) echo '--root --name --limit --ack --follow --in-flight' ;;
        'jobdir claim')
            echo '--id --name --meta --meta-file --idle --hard --grace --start-within --supervisor --input --path'
            ;;
        'jobdir finish') echo '--exit-code --error' ;;
        'jobdir wait') echo '--slice --any' ;;
        'jobdir cancel') echo '--name' ;;
        'jobdir list') echo '--name --status --all --limit --json --watch' ;;
        'jobdir prune') echo '--older-than --undelivered --dry-run' ;;
    esac
    case $1 in
        jobdir*) echo '--root' ;;
    esac
    echo '--help --version'
}

# What an option of a tool takes: nothing for a flag, "text" where nobody can know.
_outlive_value() {
    case $1:$2 in
        detach:-C | detach:--chdir | jobdir:-r | watchdog:-r | sweep:-r | *:--root) echo folder ;;
        detach:-[ioe] | detach:--input | detach:--output | detach:--error) echo file ;;
        watchdog:-[lw] | watchdog:--log | watchdog:--watch | jobdir:--input | jobdir:--meta-file) echo file ;;
        watchdog:-j | watchdog:--job) echo claimed ;;
        jobdir:-n | sweep:-n | *:--name) echo name ;;
        jobdir:--status) echo states ;;
        reap:-s | reap:--signal) echo signal ;;
        jobdir:-[ims] | jobdir:--id | jobdir:--meta | jobdir:--error) echo text ;;
        reap:-g | watchdog:-g | *:--grace | *:--idle | *:--hard | *:--start-within | *:--supervisor) echo text ;;
        *:--slice | *:--older-than | *:--limit | *:--exit-code | *:--keep-fd | *:--max-output | *:--max-log) echo text ;;
    esac
}

# The jobs of the root that is typed, as JSON lines.
_outlive_list() {
    jobdir list ${root:+--root "${root/#\~\//$HOME/}"} --json "$@" 2>/dev/null
}

_outlive_ids() {
    _outlive_list "$@" | sed 's/^{"job":"\([^"]*\)".*/\1/'
}

# Offers those of the words that begin with the current one.
_outlive_offer() {
    local word
    for word in "$@"; do
        [[ $word == "$cur"* ]] && COMPREPLY+=("$word")
    done
}

_outlive_files() {
    # Only where bash itself asks.
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
}

# The command that begins at this word, and its own arguments.
_outlive_command() {
    if declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif [[ $1 == "$COMP_CWORD" && $cur != */* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur" | sort -u)
    else
        _outlive_files -f
    fi
}

_outlive_kind() {
    local words
    case $1 in
        folder) _outlive_files -d ;;
        file) _outlive_files -f ;;
        claimed) _outlive_live --status claimed ;;
        name)
            mapfile -t words < <(_outlive_list | sed -n 's/^{"job":"[^"]*","claim":"[^"]*","name":"\([^"\\]*\)".*/\1/p' | sort -u)
            for word in "${words[@]}"; do
                [[ $word == "$cur"* ]] && COMPREPLY+=("$(printf %q "$word")")
            done
            ;;
        states)
            local before=
            [[ $cur == *,* ]] && before=${cur%,*},
            _outlive_offer "$before"{claimed,running,'done',failed,timeout,unknown}
            ;;
        signal) _outlive_offer HUP INT QUIT TERM USR1 USR2 KILL ;;
    esac
}

_outlive_live() {
    local ids
    mapfile -t ids < <(_outlive_ids "$@")
    _outlive_offer "${ids[@]}"
}

# The operands of a verb of jobdir; so many stand before this one.
_outlive_operand() {
    case $1 in
        '') _outlive_offer claim put touch finish status show wait result cancel list path prune ;;
        wait | cancel) _outlive_live --status claimed,running ;;
        result) (($2 == 0)) && _outlive_live --all --limit 50 --status done,failed,timeout,unknown ;;
        show | path) (($2 == 0)) && _outlive_live --all --limit 50 ;;
        status) _outlive_live --all --limit 50 ;;
        finish)
            case $2 in
                0) _outlive_live --status claimed,running ;;
                1) _outlive_offer 'done' failed timeout unknown ;;
            esac
            ;;
        touch) [[ $2 == 0 && -z ${JOB_DIR-} ]] && _outlive_live --status claimed,running ;;
        put)
            if [[ $2 == 0 && -z ${JOB_DIR-} ]]; then
                _outlive_live --status claimed,running
            else
                _outlive_files -f
            fi
            ;;
    esac
}

_outlive() {
    local tool=${COMP_WORDS[0]##*/} cur=${COMP_WORDS[COMP_CWORD]} word kind='' before='' verb='' root='' ended='' i
    local -i operands=0
    COMPREPLY=()
    # bash makes a word of the = in --option=value.
    [[ $cur == '=' ]] && cur=
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        [[ $word == '=' ]] && continue
        if [[ $kind ]]; then
            [[ $kind == folder && $before != -C && $before != --chdir ]] && root=$word
            kind=
        elif [[ $word == -- && -z $ended ]]; then
            ended=yes
        elif [[ $word == -?* && -z $ended ]]; then
            kind=$(_outlive_value "$tool" "$word")
            before=$word
        elif [[ $tool == detach || $tool == watchdog || $tool == sweep ]]; then
            _outlive_command "$i"
            return
        elif [[ $tool == jobdir && -z $verb ]]; then
            verb=$word
        else
            operands+=1
        fi
    done
    if [[ $kind ]]; then
        _outlive_kind "$kind"
    elif [[ $cur == -* && -z $ended ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_outlive_options "$tool${verb:+ $verb}")" -- "$cur")
    else
        case $tool in
            detach | watchdog | sweep) _outlive_command "$COMP_CWORD" ;;
            jobdir) _outlive_operand "$verb" "$operands" ;;
            reap) mapfile -t COMPREPLY < <(compgen -W "$(ps -eo pid=)" -- "$cur") ;;
        esac
    fi
}

complete -F _outlive detach jobdir watchdog reap sweep
