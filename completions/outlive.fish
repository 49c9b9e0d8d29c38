# Completions for detach, jobdir, watchdog, reap and sweep. (fish)
#
# Install this file under the name of each tool (jobdir.fish …) in a folder of $fish_complete_path
# (/usr/share/fish/vendor_completions.d). tests/tests/completions.rs holds it against the tools.

# The operands before the word: for jobdir, its verb first. With -at: where the first one stands.
function __outlive_operands
    set -l words (commandline -opc)
    set -l skip no
    set -l at 1
    for word in $words[2..]
        set at (math $at + 1)
        if test $skip = yes
            set skip no
            continue
        end
        switch "$words[1]:$word"
            case '*:--root' '*:--chdir' '*:--output' '*:--keep-fd' '*:--job' '*:--log' '*:--idle' '*:--hard' '*:--grace' \
                    '*watchdog:--watch' '*:--max-output' '*:--max-log' '*:--signal' '*:--name' '*:--limit' '*:--id' '*:--meta' \
                    '*:--meta-file' '*:--start-within' '*:--supervisor' '*:--input' '*:--exit-code' '*:--error' \
                    '*:--slice' '*:--status' '*:--older-than' \
                    '*detach:-C' '*detach:-i' '*detach:-o' '*detach:-e' '*jobdir:-r' '*jobdir:-i' '*jobdir:-n' \
                    '*jobdir:-m' '*jobdir:-s' '*watchdog:-j' '*watchdog:-r' '*watchdog:-l' '*watchdog:-g' '*watchdog:-w' \
                    '*reap:-g' '*reap:-s' '*sweep:-r' '*sweep:-n'
                set skip yes
            case '*:-?*'
            case '*'
                if test "$argv[1]" = -at
                    echo $at
                    return
                end
                echo $word
        end
    end
end

# Whether it is this verb, with so many operands behind it, if that is asked.
function __outlive_verb --argument-names verb count
    set -l operands (__outlive_operands)
    test "$operands[1]" = "$verb"; and begin
        test -z "$count"; or test (count $operands) -eq (math $count + 1)
    end
end

# Whether no command and no verb has been typed yet: options stop at a command.
function __outlive_open
    test -z "$(__outlive_operands)"
end

# Completes the command that was begun, or one to begin.
function __outlive_command
    set -l at (__outlive_operands -at)
    set -l token (commandline -ct)
    set -l words (commandline -opc)
    if test -n "$at"
        complete --do-complete="$(string join ' ' -- (string escape -- $words[$at..]) "$token")"
    else if not string match -q -- '-*' "$token"
        complete --do-complete="$token"
    end
end

# The jobs of the root that is typed, as JSON lines.
function __outlive_list
    set -l words (commandline -opc)
    set -l root
    for at in (seq 2 (count $words))
        switch $words[$at]
            case -r --root
                set root --root (string replace -r '^~/' ~/ -- $words[(math $at + 1)])
            case '--root=*'
                set root --root (string replace -r '^--root=' '' -- $words[$at])
        end
    end
    jobdir list $root --json $argv 2>/dev/null
end

# Jobs by their id, described by name, state and age.
function __outlive_jobs
    __outlive_list $argv | sed -nE \
        -e 's/^\{"job":"([^"]*)","claim":"[^"]*","name":/\1 /' \
        -e 's/^([^ ]*) null,/\1 "",/' \
        -e 's/^([^ ]*) "(([^"\\\\]|\\\\.)*)","status":"([a-z]*)",.*,"age_s":([0-9]+)[^,]*,"silent_s":.*/\5 \4 \1 \2/p' |
        while read -l age state id name
            if test $age -lt 60
                set age {$age}s
            else if test $age -lt 3600
                set age (math -s0 $age / 60)m
            else if test $age -lt 86400
                set age (math -s0 $age / 3600)h
            else
                set age (math -s0 $age / 86400)d
            end
            test -n "$name"; and set name "$name, "
            printf '%s\t%s%s, %s\n' $id "$name" $state $age
        end
end

function __outlive_names
    __outlive_list | sed -n 's/^{"job":"[^"]*","claim":"[^"]*","name":"\([^"\\\\]*\)".*/\1/p' | sort -u
end

function __outlive_states
    __fish_complete_list , 'printf "%s\n" claimed running done failed timeout unknown'
