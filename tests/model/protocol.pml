/* protocol.pml: the life of one job id as the tools of this workspace run it, for Spin.
 *
 * `./run` checks it whole; `./run -DPOWER -DTWO …` checks one configuration and says what it found.
 *
 * Each STEP is one system call, or a run of them that nobody else can see into. Before every STEP its process may be
 * killed (KILLS bounds how often); its locks fall with it, as the kernel drops them. The power may be cut once: every
 * process ends, and of what was not fsynced any subset is lost. Everybody comes back on the next tick. An id may be
 * claimed again after it was pruned: an *incarnation* is one directory (one inode, one claim token), 1 or 2.
 *
 * Process    step                                  function
 * Claimer    build, file by file, each fsynced     jobdir claim::{make, build}
 *            shared lock, look, rename             jobdir claim::place
 *            fsync of jobs/, then the id is told   jobdir claim::build
 * Watchdog   open by name                          jobdir root::Named::open
 *            lock, tried for a second              jobdir owner::Lock::take
 *            second look; pid; owner.json; view;
 *            one look more                         watchdog owned::Owned::{take, sign}
 *            fork, and exec in the child           watchdog delegate::start
 *            wait; answer; cancelled; lost         watchdog watch::Watch::verdict, owned::Owned::{answer, is_lost}
 *            end the tree                          watchdog watch::Watch::reap
 *            keep put out, read the output         jobdir output::{close, published}
 *            temporary, fsync, link, fsync, view   jobdir commit::{put, link, commit}
 *            a commit that lost leaves late.json   watchdog owned::Owned::commit
 * Sweeper    look: view, record, probe             jobdir settle::{look, recorded, judge}, owner::probe
 *            ask a live owner that is overdue      jobdir settle::ask
 *            lock, look again, reap, commit        jobdir settle::{bury, end_remains, record_death}, commit::conclude
 *            complete the view, after an fsync     jobdir commit::complete_view
 *            open by name once more, and emit      sweep pass::pass, pass::Outcome::recorded
 *            acknowledge, by inode, locked         sweep ack::Named::acknowledge, jobdir root::{acknowledge, move_job}
 * Canceller  TERM, or commit under the lock        jobdir cancel::cancel
 * Putter     lock, look, replace, fsync            jobdir output::put
 * Pruner     lock of pid, move away, remove        jobdir prune::{prune, remove_job}
 *
 * Simplified, each time so that more can happen than really can: windows may be over at any moment (a claimed job is
 * dead as soon as its lock is free; any live owner may be suspect); an owner that is asked may always fail to answer
 * in time; the worker may or may not die of its parent's death; it is found by its token only once it has exec'ed.
 * Not here: file systems without locks or links, other hosts, fsync that fails, and finish (a settler by hand).
 *
 * Assumed of the disk: names in one root become durable in the order in which they were made (every journal does
 * that); -DWEAK_DIRS drops it for jobs/ and delivered/. Inside a job's directory nothing is ordered.
 *
 * Parts:  TWO a second watchdog on the same job; SWEEPERS=n; CANCEL; WEDGE=n judgements of a live owner; PUT; REUSE a
 *         second incarnation, with prune; POWER; KILLS=n; LONG jobs that never end by themselves; UNSTARTED jobs that
 *         get no watchdog.
 * Mends left out, one by one, to see that each is needed:
 *  NO_TMPSYNC     the temporary is not fsynced before its link
 *  NO_DIRSYNC     the directory is not fsynced before the view turns terminal
 *  NO_LINK        look, then rename, instead of link(2)
 *  NO_SECOND_LOOK the watchdog does not look again under the lock
 *  NO_LAST_LOOK   nor once more before it starts the worker
 *  NO_BOOT_LOOK   the watchdog takes a job that was claimed in an earlier boot
 *  NO_HOLD_LOCK   the settler probes, and commits without the lock
 *  NO_ASK         a live owner is judged without being asked
 *  NO_RETRY       the watchdog tries the lock once, and a probe may be in its way
 *  LEAK_LOCK      the worker inherits the lock
 *  NO_FORK_LOCK   the child drops it before its exec, when no token tells yet whose it is
 *  NO_REAP_FIRST  the settler records a death before it has ended what is left
 *  NO_SYNCREAD    a record that was found is passed on without an fsync of the directory
 *  NO_EMIT_SYNC   so is one under a name that was opened again after settling
 *  NO_TOLD_SYNC   the id is told before jobs/ is on the disk
 *  NO_CLAIM_LOCK  the claim does not keep acknowledgements away between its two looks
 *  ACK_BY_NAME    an acknowledgement moves whatever goes by the name by then
 *  NO_LATE_LOOK   the owner does not notice that it has lost
 *  NO_PRUNE_LOCK  prune removes a job that is still locked
 *  NO_CANCEL_LOCK cancel commits without the lock
 *  NO_CANCEL_LOOK cancel does not look for an owner once it has the lock
 *  NO_PUT_LOCK    a publication and the verdict do not exclude each other
 */
