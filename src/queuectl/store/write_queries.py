"""Every statement of the store, once, in the order a job lives.

One text serves every database. `:name` is a parameter; `{…}` is a spot where databases differ, filled in by the
engine: `{skip_locked}`, `{for_update}`, `{in_turn}` (nobody else is at it for this worker), `{among:name}` (is one of
the values in the list parameter), and for what is done to many rows `{each:name}` with `{from_each}` or `{and_each}`:
SQLite runs it for each row, PostgreSQL once for all, and a plain `:name` must then be the same in all of them.
"""

from __future__ import annotations

# -- enqueue ---------------------------------------------------------------------------------------------

READ_CONFIG = "SELECT key, value FROM config"

TRY_TO_WRITE = "UPDATE workers SET stop = stop WHERE id = ''"

INSERT_TAG = """
INSERT INTO tags (tag, job)
SELECT {each:tag}, (SELECT seq FROM jobs WHERE id = {each:id}) {from_each}
"""

LOCK_KEYS = """
SELECT unique_key, id, seq, state, run, key FROM jobs
 WHERE unique_key {among:keys} AND unique_key IS NOT NULL AND finished_at IS NULL
 ORDER BY seq {for_update}
"""

KEYS_OF_HOLDERS = """
SELECT key FROM jobs
 WHERE unique_key {among:keys} AND unique_key IS NOT NULL AND finished_at IS NULL AND key IS NOT NULL
"""

UNIQUE_KEYS_OF = "SELECT id, unique_key FROM jobs WHERE seq {among:seqs} AND unique_key IS NOT NULL ORDER BY seq"

# Which other jobs have taken the keys of finished jobs.
KEYS_TAKEN = """
SELECT unique_key, id FROM jobs WHERE unique_key {among:keys} AND unique_key IS NOT NULL AND finished_at IS NULL
"""

INSERT_DEPENDENCY = """
INSERT INTO dependencies (parent, parent_id, child, condition, state)
SELECT parents.seq, parents.id, children.seq, {each:condition}, {each:state}
  FROM jobs AS parents, jobs AS children {and_each}
 WHERE parents.id = {each:parent_id} AND children.id = {each:child_id}
"""

# Whoever writes the row may enqueue; a second one with the same key waits for the first, and finds its row.
TAKE_SUBMISSION = """
INSERT INTO submissions (key, fingerprint, ids, at) VALUES (:key, :fingerprint, '', :now)
    ON CONFLICT (key) DO NOTHING
"""

SUBMISSION = "SELECT fingerprint, ids FROM submissions WHERE key = :key"

ANSWER_SUBMISSION = "UPDATE submissions SET ids = :ids WHERE key = :key"

FORGET_SUBMISSIONS = """
DELETE FROM submissions
 WHERE key IN (SELECT key FROM submissions WHERE at < :before ORDER BY at LIMIT :limit)
"""

# -- claim -----------------------------------------------------------------------------------------------

# Becoming due is a move from one index to the other. Bounded, so that no claim pays for a flood of retries.
# Materialised, so that PostgreSQL cannot run the inner query again and exceed the limit.
PROMOTE_DUE = """
WITH due AS MATERIALIZED (
  SELECT seq FROM jobs
   WHERE state IN ('pending', 'failed') AND NOT ready AND NOT parked AND run_at <= :now
   ORDER BY run_at
   LIMIT :limit {skip_locked}
)
UPDATE jobs SET ready = TRUE WHERE seq IN (SELECT seq FROM due)
"""

NEXT_DUE = "SELECT min(run_at) FROM jobs WHERE state IN ('pending', 'failed') AND NOT ready AND NOT parked"

# Hops from queue to queue along the index: costs as many look-ups as there are queues, however many jobs wait.
READY_QUEUES = """
WITH RECURSIVE found (queue) AS (
  SELECT min(queue) FROM jobs WHERE ready
   UNION ALL
  SELECT (SELECT min(queue) FROM jobs WHERE ready AND queue > found.queue) FROM found WHERE queue IS NOT NULL
)
SELECT queue FROM found WHERE queue IS NOT NULL
"""

# A due job was last changed when it was enqueued, put back, retried, or released by those it waited for.
READY_JOBS = """
SELECT -priority, seq, id, run + 1, command, queue, attempts, crashes, snoozes, max_retries, backoff_base,
       retry_on, no_retry_on, timeout_seconds, cwd, env, key, key_limit,
       CASE WHEN run_at > updated_at THEN run_at ELSE updated_at END
  FROM jobs
 WHERE ready AND queue = :queue
 ORDER BY priority DESC, seq
 LIMIT :limit {skip_locked}
"""

CLAIM = """
UPDATE jobs
   SET state = 'processing', ready = FALSE, run = {each:run}, worker_id = :worker, log_place = :log_place,
       started_at = :now, updated_at = :now,
       duration_ms = NULL, outcome = NULL, exit_code = NULL, signal = NULL, error = NULL, stdout = NULL, stderr = NULL
{from_each}
 WHERE jobs.seq = {each:seq} AND ready
"""