end

# What all of them have, and what more than one has. Nothing is a file unless it is said to be one.
for tool in detach jobdir watchdog reap sweep
    set -l open __outlive_open
    contains $tool jobdir reap; and set open true
    complete -c $tool -f
    complete -c $tool -n $open -s h -l help -d 'Print a short help'
    complete -c $tool -n $open -s V -l version -d 'Print the version'
end
for tool in detach watchdog sweep
    complete -c $tool -a '(__outlive_command)'
end
complete -c jobdir -s r -l root -x -a '(__fish_complete_directories)' -d 'The job root'
complete -c watchdog -n __outlive_open -s r -l root -x -a '(__fish_complete_directories)' -d 'The job root'
complete -c sweep -n __outlive_open -s r -l root -x -a '(__fish_complete_directories)' -d 'The job root'

complete -c detach -n __outlive_open -s C -l chdir -x -a '(__fish_complete_directories)' -d 'Run the command there'
complete -c detach -n __outlive_open -s i -l input -r -F -d 'Its standard input'
complete -c detach -n __outlive_open -s o -l output -r -F -d 'Append its output'
complete -c detach -n __outlive_open -s e -l error -r -F -d 'Append its standard error'
complete -c detach -n __outlive_open -s p -l pid -d 'Print its process id'
complete -c detach -n __outlive_open -s r -l ready -d 'Return when it says that it is ready'
complete -c detach -n __outlive_open -l keep-fd -x -d 'Leave a descriptor open'

complete -c watchdog -n __outlive_open -s j -l job -x -a '(__outlive_jobs --status claimed)' -d 'Own this job'
complete -c watchdog -n __outlive_open -s l -l log -r -F -d 'Append both outputs'
complete -c watchdog -n __outlive_open -l idle -x -d 'How long it may be silent'
complete -c watchdog -n __outlive_open -l hard -x -d 'How long it may run'
complete -c watchdog -n __outlive_open -s g -l grace -x -d 'From TERM to KILL'
complete -c watchdog -n __outlive_open -s w -l watch -r -F -d 'A change of this file is a sign of life too'
complete -c watchdog -n __outlive_open -l capture -d 'Standard output is the job\'s output'
complete -c watchdog -n __outlive_open -l require-output -d 'Without a valid output it has failed'
complete -c watchdog -n __outlive_open -l max-output -x -d 'The largest output'
complete -c watchdog -n __outlive_open -l max-log -x -d 'Keep the log\'s head and tail'
complete -c watchdog -n __outlive_open -l contain -d 'In a pid namespace of its own'
complete -c watchdog -n __outlive_open -l keep-children -d 'What it leaves running stays'
complete -c watchdog -n __outlive_open -l root-first -d 'TERM to the command alone first'

complete -c reap -s g -l grace -x -d 'From the first signal to KILL'
complete -c reap -s s -l signal -x -a 'HUP INT QUIT TERM USR1 USR2 KILL' -d 'The first signal'
complete -c reap -l root-first -d 'The targets alone first'
complete -c reap -s n -l dry-run -d 'Only print whom it would end'
complete -c reap -s j -l json -d 'One JSON line a process'
complete -c reap -a '(__fish_complete_pids)'

complete -c sweep -n __outlive_open -s n -l name -x -a '(__outlive_names)' -d 'Jobs of this name'
complete -c sweep -n __outlive_open -l limit -x -d 'At most so many results'
complete -c sweep -n __outlive_open -s a -l ack -d 'Read what is delivered'
complete -c sweep -n __outlive_open -s f -l follow -d 'Stay, and print each as its job ends'
complete -c sweep -n __outlive_open -s i -l in-flight -d 'Print what is claimed or running'

complete -c jobdir -n __outlive_open -a claim -d 'Claim a job and print its id'
complete -c jobdir -n __outlive_open -a put -d 'Publish a JSON object or array as the output'
complete -c jobdir -n __outlive_open -a touch -d 'Stamp progress'
complete -c jobdir -n __outlive_open -a finish -d 'Record an end by hand'
complete -c jobdir -n __outlive_open -a status -d 'Print the state'
complete -c jobdir -n __outlive_open -a show -d 'Show a job to people'
complete -c jobdir -n __outlive_open -a wait -d 'Wait for the end'
complete -c jobdir -n __outlive_open -a result -d 'Print the record of a job that has ended'
complete -c jobdir -n __outlive_open -a cancel -d 'Ask the owner to stop'
complete -c jobdir -n __outlive_open -a list -d 'List live and undelivered jobs'
complete -c jobdir -n __outlive_open -a path -d 'Print the directory'
complete -c jobdir -n __outlive_open -a prune -d 'Remove delivered jobs'