#ifndef KILLS
#define KILLS 1
#endif
#ifndef WEDGE
#define WEDGE 0
#endif
#ifndef SWEEPERS
#define SWEEPERS 1
#endif
#ifdef REUSE
#define LAST 2
#else
#define LAST 1
#endif

/* What must hold, by the name that a failing assertion shows. */
hidden byte RECORD_NEVER_REPLACED, RECORD_NEVER_TORN, VIEW_NEVER_OUTRUNS_RECORD, VIEW_NEVER_TURNS_BACK,
  NO_WORK_AFTER_RECORD, NEVER_RUN_TWICE, DELIVERED_ONLY_WHEN_TERMINAL, DELIVERIES_AGREE, ACKED_WAS_DELIVERED,
  EMITTED_IS_ON_DISK, TOLD_IS_DELIVERED, ACKED_GOES_AWAY, NO_WORKER_OUTLIVES_DEATH, NOT_DEAD_WHILE_OWNED,
  WEDGED_ONLY_UNANSWERED, ID_NAMES_ONE_JOB, PUBLISHED_STANDS_IN_RECORD, PROBE_IS_NO_OWNER;
#define MUST(name, condition) assert(name || (condition))

/* status */
#define CLAIMED 1
#define RUNNING 2
#define TERMINAL 3
/* result.json */
#define DONE 1
#define DIED 2
#define WEDGED 3
#define CANCELLED 4
#define TORN 5
/* the worker */
#define FORKED 1
#define WORKING 2

/* One root, as processes see it. */
byte jobs, delivered;                 /* the incarnation at jobs/ID, at delivered/ID; 0: none */
byte status[LAST + 1], record[LAST + 1];
bool numbered[LAST + 1], owner[LAST + 1];  /* pid has a number; owner.json is there */
byte lock[LAST + 1];                  /* who holds pid exclusively */
bool child[LAST + 1];                 /* a forked child shares that lock */
byte probes[LAST + 1];                /* how many hold it shared, for a moment */
byte looking;                         /* how many hold delivered/ shared */
byte worker[LAST + 1];

/* What the platter has. */
#ifdef POWER
byte on_status[LAST + 1], on_record[LAST + 1];
bool whole[LAST + 1];                 /* the record's data */
bool earlier[LAST + 1];               /* claimed before the cut */
# ifdef WEAK_DIRS
byte past_jobs = 1, past_delivered = 1;
# define MOVED past_jobs = past_jobs | (1 << jobs); past_delivered = past_delivered | (1 << delivered)
# define SYNC_JOBS past_jobs = 1 << jobs
# else
short past = 1;                       /* the pairs (jobs, delivered) since the last fsync of jobs/ */
# define MOVED past = past | (1 << (3 * jobs + delivered))
# define SYNC_JOBS past = 1 << (3 * jobs + delivered)
# endif
# define SYNC(i) on_status[i] = status[i]; on_record[i] = record[i]
# define EARLIER(i) earlier[i]
#else
# define MOVED skip
# define SYNC_JOBS skip
# define SYNC(i) skip
# define EARLIER(i) false
#endif

