-- Jobs that wait for other jobs.

-- How many of its dependencies are still open: it is blocked until there are none.
ALTER TABLE jobs ADD COLUMN unmet INTEGER NOT NULL DEFAULT 0;

CREATE TABLE dependencies (
  parent    BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
  child     BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
  condition TEXT NOT NULL CHECK (condition IN ('ok', 'fail', 'any')),  -- how the parent must end
  state     TEXT NOT NULL CHECK (state IN ('open', 'met', 'broken', 'void')),
  -- met: the parent has ended as it should; broken: it has not, and the child is cancelled for it until the parent is
  -- retried; void: somebody has cancelled the child, and that is final
  PRIMARY KEY (parent, child)
) {clustered};
CREATE INDEX dependencies_open ON dependencies (parent) WHERE state = 'open';
CREATE INDEX dependencies_child ON dependencies (child);