# -- limits ----------------------------------------------------------------------------------------------

RULES = "SELECT name, paused, at_once, per_key, rate, rate_ms, retry_on, no_retry_on FROM queues"

RULES_OF = RULES + " WHERE name {among:names}"

RUNNING_IN = "SELECT count(*) FROM jobs WHERE state = 'processing' AND queue = :queue"

RUNNING_HERE = "SELECT id FROM jobs WHERE state = 'processing' AND queue = :queue ORDER BY started_at, seq"

RUNNING_OF_KEY = """
SELECT id FROM jobs WHERE state = 'processing' AND key = :key AND key IS NOT NULL ORDER BY started_at, seq
"""

FORGET_STARTS = "DELETE FROM starts WHERE queue = :queue AND (at <= :before OR at > :beyond)"

FORGET_ALL_STARTS = "DELETE FROM starts WHERE queue = :queue"

# A record with n = 0 says that a transaction of that moment has deleted starts.
STARTS_IN = """
SELECT COALESCE(sum(n), 0), min(CASE WHEN n > 0 THEN at END), max(at)
  FROM starts
 WHERE queue = :queue AND at > :before AND at <= :beyond
"""

COUNT_STARTS = """
INSERT INTO starts (queue, at, n) VALUES (:queue, :at, :n)
    ON CONFLICT (queue, at) DO UPDATE SET n = starts.n + excluded.n
"""

RUNNING_WITH = """
SELECT key, count(*) FROM jobs
 WHERE key {among:keys} AND state = 'processing' AND key IS NOT NULL
 GROUP BY key
"""

PARK = """
WITH waiting AS MATERIALIZED (
  SELECT seq FROM jobs
   WHERE ready AND key = :key AND key IS NOT NULL AND queue = :queue
   ORDER BY priority DESC, seq
   LIMIT :limit {skip_locked}
)
UPDATE jobs SET ready = FALSE, parked = TRUE WHERE seq IN (SELECT seq FROM waiting)
"""

ANY_PARKED = "SELECT 1 FROM jobs WHERE parked LIMIT 1"

# Hops from queue to queue, as READY_QUEUES does.
PARKED_QUEUES = """
WITH RECURSIVE found (queue) AS (
  SELECT min(queue) FROM jobs WHERE parked AND key = :key
   UNION ALL
  SELECT (SELECT min(queue) FROM jobs WHERE parked AND key = :key AND queue > found.queue)
    FROM found WHERE queue IS NOT NULL
)
SELECT queue FROM found WHERE queue IS NOT NULL
"""

PARKED_WITH = """
SELECT seq, key_limit FROM jobs
 WHERE parked AND key = :key AND queue = :queue
 ORDER BY priority DESC, seq
 LIMIT :limit {for_update}
"""

LET_GO = "UPDATE jobs SET ready = TRUE, parked = FALSE {from_each} WHERE jobs.seq = {each:seq} AND parked"

# Hops from key to key; which of them have jobs in this queue.
PARKED_KEYS = """
WITH RECURSIVE found (key, n) AS (
  SELECT (SELECT min(key) FROM jobs WHERE parked AND key > :after), 1
   UNION ALL
  SELECT (SELECT min(key) FROM jobs WHERE parked AND key > found.key), n + 1
    FROM found WHERE key IS NOT NULL AND n < :limit
)
SELECT key, EXISTS (SELECT 1 FROM jobs WHERE parked AND jobs.key = found.key AND queue = :queue)
  FROM found WHERE key IS NOT NULL
"""

PAUSED = "SELECT name FROM queues WHERE paused"

MENTION_QUEUE = "INSERT INTO queues (name) VALUES (:name) ON CONFLICT (name) DO NOTHING"

LOCK_QUEUE = RULES + " WHERE name = :name {for_update}"

SAY_OF_QUEUE = """
UPDATE queues
   SET paused = :paused, at_once = :at_once, per_key = :per_key, rate = :rate, rate_ms = :rate_ms,
       retry_on = :retry_on, no_retry_on = :no_retry_on
 WHERE name = :name
"""

FORGET_QUEUE = "DELETE FROM queues WHERE name = :name"

# -- settle ----------------------------------------------------------------------------------------------

