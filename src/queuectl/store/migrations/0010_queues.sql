-- Queues that are more than a name, and keys of which only so many jobs run at once.

CREATE TABLE queues (
  name        {ascii} PRIMARY KEY,
  paused      BOOLEAN NOT NULL DEFAULT FALSE,
  at_once     INTEGER CHECK (at_once > 0),              -- jobs that may run at the same time
  per_key     INTEGER CHECK (per_key > 0),              -- of those with the same key; 1 if it is not said
  rate        INTEGER CHECK (rate > 0),                 -- runs that may start within any `rate_ms` milliseconds
  rate_ms     BIGINT CHECK (rate_ms > 0),
  retry_on    TEXT,                                     -- for jobs that say nothing themselves
  no_retry_on TEXT,
  CHECK ((rate IS NULL) = (rate_ms IS NULL))
);

-- When runs have started in the queues that have a rate, as far back as it counts.
CREATE TABLE starts (
  queue {ascii} NOT NULL,
  at    BIGINT NOT NULL,
  n     INTEGER NOT NULL CHECK (n >= 0),
  PRIMARY KEY (queue, at)
) {clustered};

ALTER TABLE jobs ADD COLUMN key TEXT;
ALTER TABLE jobs ADD COLUMN key_limit INTEGER                         -- else the queue's `per_key`
  CHECK (key_limit IS NULL OR (key_limit > 0 AND key IS NOT NULL));
-- Due, but put aside because enough jobs with its key run: the end of one of those lets it go.
ALTER TABLE jobs ADD COLUMN parked BOOLEAN NOT NULL DEFAULT FALSE
  CHECK (NOT parked OR (state IN ('pending', 'failed') AND NOT ready AND key IS NOT NULL));

DROP INDEX jobs_waiting;
CREATE INDEX jobs_waiting     ON jobs (run_at) WHERE state IN ('pending', 'failed') AND NOT ready AND NOT parked;
CREATE INDEX jobs_ready_key   ON jobs (key, queue, priority DESC, seq) WHERE ready AND key IS NOT NULL;
CREATE INDEX jobs_parked      ON jobs (key, queue, priority DESC, seq) WHERE parked;
CREATE INDEX jobs_running_key ON jobs (key) WHERE state = 'processing' AND key IS NOT NULL;
