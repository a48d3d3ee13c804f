-- A dependency outlives its parent: what a deleted job was to its children stays as it was, so that no deletion
-- turns an unmet dependency into a met one.

CREATE TABLE lasting_dependencies (
  parent    BIGINT NOT NULL,                            -- the number of a job that may be deleted; never given out again
  parent_id {ascii} NOT NULL,                           -- names the parent when it is deleted
  child     BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
  condition TEXT NOT NULL CHECK (condition IN ('ok', 'fail', 'any')),  -- how the parent must end
  state     TEXT NOT NULL CHECK (state IN ('open', 'met', 'broken', 'void')),
  -- met: the parent has ended as it should; broken: it has not, and the child is cancelled for it until the parent is
  -- retried; void: the child was cancelled for its own sake, and that is final
  PRIMARY KEY (parent, child)
) {clustered};

INSERT INTO lasting_dependencies (parent, parent_id, child, condition, state)
SELECT parent, jobs.id, child, condition, dependencies.state FROM dependencies JOIN jobs ON jobs.seq = parent;

DROP TABLE dependencies;
ALTER TABLE lasting_dependencies RENAME TO dependencies;
CREATE INDEX dependencies_open ON dependencies (parent) WHERE state = 'open';
CREATE INDEX dependencies_child ON dependencies (child);