# The fence: a job that has moved on since this run was claimed matches no row. Nor does one that somebody has just
# cancelled, if we have not seen that yet. The run's event is written by a trigger, from the new row.
SETTLE = """
UPDATE jobs
   SET state = {each:state}, ready = FALSE, cancel_requested = FALSE,
       attempts = attempts + {each:failed}, crashes = crashes + {each:crashed}, snoozes = snoozes + {each:snoozed},
       run_at = CASE WHEN {each:state} IN ('pending', 'failed') THEN {each:run_at} ELSE jobs.run_at END,
       updated_at = :now, finished_at = {each:finished_at},
       duration_ms = {each:duration_ms}, outcome = {each:outcome}, exit_code = {each:exit_code},
       signal = {each:signal}, error = {each:error}, stdout = {each:stdout}, stderr = {each:stderr},
       reason = {each:reason}, cpu_ms = {each:cpu_ms},
       max_rss_kb = {each:max_rss_kb}
{from_each}
 WHERE jobs.seq = {each:seq} AND jobs.run = {each:run} AND jobs.state = 'processing'
   AND jobs.worker_id = :worker AND ({each:cancelled} = 1 OR NOT cancel_requested)
"""

# Did we end this run before, in a transaction whose answer never came?
ALREADY_SETTLED = """
SELECT 1 FROM events
 WHERE job = :seq AND run = :run AND worker_id = :worker AND started_at IS NOT NULL
   AND outcome = :outcome AND COALESCE(exit_code, -1) = :exit_code AND COALESCE(signal, -1) = :signal
"""

LOCK_SEQ = "SELECT 1 FROM jobs WHERE seq = :seq {for_update}"

# The jobs are locked before, so that the numbers are free.
RECORD_NOTE = """
INSERT INTO events (job, n, at, state, run, worker_id, kind, reason)
SELECT jobs.seq, (SELECT COALESCE(max(n), 0) + 1 FROM events WHERE job = jobs.seq), :now, jobs.state, {each:run},
       {each:worker}, {each:kind}, {each:reason}
  FROM jobs {and_each}
 WHERE jobs.seq = {each:seq}
"""

# -- tallies of runs -------------------------------------------------------------------------------------

ADD_TALLIES = """
INSERT INTO tallies (span, moment, queue, state, what, bound, n, ms)
SELECT {each:span}, {each:moment}, {each:queue}, {each:state}, {each:what}, {each:bound}, {each:n}, {each:ms}
       {from_each} WHERE TRUE
    ON CONFLICT (span, moment, queue, state, what, bound)
    DO UPDATE SET n = tallies.n + excluded.n, ms = tallies.ms + excluded.ms
"""

# The oldest of them, if it is old enough: whoever adds a new moment takes an old one away.
FORGET_TALLIES = """
DELETE FROM tallies
 WHERE span = :span AND moment = (SELECT min(moment) FROM tallies WHERE span = :span) AND moment < :before
"""

# -- what runs say of themselves -------------------------------------------------------------------------

# Progress can wait for whoever has locked the job.
LOCK_REPORTING = "SELECT seq FROM jobs WHERE seq {among:seqs} ORDER BY seq {skip_locked}"

# Fenced like a settle; the job is locked before. `state` is what the run has made of its job so far.
REPORT = """
INSERT INTO results (job, run, report, updated_at)
SELECT jobs.seq, jobs.run, {each:report}, :now
  FROM jobs {and_each}
 WHERE jobs.seq = {each:seq} AND jobs.run = {each:run} AND jobs.state = {each:state} AND jobs.worker_id = :worker
    ON CONFLICT (job) DO UPDATE SET run = excluded.run, report = excluded.report, updated_at = excluded.updated_at
"""

# -- dependencies ----------------------------------------------------------------------------------------

ANY_OPEN = "SELECT 1 FROM dependencies WHERE state = 'open' LIMIT 1"

LOCK_SEQS = "SELECT 1 FROM jobs WHERE seq {among:seqs} ORDER BY seq {for_update}"

LOCK_FREE_JOB = "SELECT id, state FROM jobs WHERE seq = :seq {skip_locked}"

OPEN_DEPENDENCIES = """
SELECT child, parent, condition, jobs.id, jobs.state
  FROM dependencies JOIN jobs ON jobs.seq = parent
 WHERE parent {among:parents} AND dependencies.state = 'open' AND finished_at IS NOT NULL
 LIMIT :limit
"""

BROKEN_DEPENDENCIES = """
SELECT child, parent, jobs.id, jobs.unique_key
  FROM dependencies JOIN jobs ON jobs.seq = child
 WHERE parent {among:parents} AND condition {among:conditions} AND dependencies.state = 'broken'
 LIMIT :limit
"""

# Which jobs wait for these, to know in which order to cancel them.
CHILDREN_OF = "SELECT parent, child FROM dependencies WHERE parent {among:parents} AND state = 'open'"

CASCADES = "SELECT job FROM cascades ORDER BY job LIMIT :limit"

# The job is locked by whoever writes or deletes its row.
NOTE_CASCADE = """
INSERT INTO cascades (job)
SELECT {each:seq} {from_each}
 WHERE EXISTS (SELECT 1 FROM dependencies WHERE parent = {each:seq} AND state IN ('open', 'broken'))
    ON CONFLICT (job) DO NOTHING
"""

