-- What the end or the retry of a job means for others may be too much for one transaction: the rest is worked off in
-- steps, by any worker.

-- Jobs that have children which have not been told yet what became of them. Until then they cannot be deleted.
CREATE TABLE cascades (
  job BIGINT NOT NULL PRIMARY KEY REFERENCES jobs (seq)
) {clustered};

CREATE INDEX dependencies_broken ON dependencies (parent, condition) WHERE state = 'broken';

ALTER TABLE batches ADD COLUMN cancel_up_to BIGINT;                -- its waiting jobs up to this number are being cancelled
ALTER TABLE batches ADD COLUMN died INTEGER;                       -- how many were dead when that was decided
ALTER TABLE batches ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0; -- dead jobs that were deleted: they still count

CREATE INDEX batches_cancelled ON batches (name) WHERE cancel_up_to IS NOT NULL;
CREATE INDEX jobs_batch_dead ON jobs (batch) WHERE state = 'dead' AND batch IS NOT NULL;
CREATE INDEX jobs_batch_unfinished ON jobs (batch, seq) WHERE batch IS NOT NULL AND finished_at IS NULL;
