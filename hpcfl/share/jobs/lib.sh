# shellcheck shell=bash
# What the job scripts share: starts the ranks, passes the warning before the end on to them, and puts the job back
# into the queue when hpcfl ends with 75 (stopped, can continue). Its other codes, 0 done, 1 failed and 2 bad
# input, end the job.

say() { echo "hpcfl job: $*" >&2; }
refuse() {
    say "$*"
    exit 2
}

# words TEXT: puts the words of TEXT, quoted as in a shell, into the array `words`; nothing in it is executed
# shellcheck disable=SC2034
words() {
    local text # ends in a line that is no word, because $() drops empty lines at the end
    text=$(xargs -r printf '%s\n' <<<"$1" 2>/dev/null && echo end) || refuse "quotes do not match: $1"
    mapfile -t words <<<"$text"
    unset 'words[-1]'
}

# The job: its ranks, how often it was started before, the signal that warns it, and how it is queued again.
warning=USR1
if [ -n "${SLURM_JOB_ID:-}" ]; then
    job=$SLURM_JOB_ID
    # one task of an array has the id of the whole array, so tasks go by their index
    [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
    ranks=${SLURM_NTASKS:-1} restarts=${SLURM_RESTART_COUNT:-0}
    # newer versions of Slurm tell a job its end, older ones are asked; to date, no answer would be last midnight
    if [ -z "${SLURM_JOB_END_TIME:-}" ]; then
        end=$(squeue --noheader --jobs="$job" --format=%e 2>/dev/null)
        SLURM_JOB_END_TIME=$(date -d "${end:-unknown}" +%s 2>/dev/null)
    fi
    export SLURM_JOB_END_TIME
    again() { scontrol requeue "$job"; }
elif [ -n "${PBS_JOBID:-}" ]; then
    job=$PBS_JOBID ranks=$(wc -l <"$PBS_NODEFILE") restarts=${HPCFL_RESTARTS:-0}
    # only operators may qrerun everywhere, so the script is submitted anew; a task of an array as a job of its own
    again() { HPCFL_RESTARTS=$((restarts + 1)) HPCFL_TASK=${task:-} qsub -V "$HPCFL_JOBS/${script:-train.pbs}"; }
elif [ -n "${LSB_JOBID:-}" ]; then
    job=$LSB_JOBID-${LSB_JOBINDEX:-0}
    ranks=$LSB_DJOB_NUMPROC counter=hpcfl-$job.restarts
    restarts=$(cat "$counter" 2>/dev/null || echo 0)
    # LSF signals every process of a job: URG means nothing to the ranks, so that they hear of it once, from here
    warning=URG
    # LSF itself queues a job again that ends with 75 (bsub -Q 75)
    again() { echo $((restarts + 1)) >"$counter"; }
else
    refuse "no job of Slurm, PBS or LSF: submit this script"
fi

# srun --kill-on-bad-exit ends the other ranks with the first that ends with 75, and then returns 143: under srun a
# rank that stopped ends with 0, and rank 0 leaves its code in a file. Where all fail alike it is given time for that.
codefile=$PWD/hpcfl-$job.code
# shellcheck disable=SC2016
rank='trap : USR1 TERM INT
"$@"
code=$?
[ "$SLURM_PROCID" != 0 ] || echo $code >"$0"
case $code/$SLURM_PROCID in
    75/*) exit 0 ;;
    1/0 | 2/0) ;;
    1/* | 2/*) sleep 3 ;;
esac
exit $code'

# launch_command: fills the array `launch` for HPCFL_MPI
launch_command() {
    case ${HPCFL_MPI:-mpirun} in
        pmi2 | pmix)
            # MPICH names its shared memory after the numbers of job and step, which a requeued job has again: what a
            # killed life left behind would make the next one hang. Empty steps give every life numbers of its own: as
            # many as earlier lives had, one each and one more for each cell of a study that failed.
            local steps=0
            [ "$restarts" = 0 ] || steps=$((restarts + $(failures | wc -l)))
            for ((i = 0; i < steps; i++)); do srun --nodes=1 --ntasks=1 bash -c true; done
            # Slurm reads 1024 bytes of a line of PMI-1. MPICH 5 sends 4096 of UCX's address, encoded in lines that may be
            # longer: then ranks on several nodes hang, or die as they start. OFI's address is short.
            [ "$HPCFL_MPI" != pmi2 ] || export MPIR_CVAR_CH4_NETMOD="${MPIR_CVAR_CH4_NETMOD:-ofi}"
            # shellcheck disable=SC2206
            launch=(srun --mpi="$HPCFL_MPI" --ntasks="$ranks" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}"
                --kill-on-bad-exit=1 ${HPCFL_SRUN---cpu-bind=cores} bash -c "$rank" "$codefile")
            ;;
        mpirun)
            # shellcheck disable=SC2206
            launch=(mpirun -n "$ranks" ${HPCFL_MPIRUN-})
            ;;
        *) refuse "HPCFL_MPI = $HPCFL_MPI: must be pmi2, pmix or mpirun" ;;
    esac
}

# run_ranks ARGUMENTS: runs `hpcfl ARGUMENTS` on all ranks and sets `code`
run_ranks() {
    rm -f "$codefile"
    # shellcheck disable=SC2086
    "${launch[@]}" ${HPCFL:-hpcfl} "$@" &
    launcher=$!
    while :; do # a trap interrupts wait; asked again it returns the launcher's code
        caught=
        wait "$launcher"
        code=$?
        [ -n "$caught" ] || break
    done
    local said
    said=$(cat "$codefile" 2>/dev/null)
    rm -f "$codefile"
    case "$said $code" in
        '1 '* | '2 '* | '75 0') code=$said ;;
        # warned before hpcfl listened: killed by USR1, as srun and Open MPI say it, or MPICH's mpirun
        *' 138' | *' 10' | *' 255') [ -z "${warned:-}" ] || code=75 ;;
    esac
}

# warn_in_time: signals this script HPCFL_WARNING seconds before its walltime; PBS's own SIGTERM comes only seconds
# before the end
warn_in_time() {
    local seconds
    seconds=${PBS_WALLTIME:-$(qstat -f "$PBS_JOBID" | sed -n 's/.*Resource_List.walltime = //p' | awk -F: '{print $1*3600+$2*60+$3}')}
    [ "${seconds:-0}" -gt "$HPCFL_WARNING" ] || return 0
    { # a shell that is killed leaves its sleep behind, unless it ends it
        trap 'kill $!; exit' TERM
        sleep $((seconds - HPCFL_WARNING)) &
        wait $! && kill -USR1 $$
    } >/dev/null 2>&1 &
    timer=$!
    trap 'kill "$timer" 2>/dev/null' EXIT
}

# failures: lists the marks of failed cells of a study, in the directory `marks`; of those in `cells` if that names any.
# A file that comes and goes among them makes NFS look anew.
failures() {
    [ -n "${marks:-}" ] || return 0
    { mkdir -p "$marks" && : >"$marks/.$job" && rm "$marks/.$job" && cd "$marks" && ls -- "${cells[@]}"; } 2>/dev/null
    return 0
}

# hpcfl_job ARGUMENTS: one life of a job that runs `hpcfl ARGUMENTS`
hpcfl_job() {
    launch_command
    export OMP_NUM_THREADS=1 HPCFL_RESTARTS=$restarts
    # The warning goes on to the ranks. At SIGTERM (cancelled, preempted) the batch system has told them itself, and
    # decides itself whether the job comes back.
    trap 'caught=1 warned=1; [ -z "${launcher:-}" ] || kill -USR1 "$launcher"' "$warning"
    trap 'caught=1 ended=1' TERM
    say "start $((restarts + 1)): hpcfl $*"
    local before after
    before=$(failures)
    run_ranks "$@"
    # an exception on one rank ends them all and marks the cell, which the next start passes over
    while after=$(failures) && [[ $code != @(0|75) && $after != "$before" && -z ${ended:-} ]]; do
        say "a cell of the study failed; going on with the others"
        [ -z "${warned:-}" ] || { code=75 && break; }
        before=$after
        export HPCFL_RESTARTS=$((restarts + 1)) # with --retry, cells are tried again in the first start only
        run_ranks "$@"
    done
    if [ "$code" != 75 ]; then
        rm -f "${counter:-}"
    elif [ -n "${ended:-}" ]; then
        say "stopped from outside; submit it again to continue"
    elif [ "$restarts" -ge "${HPCFL_MAX_RESTARTS:=20}" ]; then
        say "started $((restarts + 1)) times without reaching the end, HPCFL_MAX_RESTARTS = $HPCFL_MAX_RESTARTS"
        code=1
    elif again; then
        say "stopped in time, queued again"
    else
        say "stopped in time, but could not be queued again; submit it again to continue"
        code=1
    fi
    exit "$code"
}

# hpcfl_task FILE NUMBER: one life of a job that runs that line of a file: the arguments of one hpcfl train, or of one
# hpcfl with `study run` before them; empty lines and lines with # are passed over
hpcfl_task() {
    [ -r "$1" ] || refuse "needs a file with the arguments of one hpcfl per line, and '$1' is none"
    local line i
    line=$(sed -n "$2p" "$1")
    case $line in
        '' | '#'*) exit 0 ;;
    esac
    words "$line"
    [ ${#words[@]} -gt 0 ] || exit 0
    case ${words[0]} in
        study)
            cells=()
            for ((i = 0; i < ${#words[@]}; i++)); do
                case ${words[i]} in
                    --out) marks=${words[i + 1]:-}/failed ;;
                    --out=*) marks=${words[i]#--out=}/failed ;;
                    --cell=*) cells+=("${words[i]#--cell=}.txt") ;;
                esac
            done
            ;;
        train) ;;
        *) words=(train "${words[@]}") ;;
    esac
    hpcfl_job "${words[@]}"
}
