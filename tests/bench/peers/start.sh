#!/bin/sh
# START as the job-lifecycle seed describes it: `start.sh ROOT COMMAND...`. An id of time and random hex, mkdir without
# -p, a preflight, meta.json and status, a perl double fork with a watchdog in a shell; prints the id and returns.
set -eu
root=$1
shift
while :; do
    id=$(date -u +%Y%m%dT%H%M%SZ)-$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')
    mkdir "$root/$id" 2>/dev/null && break
done
job=$root/$id
command -v "$1" >/dev/null || exit 127
printf '{"job":"%s","started":"%s","hard_s":%s}\n' "$id" "$(date -u +%s)" "${HARD_SECS:-1200}" >"$job/meta.json"
echo running >"$job/status"
[ -w "$job/status" ]
# shellcheck disable=SC2016 # The worker's own variables.
worker='
job=$1; shift
echo $$ >"$job/pid"
"$@" >>"$job/out.log" 2>&1 &
child=$!
size=0 idle=0
while kill -0 $child 2>/dev/null; do
    sleep 1
    now=$(stat -c %s "$job/out.log")
    if [ "$now" = "$size" ]; then idle=$((idle + 1)); else idle=0 size=$now; fi
    if [ $idle -ge "${IDLE_SECS:-600}" ]; then kill $child; echo timeout >"$job/status.new"; fi
done
if wait $child; then word=done; else word=failed; fi
printf "{\"status\":\"%s\"}\n" $word >"$job/result.new" && mv "$job/result.new" "$job/result.json"
[ -e "$job/status.new" ] || echo $word >"$job/status.new"
mv "$job/status.new" "$job/status"
'
# shellcheck disable=SC2016 # Perl's own variables.
perl -e 'use POSIX qw(setsid); exit if fork; setsid(); exit if fork; open(STDIN,"<","/dev/null");
    open(STDOUT,">","/dev/null"); open(STDERR,">>","/dev/null"); exec "/bin/bash","-c",@ARGV;' \
    "$worker" worker "$job" "$@"
echo "$id"