CASCADE_DONE = "DELETE FROM cascades WHERE job = :seq"

# What no retry can bring back.
BROKEN_BY_DELETION = """
SELECT child, parent_id FROM dependencies
 WHERE child {among:children} AND state || '' = 'broken' AND NOT EXISTS (SELECT 1 FROM jobs WHERE seq = parent)
 ORDER BY child, parent DESC
"""

# Not if the child has been cancelled for good since we looked.
END_DEPENDENCY = """
UPDATE dependencies SET state = {each:state}
{from_each}
 WHERE dependencies.parent = {each:parent} AND dependencies.child = {each:child} AND dependencies.state <> 'void'
"""

VOID_DEPENDENCIES = "UPDATE dependencies SET state = 'void' WHERE child {among:children} AND state || '' = 'open'"

MEET = """
UPDATE jobs
   SET unmet = unmet - {each:met}, updated_at = :now,
       state = CASE WHEN unmet > {each:met} THEN 'blocked' ELSE 'pending' END,
       ready = unmet <= {each:met} AND run_at <= :now
{from_each}
 WHERE jobs.seq = {each:seq} AND jobs.state = 'blocked'
"""

RELEASED = "SELECT seq FROM jobs WHERE seq {among:seqs} AND state = 'pending' ORDER BY seq"

CANCEL_BLOCKED = """
UPDATE jobs
   SET state = 'cancelled', updated_at = :now, finished_at = :now, error = {each:error}
{from_each}
 WHERE jobs.seq = {each:seq} AND jobs.state = 'blocked'
"""

# What has happened to jobs that never ran, and are locked.
RECORD_TURNS = """
INSERT INTO events (job, n, at, state, run, kind, reason)
SELECT jobs.seq, (SELECT COALESCE(max(n), 0) + 1 FROM events WHERE job = jobs.seq), :now, jobs.state, jobs.run,
       {each:kind}, {each:reason}
  FROM jobs {and_each}
 WHERE jobs.seq = {each:seq}
"""

# Only if nothing else is in its way, and nobody has taken its key. Its dependencies are counted anew: some may have
# been met meanwhile. By the index of children: || hides the state from PostgreSQL, which would walk through all open
# or broken dependencies, and counts keep it from an anti join that would, too.
REVIVE = """
UPDATE jobs
   SET state = 'blocked', updated_at = :now, finished_at = NULL, error = NULL,
       unmet = (SELECT count(*) FROM dependencies WHERE child = jobs.seq AND dependencies.state || '' = 'open')
{from_each}
 WHERE jobs.seq = {each:seq} AND jobs.state = 'cancelled'
   AND (SELECT count(*) FROM dependencies WHERE child = jobs.seq AND dependencies.state || '' = 'broken') = 0
   AND (SELECT count(*) FROM jobs AS others
         WHERE others.unique_key = jobs.unique_key AND others.unique_key IS NOT NULL
           AND others.finished_at IS NULL) = 0
"""

# -- batches ---------------------------------------------------------------------------------------------

BEGIN_BATCH_ANEW = """
UPDATE batches SET deleted = 0
 WHERE name = :batch AND deleted > 0 AND NOT EXISTS (SELECT 1 FROM jobs WHERE batch = :batch AND batch IS NOT NULL)
"""

LIMIT_BATCH = """
INSERT INTO batches (name, max_fails) SELECT {each:batch}, {each:max_fails} {from_each} WHERE TRUE
    ON CONFLICT (name) DO UPDATE SET max_fails = excluded.max_fails
"""

LOCK_BATCHES_OF = """
SELECT name, max_fails, deleted FROM batches
 WHERE name IN (SELECT batch FROM jobs WHERE seq {among:seqs})
 ORDER BY name {for_update}
"""

COUNT_DEAD_IN = "SELECT count(*) FROM jobs WHERE batch = :batch AND batch IS NOT NULL AND state = 'dead'"

LAST_UNFINISHED_IN = """
SELECT max(seq) FROM jobs WHERE batch = :batch AND batch IS NOT NULL AND finished_at IS NULL
"""

# The mark of a batch that is being cancelled: nothing in it is claimed any longer, up to this number.
CANCEL_BATCH = """
UPDATE batches
   SET cancel_up_to = CASE WHEN cancel_up_to > :up_to THEN cancel_up_to ELSE :up_to END, died = :died
 WHERE name = :batch
"""

LOCK_CANCELLED_BATCH = """
SELECT name, max_fails, died, cancel_up_to FROM batches
 WHERE cancel_up_to IS NOT NULL
 ORDER BY name
 LIMIT 1 {skip_locked}
"""

BATCH_CANCELLED = "UPDATE batches SET cancel_up_to = NULL, died = NULL WHERE name = :batch"

