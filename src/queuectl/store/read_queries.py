"""Every question that views put to the store, once. In the same words as the statements, which change it."""

from __future__ import annotations

from queuectl.store.write_queries import OWN_FIELDS

JOB_COLUMNS = (
    ", ".join(OWN_FIELDS)
    + """,
       (SELECT string_agg(tag, ' ' ORDER BY tag) FROM tags WHERE job = seq),
       (SELECT string_agg(parent_id || ' ' || condition, ',' ORDER BY parent)
          FROM dependencies WHERE child = jobs.seq),
       (SELECT report FROM results WHERE job = jobs.seq AND results.run = jobs.run)"""
)

GET_JOB = f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = :id"

GET_JOBS = f"SELECT {JOB_COLUMNS} FROM jobs WHERE id {{among:ids}}"

# Each way to list walks an index, newest first; further filters apply along the way.
_AND_OPTIONS = """
   AND (CAST(:queue AS TEXT) IS NULL OR queue = :queue)
   AND (CAST(:batch AS TEXT) IS NULL OR batch = :batch)
   AND (CAST(:tag AS TEXT) IS NULL OR EXISTS (SELECT 1 FROM tags WHERE job = seq AND tag = :tag))
 ORDER BY seq DESC
 LIMIT :limit
"""
LIST_ALL = f"SELECT {JOB_COLUMNS} FROM jobs WHERE seq > 0 {_AND_OPTIONS}"
LIST_BATCH = f"""
SELECT {JOB_COLUMNS} FROM jobs
 WHERE batch = :batch AND batch IS NOT NULL AND (CAST(:state AS TEXT) IS NULL OR state = :state) {_AND_OPTIONS}
"""
LIST_STATE = f"SELECT {JOB_COLUMNS} FROM jobs WHERE state || '' = :state AND state <> 'processing' {_AND_OPTIONS}"
LIST_RUNNING = f"""
SELECT {JOB_COLUMNS} FROM jobs WHERE seq IN (SELECT seq FROM jobs WHERE state = 'processing') {_AND_OPTIONS}
"""

# Page by page, along one of these ways. First how far a look of so many jobs goes, then what fits within it: so
# a look that finds nothing ends.
_WAYS = {
    "all": "seq > 0",
    "state": "state || '' = :state AND state <> 'processing'",
    "running": "state = 'processing'",
    "tag": "seq IN (SELECT job FROM tags WHERE tag = :tag AND job < :before AND job >= :low)",
    "batch": "batch = :batch AND batch IS NOT NULL",
}
_LOOKED_AT = {
    **{way: f"SELECT seq FROM jobs WHERE {where} AND seq < :before" for way, where in _WAYS.items() if way != "tag"},
    "tag": "SELECT job AS seq FROM tags WHERE tag = :tag AND job < :before",
}
_FITS = """
   AND (CAST(:state AS TEXT) IS NULL OR state = :state)
   AND (CAST(:queue AS TEXT) IS NULL OR queue = :queue)
   AND (CAST(:tag AS TEXT) IS NULL OR EXISTS (SELECT 1 FROM tags WHERE job = seq AND tag = :tag))
   AND (CAST(:batch AS TEXT) IS NULL OR batch = :batch)
   AND (CAST(:key AS TEXT) IS NULL OR key = :key)
   AND (CAST(:worker AS TEXT) IS NULL OR worker_id = :worker)
   AND (CAST(:exit AS INTEGER) IS NULL OR exit_code = :exit)
   AND (CAST(:since AS BIGINT) IS NULL OR updated_at >= :since)
   AND (CAST(:text AS TEXT) IS NULL OR lower(command) LIKE :text ESCAPE '\\' OR lower(error) LIKE :text ESCAPE '\\'
        OR lower(id) LIKE :text ESCAPE '\\')
"""
LOOK = {
    way: f"SELECT min(seq), count(*) FROM ({looked_at} ORDER BY seq DESC LIMIT :window) AS looked"
    for way, looked_at in _LOOKED_AT.items()
}
_WITHIN = {way: f"FROM jobs WHERE {where} AND seq < :before AND seq >= :low {_FITS}" for way, where in _WAYS.items()}
_NEWEST_FIRST = "ORDER BY seq DESC LIMIT :limit"
FITTING = {way: f"SELECT seq, {JOB_COLUMNS} {within} {_NEWEST_FIRST}" for way, within in _WITHIN.items()}
FITTING_IDS = {way: f"SELECT seq, id {within} {_NEWEST_FIRST}" for way, within in _WITHIN.items()}
FITTING_COUNT = {way: f"SELECT count(*) {within}" for way, within in _WITHIN.items()}