/* The course of events. */
byte kills, boot;
bool cut;                             /* the power may still be cut */
byte wedges;
byte ran[LAST + 1], seen[LAST + 1];
bool told[LAST + 1], gone[LAST + 1];
bool begun[LAST + 1];                 /* the owner has looked for a record for the last time */
bool excused[LAST + 1];               /* judged wedged after that look */
bool abandoned[LAST + 1];             /* its owner was killed */
#ifdef LONG
bool endless;
#else
#define endless false
#endif
#if WEDGE > 0
byte asked[LAST + 1];                 /* by whom; a bit for each sweeper */
#endif
#ifdef CANCEL
bool term[LAST + 1];                  /* TERM waits for the owner */
#endif
#ifdef PUT
bool closed[LAST + 1];                /* the lock of meta.json */
bool output[LAST + 1], published[LAST + 1], in_record[LAST + 1];
#endif

#define OWNED(i) (lock[i] == 1 || lock[i] == 2)     /* by a watchdog */
#define FREE(i) (lock[i] == 0 && !child[i])
#ifdef LEAK_LOCK
#define LEAK true
#else
#define LEAK false
#endif

/* One step of a process that was started in boot `b`; KILLED is what the kernel does at its death. */
#define STEP(ready, act) \
 if \
 :: atomic { b == boot && (ready) -> act } \
 :: atomic { b == boot && kills > 0 -> kills--; KILLED; goto dead } \
 :: atomic { b != boot -> goto dead } \
 fi

#ifdef PUT
#define CLOSE(h) STEP(!closed[h], closed[h] = true; mine = true); STEP(true, out = output[h])
#define REOPEN(h) if :: mine -> closed[h] = false; mine = false :: else fi
#define KEEP(h) in_record[h] = out
#define FORGET mine = false; out = false
#define PUT_LOCALS bool mine, out;
#ifdef NO_PUT_LOCK
#undef CLOSE
#define CLOSE(h) STEP(true, out = output[h])
#endif
#else
#define CLOSE(h) skip
#define REOPEN(h) skip
#define KEEP(h) skip
#define FORGET skip
#define PUT_LOCALS
#endif

#ifdef POWER
# ifdef NO_TMPSYNC
#  define WRITTEN(i) whole[i] = false
# else
#  define WRITTEN(i) whole[i] = true
# endif
#else
# define WRITTEN(i) skip
#endif

/* commit::commit: `still` is what must be true of the world when the record appears. */
#ifdef NO_LINK
#define LINK(h, value, still) \
 STEP(true, won = (record[h] == 0)); \
 STEP(true, if :: won -> MUST(RECORD_NEVER_REPLACED, record[h] == 0); still; record[h] = value; WRITTEN(h); KEEP(h) \
            :: else fi)
#else
#define LINK(h, value, still) \
 STEP(true, if :: record[h] == 0 -> still; record[h] = value; WRITTEN(h); KEEP(h); won = true :: else -> won = false fi)
#endif
#ifdef NO_DIRSYNC
#define VIEW(h) STEP(true, if :: won -> status[h] = TERMINAL :: else fi)
#else
#define VIEW(h) STEP(true, if :: won -> SYNC(h) :: else fi); STEP(true, if :: won -> status[h] = TERMINAL :: else fi)
#endif

