-- Jobs that are enqueued again and again.

CREATE TABLE schedules (
  name       {ascii} PRIMARY KEY,
  cron       TEXT,                                      -- when it fires: either this
  every_ms   BIGINT CHECK (every_ms >= 1000),           -- or so often, counted from its beginning
  zone       TEXT NOT NULL,
  job        TEXT NOT NULL,                             -- JSON: the fields of its jobs
  overlap    TEXT NOT NULL CHECK (overlap IN ('skip', 'queue')),
  missed     TEXT NOT NULL CHECK (missed IN ('latest', 'all', 'skip')),
  paused     BOOLEAN NOT NULL DEFAULT FALSE,
  created_at BIGINT NOT NULL,
  next_at    BIGINT,                                    -- its next firing; null: there is none
  CHECK ((cron IS NULL) <> (every_ms IS NULL))
);
CREATE INDEX schedules_due ON schedules (next_at) WHERE NOT paused;

-- What became of each firing. Whoever writes its row has enqueued its job, in the same transaction.
CREATE TABLE firings (
  schedule {ascii} NOT NULL REFERENCES schedules (name) ON DELETE CASCADE,
  moment   BIGINT NOT NULL,
  n        INTEGER NOT NULL,                            -- 0 for those of the clock, more for those that people ask for
  at       BIGINT NOT NULL,
  outcome  TEXT NOT NULL CHECK (outcome IN ('enqueued', 'skipped', 'missed', 'triggered')),
  job      {ascii},                                     -- its id, if it has one
  reason   TEXT,
  PRIMARY KEY (schedule, moment, n),
  CHECK ((job IS NOT NULL) = (outcome IN ('enqueued', 'triggered')))
) {clustered};