IN_CANCELLED_BATCH = """
SELECT seq FROM jobs JOIN batches ON name = batch WHERE seq {among:seqs} AND seq <= cancel_up_to
"""

LOCK_WAITING_IN = """
SELECT seq, key FROM jobs
 WHERE batch = :batch AND batch IS NOT NULL AND finished_at IS NULL AND seq <= :up_to
   AND state IN ('pending', 'failed', 'blocked')
 ORDER BY seq
 LIMIT :limit {for_update}
"""

CANCEL_REST = """
UPDATE jobs
   SET state = 'cancelled', ready = FALSE, parked = FALSE, updated_at = :now, finished_at = :now, error = {each:error}
{from_each}
 WHERE jobs.seq = {each:seq} AND jobs.state IN ('pending', 'failed', 'blocked')
"""

IDS_IN_BATCH = "SELECT id FROM jobs WHERE batch = :batch AND batch IS NOT NULL ORDER BY seq"

# -- schedules -------------------------------------------------------------------------------------------

SCHEDULE_FIELDS = (
    "name", "cron", "every_ms", "zone", "job", "overlap", "missed", "paused", "created_at", "next_at",
)  # fmt: skip

SCHEDULES = f"SELECT {', '.join(SCHEDULE_FIELDS)} FROM schedules ORDER BY name"

GET_SCHEDULE = f"SELECT {', '.join(SCHEDULE_FIELDS)} FROM schedules WHERE name = :name"

LOCK_SCHEDULE = GET_SCHEDULE + " {for_update}"

DUE_SCHEDULES = f"""
SELECT {", ".join(SCHEDULE_FIELDS)} FROM schedules
 WHERE NOT paused AND next_at <= :now
 ORDER BY next_at
 LIMIT :limit
"""

LOCK_FREE_SCHEDULES = f"SELECT {', '.join(SCHEDULE_FIELDS)} FROM schedules WHERE name {{among:names}} {{skip_locked}}"

NEXT_FIRING = "SELECT min(next_at) FROM schedules WHERE NOT paused"

UNFINISHED_FIRING = """
SELECT jobs.id, jobs.state FROM firings JOIN jobs ON jobs.id = firings.job
 WHERE schedule = :name AND jobs.finished_at IS NULL
 ORDER BY moment DESC LIMIT 1
"""

TAKEN_FIRINGS = "SELECT moment FROM firings WHERE schedule = :name AND moment {among:moments} AND n = 0"

# Whoever writes the row has the firing: a second one fails. `n` is 0 for those of the clock, and counts those that
# people ask for.
TAKE_FIRING = """
INSERT INTO firings (schedule, moment, n, at, outcome, job, reason)
SELECT {each:schedule}, {each:moment}, {each:n}, :now, {each:outcome}, {each:job}, {each:reason} {from_each}
"""

SET_NEXT = "UPDATE schedules SET next_at = :next_at WHERE name = :name"

# Of the oldest so many, not those whose jobs have not finished: they tell that the next one must wait.
FORGET_FIRINGS = """
DELETE FROM firings
 WHERE schedule = :name
   AND (moment, n) IN (
     SELECT moment, n FROM (
       SELECT moment, n, job FROM firings
        WHERE schedule = :name
          AND moment < (SELECT min(moment) FROM (SELECT moment FROM firings WHERE schedule = :name
                                                  ORDER BY moment DESC LIMIT :kept) AS newest)
        ORDER BY moment, n
        LIMIT :limit) AS oldest
      WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = oldest.job AND jobs.finished_at IS NULL))
"""

# Hops from schedule to schedule, as READY_QUEUES does from queue to queue.
REMOVED_SCHEDULES = """
WITH RECURSIVE found (schedule) AS (
  SELECT min(schedule) FROM firings
   UNION ALL
  SELECT (SELECT min(schedule) FROM firings WHERE schedule > found.schedule) FROM found WHERE schedule IS NOT NULL
)
SELECT schedule FROM found
 WHERE schedule IS NOT NULL AND NOT EXISTS (SELECT 1 FROM schedules WHERE name = schedule)
"""

FORGET_ALL_FIRINGS = """
DELETE FROM firings
 WHERE schedule = :name
   AND (moment, n) IN (SELECT moment, n FROM firings WHERE schedule = :name ORDER BY moment, n LIMIT :limit)
   AND NOT EXISTS (SELECT 1 FROM schedules WHERE name = :name)
"""

ADD_SCHEDULE = f"""
INSERT INTO schedules ({", ".join(SCHEDULE_FIELDS)})
VALUES ({", ".join(f":{field}" for field in SCHEDULE_FIELDS)})
    ON CONFLICT (name) DO NOTHING
"""

REPLACE_SCHEDULE = f"""
UPDATE schedules SET {", ".join(f"{field} = :{field}" for field in SCHEDULE_FIELDS[1:])} WHERE name = :name
"""

REMOVE_SCHEDULE = "DELETE FROM schedules WHERE name = :name"