# For a live view: what has run the longest, what is due in the order of its claim, what becomes due, what is blocked,
# what has finished last.
LONGEST_RUNNING = f"""
SELECT {JOB_COLUMNS} FROM jobs WHERE state = 'processing' ORDER BY started_at, seq LIMIT :limit
"""
NEXT_READY = f"""
SELECT -priority, seq, {JOB_COLUMNS} FROM jobs WHERE ready AND queue = :queue ORDER BY priority DESC, seq LIMIT :limit
"""
NEXT_PARKED = f"""
SELECT {JOB_COLUMNS} FROM jobs WHERE parked ORDER BY key, queue, priority DESC, seq LIMIT :limit
"""
NEXT_WAITING = f"""
SELECT {JOB_COLUMNS} FROM jobs
 WHERE state IN ('pending', 'failed') AND NOT ready AND NOT parked
 ORDER BY run_at LIMIT :limit
"""
NEXT_BLOCKED = f"""
SELECT {JOB_COLUMNS} FROM jobs WHERE state || '' = 'blocked' AND state <> 'processing' ORDER BY seq LIMIT :limit
"""
LAST_FINISHED = f"""
SELECT {JOB_COLUMNS} FROM jobs WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT :limit
"""

# The newest with a tag, however many jobs there are without it.
LAST_TAGGED = f"""
SELECT {JOB_COLUMNS} FROM jobs
 WHERE seq IN (SELECT job FROM tags WHERE tag = :tag ORDER BY job DESC LIMIT :limit)
 ORDER BY seq DESC
"""

# Who waits for this job, and for whom it waits; the oldest first. A parent may have been deleted.
CHILDREN = """
SELECT jobs.id, jobs.state, condition, dependencies.state FROM dependencies JOIN jobs ON jobs.seq = child
 WHERE parent = (SELECT seq FROM jobs WHERE id = :id)
 ORDER BY child LIMIT :limit
"""
_PARENTS = """
SELECT parent_id, COALESCE((SELECT state FROM jobs WHERE seq = parent), 'deleted'), condition, state
  FROM dependencies
 WHERE child = (SELECT seq FROM jobs WHERE id = :id)
"""
PARENTS = _PARENTS + "ORDER BY dependencies.state DESC, parent LIMIT :limit"
BROKEN_PARENTS = (
    _PARENTS + "AND state = 'broken' ORDER BY EXISTS (SELECT 1 FROM jobs WHERE seq = parent), parent LIMIT :limit"
)

ANY_OVERDUE = """
SELECT 1 FROM jobs WHERE state IN ('pending', 'failed') AND NOT ready AND NOT parked AND run_at <= :now LIMIT 1
"""

UNFINISHED = """
SELECT id FROM (
  SELECT id, seq, queue, batch FROM jobs
   WHERE state || '' IN ('pending', 'failed', 'blocked') AND state <> 'processing'
   UNION ALL
  SELECT id, seq, queue, batch FROM jobs WHERE state = 'processing') AS unfinished
 WHERE (CAST(:queue AS TEXT) IS NULL OR queue = :queue)
   AND (CAST(:batch AS TEXT) IS NULL OR batch = :batch)
   AND (CAST(:tag AS TEXT) IS NULL OR EXISTS (SELECT 1 FROM tags WHERE job = seq AND tag = :tag))
 ORDER BY seq
"""