/* ------------------------------------------------------------------------------------------------ claim */
#define KILLED if :: holds -> looking--; holds = false :: else fi
proctype Claimer() {
 byte b, gen = 1, tries;
 bool holds;
again:
 b = boot;
#ifndef NO_CLAIM_LOCK
 STEP(true, looking++; holds = true);
#endif
 STEP(true, if :: delivered != 0 -> goto taken :: else fi);
 STEP(true,
   if
   :: jobs == 0 ->
     jobs = gen; status[gen] = CLAIMED; MOVED;
#ifdef POWER
     on_status[gen] = CLAIMED; earlier[gen] = false;
#endif
     MUST(ID_NAMES_ONE_JOB, delivered == 0)
   :: else -> goto taken
   fi);
 STEP(true, KILLED);
#ifndef NO_TOLD_SYNC
 STEP(true, SYNC_JOBS);
#endif
 STEP(true, told[gen] = true);
 if :: gen < LAST -> gen++; goto again :: else -> goto done fi;
taken:
 atomic { if :: b == boot -> KILLED :: else -> holds = false fi; tries++ }
 /* Tried again at some later moment: that it ends here is what happens to most who find an id taken. */
 if :: tries < 2 -> goto again :: else -> goto done fi;
dead:
 /* Whoever comes back claims anew. */
 atomic { holds = false; if :: gen == 1 && LAST == 2 && status[1] != 0 -> gen = LAST; goto again :: else fi }
done: skip
}
#undef KILLED

/* --------------------------------------------------------------------------------------------- watchdog */
#define LET_GO if :: h != 0 && lock[h] == me -> lock[h] = 0 :: else fi; REOPEN(h)
#define KILLED \
 if :: h != 0 && lock[h] == me -> abandoned[h] = true; \
   if :: worker[h] == WORKING -> worker[h] = 0 :: true fi :: else fi; LET_GO
proctype Watchdog(byte me) {
 byte b, h, what, runs;
 bool won;
 PUT_LOCALS
again:
 atomic { jobs != 0 && runs < LAST + 1 -> b = boot; h = jobs; what = DONE; runs++ }
#ifdef NO_RETRY
 STEP(true,
   if
   :: FREE(h) && probes[h] == 0 -> lock[h] = me
   :: FREE(h) && probes[h] != 0 -> MUST(PROBE_IS_NO_OWNER, false)
   :: else -> goto done
   fi);
#else
 STEP(!FREE(h) || probes[h] == 0, if :: FREE(h) -> lock[h] = me :: else -> goto done fi);
#endif
#ifndef NO_SECOND_LOOK
 STEP(true, if :: status[h] != CLAIMED || numbered[h] || record[h] != 0 -> goto done :: else fi);
#endif
#ifndef NO_BOOT_LOOK
 STEP(true, if :: EARLIER(h) -> goto done :: else fi);
#endif
 STEP(true, numbered[h] = true);
 STEP(true, owner[h] = true);
 STEP(true, MUST(VIEW_NEVER_TURNS_BACK, status[h] != TERMINAL || record[h] == WEDGED); status[h] = RUNNING);
#ifdef NO_LAST_LOOK
 if :: record[h] != 0 :: else -> begun[h] = true fi;
#else
 STEP(true, if :: record[h] != 0 -> won = true; goto view :: else -> begun[h] = true fi);
#endif
 STEP(true, worker[h] = FORKED; child[h] = true);
#ifdef NO_FORK_LOCK
 STEP(true, child[h] = false);
#endif
 STEP(worker[h] != FORKED, skip);
watch:
 if
 :: atomic { b == boot && worker[h] == 0 }
 :: atomic { b == boot && worker[h] == WORKING && !endless -> worker[h] = 0 }
#ifdef CANCEL
 :: atomic { b == boot && worker[h] == WORKING && term[h] -> worker[h] = 0; what = CANCELLED }
#endif
#ifndef NO_LATE_LOOK
 :: atomic { b == boot && worker[h] == WORKING && record[h] != 0 && !gone[h] -> worker[h] = 0 }
#endif
#if WEDGE > 0
 :: atomic { b == boot && asked[h] != 0 -> asked[h] = 0; goto watch }
#endif
 :: atomic { b == boot && kills > 0 -> kills--; KILLED; goto dead }
 :: atomic { b != boot -> goto dead }
 fi;
 CLOSE(h);
 LINK(h, what, MUST(NO_WORKER_OUTLIVES_DEATH, worker[h] == 0));
view:
 VIEW(h);
done:
 atomic { if :: b == boot -> LET_GO :: else fi }
dead:
 atomic { h = 0; won = false; FORGET; goto again }
}
#undef KILLED