PAUSE_SCHEDULE = "UPDATE schedules SET paused = :paused, next_at = :next_at WHERE name = :name"

LAST_TRIGGER = "SELECT COALESCE(max(n), 0) FROM firings WHERE schedule = :name AND moment = :now"

LAST_FIRINGS = """
SELECT moment, at, outcome, job, reason, (SELECT state FROM jobs WHERE jobs.id = firings.job)
  FROM firings
 WHERE schedule = :name
 ORDER BY moment DESC, n DESC LIMIT :limit
"""

# -- hooks -----------------------------------------------------------------------------------------------

HOOK_FIELDS = (
    "name", "events", "queue", "only_named", "url", "command", "cwd", "secret", "allow_private", "paused", "reason",
    "created_at",
)  # fmt: skip

HOOKS = f"SELECT {', '.join(HOOK_FIELDS)} FROM hooks ORDER BY name"

GET_HOOK = f"SELECT {', '.join(HOOK_FIELDS)} FROM hooks WHERE name = :name"

LOCK_HOOK = GET_HOOK + " {for_update}"

HOOK_NAMES = "SELECT name FROM hooks ORDER BY name"

ANY_HOOK = "SELECT 1 FROM hooks WHERE NOT paused"

ADD_HOOK = f"""
INSERT INTO hooks ({", ".join(HOOK_FIELDS)})
VALUES ({", ".join(f":{field}" for field in HOOK_FIELDS)})
    ON CONFLICT (name) DO NOTHING
"""

REMOVE_HOOK = "DELETE FROM hooks WHERE name = :name"

PAUSE_HOOK = "UPDATE hooks SET paused = :paused, reason = :reason WHERE name = :name"

# What there is to tell of jobs whose runs have just ended.
ENDED = """
SELECT seq, notify, id, queue, state, command, outcome, exit_code, signal, error, attempts, max_retries, run, batch,
       created_at, started_at, duration_ms, CASE WHEN state = 'failed' THEN run_at END,
       (SELECT string_agg(tag, ' ' ORDER BY tag) FROM tags WHERE job = seq)
  FROM jobs
 WHERE seq {among:seqs}
 ORDER BY seq
"""

# -- workers ---------------------------------------------------------------------------------------------

REGISTER = """
INSERT INTO workers (id, pid, pid_started, place, host, manager_pid, queues, concurrency, started_at, heartbeat_at,
                     expires_at)
VALUES (:id, :pid, :pid_started, :place, :host, :manager_pid, :queues, :concurrency, :now, :now, :expires)
    ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, expires_at = excluded.expires_at
"""

HEARTBEAT = "UPDATE workers SET heartbeat_at = :now, expires_at = :expires WHERE id = :id"

NEXT_EXPIRY = "SELECT min(expires_at) FROM workers WHERE place <> :place"

LOCK_WORKER = """
SELECT stop, id, pid, pid_started, place, expires_at FROM workers WHERE id = :id {for_update}
"""

# All that a worker must know, in one question: its order, when the next job becomes due, which of its runs somebody
# wants ended (`seq:run seq:run`), the settings (`key=value key=value`), if there are rules for queues, when a
# schedule fires next, if a hook may want to be told of the ends of runs, and if there is something to work off. In
# turn: what a lost connection has still under way for this worker comes to its end first.
# (Not by a lock on the row: that would write, and keep its signs of life waiting.)
_UNDONE = "EXISTS (SELECT 1 FROM cascades) OR EXISTS (SELECT 1 FROM batches WHERE cancel_up_to IS NOT NULL)"
ANY_UNDONE = f"SELECT {_UNDONE}"
NEWS = f"""
SELECT stop, ({NEXT_DUE}),
       (SELECT string_agg(seq || ':' || run, ' ') FROM jobs
         WHERE worker_id = :id AND state = 'processing' AND cancel_requested),
       (SELECT string_agg(key || '=' || value, ' ') FROM config),
       EXISTS (SELECT 1 FROM queues),
       ({NEXT_FIRING}),
       EXISTS ({ANY_HOOK}),
       {_UNDONE}
  FROM workers
 WHERE id = :id AND {{in_turn}}
"""

# 'now' is never taken back by a later 'drain'.
ORDER_STOP = """
UPDATE workers
   SET stop = CASE WHEN stop = 'now' THEN stop ELSE :stop END
 WHERE id {among:ids}
"""

UNREGISTER = "DELETE FROM workers WHERE id = :id"

_HELD = """
SELECT seq, id, run, command, queue, attempts, crashes, snoozes, max_retries, backoff_base, retry_on, no_retry_on,
       timeout_seconds, cwd, env, key, key_limit, CASE WHEN run_at > created_at THEN run_at ELSE created_at END,
       started_at, cancel_requested
  FROM jobs
 WHERE worker_id = :worker AND state = 'processing'
"""
HELD_BY = _HELD + " ORDER BY seq"
LOCK_HELD = _HELD + "   AND seq {among:seqs} ORDER BY seq {for_update}"

