-- Jobs that belong together.
ALTER TABLE jobs ADD COLUMN batch {ascii};
CREATE INDEX jobs_batch ON jobs (batch, seq) WHERE batch IS NOT NULL;

-- The batches of which the rest is cancelled when so many of their jobs are dead.
CREATE TABLE batches (
  name      {ascii} PRIMARY KEY,
  max_fails INTEGER NOT NULL CHECK (max_fails > 0)
);
