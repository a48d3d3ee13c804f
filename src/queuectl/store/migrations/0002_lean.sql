-- Fewer pages to write for each run.

-- The events of a job lie together, without an index beside the table.
CREATE TABLE job_events (
  job         BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
  n           INTEGER NOT NULL,                         -- counts from 1 within the job
  at          BIGINT NOT NULL,
  state       TEXT NOT NULL,                            -- the job's state from then on
  run         INTEGER NOT NULL,
  worker_id   TEXT,
  reason      TEXT NOT NULL,
  exit_code   INTEGER,
  signal      INTEGER,
  duration_ms BIGINT,
  cpu_ms      BIGINT,
  max_rss_kb  BIGINT,
  PRIMARY KEY (job, n)
) {clustered};

INSERT INTO job_events
SELECT job, row_number() OVER (PARTITION BY job ORDER BY id), at, state, run, worker_id, reason,
       exit_code, signal, duration_ms, cpu_ms, max_rss_kb
  FROM events;

DROP TABLE events;
ALTER TABLE job_events RENAME TO events;

-- What is running is found through jobs_running.
DROP INDEX jobs_by_state;
CREATE INDEX jobs_by_state ON jobs ((state || ''), seq) WHERE state <> 'processing';