# A job can be held by a worker that never came to register, or whose row is gone.
HOLDERS = """
SELECT id, pid, pid_started, place, expires_at FROM workers
 UNION
SELECT worker_id, 0, 0, '', 0 FROM jobs
 WHERE state = 'processing' AND NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = worker_id)
"""

COUNT_RUNNING = "SELECT count(*) FROM jobs WHERE state = 'processing'"

SERVED = "SELECT queues, id, pid, pid_started, place, expires_at FROM workers WHERE stop IS NULL"

# -- steer -----------------------------------------------------------------------------------------------

FIND_EXACT = "SELECT id FROM jobs WHERE id = :id"
FIND_PREFIX = "SELECT id FROM jobs WHERE id >= :low AND id < :high ORDER BY id LIMIT 2"
FIND_LAST = "SELECT id FROM jobs ORDER BY seq DESC LIMIT 1"

# The ids are looked up first: asked for the order of seq, PostgreSQL would walk through all jobs.
JOBS_NAMED = """
SELECT id, seq, state, run, worker_id FROM jobs
 WHERE seq {one_of} SELECT seq FROM jobs WHERE id {among:ids} {end_of}
 ORDER BY seq"""

# In one order, so that nobody waits for somebody who waits for him.
LOCK_JOBS = JOBS_NAMED + " {for_update}"

KEYS_OF = "SELECT key FROM jobs WHERE id {among:ids} AND key IS NOT NULL"

CANCEL_WAITING = """
UPDATE jobs
   SET state = 'cancelled', ready = FALSE, parked = FALSE, updated_at = :now, finished_at = :now, error = 'cancelled'
{from_each}
 WHERE jobs.seq = {each:seq} AND jobs.run = {each:run} AND jobs.state IN ('pending', 'failed', 'blocked')
"""

REQUEST_CANCEL = """
UPDATE jobs
   SET cancel_requested = TRUE, updated_at = :now
{from_each}
 WHERE jobs.seq = {each:seq} AND jobs.run = {each:run} AND jobs.state = 'processing'
"""

RETRY_DEAD = """
UPDATE jobs
   SET state = 'pending', ready = {each:run_at} <= :now, attempts = 0, crashes = 0, snoozes = 0,
       run_at = {each:run_at}, updated_at = :now, finished_at = NULL, error = NULL
{from_each}
 WHERE jobs.seq = {each:seq} AND jobs.state = 'dead'
"""

DEAD_JOBS = "SELECT id FROM jobs WHERE state || '' = 'dead' AND state <> 'processing' ORDER BY seq"

RECORD_ACT = """
INSERT INTO audit (at, who, action, target, detail) VALUES (:now, :who, :action, :target, :detail) RETURNING n
"""

ADD_TO_ACT = "UPDATE audit SET at = :now, target = :target WHERE n = :n"

FORGET_ACTS = "DELETE FROM audit WHERE n <= :last"

# -- clean-up --------------------------------------------------------------------------------------------

# Not those whose children have yet to be told what became of them.
LOCK_PRUNABLE = """
SELECT seq FROM jobs
 WHERE finished_at IS NOT NULL AND finished_at <= :before AND state {among:states}
   AND NOT EXISTS (SELECT 1 FROM cascades WHERE job = seq)
 ORDER BY finished_at
 LIMIT :limit {skip_locked}
"""

# How many rows go with each job.
WEIGHTS = """
SELECT seq, (SELECT COALESCE(max(n) - min(n) + 1, 0) FROM events WHERE job = seq),
       (SELECT count(*) FROM tags WHERE job = seq) + (SELECT count(*) FROM dependencies WHERE child = seq)
  FROM jobs
 WHERE seq {among:seqs}
"""

FORGET_EVENTS = """
DELETE FROM events
 WHERE job = :seq AND n < (SELECT min(n) FROM events WHERE job = :seq) + CAST(:limit AS INTEGER)
"""

COUNT_PRUNABLE = """
SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL AND finished_at <= :before AND state {among:states}
"""

DELETE_FINISHED = """
DELETE FROM jobs
 WHERE finished_at IS NOT NULL AND seq {among:seqs} AND NOT EXISTS (SELECT 1 FROM cascades WHERE job = seq)
RETURNING id
"""

BEING_TOLD = "SELECT id FROM jobs JOIN cascades ON job = seq WHERE id {among:ids} ORDER BY seq"