/* The child between its fork and its exec, then the command: it ends by its watchdog, or by whoever settles. */
proctype Child() {
 do
#ifdef REUSE
 :: atomic { worker[2] == FORKED ->
      MUST(NO_WORK_AFTER_RECORD, record[2] == 0 || excused[2]); MUST(NEVER_RUN_TWICE, ran[2] == 0);
      worker[2] = WORKING; ran[2]++; child[2] = LEAK }
#endif
 :: atomic { worker[1] == FORKED ->
      MUST(NO_WORK_AFTER_RECORD, record[1] == 0 || excused[1]); MUST(NEVER_RUN_TWICE, ran[1] == 0);
      worker[1] = WORKING; ran[1]++; child[1] = LEAK }
 /* One that is orphaned may die of it, or go on for ever. */
 od
}

/* ------------------------------------------------------------------------------- settle, emit, acknowledge */
#if WEDGE > 0
#define ASKABLE(i) (OWNED(i) && owner[i] && wedges > 0 && record[i] == 0)
#define DROP_ASK asked[h] = asked[h] & ~(1 << me)
#else
#define ASKABLE(i) false
#define DROP_ASK skip
#endif
#define KILLED if :: holds -> probes[h]--; holds = false :: else fi; DROP_ASK; LET_GO
#define STILL_DEAD \
 MUST(NOT_DEAD_WHILE_OWNED, !OWNED(h)); MUST(NO_WORKER_OUTLIVES_DEATH, worker[h] == 0)
#define STILL_UNANSWERED \
 MUST(WEDGED_ONLY_UNANSWERED, answered == false); excused[h] = begun[h]
proctype Sweeper(byte me) {
 byte b, h, e;
 bool won, holds, answered;
 PUT_LOCALS
again:
 atomic { jobs != 0 && (record[jobs] != 0 || FREE(jobs) || ASKABLE(jobs)) -> b = boot; h = jobs }
 STEP(true,
   if
   :: status[h] == TERMINAL -> goto emit
   :: status[h] != TERMINAL && record[h] != 0 -> goto found
   :: else
   fi);
#ifdef NO_RETRY
 STEP(true, if :: FREE(h) -> probes[h]++; holds = true :: else fi);
 STEP(true, if :: holds -> probes[h]--; holds = false :: else -> goto suspect fi);
#else
 STEP(true, if :: FREE(h) :: else -> goto suspect fi);
#endif
#ifndef NO_HOLD_LOCK
 STEP(true, if :: FREE(h) && probes[h] == 0 -> lock[h] = me :: else -> goto done fi);
 STEP(true, if :: record[h] != 0 -> goto found :: else fi);
#endif
#ifndef NO_REAP_FIRST
 STEP(true, if :: worker[h] == WORKING && !OWNED(h) -> worker[h] = 0; child[h] = false :: else fi);
#endif
 CLOSE(h);
 LINK(h, DIED, STILL_DEAD);
 goto view;
suspect:
#if WEDGE > 0
 STEP(true, if :: ASKABLE(h) -> wedges--; asked[h] = asked[h] | (1 << me) :: else -> goto done fi);
 /* An owner that has ended meanwhile is looked at again on the next tick. */
#ifdef NO_ASK
 STEP(true, answered = true);
#else
 STEP(true, answered = ((asked[h] & (1 << me)) == 0); DROP_ASK; if :: answered || !OWNED(h) -> goto done :: else fi);
#endif
 CLOSE(h);
 LINK(h, WEDGED, STILL_UNANSWERED);
#else
 goto done;
#endif
view:
 atomic { if :: b == boot -> REOPEN(h) :: else fi }
 if :: won -> skip :: else -> goto found fi;
 VIEW(h);
 goto emit;
found:
#ifndef NO_SYNCREAD
 STEP(true, SYNC(h));
#endif
 STEP(true, status[h] = TERMINAL);
emit:
 STEP(true, LET_GO; e = jobs; if :: e == 0 || record[e] == 0 && status[e] != TERMINAL -> goto done :: else fi);
#ifndef NO_EMIT_SYNC
 STEP(true, if :: status[e] != TERMINAL -> SYNC(e) :: else fi);
#endif
 STEP(true,
   MUST(VIEW_NEVER_OUTRUNS_RECORD, record[e] != 0);
   MUST(DELIVERED_ONLY_WHEN_TERMINAL, record[e] >= DONE && record[e] <= CANCELLED);
#ifdef POWER
   MUST(EMITTED_IS_ON_DISK, on_record[e] == record[e]);
#endif
   MUST(DELIVERIES_AGREE, seen[e] == 0 || seen[e] == record[e]);
   seen[e] = record[e]);
 /* The line has gone out; whoever took it acknowledges it, sooner or later. */
#ifdef ACK_BY_NAME
 STEP(jobs == 0 || delivered == 0 && looking == 0,
   if :: jobs != 0 -> MUST(ACKED_WAS_DELIVERED, seen[jobs] != 0); delivered = jobs; jobs = 0; MOVED :: else fi);
#else
 STEP(looking == 0,
   if
   :: jobs == e && delivered == 0 -> MUST(ACKED_WAS_DELIVERED, seen[e] != 0); delivered = e; jobs = 0; MOVED
   :: jobs == e && delivered != 0 -> MUST(ACKED_GOES_AWAY, false)
   :: else
   fi);
#endif
done:
 atomic { if :: b == boot -> LET_GO; DROP_ASK; if :: holds -> probes[h]-- :: else fi :: else fi }
dead:
 atomic { h = 0; e = 0; won = false; holds = false; answered = false; FORGET; goto again }
}
#undef KILLED

