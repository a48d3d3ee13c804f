-- Jobs, their history, the workers and the settings.
-- {serial}, {ascii} and the like are filled in by the engine.

CREATE TABLE jobs (
  seq              {serial},
  id               {ascii} NOT NULL UNIQUE,
  command          TEXT NOT NULL,
  queue            {ascii} NOT NULL,
  state            TEXT NOT NULL CHECK
                   (state IN ('pending', 'processing', 'completed', 'failed', 'dead', 'cancelled', 'blocked')),
  ready            BOOLEAN NOT NULL,                    -- due: may be claimed now
  priority         INTEGER NOT NULL,
  run              INTEGER NOT NULL DEFAULT 0,          -- the fence: grows with each claim
  attempts         INTEGER NOT NULL DEFAULT 0,
  crashes          INTEGER NOT NULL DEFAULT 0,
  max_retries      INTEGER NOT NULL,
  backoff_base     DOUBLE PRECISION NOT NULL,
  timeout_seconds  DOUBLE PRECISION,
  run_at           BIGINT NOT NULL,
  cwd              TEXT,
  env              TEXT,                                -- JSON
  cancel_requested BOOLEAN NOT NULL DEFAULT FALSE,
  created_at       BIGINT NOT NULL,
  updated_at       BIGINT NOT NULL,
  started_at       BIGINT,
  finished_at      BIGINT,
  duration_ms      BIGINT,
  exit_code        INTEGER,
  signal           INTEGER,
  error            TEXT,
  stdout           TEXT,
  stderr           TEXT,
  worker_id        TEXT,
  CHECK (NOT ready OR state IN ('pending', 'failed')),
  CHECK (state <> 'processing' OR (worker_id IS NOT NULL AND started_at IS NOT NULL)),
  CHECK (NOT cancel_requested OR state = 'processing'),
  CHECK ((finished_at IS NOT NULL) = (state IN ('completed', 'dead', 'cancelled')))
);

-- Due jobs and those not yet due are kept apart, so that the cost of a claim does not grow with either.
CREATE INDEX jobs_ready    ON jobs (queue, priority DESC, seq) WHERE ready;
CREATE INDEX jobs_waiting  ON jobs (run_at) WHERE state IN ('pending', 'failed') AND NOT ready;
CREATE INDEX jobs_running  ON jobs (worker_id) WHERE state = 'processing';
-- For listing only. An expression, because the planner would take a plain index on the state for claims as well.
CREATE INDEX jobs_by_state ON jobs ((state || ''), seq);
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE tags (
  tag TEXT NOT NULL,
  job BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
  PRIMARY KEY (tag, job)
);
CREATE INDEX tags_job ON tags (job);

-- What happened to each job. Its enqueueing is not repeated here: the job's own row tells it.
CREATE TABLE events (
  id          {serial},
  job         BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
  at          BIGINT NOT NULL,
  state       TEXT NOT NULL,                            -- the job's state from then on
  run         INTEGER NOT NULL,
  worker_id   TEXT,
  reason      TEXT NOT NULL,
  exit_code   INTEGER,
  signal      INTEGER,
  duration_ms BIGINT,
  cpu_ms      BIGINT,
  max_rss_kb  BIGINT
);
CREATE INDEX events_job ON events (job);

CREATE TABLE workers (
  id           TEXT PRIMARY KEY,                        -- random for each process: a host name is only a label
  pid          INTEGER NOT NULL,
  pid_started  BIGINT NOT NULL,                         -- in the kernel's count: with it, a pid names one process
  host         TEXT NOT NULL,
  manager_pid  INTEGER NOT NULL,
  queues       TEXT NOT NULL,                           -- separated by spaces; empty means all
  concurrency  INTEGER NOT NULL CHECK (concurrency > 0),
  started_at   BIGINT NOT NULL,
  heartbeat_at BIGINT NOT NULL,
  stop         TEXT CHECK (stop IN ('drain', 'now'))    -- what it was told to do
);

CREATE TABLE config (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
);

-- How many jobs there are of each kind, so that `status` need not count millions of rows.
CREATE TABLE counts (
  queue {ascii} NOT NULL,
  state TEXT NOT NULL,
  n     BIGINT NOT NULL,
  PRIMARY KEY (queue, state)
);