SET_CONFIG = """
INSERT INTO config (key, value) VALUES (:key, :value)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""

UNSET_CONFIG = "DELETE FROM config WHERE key = :key"

# -- jobs as a whole -------------------------------------------------------------------------------------

JOB_FIELDS = (
    "id", "command", "queue", "state", "priority", "attempts", "crashes", "snoozes", "max_retries", "backoff_base",
    "retry_on", "no_retry_on", "timeout_seconds", "run_at", "cwd", "env", "created_at", "updated_at", "started_at",
    "finished_at", "duration_ms", "outcome", "exit_code", "signal", "error", "stdout", "stderr", "worker_id", "run",
    "cancel_requested", "log_place", "unique_key", "batch", "key", "key_limit", "notify", "parked", "tags",
    "depends_on", "report",
)  # fmt: skip
OWN_FIELDS = JOB_FIELDS[:-3]  # the rest is in other tables

STATES_OF = "SELECT id, state FROM jobs WHERE id {among:ids}"

COUNTS = """
SELECT queue, state, n FROM counts
 UNION ALL
SELECT queue, 'processing', count(*) FROM jobs WHERE state = 'processing' GROUP BY queue
"""

# -- copy ------------------------------------------------------------------------------------------------

# What goes along when a queue is copied: each table, its key with what comes before the first, and its other columns.
# Those of departed jobs before the jobs, so that a wipe, which goes backwards, comes to them last.
COPIED: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "departed": ({"queue": "", "state": "", "job": -1}, ("n",)),
    "tallies": ({"span": -1, "moment": 0, "queue": "", "state": "", "what": "", "bound": 0}, ("n", "ms")),
    "jobs": ({"seq": 0}, ("ready", "unmet", "reason", "cpu_ms", "max_rss_kb", *OWN_FIELDS)),
    "tags": ({"tag": "", "job": 0}, ()),
    "events": ({"job": 0, "n": 0}, ("at", "state", "run", "worker_id", "kind", "reason", "outcome", "exit_code",
                                    "signal", "duration_ms", "cpu_ms", "max_rss_kb", "started_at")),
    "results": ({"job": 0}, ("run", "report", "updated_at")),
    "dependencies": ({"parent": 0, "child": 0}, ("parent_id", "condition", "state")),
    "cascades": ({"job": 0}, ()),
    "batches": ({"name": ""}, ("max_fails", "cancel_up_to", "died", "deleted")),
    "queues": ({"name": ""}, ("paused", "at_once", "per_key", "rate", "rate_ms", "retry_on", "no_retry_on")),
    "starts": ({"queue": "", "at": 0}, ("n",)),
    "schedules": ({"name": ""}, SCHEDULE_FIELDS[1:]),
    "firings": ({"schedule": "", "moment": 0, "n": -1}, ("at", "outcome", "job", "reason")),
    "hooks": ({"name": ""}, HOOK_FIELDS[1:]),
    "config": ({"key": ""}, ("value",)),
    "submissions": ({"key": ""}, ("fingerprint", "ids", "at")),
}  # fmt: skip

NOT_COPIED = {
    "audit": "the record of who changed the source stays with the source",
    "counts": "kept by triggers as the jobs are inserted",
    "meta": "says what the target itself is: its schema version and identity",
    "workers": "none may be running; new ones register themselves",
}

BATCH = {
    table: f"""
SELECT {", ".join((*key, *rest))}
  FROM {table}
 WHERE ({", ".join(key)}) > (:{", :".join(key)})
 ORDER BY {", ".join(key)}
 LIMIT :limit
"""
    for table, (key, rest) in COPIED.items()
}

# In the order in which a reset deletes them: what is said of jobs before them, what holds them back after them. The
# dependencies, results and notes of cascades go with their jobs. Who did what is kept: the reset is a part of it.
WIPED = (
    "events", "tags", "results", "dependencies", "cascades", "firings", "tallies", "departed", "submissions",
    "starts", "counts", "workers", "batches", "queues", "schedules", "hooks", "config",
)  # fmt: skip
_WIPED_BY = {"counts": ("queue", "state"), "workers": ("id",)}

# Jobs that no other waits for. A count, so that PostgreSQL looks each up by the index of open dependencies.
LEAVES = """
SELECT seq, id FROM jobs
 WHERE (SELECT count(*) FROM dependencies WHERE parent = jobs.seq AND dependencies.state = 'open') = 0
 ORDER BY seq DESC
 LIMIT :limit
"""
WIPE_CASCADES = "DELETE FROM cascades WHERE job {among:seqs}"
WIPE_JOBS = "DELETE FROM jobs WHERE seq {among:seqs}"


def _wipe(table: str) -> str:
    key = ", ".join(_WIPED_BY.get(table) or COPIED[table][0])
    return f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} LIMIT :limit)"


WIPE = {table: _wipe(table) for table in WIPED}

COPIED_ROWS = f"SELECT {', '.join(f'(SELECT count(*) FROM {table})' for table in COPIED)}"

# Not what the counters say: they are among what is checked.
JOBS_BY_STATE = "SELECT queue, state, count(*) FROM jobs GROUP BY queue, state"