/* ----------------------------------------------------------------------------------------------- cancel */
#ifdef CANCEL
#define KILLED LET_GO
proctype Canceller(byte me) {
 byte b, h;
 bool won;
 PUT_LOCALS
 atomic { jobs != 0 -> b = boot; h = jobs }
 STEP(true,
   if
   :: owner[h] && OWNED(h) -> term[h] = true; goto done
   :: status[h] == CLAIMED && !owner[h] && record[h] == 0
   :: else -> goto done
   fi);
#ifndef NO_CANCEL_LOCK
 STEP(true, if :: FREE(h) -> lock[h] = me :: else -> goto done fi);
#endif
#ifndef NO_CANCEL_LOOK
 STEP(true, if :: owner[h] -> goto done :: else fi);
#endif
 CLOSE(h);
 LINK(h, CANCELLED, STILL_DEAD);
 VIEW(h);
done:
 atomic { if :: b == boot -> LET_GO :: else fi }
dead: skip
}
#undef KILLED
#endif

/* ------------------------------------------------------------------------------------ put, by the worker */
#ifdef PUT
#define KILLED REOPEN(h)
proctype Putter() {
 byte b, h = 1;
 bool mine;
 atomic { worker[1] == WORKING -> b = boot }
#ifndef NO_PUT_LOCK
 STEP(!closed[h], closed[h] = true; mine = true);
#endif
 STEP(true, if :: record[h] != 0 -> goto done :: else fi);
 STEP(true, output[h] = true);
 STEP(true, published[h] = true);
done:
 atomic { if :: b == boot -> REOPEN(h) :: else fi }
dead: skip
}
#undef KILLED
#endif

/* ------------------------------------------------------------------------------------------------ prune */
#ifdef REUSE
#ifdef NO_PRUNE_LOCK
#define PRUNABLE true
#else
#define PRUNABLE FREE(delivered)
#endif
#define KILLED LET_GO
proctype Pruner(byte me) {
 byte b, h;
 PUT_LOCALS
again:
 atomic { delivered != 0 && PRUNABLE -> b = boot; h = delivered }
#ifndef NO_PRUNE_LOCK
 STEP(true, if :: FREE(h) -> lock[h] = me :: else -> goto done fi);
#endif
 STEP(looking == 0, if :: delivered == h -> delivered = 0; gone[h] = true; MOVED :: else fi);
done:
 atomic { if :: b == boot -> LET_GO :: else fi }
dead:
 atomic { h = 0; goto again }
}
#undef KILLED
#endif

