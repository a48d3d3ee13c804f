-- The firings of a removed schedule may be very many: they are deleted after it, in steps, not with it.
-- (A firing is written under the lock of its schedule.)

CREATE TABLE lasting_firings (
  schedule {ascii} NOT NULL,
  moment   BIGINT NOT NULL,
  n        INTEGER NOT NULL,                            -- 0 for those of the clock, more for those that people ask for
  at       BIGINT NOT NULL,
  outcome  TEXT NOT NULL CHECK (outcome IN ('enqueued', 'skipped', 'missed', 'triggered')),
  job      {ascii},                                     -- its id, if it has one
  reason   TEXT,
  PRIMARY KEY (schedule, moment, n),
  CHECK ((job IS NOT NULL) = (outcome IN ('enqueued', 'triggered')))
) {clustered};

INSERT INTO lasting_firings (schedule, moment, n, at, outcome, job, reason)
SELECT schedule, moment, n, at, outcome, job, reason FROM firings;

DROP TABLE firings;
ALTER TABLE lasting_firings RENAME TO firings;