HISTORY = """
SELECT started_at, at, state, run, worker_id, kind, reason, outcome, exit_code, signal, duration_ms, cpu_ms,
       max_rss_kb
  FROM events
 WHERE job = (SELECT seq FROM jobs WHERE id = :id)
 ORDER BY n
"""

WORKERS = """
SELECT id, pid, pid_started, place, expires_at, host, manager_pid, queues, concurrency, started_at, heartbeat_at, stop
  FROM workers ORDER BY started_at, id
"""

RUNNING = "SELECT worker_id, id FROM jobs WHERE state = 'processing' ORDER BY started_at, seq"

# The newest finished jobs only: exact for small queues, recent and bounded for large ones.
RECENT_FINISHED = """
SELECT state, attempts, duration_ms, started_at - CASE WHEN run_at > created_at THEN run_at ELSE created_at END
  FROM jobs
 WHERE finished_at IS NOT NULL
 ORDER BY finished_at DESC
 LIMIT :limit
"""

FINISHED_SINCE = "SELECT count(*) FROM jobs WHERE finished_at >= :since AND finished_at IS NOT NULL"

# -- figures ---------------------------------------------------------------------------------------------

DEPARTED = "SELECT queue, state, n FROM departed"

TALLIES_EVER = "SELECT queue, state, what, bound, n, ms FROM tallies WHERE span = 0"

TALLIES_SINCE = """
SELECT moment - moment % CAST(:step AS BIGINT), state, what, bound, sum(n), sum(ms)
  FROM tallies
 WHERE span = :span AND moment >= :since
 GROUP BY 1, 2, 3, 4
"""

# Since when the first jobs of each queue and priority have been due. Hops along the index from queue to queue, and in
# each from priority to priority: costs as many look-ups as there are of those, however many jobs wait.
DUE_SINCE = """
WITH RECURSIVE names (queue) AS (
  SELECT min(queue) FROM jobs WHERE ready
   UNION ALL
  SELECT (SELECT min(queue) FROM jobs WHERE ready AND queue > names.queue) FROM names WHERE queue IS NOT NULL
), levels (queue, priority) AS (
  SELECT queue, (SELECT max(priority) FROM jobs WHERE ready AND jobs.queue = names.queue)
    FROM names WHERE queue IS NOT NULL
   UNION ALL
  SELECT queue, (SELECT max(priority) FROM jobs
                  WHERE ready AND jobs.queue = levels.queue AND priority < levels.priority)
    FROM levels WHERE priority IS NOT NULL
)
SELECT queue, (SELECT min(due_at) FROM (
         SELECT CASE WHEN run_at > updated_at THEN run_at ELSE updated_at END AS due_at
           FROM jobs
          WHERE ready AND jobs.queue = levels.queue AND jobs.priority = levels.priority
          ORDER BY seq
          LIMIT :limit) AS first_ones)
  FROM levels WHERE priority IS NOT NULL
"""

# Those that have become due without anybody to claim them.
OVERDUE_SINCE = """
SELECT queue, run_at FROM jobs
 WHERE state IN ('pending', 'failed') AND NOT ready AND NOT parked AND run_at <= :now
 ORDER BY run_at
 LIMIT :limit
"""

# Counted up to a limit: "more than 10,000 before it" says enough.
AHEAD_OF = """
SELECT count(*) FROM (
  SELECT 1 FROM jobs
   WHERE ready AND queue = :queue
     AND (priority > :priority OR (priority = :priority AND seq < (SELECT seq FROM jobs WHERE id = :id)))
   LIMIT :limit) AS ahead
"""

ACTS = """
SELECT n, at, who, action, target, detail FROM audit
 WHERE n < :before
   AND (CAST(:who AS TEXT) IS NULL OR who = :who)
   AND (CAST(:action AS TEXT) IS NULL OR action = :action)
 ORDER BY n DESC
 LIMIT :limit
"""