/* ----------------------------------------------------------------------------------------- the power cut */
#ifdef POWER
#define REACHABLE(i) (jobs == i || delivered == i)
proctype Plug() {
 byte i, k;
 atomic { cut ->
   cut = false; boot++; looking = 0; k = 0;
#ifdef WEAK_DIRS
   do :: past_jobs & (1 << k) -> jobs = k; break :: k < 2 -> k++ :: else -> jobs = jobs; break od;
   k = 0;
   do :: past_delivered & (1 << k) -> delivered = k; break :: k < 2 -> k++ :: else -> delivered = delivered; break od;
   if :: jobs == delivered -> delivered = 0 :: else fi;
   past_jobs = 1 << jobs; past_delivered = 1 << delivered;
#else
   do :: past & (1 << k) -> jobs = k / 3; delivered = k % 3; break :: k < 8 -> k++ :: k == 8 -> break od;
   past = 1 << (3 * jobs + delivered);
#endif
   i = 1;
   do
   :: i <= LAST ->
     worker[i] = 0; lock[i] = 0; child[i] = false; probes[i] = 0;
#if WEDGE > 0
     asked[i] = 0;
#endif
#ifdef CANCEL
     term[i] = false;
#endif
#ifdef PUT
     closed[i] = false;
     if :: output[i] && !published[i] -> if :: true -> output[i] = false :: true fi :: else fi;
#endif
     earlier[i] = status[i] != 0;
     if
     :: record[i] != on_record[i] -> record[i] = on_record[i]
     :: record[i] != 0 -> if :: !whole[i] -> record[i] = TORN :: else fi
     :: record[i] == 0
     fi;
     MUST(RECORD_NEVER_TORN, record[i] != TORN || !REACHABLE(i));
     if
     :: true
     :: status[i] == TERMINAL && on_status[i] == CLAIMED -> status[i] = RUNNING
     :: status[i] != on_status[i] -> status[i] = on_status[i]
     fi;
     MUST(VIEW_NEVER_OUTRUNS_RECORD, status[i] != TERMINAL || record[i] != 0 || !REACHABLE(i));
     if :: numbered[i] -> numbered[i] = false :: true fi;
     if :: owner[i] -> owner[i] = false :: true fi;
     on_status[i] = status[i]; on_record[i] = record[i]; i++
   :: else -> break
   od;
   i = 0; k = 0 }
}
#endif

/* ------------------------------------------------------------------------------------------------ the end */
#define LIVES(i) (endless && OWNED(i) && record[i] == 0)
init {
 byte i;
 atomic {
   select (i : 0 .. KILLS); kills = i;
#if WEDGE > 0
   select (i : 0 .. WEDGE); wedges = i;
#endif
#ifdef POWER
   if :: cut = true :: true fi;
#endif
#ifdef LONG
   if :: endless = true :: true fi;
#endif
   i = 0;
   run Claimer();
#ifndef UNSTARTED
   run Child(); run Watchdog(1);
#endif
#ifdef TWO
   run Watchdog(2);
#endif
   run Sweeper(3);
#if SWEEPERS > 1
   run Sweeper(4);
#endif
#ifdef CANCEL
   run Canceller(5);
#endif
#ifdef PUT
   run Putter();
#endif
#ifdef REUSE
   run Pruner(6);
#endif
#ifdef POWER
   run Plug();
#endif
 }
 atomic { timeout ->      /* nobody can move any more: whatever will happen has happened */
   i = 1;
   do
   :: i <= LAST ->
     MUST(TOLD_IS_DELIVERED, !told[i] || seen[i] != 0 || LIVES(i));
     MUST(ACKED_GOES_AWAY, jobs != i || seen[i] == 0);
     MUST(NO_WORKER_OUTLIVES_DEATH, worker[i] == 0 || LIVES(i) || record[i] == WEDGED && abandoned[i]);
#ifdef PUT
     MUST(PUBLISHED_STANDS_IN_RECORD, !published[i] || record[i] == 0 || in_record[i]);
#endif
     i++
   :: else -> break
   od }
}