complete -c jobdir -n '__outlive_verb claim' -s i -l id -x -d 'The id, instead of a minted one'
complete -c jobdir -n '__outlive_verb claim' -s n -l name -x -a '(__outlive_names)' -d 'What kind of job it is'
complete -c jobdir -n '__outlive_verb claim' -s m -l meta -x -d 'A member of your own, key=value'
complete -c jobdir -n '__outlive_verb claim' -l meta-file -r -F -d 'Members from a JSON object'
complete -c jobdir -n '__outlive_verb claim' -l idle -x -d 'How long it may be silent'
complete -c jobdir -n '__outlive_verb claim' -l hard -x -d 'How long it may run'
complete -c jobdir -n '__outlive_verb claim' -l grace -x -d 'From TERM to KILL'
complete -c jobdir -n '__outlive_verb claim' -l start-within -x -d 'How long it may wait for an owner'
complete -c jobdir -n '__outlive_verb claim' -l supervisor -x -d 'The age at which a live owner is asked'
complete -c jobdir -n '__outlive_verb claim' -l input -r -F -d 'The command\'s standard input'
complete -c jobdir -n '__outlive_verb claim' -l path -d 'Print the directory, not the id'
complete -c jobdir -n '__outlive_verb finish' -l exit-code -x -d 'The command\'s exit status'
complete -c jobdir -n '__outlive_verb finish' -l error -x -d 'One line for people'
complete -c jobdir -n '__outlive_verb wait' -s s -l slice -x -d 'Wait no longer than this'
complete -c jobdir -n '__outlive_verb wait' -l any -d 'Wait for any of the jobs'
complete -c jobdir -n '__outlive_verb cancel' -s n -l name -x -a '(__outlive_names)' -d 'All live jobs of this name'
complete -c jobdir -n '__outlive_verb list' -s n -l name -x -a '(__outlive_names)' -d 'Jobs of this name'
complete -c jobdir -n '__outlive_verb list' -l status -x -a '(__outlive_states)' -d 'Jobs in these states'
complete -c jobdir -n '__outlive_verb list' -s a -l all -d 'Delivered jobs too'
complete -c jobdir -n '__outlive_verb list' -l limit -x -d 'At most so many'
complete -c jobdir -n '__outlive_verb list' -s j -l json -d 'JSON lines'
complete -c jobdir -n '__outlive_verb list' -s w -l watch -d 'Again whenever something happens'
complete -c jobdir -n '__outlive_verb prune' -l older-than -x -d 'Jobs that ended so long ago'
complete -c jobdir -n '__outlive_verb prune' -l undelivered -d 'Jobs that were not delivered, too'
complete -c jobdir -n '__outlive_verb prune' -l dry-run -d 'Only print what would go'

complete -c jobdir -k -n '__outlive_verb wait; or __outlive_verb cancel' -a '(__outlive_jobs --status claimed,running)'
complete -c jobdir -k -n '__outlive_verb finish 0' -a '(__outlive_jobs --status claimed,running)'
complete -c jobdir -n '__outlive_verb finish 1' -a 'done failed timeout unknown'
complete -c jobdir -k -n '__outlive_verb result 0' \
    -a '(__outlive_jobs --all --limit 50 --status done,failed,timeout,unknown)'
complete -c jobdir -k -n '__outlive_verb show 0; or __outlive_verb path 0; or __outlive_verb status' -a '(__outlive_jobs --all --limit 50)'
# Inside a job, put and touch need no job.
complete -c jobdir -k -n 'test -z "$JOB_DIR"; and begin; __outlive_verb put 0; or __outlive_verb touch 0; end' \
    -a '(__outlive_jobs --status claimed,running)'
complete -c jobdir -F -n '__outlive_verb put 1; or begin; test -n "$JOB_DIR"; and __outlive_verb put 0; end'
